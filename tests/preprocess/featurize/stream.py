"""A joined topic for the tests of the featurize worker, and what comes out of it. Also run as a victim of kills:
``python -m tests.preprocess.featurize.stream FOLDER``."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from experiments import names
from experiments.experiment import Experiment
from experiments.view import Version, View, view_of
from preprocess.contracts import FRONTIER, JOINED, Config, LocalBatch, decode_batch, layout_of
from preprocess.featurize.cutting import END_OF_TIME
from preprocess.featurize.worker import FeaturizeWorker
from streams.clock import SettableClock, SystemClock
from streams.contracts import Log, Producer, Record, TopicSpec
from streams.embedded.log import open_log
from streams.packed import Limits, Packed, control, kind_of, pack, read_control
from streams.tail import read_to_end
from tests.preprocess.featurize.samples import batch_of, cells, experiment, feed

SMALL = Config(transaction_messages=7, poll_bytes=1)
PARTITIONS = 2


def spec(batch_rows: int = 10) -> Experiment:
    return experiment(
        {"a": {"hash": "word"}, "b": {"id": "n", "table": "a"}, "l": {"hash": "items", "last": 2}, "d": {"dense": "n"}},
        train={"batch_rows": batch_rows},
    )


def version_of(batch_rows: int = 10, every: str = "50us", **changes: object) -> Version:
    columns = {"word": "string", "n": "int64", "items": "list<int64>"}
    view = view_of(spec(), {"s": feed(columns, partitions=PARTITIONS, cuts={"every": every})})
    made = {
        "number": 1,
        "state": "live",
        "hash": "",
        "start": (0,) * PARTITIONS,
        "start_time_us": None,
        "published_us": 0,
    }
    return Version(spec(batch_rows), view, **(made | changes))  # type: ignore[arg-type]


def create_topics(log: Log, version: Version) -> None:
    log.create_topic(TopicSpec(names.joined(version.view.name), PARTITIONS))
    log.create_topic(TopicSpec(names.exp(version.name, version.number), PARTITIONS))
    log.create_topic(TopicSpec(names.dead_letters(version.name), 1))


def rows_of(view: View, count: int, seed: int) -> pa.RecordBatch:
    rng = random.Random(seed)
    times = sorted(rng.randrange(0, 10 * count) for _ in range(count))
    columns = {
        "word": cells("string", count, rng),
        "n": cells("int64", count, rng),
        "items": cells("list<int64>", count, rng),
    }
    return batch_of(view, columns, times)


def joined(rows: pa.RecordBatch) -> Packed:
    return pack(rows, kind=JOINED, times=None, lineage={}, compression="none")


class Feeder:
    """Writes to joined."""

    def __init__(self, log: Log, version: Version) -> None:
        self.topic = names.joined(version.view.name)
        self.producer: Producer = log.producer("test-join")

    def put(self, partition: int, *records: Packed) -> None:
        self.producer.begin()
        for record in records:
            self.producer.send(self.topic, partition, record.value, headers=record.headers)
        self.producer.commit()

    def put_rows(self, partition: int, rows: pa.RecordBatch, sizes: Sequence[int], *, close: bool = True) -> None:
        """Rows in messages of the given sizes, again and again; V behind each; at the end V of the closed feed."""
        records, at, turn = [], 0, 0
        times = rows.column("__time").to_pylist()
        while at < len(rows):
            size = sizes[turn % len(sizes)]
            records += [joined(rows.slice(at, size)), control(FRONTIER, times[min(at + size, len(rows)) - 1])]
            at, turn = at + size, turn + 1
        self.put(partition, *records, *([control(FRONTIER, END_OF_TIME)] if close else []))


def drain(worker: FeaturizeWorker, limit: int = 10_000) -> None:
    """Step until there is nothing to do."""
    for _ in range(limit):
        if not worker.step():
            return
    raise AssertionError("the worker never comes to rest")


def exp_records(log: Log, version: Version, partition: int) -> list[Record]:
    return list(read_to_end(log, names.exp(version.name, version.number), partition))


def values(log: Log, version: Version, partition: int) -> list[bytes]:
    """Bytes of each batch."""
    return [bytes(r.value or b"") for r in exp_records(log, version, partition) if kind_of(r) == "batch"]


def batches(log: Log, version: Version, partition: int) -> list[LocalBatch]:
    layout = layout_of(version.experiment)
    return [decode_batch(r, layout, Limits()) for r in exp_records(log, version, partition) if kind_of(r) == "batch"]


def check_bounds(log: Log, version: Version, partition: int) -> int | None:
    """V only rises, and no row behind it is older; gives the last one."""
    bound: int | None = None
    layout = layout_of(version.experiment)
    for record in exp_records(log, version, partition):
        if named := read_control(record):
            assert named[0] == FRONTIER
            assert bound is None or named[1] > bound
            bound = named[1]
        else:
            batch = decode_batch(record, layout, Limits())
            assert bound is None or batch.times_B.min() >= bound
    return bound


def settable_worker(log: Log, version: Version, config: Config = SMALL) -> FeaturizeWorker:
    return FeaturizeWorker(log, version, config, clock=SettableClock())


def main(folder: str) -> None:
    log = open_log(Path(folder))
    worker = FeaturizeWorker(log, version_of(), SMALL, clock=SystemClock())
    drain(worker)
    worker.close()
    log.close()


if __name__ == "__main__":
    main(sys.argv[1])
