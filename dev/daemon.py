"""One process of a service: started, stood still, killed, found again by a later command through its pid file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dev.errors import NotReady

STOP_S = 15.0
_PR_SET_PDEATHSIG = 1

Launch = Callable[[], None]
"""Runs in the child before the program begins."""


def lasting() -> None:
    """The process stays when its starter ends: for ``dev.services up``."""


def dies_with_starter() -> None:
    """The kernel kills the process when the thread that started it ends: for tests and benchmarks, also if they are killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Daemon:
    """A process with its log and its pid file in ``folder``.

    Args:
        name: of the files. command: with its arguments. launch: ``lasting`` or ``dies_with_starter``.
    """

    def __init__(self, name: str, command: Sequence[str], folder: Path, launch: Launch) -> None:
        self.name, self._command, self._launch = name, list(command), launch
        self.log = folder / f"{name}.log"
        self._pid_file = folder / f"{name}.pid"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Of the process, if it runs. A pid that another program has by now does not count."""
        if self._child and self._child.poll() is not None:
            self._child = None
        try:
            pid, began = self._pid_file.read_text().split()
        except (OSError, ValueError):
            return None
        return int(pid) if _began(int(pid)) == began else None

    def start(self, env: Mapping[str, str] | None = None) -> None:
        """Start it, if it does not run; does not wait until it is ready."""
        if self.pid is not None:
            return
        with self.log.open("ab") as out:
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=self._launch,
                env={**os.environ, **(env or {})},
            )
        self._pid_file.write_text(f"{self._child.pid} {_began(self._child.pid)}")

    def stop(self) -> None:
        """Ask it to end, kill it if it does not, wait."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if not self._gone(STOP_S):
            self.kill()
        self._pid_file.unlink(missing_ok=True)

    def kill(self) -> None:
        """kill −9, and wait."""
        self.signal(signal.SIGKILL)
        self._gone(STOP_S)

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP: connections stay, nothing answers. SIGCONT: it goes on. Nothing happens if it does not run."""
        if (pid := self.pid) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def wait(self, ready: Callable[[], bool], seconds: float) -> None:
        """Until ``ready``. Raises ``NotReady`` if it ends, or after the time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.pid is None:
                raise NotReady(f"{self.name} has ended; the last lines of {self.log}:\n{_tail(self.log)}")
            with contextlib.suppress(OSError):
                if ready():
                    return
            time.sleep(0.1)
        raise NotReady(
            f"{self.name} is not ready after {seconds:g} s; the last lines of {self.log}:\n{_tail(self.log)}"
        )

    def _gone(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.pid is None:
                if self._child:
                    self._child.wait()
                    self._child = None
                return True
            time.sleep(0.02)
        return False


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens at now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _began(pid: int) -> str | None:
    """When a living process began, in ticks since the machine began."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _tail(path: Path) -> str:
    return "\n".join(path.read_text(errors="replace").splitlines()[-8:]) if path.exists() else "(none)"
