"""Locks between processes, clocks of the machine, and the guard against use after a fork."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar

from streams.errors import Closed

_FLOCK_FORMAT = "hhqqi4x"
_forks = 0
_inherited: set[str] = set()


class WriteLock:
    """The one lock behind which all writes to a log happen: between processes by lockf, between threads by an RLock.

    lockf, because a flock would be inherited by forked children. The kernel drops a lockf when *any* descriptor of the
    file is closed in this process, so there is one object per process and path, counted by its users.
    """

    _open: ClassVar[dict[str, WriteLock]] = {}
    _guard: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: str) -> None:
        self._path = path
        self._users = 0
        self._depth = 0
        self._threads = threading.RLock()
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    @classmethod
    def acquire_handle(cls, path: Path) -> WriteLock:
        """The process's object for this file; pair it with ``release_handle``. Raises ``OSError``."""
        key = os.path.realpath(path)
        if key in _inherited:
            raise after_fork(key)
        with cls._guard:
            lock = cls._open.get(key)
            if lock is None:
                lock = cls._open[key] = cls(key)
            lock._users += 1
            return lock

    def release_handle(self) -> None:
        """One user less; the last one closes the file."""
        with WriteLock._guard:
            self._users -= 1
            if self._users == 0:
                os.close(self._fd)
                WriteLock._open.pop(self._path, None)

    def __enter__(self) -> WriteLock:
        self._threads.acquire()
        try:
            if self._depth == 0:
                _lockf(self._fd)
            self._depth += 1
        except BaseException:
            self._threads.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)
        self._threads.release()

    def holder_pid(self) -> int | None:
        """Process that holds the lock now, if it is another one; to name a stopped process that blocks all writers."""
        query = struct.pack(_FLOCK_FORMAT, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack(_FLOCK_FORMAT, fcntl.fcntl(self._fd, fcntl.F_GETLK, query))
        return None if kind == fcntl.F_UNLCK else pid


def _lockf(fd: int) -> None:
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX)
            return
        except OSError as error:
            # The kernel counts locks per process, so threads that use two logs can look like a deadlock to it.
            if error.errno != errno.EDEADLK:
                raise
            time.sleep(0.001)


def create_with_flock(path: Path) -> int:
    """Create a file and hold its flock: a sign of life that ends with the process. The descriptor, or ``OSError``."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        # Waits at most for one who is just looking (``flock_is_free``): nobody else can own a file made a moment ago.
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        os.close(fd)
        raise
    _flocks.add(fd)
    return fd


def drop_flock(fd: int) -> None:
    """Close a descriptor of ``create_with_flock``."""
    _flocks.discard(fd)
    os.close(fd)


def flock_is_free(path: Path) -> bool:
    """Whether nobody holds the file's flock, or the file is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        # Shared, so that two who look at once do not take each other for the owner.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(fd)


def boottime_s() -> float:
    """Seconds since the machine started, also while it slept; the same in all processes."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """Changes when the machine starts anew; empty where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def fork_count() -> int:
    """Changes in a forked child: an object that remembers it knows that it was inherited."""
    return _forks


def after_fork(where: str) -> Closed:
    """The error of a log that was open in the parent of this process."""
    return Closed(
        expected="a log that was opened in this process",
        got="one that a fork inherited",
        where=where,
        do="Start processes by 'spawn' (or subprocess), or open the log only after the fork.",
    )


_flocks: set[int] = set()


def _in_child() -> None:
    """A child must not hold its parent's flocks (they would outlive it), nor SQLite's inherited idea of its locks."""
    global _forks
    _forks += 1
    _inherited.update(WriteLock._open)
    WriteLock._open = {}
    WriteLock._guard = threading.Lock()
    for fd in _flocks:
        os.close(fd)
    _flocks.clear()


os.register_at_fork(after_in_child=_in_child)
