"""The whole chain in one process, turn by turn, with the workers that the roles make."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.loading import load_experiment, load_feeds
from experiments.publishing import publish
from experiments.registry import Registry
from headrace.endings import Ending
from headrace.look import Look
from headrace.project import Project
from headrace.roles.ingest import IngestRole
from headrace.roles.loop import Parts, Workers
from headrace.roles.preprocess import PreprocessRole
from headrace.settings import load_settings
from headrace.stopping import Stop
from streams.clock import SettableClock
from streams.contracts import Log
from streams.embedded.log import open_log

ROWS = """
feed: rows
files: {url: data, match: "*.csv", order: in_order}
format: {delimited: {sep: ","}}
columns: {user: int64, price: float32, time: int64, label: int64}
event_time: {column: time, unit: s}
key: [user]
partitions: 2
cuts: {rows: 64, every: off}
settle: 2s
"""
USERS = """
feed: users
files: {url: users, match: "*.csv"}
format: {delimited: {sep: ","}}
columns: {user: int64, age: int64}
snapshot: true
key: [user]
"""
EXPERIMENT = """
experiment: NAME
sample: rows
labels: {label: {column: label}}
lookups: {user: {feed: users, on: user}}
features:
  user: {id: user}
  age: {id: user.age}
  price: {dense: price}
model: lr
train: {batch_rows: 16, checkpoint_every: 100 steps}
"""


class Collector:
    """A reporter that keeps the newest report."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}

    def report(self, report: dict[str, Any]) -> None:
        self.last = report


class Chain:
    """A project with its log; ``turn`` lets every worker of ingest and preprocess do some work."""

    def __init__(self, root: Path, log: Log) -> None:
        self.project = Project(root)
        self.clock = SettableClock()
        self.log = log
        self.registry = Registry(log)
        self.look = Look(log, self.registry)
        settings = load_settings(None, environment={})
        self.parts = Parts(self.project, settings, log, self.registry, self.clock, Collector(), Stop())
        self.ingest, self.preprocess = Workers(), Workers()

    def rows(self, file: str, first: int, count: int) -> None:
        """Write a file of the sample, old enough to be listed."""
        lines = ["user,price,time,label"]
        lines += [f"{i % 7},{i % 5},{1_600_000_000 + i},{i % 2}" for i in range(first, first + count)]
        self._file(f"data/{file}", lines)

    def users(self, count: int) -> None:
        """Write the side table."""
        self._file("users/users.csv", ["user,age", *(f"{i},{20 + i}" for i in range(count))])

    def publish(self, *names: str) -> None:
        """Publish one experiment a name."""
        feeds = load_feeds(self.project.feeds)
        for name in names:
            (self.project.experiments / f"{name}.yaml").write_text(EXPERIMENT.replace("NAME", name))
        specs = [load_experiment(self.project.experiments / f"{name}.yaml", feeds) for name in names]
        publish(self.log, specs, feeds, now_us=self.clock.wall_us())
        self.registry.refresh()

    def turn(self, ending: Ending, *, stages: tuple[str, ...] = ("ingest", "preprocess")) -> bool:
        """One round; time goes on where nothing moved."""
        moved = False
        if "ingest" in stages:
            self.ingest.follow(IngestRole(self.parts, self.look, ending, self.ingest).wanted())
            moved = self.ingest.step()
        if "preprocess" in stages:
            self.preprocess.follow(PreprocessRole(self.parts, self.look, ending, self.preprocess).wanted())
            moved = self.preprocess.step() or moved
        if not moved:
            self.clock.advance(1.1)
        return moved

    def close(self) -> None:
        """Release."""
        self.ingest.close()
        self.preprocess.close()

    def _file(self, path: str, lines: list[str]) -> None:
        target = self.project.root / path
        target.write_text("\n".join(lines) + "\n")
        old_s = self.clock.wall_us() / 1e6 - 60
        os.utime(target, (old_s, old_s))


@contextmanager
def chain_in(root: Path) -> Iterator[Chain]:
    """A project folder with feeds, nothing published, no data."""
    for folder in ("feeds", "experiments", "data", "users"):
        (root / folder).mkdir(parents=True)
    (root / "headrace.yaml").write_text("# nothing\n")
    (root / "feeds/rows.yaml").write_text(ROWS)
    (root / "feeds/users.yaml").write_text(USERS)
    log = open_log(root / ".headrace" / "log")
    chain = Chain(root, log)
    try:
        yield chain
    finally:
        chain.close()
        log.close()
