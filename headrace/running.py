"""Puts a run together: one role in this process, or a tree of processes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from experiments.registry import Registry
from experiments.view import Version
from headrace import logs, runtime
from headrace.answering import Answering, Watched
from headrace.children import ChildSpec, this_program
from headrace.endings import Ending, Forever, UntilEnd, UntilIdle
from headrace.health import Health
from headrace.lock import RunLock
from headrace.look import Look
from headrace.progress import Display, SelfReporter, make_display
from headrace.project import Project, open_project_log
from headrace.reach import require_reachable
from headrace.reporting import PipeReporter, Reporter
from headrace.roles.loop import Parts, Role, Workers, run_role
from headrace.settings import Settings
from headrace.stopping import Stop
from headrace.supervisor import KILL_AFTER_S, Supervisor
from streams.clock import SystemClock
from streams.contracts import Log
from streams.errors import Usage

Until = Literal["forever", "idle", "end"]
SINCE = "HEADRACE_SINCE"
SAY_S = 10.0

logger = logs.get("run")


@dataclass(frozen=True, slots=True)
class Run:
    """What to run.

    Args:
        until: when it ends. since: see ``UntilIdle``. arguments: global options, for children. log_level: of ``--log-level``.
    """

    project: Project
    settings: Settings
    until: Until
    since: Mapping[str, int]
    arguments: tuple[str, ...]
    log_level: str | None


def run_single(run: Run, role: str, *, child: bool) -> int:
    """One role (ingest or preprocess) in this process; its exit code."""
    with _one_role(run, role, child=child) as (parts, look, ending):
        workers = Workers()
        made: Role
        if role == "ingest" and not child:
            require_reachable(look.live_feeds().values())
        if role == "ingest":
            from headrace.roles.ingest import IngestRole

            made = IngestRole(parts, look, ending, workers)
        else:
            from headrace.roles.preprocess import PreprocessRole

            made = PreprocessRole(parts, look, ending, workers)
        return run_role(made, parts, workers)


def run_trainer(run: Run, label: str) -> int:
    """The trainer of one version (``name.v1``), as a child."""
    with _one_role(run, f"train {label}", child=True) as (parts, look, ending):
        from headrace.roles.train import TrainRole

        version = next((v for v in parts.registry.live() if _label(v) == label), None)
        if version is None:  # retired while we started
            return 0
        made = TrainRole(parts, look, ending, version)
        try:
            return run_role(made, parts, Workers())
        finally:
            made.close()


def run_trainers(run: Run) -> int:
    """A trainer process for each live version, under this one; the exit code."""
    lock = RunLock(run.project.lock, "shared")
    lock.acquire()
    try:
        with _log_and_look(run) as (_, look):
            return _run_tree(run, look, (), lock, make_display())
    finally:
        lock.release()


def run_all(run: Run, display: Display) -> int:
    """Ingest, preprocess and a trainer for each live version, under this process; the exit code.

    Raises:
        Usage: another run holds the project, or the run shall end and nothing is published. ChildFailed.
        Unreachable: the files of a feed; later, while it runs, it would wait for them.
    """
    lock = RunLock(run.project.lock, "alone")
    lock.acquire()
    try:
        with _log_and_look(run) as (_, look):
            if run.until != "forever" and not look.registry.live():
                raise Usage(
                    expected="at least one live experiment",
                    got="nothing published",
                    where=str(run.project.root),
                    do="headrace publish experiments/*.yaml, then run again.",
                )
            require_reachable(look.live_feeds().values())
            return _run_tree(run, look, ("ingest", "preprocess"), lock, display)
    finally:
        lock.release()


def _run_tree(run: Run, look: Look, roles: Sequence[str], lock: RunLock, display: Display) -> int:
    environment = dict(os.environ)
    runtime.prepare(environment, threads=run.settings.train.threads)
    if roles and run.until == "idle":
        environment[SINCE] = ",".join(f"{name}={end}" for name, end in look.floor_ends().items())
    flags = {"forever": (), "idle": ("--until-idle",), "end": ("--until-end",)}[run.until]
    prefix = [*this_program(), "-C", str(run.project.root), *run.arguments, "run"]

    reminder, health = Reminder(), Health()
    pages = Answering(run.settings.http, health, run.project.answering, "all" if roles else "train")
    marker = _marker(lock)

    def stopping() -> None:
        health.stopping()
        marker()

    def wanted() -> list[ChildSpec]:
        look.registry.refresh()
        specs = [ChildSpec(role, (role, *flags)) for role in roles]
        trainers = [_label(version) for version in look.registry.live()]
        if not trainers:
            reminder.say("waits for an experiment to be published: headrace publish experiments/NAME.yaml")
        specs += [ChildSpec(f"train {label}", ("train", "--only", label, *flags)) for label in trainers]
        health.expect(spec.name for spec in specs)
        return specs

    stop = Stop(deadline_s=KILL_AFTER_S + 5.0)
    stop.install()
    watched = Watched(display, health)
    supervisor = Supervisor(prefix, environment, wanted, watched, forever=run.until == "forever")
    try:
        pages.start()
        supervisor.run(stop, on_stopping=stopping)
    finally:
        pages.close()
        display.close()
    return stop.exit_code


class Reminder:
    """Says the same thing at most every ten seconds."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def say(self, text: str) -> None:
        """Say it, if it is time."""
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + SAY_S
            logger.info(text)


def _marker(lock: RunLock) -> Callable[[], None]:
    return (lambda: lock.mark("stopping")) if lock.mode == "alone" else (lambda: None)


def _label(version: Version) -> str:
    return f"{version.name}.v{version.number}"


@contextmanager
def _log_and_look(run: Run) -> Iterator[tuple[Log, Look]]:
    logs.configure(run.settings.logs, role="supervisor", level=run.log_level)
    log = open_project_log(run.project, run.settings, create=True)
    try:
        registry = Registry(log)
        registry.refresh()
        yield log, Look(log, registry)
    finally:
        log.close()


@contextmanager
def _one_role(run: Run, name: str, *, child: bool) -> Iterator[tuple[Parts, Look, Ending]]:
    """Everything a role in this process needs. A child's lock is its supervisor's."""
    runtime.prepare(os.environ, threads=run.settings.train.threads)
    logs.configure(run.settings.logs, role=name, level=run.log_level)
    lock = None if child else RunLock(run.project.lock, "shared")
    if lock:
        lock.acquire()
    health = Health()
    health.expect([name])
    pages = None if child else Answering(run.settings.http, health, run.project.answering, name)
    display = None if child else Watched(make_display(), health)
    log = open_project_log(run.project, run.settings, create=True)
    try:
        registry = Registry(log)
        registry.refresh()
        if pages:
            pages.start()
        reporter: Reporter = PipeReporter() if display is None else SelfReporter(display, name)
        parts = Parts(run.project, run.settings, log, registry, SystemClock(), reporter, Stop())
        look = Look(log, registry)
        yield parts, look, make_ending(run, look)
    finally:
        log.close()
        if pages:
            pages.close()
        if display:
            display.close()
        if lock:
            lock.release()


def make_ending(run: Run, look: Look) -> Ending:
    """The ending that was asked for."""
    if run.until == "forever":
        return Forever()
    return UntilEnd(look) if run.until == "end" else UntilIdle(look, run.since)


def since_from(environment: Mapping[str, str]) -> dict[str, int]:
    """What ``run all`` told its children about the moment it began."""
    pairs = (item.rpartition("=") for item in environment.get(SINCE, "").split(",") if item)
    return {name: int(end) for name, _, end in pairs}


def result_of(run: Run, began_s: float) -> dict[str, Any]:
    """The result object (see ``headrace.result``) of a run that is over."""
    from headrace.result import compose

    with _log_and_look(run) as (_, look):
        return compose(look, run.project) | {"seconds": round(time.monotonic() - began_s, 3)}
