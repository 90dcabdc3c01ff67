"""Waking readers without spinning: a file that writers touch, watched by inotify."""

from __future__ import annotations

import ctypes
import os
import select
import threading
import time
from pathlib import Path

LOOK_S = 0.1
"""Readers look this often whatever happens: a writer may die between its commit and the bell."""

POLL_S = 0.01
"""Where inotify is missing."""

_IN_MODIFY = 0x2
_EVENTS_BYTES = 4096


class Bell:
    """One per open log. ``ring`` after a commit; ``wait`` between two looks.

    Take a ticket *before* looking at the log, else a ring between the look and the wait is lost to another thread.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._events = _watch(path)
        self._poller = select.poll()
        if self._events is not None:
            self._poller.register(self._events, select.POLLIN)
        self._condition = threading.Condition()
        self._rings = 0
        self._listening = False

    def ring(self) -> None:
        """Wake all who wait, in all processes."""
        os.pwrite(self._fd, b"!", 0)

    def ticket(self) -> int:
        """How often it rang, as far as this process has heard."""
        return self._rings

    def wait(self, ticket: int, timeout_s: float) -> None:
        """Return when it rang after ``ticket``, after at most ``LOOK_S``, or for no reason at all."""
        timeout_s = min(timeout_s, LOOK_S)
        if timeout_s <= 0:
            return
        if self._events is None:
            time.sleep(min(timeout_s, POLL_S))
            return
        with self._condition:
            if self._rings != ticket:
                return
            if self._listening:
                self._condition.wait(timeout_s)
                return
            self._listening = True
        heard = False
        try:
            heard = self._listen(self._events, timeout_s)
        finally:
            with self._condition:
                self._listening = False
                self._rings += heard
                self._condition.notify_all()

    def close(self) -> None:
        """Release the descriptors."""
        os.close(self._fd)
        if self._events is not None:
            os.close(self._events)

    def _listen(self, events: int, timeout_s: float) -> bool:
        if not self._poller.poll(timeout_s * 1000):
            return False
        try:
            os.read(events, _EVENTS_BYTES)
        except BlockingIOError:
            return False
        return True


def _watch(path: Path) -> int | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    except (AttributeError, OSError):
        return None
    if fd < 0:
        return None
    if libc.inotify_add_watch(fd, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(fd)
        return None
    return fd
