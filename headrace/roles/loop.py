"""The loop of every role: make workers for what is live, let them work until nothing moves, wait for the log.

Nothing here knows what a stage does; the roles do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from experiments.registry import Registry
from headrace import logs
from headrace.project import Project
from headrace.reporting import Reporter
from headrace.settings import Settings
from headrace.stopping import Stop
from streams.contracts import Clock, Log, Worker
from streams.errors import Fenced, HeadraceError

WAIT_S = 0.2
REPORT_S = 1.0
SAY_S = 10.0
RENEW_S = 1.0

logger = logs.get("role")


@dataclass(frozen=True, slots=True)
class Parts:
    """What every role works with."""

    project: Project
    settings: Settings
    log: Log
    registry: Registry
    clock: Clock
    reporter: Reporter
    stop: Stop


T = TypeVar("T")
SELDOM_S = 5.0


class Seldom(Generic[T]):
    """A value that costs something to find: found anew at most every five seconds."""

    def __init__(self, find: Callable[[], T]) -> None:
        self._find = find
        self._found: tuple[float, T] | None = None

    def __call__(self) -> T:
        """The value, at most five seconds old."""
        now_s = time.monotonic()
        if self._found is None or now_s >= self._found[0] + SELDOM_S:
            self._found = (now_s, self._find())
        return self._found[1]


class Role(Protocol):
    """One of ingest, preprocess, train."""

    @property
    def name(self) -> str:
        """As on the command line."""
        ...

    def wanted(self) -> Mapping[tuple[str, str], Made]:
        """Workers for what is live now."""

    def upkeep(self) -> None:
        """Called about once a second."""

    def over(self) -> bool:
        """Whether the role may end; asked when no worker found anything to do."""

    def wait(self, timeout_s: float) -> None:
        """Block until there may be something to do, or the time is over."""

    def waiting(self) -> str:
        """What it waits for, for people; empty if for nothing."""

    def drain(self) -> None:
        """Make durable what is done; the loop is over."""

    def report(self) -> dict[str, Any]:
        """For progress lines, metrics and readiness; JSON types. ``work``: whether anything is left to do. ``waits``: whether
        it is kept from it by something that is in order. ``trouble``: what is not, for people."""


@dataclass(frozen=True, slots=True)
class Made:
    """How to make a worker, and what it is made of: another ``content`` needs another worker."""

    content: object
    make: Callable[[], Worker]


@dataclass(slots=True)
class Workers:
    """The workers of a role, by what they do and for what: ``("reader", "ratings")``."""

    _running: dict[tuple[str, str], tuple[object, Worker]] = field(default_factory=dict)
    _not_before_s: dict[tuple[str, str], float] = field(default_factory=dict)

    def follow(self, wanted: Mapping[tuple[str, str], Made]) -> None:
        """Make those that are missing, close those that are not wanted or made of something else."""
        for key, (content, worker) in list(self._running.items()):
            if key not in wanted or wanted[key].content != content:
                del self._running[key]
                worker.close()
        for key, made in wanted.items():
            if key not in self._running and time.monotonic() >= self._not_before_s.get(key, 0.0):
                self._running[key] = (made.content, made.make())

    def step(self) -> bool:
        """Let each do some work. A worker that lost its right to write is closed, and made again a little later."""
        moved = False
        for key, (_, worker) in list(self._running.items()):
            try:
                moved = worker.step() or moved
            except HeadraceError as error:
                if not (isinstance(error, Fenced) or error.retriable):
                    raise
                logger.warning("begins again", worker=" ".join(key), why=str(error))
                worker.close()
                del self._running[key]
                self._not_before_s[key] = time.monotonic() + RENEW_S
        return moved

    def reports(self) -> dict[tuple[str, str], dict[str, object]]:
        """Of each."""
        return {key: worker.report() for key, (_, worker) in self._running.items()}

    def close(self) -> None:
        """Close all."""
        for _, worker in self._running.values():
            worker.close()
        self._running.clear()


def run_role(role: Role, parts: Parts, workers: Workers) -> int:
    """Run until the role is over or a signal came; the exit code.

    A service that is away costs time: errors that may pass are said, and the loop goes on.

    Signals are handled from here on: before, while libraries are imported, there is nothing to drain, and SIGTERM ends the
    process at once.
    """
    parts.stop.install()
    pulse = _Pulse(role, parts)
    turn = _Turn(role, parts, workers, pulse)
    try:
        while parts.stop.signal is None:
            if turn.over():
                break
        role.drain()
        pulse.last()
    finally:
        workers.close()
    return parts.stop.exit_code


@dataclass(slots=True)
class _Turn:
    """One round of the loop."""

    role: Role
    parts: Parts
    workers: Workers
    pulse: _Pulse
    _wanted: Mapping[tuple[str, str], Made] | None = None

    def over(self) -> bool:
        """Do it; whether the role has ended. What is away may come back: it is said, and waited for."""
        try:
            return self._done()
        except HeadraceError as error:
            if not error.retriable:
                raise
            self.pulse.trouble(error)
            time.sleep(RENEW_S)
            return False

    def _done(self) -> bool:
        """Look for news, let the workers work, wait if there was nothing to do."""
        if self.pulse.look_due():
            news = self.parts.registry.refresh()
            self._wanted = self.role.wanted() if news or self._wanted is None else self._wanted
            self.workers.follow(self._wanted)
        moved = self.workers.step()
        self.pulse.beat(moved)
        if moved:
            return False
        if self.role.over():
            return True
        self.role.wait(WAIT_S)
        return False


class _Pulse:
    """What a role does now and then: look for news, upkeep, reports, a line about what it waits for."""

    def __init__(self, role: Role, parts: Parts) -> None:
        self._role, self._parts = role, parts
        self._look_s = self._report_s = 0.0
        self._say_s = time.monotonic() + SAY_S
        self._trouble_s = 0.0
        self._moved = 0

    def look_due(self) -> bool:
        """Five times a second at most."""
        if time.monotonic() < self._look_s:
            return False
        self._look_s = time.monotonic() + WAIT_S
        return True

    def beat(self, moved: bool) -> None:
        """After each round of the loop."""
        self._moved += moved
        now_s = time.monotonic()
        if now_s >= self._report_s:
            self._report_s = now_s + REPORT_S
            self._role.upkeep()
            self._report()
        if moved:
            self._say_s = now_s + SAY_S
        elif now_s >= self._say_s:
            self._say_s = now_s + SAY_S
            if waiting := self._role.waiting():
                logger.info(f"waits {waiting}")

    def trouble(self, error: HeadraceError) -> None:
        """Say what is away, every ten seconds at most."""
        if time.monotonic() >= self._trouble_s:
            self._trouble_s = time.monotonic() + SAY_S
            logger.warning(f"waits for what is away: {error}")

    def last(self) -> None:
        """The last report, so that the end is seen."""
        self._report()

    def _report(self) -> None:
        self._parts.reporter.report({"role": self._role.name, "moved": self._moved, **self._role.report()})
        self._moved = 0
