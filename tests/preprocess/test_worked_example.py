"""The worked example of ``docs/concepts.md``, run: what it says is what happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments import names
from experiments.experiment import Experiment
from experiments.feed import Feed
from experiments.publishing import version_topics, view_topics
from experiments.view import Version, view_of
from ingest.contracts import Config as IngestConfig
from preprocess.contracts import JOINED, Config, joined_schema
from preprocess.featurize.worker import FeaturizeWorker
from preprocess.join.worker import JoinWorker
from streams.clock import SettableClock
from streams.contracts import Log, Worker
from streams.packed import Limits, kind_of, read_control, unpack
from streams.tail import read_to_end
from tests.ingest.world import Ingest, late_rows, write
from tests.preprocess.featurize.stream import batches

PAGE = Path(__file__).parents[2] / "docs/concepts.md"
DAY_US = 1_682_899_200_000_000  # 2023-05-01


def clock(us: int) -> str:
    """Time of day as the page writes it."""
    minutes, seconds = divmod((us - DAY_US) // 1_000_000, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def drain(worker: Worker) -> None:
    while worker.step():
        pass


class Example:
    """The pipeline of the page."""

    def __init__(self, log: Log, folder: Path) -> None:
        self.log, self.folder = log, folder
        feed = Feed.model_validate(
            {
                "feed": "clicks", "files": {"url": str(folder), "order": "in_order"}, "format": "delimited",
                "columns": {"user": "int64", "clicked": "int64", "time": "timestamp"}, "settle": "0s",
                "event_time": {"column": "time", "zone": "UTC"}, "key": ["user"], "partitions": 2,
                "cuts": {"rows": 2, "every": "1m"}, "disorder": "10s", "file_disorder": "10s",
            }
        )  # fmt: skip
        experiment = Experiment.model_validate(
            {
                "experiment": "ctr", "sample": "clicks", "labels": {"click": {"column": "clicked"}},
                "features": {"user": {"id": "user"}}, "model": "lr", "train": {"batch_rows": 4},
            }
        )  # fmt: skip
        self.version = Version(experiment, view_of(experiment, {"clicks": feed}), 1, "live", "", (0, 0), None, 0)
        self.ingest = Ingest(log, feed, IngestConfig(listing_s=0.0))
        for spec in (*view_topics(self.version.view), *version_topics(self.version)):
            log.create_topic(spec)
        self.join = JoinWorker(log, self.version.view, Config(), clock=SettableClock())
        self.featurize = FeaturizeWorker(log, self.version, Config(), clock=SettableClock())

    def add(self, name: str) -> None:
        """A file as the page shows it."""
        text = PAGE.read_text(encoding="utf-8")
        (body,) = re.findall(rf"`{name}`:?\n```\n(.*?)```", text, re.DOTALL)
        rows = [line.split() for line in body.splitlines()[1:]]
        lines = [f"{user},{clicked},2023-05-01T{time}" for time, user, clicked, *_ in rows]
        write(self.folder / name, "\n".join(["user,clicked,time", *lines]) + "\n")
        self.ingest.settle()
        self.work()

    def work(self) -> None:
        drain(self.join)
        drain(self.featurize)

    def bound(self, topic: str, partition: int) -> str:
        found = [read_control(record) for record in read_to_end(self.log, topic, partition)]
        return clock(max(named[1] for named in found if named))

    def joined(self) -> list[list[list[str]]]:
        """Times of each message of each partition."""
        view = self.version.view
        return [
            [
                [
                    clock(us)
                    for us in unpack(r, kind=JOINED, schema=joined_schema(view), limits=Limits())["__time"].to_pylist()
                ]
                for r in read_to_end(self.log, names.joined(view.name), p)
                if kind_of(r) == JOINED
            ]
            for p in (0, 1)
        ]

    def local_batches(self) -> list[list[tuple[str, int, list[str]]]]:
        """(bucket, j, times) of each local batch of each partition."""
        minute = 60_000_000
        return [
            [
                (clock(b.bucket * minute), b.number, [clock(us) for us in b.times_B.tolist()])
                for b in batches(self.log, self.version, p)
            ]
            for p in (0, 1)
        ]


@pytest.fixture
def example(log: Log, tmp_path: Path) -> Example:
    return Example(log, tmp_path / "clicks")


def test_it_happens_as_the_page_says(example: Example) -> None:
    log, raw, joined = example.log, names.raw("clicks"), names.joined(example.version.view.name)
    example.add("a.csv")
    assert late_rows(log, example.ingest.feed) == [("a.csv", 3)]
    assert [example.bound(raw, p) for p in (0, 1)] == ["10:00:30", "10:00:30"]
    assert example.joined() == [[], []]
    assert [example.bound(joined, p) for p in (0, 1)] == ["10:00:10", "10:00:30"]
    example.add("b.csv")
    assert [example.bound(raw, p) for p in (0, 1)] == ["10:01:00", "10:01:00"]
    assert example.joined() == [[["10:00:10", "10:00:35"], ["10:00:50"]], [["10:00:40"]]]
    assert [example.bound(joined, p) for p in (0, 1)] == ["10:01:00", "10:01:00"]
    first = [
        [("10:00:00", 0, ["10:00:10", "10:00:35"]), ("10:00:00", 1, ["10:00:50"])],
        [("10:00:00", 0, ["10:00:40"])],
    ]
    assert example.local_batches() == first
    example.ingest.finish()
    example.work()
    assert example.local_batches() == [
        [*first[0], ("10:01:00", 0, ["10:01:05"])],
        [*first[1], ("10:01:00", 0, ["10:01:10"])],
    ]
