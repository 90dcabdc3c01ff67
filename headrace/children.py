"""One child process of a supervisor: how it is started, watched, and started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace.reporting import PipeReporter
from streams.errors import HeadraceError

FIRST_DELAY_S, LAST_DELAY_S = 0.1, 5.0
MOST_FAILURES, FAILURES_WITHIN_S = 20, 600.0
"""Ends with exit code 1 after which another start is not tried. Longer than an outage of a service, which costs time only."""

MAX_LINE_BYTES = 1024 * 1024
KILL_AT = "HEADRACE_KILL_AT"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What a child shall do. Args: name: shown to people. args: command line behind the global options."""

    name: str
    args: tuple[str, ...]


@dataclass(slots=True)
class Lines:
    """Puts what comes from a pipe together to lines."""

    _rest: bytes = b""

    def feed(self, data: bytes) -> list[str]:
        """Complete lines; at the end of the pipe (``b""``) the rest too."""
        parts = (self._rest + data).split(b"\n")
        self._rest = parts.pop() if data else b""
        if len(self._rest) > MAX_LINE_BYTES:
            parts.append(self._rest)
            self._rest = b""
        return [part.decode("utf-8", "replace") for part in parts if part]


@dataclass(slots=True)
class Child:
    """A process, or the wait for its next start.

    Args:
        prefix: command line up to the global options. environment: of the process.
    """

    spec: ChildSpec
    prefix: Sequence[str]
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    progressed: bool = False
    error: dict[str, Any] | None = None
    dismissed_s: float | None = None
    asked: bool = False
    _failures_s: list[float] = field(default_factory=list)
    _delay_s: float = FIRST_DELAY_S
    _next_start_s: float = 0.0
    _lines: dict[int, Lines] = field(default_factory=dict)

    @property
    def pid(self) -> int | None:
        """Of the running process."""
        return self.process.pid if self.process else None

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, in a session of its own: Ctrl-C reaches the supervisor alone, which then drains the children.

        Its stdin is the pipe that tells it that we live, its stdout carries reports, its stderr text for people.
        """
        command = [*self.prefix, *self.spec.args, "--child", str(os.getpid())]
        environment = dict(self.environment)
        if self.starts:
            environment.pop(KILL_AT, None)  # a test's order to die at a step holds for the first start
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.starts += 1
        self.progressed = False
        self.error = None
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._lines[pipe.fileno()] = Lines()
        return self.process

    def due(self) -> bool:
        """Whether it should be started now."""
        return self.process is None and time.monotonic() >= self._next_start_s

    def read(self, fd: int, on_report: Callable[[dict[str, Any]], None], on_text: Callable[[str], None]) -> bool:
        """Handle what lies in one of its pipes. ``False`` at its end."""
        assert self.process is not None
        assert self.process.stdout is not None
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        for line in self._lines[fd].feed(data):
            if fd == self.process.stdout.fileno():
                self._take_report(line, on_report)
            else:
                on_text(line)
        return bool(data)

    def ended(self) -> None:
        """It is gone: forget it, and wait longer with each start that came to nothing."""
        assert self.process is not None
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        self.process = None
        self._lines.clear()
        self._next_start_s = time.monotonic() + self._delay_s
        self._delay_s = min(2 * self._delay_s, LAST_DELAY_S)

    def failed(self) -> bool:
        """It ended with exit code 1. Whether that was too often: whatever it is, another start does not cure it."""
        now_s = time.monotonic()
        self._failures_s = [at for at in self._failures_s if at > now_s - FAILURES_WITHIN_S] + [now_s]
        return len(self._failures_s) >= MOST_FAILURES

    def _take_report(self, line: str, on_report: Callable[[dict[str, Any]], None]) -> None:
        try:
            report = json.loads(line)
        except ValueError:
            return  # a library printed something
        if not isinstance(report, dict):
            return
        if isinstance(report.get("error"), dict):
            self.error = report["error"]
            return
        if report.get("moved"):
            self._delay_s = FIRST_DELAY_S
        on_report(report)


def report_failure(error: HeadraceError) -> None:
    """In a child: tell the supervisor why it ends."""
    PipeReporter().report({"error": error.as_dict()})


def this_program() -> list[str]:
    """How to start headrace again."""
    return [sys.executable, "-P", "-m", "headrace"]
