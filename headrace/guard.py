"""A child dies with its parent: the kernel's parent-death signal, and a pipe as second guard (it also works when the
parent's thread outlives its process table entry, or the signal was reset)."""

from __future__ import annotations

import ctypes
import os
import signal
import threading

PR_SET_PDEATHSIG = 1
STDIN = 0


def die_with(parent_pid: int) -> None:
    """To be called first thing in a child whose standard input is a pipe that only the parent holds open."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent_pid:  # it died before the signal was set
        os._exit(1)
    threading.Thread(target=_wait_for_the_end, name="parent-guard", daemon=True).start()


def _wait_for_the_end() -> None:
    while os.read(STDIN, 4096):
        pass
    os._exit(1)
