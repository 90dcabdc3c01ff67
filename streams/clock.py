"""The machine's clock, and one that tests set."""

from __future__ import annotations

import time


class SystemClock:
    """``Clock`` of the machine."""

    def wall_us(self) -> int:
        """Microseconds since 1970 UTC."""
        return time.time_ns() // 1000

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary moment; never goes back."""
        return time.monotonic()


class SettableClock:
    """``Clock`` that stands still until told otherwise."""

    def __init__(self, wall_us: int = 1_700_000_000_000_000) -> None:
        self._wall_us = wall_us
        self._monotonic_s = 0.0

    def wall_us(self) -> int:
        """Microseconds since 1970 UTC."""
        return self._wall_us

    def monotonic_s(self) -> float:
        """Seconds advanced so far."""
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        """Both clocks go on."""
        self._wall_us += int(seconds * 1e6)
        self._monotonic_s += seconds

    def set_wall_us(self, wall_us: int) -> None:
        """Set the wall clock, also backwards."""
        self._wall_us = wall_us
