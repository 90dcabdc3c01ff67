"""A tree of processes: starts children, starts them again when they die, ends when they have ended.

Death by a signal is never permanent. Exit codes 2 to 5 end the tree, since a child cannot do better next time, and so does exit
code 1 that comes again and again. Exit code 3 (unreachable) of a child that has worked before counts as 1: what is away may
come back.
"""

from __future__ import annotations

import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from headrace import logs
from headrace.children import FAILURES_WITHIN_S, Child, ChildSpec
from headrace.stopping import DRAIN_S, Stop
from streams.errors import EXIT_INCOMPATIBLE, EXIT_UNREACHABLE, EXIT_USAGE, EXIT_WORK_FAILED, HeadraceError

TICK_S = 0.1
TROUBLE_S = 5.0
KILL_AFTER_S = DRAIN_S + 1.0

logger = logs.get("supervisor")


class ChildFailed(HeadraceError):
    """A child ended with an error that another start cannot cure."""

    def __init__(self, name: str, code: int, error: Mapping[str, Any] | None) -> None:
        body = error or {}
        super().__init__(
            expected=str(body.get("expected", f"the process {name} to run")),
            got=str(body.get("got", f"exit code {code}")),
            where=str(body.get("where", name)),
            do=str(body.get("do", "See its messages above.")),
        )
        self.exit_code = code if code <= EXIT_INCOMPATIBLE else EXIT_WORK_FAILED


class Watcher(Protocol):
    """Sees what children say."""

    def report(self, child: str, report: dict[str, Any]) -> None:
        """A report of a child."""

    def text(self, child: str, line: str) -> None:
        """A line that a child wrote to stderr."""

    def tick(self) -> None:
        """Called about ten times a second."""


class Supervisor:
    """Runs what ``wanted`` names.

    Args:
        prefix: command line up to a child's own arguments. environment: of the children.
        wanted: children that shall run now; called about twice a second. A running child that is no longer wanted is
            asked to stop; one that ended with 0 is started again only if ``forever``.
        forever: whether children never end by themselves.
    """

    def __init__(
        self,
        prefix: Sequence[str],
        environment: Mapping[str, str],
        wanted: Callable[[], Sequence[ChildSpec]],
        watcher: Watcher,
        *,
        forever: bool,
    ) -> None:
        self._prefix, self._environment = prefix, environment
        self._wanted, self._watcher, self._forever = wanted, watcher, forever
        self._children: dict[str, Child] = {}
        self._done: set[str] = set()
        self._selector = selectors.DefaultSelector()
        self._look_s = 0.0

    def run(self, stop: Stop, *, on_stopping: Callable[[], None]) -> None:
        """Until all children have ended, or ``stop``. Raises ``ChildFailed``."""
        try:
            while stop.signal is None:
                self._follow_wanted()
                if self._children and self._done >= set(self._children):
                    return
                self._start_due()
                self._attend(TICK_S)
            logger.info("stopping", signal=signal.Signals(stop.signal).name)
        finally:
            on_stopping()
            self._end_all()
            self._selector.close()

    def _follow_wanted(self) -> None:
        if time.monotonic() < self._look_s:
            return
        self._look_s = time.monotonic() + 0.5
        try:
            wanted = {spec.name: spec for spec in self._wanted()}
        except HeadraceError as error:  # a log that is away: what runs goes on
            if not (error.retriable and self._children):
                raise
            self._look_s = time.monotonic() + TROUBLE_S
            logger.warning(f"cannot look for news: {error}")
            return
        fresh = wanted.keys() - self._children.keys()
        if fresh and self._children:
            self._done.clear()  # there is work again for those that had ended
        for name in sorted(fresh):
            self._children[name] = Child(wanted[name], self._prefix, self._environment)
        for name in self._children.keys() - wanted.keys():
            self._dismiss(name, self._children[name])

    def _dismiss(self, name: str, child: Child) -> None:
        """It is not wanted any more. It notices by itself; one that does not is asked once."""
        if child.process is None:
            del self._children[name]
            self._done.discard(name)
        elif child.dismissed_s is None:
            child.dismissed_s = time.monotonic()
        elif time.monotonic() > child.dismissed_s + DRAIN_S and not child.asked:
            child.asked = True
            child.process.terminate()

    def _start_due(self) -> None:
        for name, child in self._children.items():
            if name in self._done or not child.due():
                continue
            process = child.start()
            for pipe in (process.stdout, process.stderr):
                assert pipe is not None
                self._selector.register(pipe, selectors.EVENT_READ, child)
            logger.info("started" if child.starts == 1 else "started again", child=name, pid=process.pid)

    def _attend(self, timeout_s: float) -> None:
        """Read what comes, and notice who ended."""
        for key, _ in self._selector.select(timeout_s):
            if not self._read(key.data, key.fd):
                self._selector.unregister(key.fileobj)
        for name, child in list(self._children.items()):
            if child.process is not None and child.process.poll() is not None:
                self._ended(name, child, child.process)
        self._watcher.tick()

    def _read(self, child: Child, fd: int) -> bool:
        name = child.spec.name
        return child.read(fd, lambda report: self._report(child, report), lambda line: self._watcher.text(name, line))

    def _report(self, child: Child, report: dict[str, Any]) -> None:
        if report.get("moved") and not child.progressed:
            child.progressed = True
            logger.debug("first progress", child=child.spec.name, pid=child.pid)
        self._watcher.report(child.spec.name, report)

    def _ended(self, name: str, child: Child, process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            if pipe in self._selector.get_map():
                while self._read(child, pipe.fileno()) and self._more(pipe.fileno()):
                    pass
                self._selector.unregister(pipe)
        error, code = child.error, process.returncode
        child.ended()
        self._look_s = 0.0  # it may have ended because it is not wanted any more
        passing = code == EXIT_WORK_FAILED or (code == EXIT_UNREACHABLE and child.reported)
        if EXIT_USAGE <= code <= EXIT_INCOMPATIBLE and not passing:
            raise ChildFailed(name, code, error)
        if code > 0 and child.failed():
            logger.error(
                f"ended with exit code {code} too often within {FAILURES_WITHIN_S:g} s; it is not started again",
                child=name,
            )
            raise ChildFailed(name, code, error)
        if code == 0 and not self._forever:
            self._done.add(name)
        if code == 0 and (not self._forever or child.dismissed_s is not None):
            return
        how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
        logger.warning(f"ended {how}; it is started again", child=name)

    @staticmethod
    def _more(fd: int) -> bool:
        """Whether a pipe of a dead process still holds something; a grandchild may keep it open for ever."""
        with selectors.DefaultSelector() as selector:
            selector.register(fd, selectors.EVENT_READ)
            return bool(selector.select(0))

    def _end_all(self) -> None:
        running = [child.process for child in self._children.values() if child.process is not None]
        for process in running:
            process.terminate()
        deadline_s = time.monotonic() + KILL_AFTER_S
        while time.monotonic() < deadline_s and any(process.poll() is None for process in running):
            for key, _ in self._selector.select(TICK_S):
                if not self._read(key.data, key.fd):
                    self._selector.unregister(key.fileobj)
        for process in running:
            if process.poll() is None:
                process.kill()
        for child in self._children.values():
            if child.process is not None:
                child.process.wait()
                self._forget(child)

    def _forget(self, child: Child) -> None:
        assert child.process is not None
        for pipe in (child.process.stdout, child.process.stderr):
            assert pipe is not None
            if pipe in self._selector.get_map():
                self._selector.unregister(pipe)
        child.ended()
