"""Signals: the first SIGTERM or SIGINT asks to drain, the second stops at once; draining has a deadline."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType

DRAIN_S = 10.0
EXIT_BASE = 128


class Stop:
    """Whether this process was asked to stop."""

    def __init__(self, *, deadline_s: float = DRAIN_S) -> None:
        self.signal: int | None = None
        self.again = False
        self._deadline_s = deadline_s

    def install(self) -> None:
        """Handle SIGTERM and SIGINT from now on; main thread only. The second one ends the process."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    @property
    def exit_code(self) -> int:
        """130 after SIGINT, 143 after SIGTERM, else 0."""
        return EXIT_BASE + self.signal if self.signal is not None else 0

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.signal is None:
            self.signal = number
            threading.Thread(target=self._enforce, name="drain-deadline", daemon=True).start()
            return
        self.again = True
        os._exit(self.exit_code)

    def _enforce(self) -> None:
        time.sleep(self._deadline_s)
        os._exit(self.exit_code)
