"""Folders of files, planners and readers on the real log, and what must come out, computed plainly."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments import names
from experiments.feed import Feed
from experiments.publishing import feed_topics
from ingest.contracts import ROWS, T_MIN, Config, Downstream, raw_schema
from ingest.errors import FileRejected
from ingest.formats.build import format_of
from ingest.formats.reading import Format, Part, Range, Start
from ingest.planner import Planner
from ingest.reader import Reader
from ingest.records import Split
from ingest.sources import Folder, FoundFile
from streams.clock import SettableClock
from streams.contracts import Log
from streams.dead_letters import DeadLetter, unpack_letters
from streams.packed import Limits, lineage_of, read_control, unpack
from streams.tail import read_to_end

OLD_S = 1_600_000_000


def feed_of(folder: Path, columns: dict[str, Any], **more: Any) -> Feed:
    """A CSV feed ``f`` with event time ``t`` in seconds and key ``k`` unless said otherwise."""
    base: dict[str, Any] = {
        "feed": "f",
        "files": {"url": str(folder), "match": "*"},
        "format": {"delimited": {}},
        "columns": columns,
        "event_time": {"column": "t", "unit": "s", "zone": "UTC"},
        "key": ["k"],
        "partitions": 2,
        "min_time": "1970-01-01",
        "settle": "0s",
    }
    if more.get("snapshot"):
        del base["event_time"]
    return Feed.model_validate(base | more)


def write(path: Path, data: bytes | str) -> Path:
    """A file that is old enough to be listed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    os.utime(path, (OLD_S, OLD_S))
    return path


class Ingest:
    """Planners and readers of one feed in this process."""

    def __init__(
        self, log: Log, feed: Feed, config: Config | None = None, *, planners: int = 1, readers: int = 1
    ) -> None:
        self.log, self.feed, self.clock = log, feed, SettableClock()
        self.config = config or Config()
        self.closing = False
        self.groups: list[Downstream] = []
        for spec in feed_topics(feed):
            log.create_topic(spec)
        self.workers: list[Any] = [self.planner() for _ in range(planners)] + [self.reader() for _ in range(readers)]

    def planner(self) -> Planner:
        return Planner(
            self.log, self.feed, self.feed.files.url, self.config, clock=self.clock,
            may_close=lambda: self.closing, lag_groups=lambda: self.groups,
        )  # fmt: skip

    def reader(self) -> Reader:
        return Reader(self.log, self.feed, self.feed.files.url, self.config, clock=self.clock)

    def settle(self, turns: int = 12) -> None:
        """Until nothing moves for a few listings."""
        calm = 0
        for _ in range(4000):
            moved = any([worker.step() for worker in self.workers])
            self.clock.advance(0.3)
            calm = 0 if moved else calm + 1
            if calm > turns:
                return
        raise AssertionError("never calm")

    def finish(self) -> None:
        self.closing = True
        self.settle()

    def close(self) -> None:
        for worker in self.workers:
            worker.close()


def raw_rows(
    log: Log, feed: Feed, check: Callable[[int, dict[str, Any]], None] | None = None
) -> dict[tuple[str, int], dict[str, Any]]:
    """Rows of ``raw`` by (file, row); asserts that each is there once, and never below W."""
    out: dict[tuple[str, int], dict[str, Any]] = {}
    for p in range(feed.partitions):
        W = -(2**62)
        for record in read_to_end(log, names.raw(feed.feed), p):
            if (named := read_control(record)) is not None:
                assert named[0] == "W"
                assert named[1] > W
                W = named[1]
                continue
            batch = unpack(record, kind=ROWS, schema=raw_schema(feed), limits=Limits())
            file = lineage_of(record)["file"]
            for row in batch.to_pylist():
                assert row["__time"] >= W or feed.snapshot, "row below W"
                key = (file, row["__row"])
                assert key not in out, f"row twice: {key}"
                out[key] = row
                if check:
                    check(p, row)
    return out


def late_rows(log: Log, feed: Feed) -> list[tuple[str, int]]:
    found = []
    for record in read_to_end(log, names.late(feed.feed), 0):
        batch = unpack(record, kind=ROWS, schema=raw_schema(feed), limits=Limits())
        found += [(str(lineage_of(record)["file"]), row) for row in batch["__row"].to_pylist()]
    assert len(set(found)) == len(found)
    return sorted(found)


def letters(log: Log, feed: Feed) -> list[DeadLetter]:
    found = [x for r in read_to_end(log, names.dead_letters(feed.feed), 0) for x in unpack_letters(r)]
    places = [(x.source, x.position, x.reason) for x in found]
    assert len(set(places)) == len(places), "a letter twice"
    return found


def jsons(log: Log, topic: str) -> list[dict[str, Any]]:
    info = log.topic(topic)
    assert info is not None
    return [json.loads(bytes(r.value or b"")) for p in range(info.spec.partitions) for r in read_to_end(log, topic, p)]


class Read:
    """What a format makes of one file: rows by number, letters, ranges; or how the file was rejected."""

    def __init__(self, feed: Feed, folder: Path, path: str, config: Config | None = None) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.letters: list[DeadLetter] = []
        self.ranges: list[Range] = []
        self.parts = 0
        self.rejected: FileRejected | None = None
        self.next_row = 0
        source, how = Folder(str(folder)), format_of(feed, config or Config())
        file = source.stat(path)
        assert file is not None
        try:
            start: Start | None = Start()
            while start is not None:
                for part in how.plan(source, file, start, 2**61).ranges:
                    self.ranges.append(part)
                    self._read(how, source, split_of(file, part))
                    start = part.next
        except FileRejected as error:
            self.rejected = error

    def _read(self, how: Format, source: Folder, split: Split) -> None:
        resume = None
        for part in how.read(source, split, None):
            self._add(part)
            resume = part.resume
        if resume is not None:
            assert not list(how.read(source, split, resume)), "something is left after the last part"

    def _add(self, part: Part) -> None:
        assert self.parts == 0 or part.next_row > self.next_row
        for number, row in zip(part.rows_N.tolist(), part.batch.to_pylist(), strict=True):
            assert number not in self.rows
            self.rows[number] = row
        self.letters += part.letters
        self.parts += 1
        self.next_row = part.next_row

    @property
    def outcome(self) -> tuple[object, ...]:
        """All that must not depend on how the file was divided."""
        bad = sorted((x.position, x.reason, x.detail, x.line, x.raw) for x in self.letters)
        return self.rows, bad, self.rejected and (self.rejected.reason, self.rejected.row)

    @property
    def reasons(self) -> dict[int, str]:
        """Row → reason of its letter."""
        return {x.position: x.reason for x in self.letters}


def split_of(file: FoundFile, part: Range) -> Split:
    """A split as a planner writes it."""
    return Split(
        f"{file.path}#0", 0, file.path, file.size, file.mtime_us, "", part.begin, part.end, part.first_row, part.first_line,
        T_MIN, True, 0, False, None, None,
    )  # fmt: skip


def text_feed(columns: dict[str, Any], **dialect: Any) -> Feed:
    """A CSV side table: no event time in the way."""
    return Feed.model_validate(
        {
            "feed": "f", "files": {"url": "."}, "format": {"delimited": dialect}, "columns": columns, "snapshot": True,
            "key": [next(iter(columns))],
        }
    )  # fmt: skip


def read_text(folder: Path, data: bytes, columns: dict[str, Any], config: Config | None = None, **dialect: Any) -> Read:
    """Bytes as a file, read whole."""
    write(folder / "a.csv", data)
    return Read(text_feed(columns, **dialect), folder, "a.csv", config)
