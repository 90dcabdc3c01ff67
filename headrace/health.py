"""Whether a run lives and whether it gets on, from what its roles report."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

FRESH_S = 15.0
"""A role reports about once a second; one that has said nothing for so long is not ready."""
PATIENCE_S = 60.0
"""A role that has work, and nothing to wait for, moves within this time, or it is not ready."""
DEAD_S = 600.0
"""A role that has said nothing for so long hangs. Long: a first start compiles, and a large checkpoint is one step."""


@dataclass(slots=True)
class _Seen:
    """What is known of a role: times are of the clock."""

    since_s: float
    report: dict[str, Any] = field(default_factory=dict)
    reported_s: float | None = None
    moved_s: float = 0.0


class Health:
    """Keeps the newest report of each role. Thread safe.

    Args:
        clock: seconds that only rise.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}
        self._stopping = False

    def expect(self, roles: Iterable[str]) -> None:
        """These roles shall run; others are forgotten."""
        now_s, wanted = self._clock(), list(roles)
        with self._lock:
            self._seen = {name: self._seen.get(name) or _Seen(now_s, moved_s=now_s) for name in wanted}

    def take(self, role: str, report: dict[str, Any]) -> None:
        """A report; one of a role that is not expected is dropped."""
        with self._lock:
            seen = self._seen.get(role)
            if seen is None:
                return
            seen.report, seen.reported_s = report, self._clock()
            if report.get("moved") or not report.get("work") or report.get("waits"):
                seen.moved_s = seen.reported_s

    def stopping(self) -> None:
        """From now on it is not ready."""
        self._stopping = True

    def reports(self) -> dict[str, dict[str, Any]]:
        """The newest of each role that has reported."""
        with self._lock:
            return {name: seen.report for name, seen in self._seen.items() if seen.reported_s is not None}

    def alive(self) -> dict[str, str]:
        """By role that hangs: why. Empty: all is well."""
        now_s = self._clock()
        with self._lock:
            last = {name: seen.reported_s or seen.since_s for name, seen in self._seen.items()}
        return {name: _silent(now_s - then_s) for name, then_s in last.items() if now_s - then_s > DEAD_S}

    def ready(self) -> dict[str, str]:
        """By role that does not get on: why. Empty: all do, or have nothing to do."""
        if self._stopping:
            return {"run": "it is stopping"}
        now_s, found = self._clock(), {}
        with self._lock:
            for name, seen in self._seen.items():
                if seen.reported_s is None:
                    found[name] = "it has not begun"
                elif now_s - seen.reported_s > FRESH_S:
                    found[name] = _silent(now_s - seen.reported_s)
                elif now_s - seen.moved_s > PATIENCE_S:
                    trouble = seen.report.get("trouble")
                    found[name] = f"no progress for {now_s - seen.moved_s:.0f} s" + (f": {trouble}" if trouble else "")
        return found


def _silent(seconds: float) -> str:
    return f"no report for {seconds:.0f} s"
