"""A small stream of local batches written straight into ``exp``, as preprocess would, and trainers over it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cache.contracts import Counters, Key
from experiments.experiment import Experiment
from experiments.feed import Feed
from experiments.names import dead_letters, exp
from experiments.view import Version, view_of
from ingest.contracts import T_END
from preprocess.contracts import FRONTIER, LocalBatch, TableIds, encode_batch, layout_of
from streams.clock import SettableClock
from streams.contracts import Log, TopicSpec
from streams.embedded.log import open_log
from streams.packed import Packed, control
from trainer.contracts import Config
from trainer.loop import Trainer

MINUTE_US = 60_000_000
START_US = 28_000_000 * MINUTE_US


def experiment(**changes: Any) -> Experiment:
    """Two id features of one dimension, a list of another, one dense feature."""
    content: dict[str, Any] = {
        "experiment": "ctr",
        "sample": "rows",
        "labels": {"click": {"column": "click"}},
        "features": {
            "user": {"id": "user"},
            "item": {"id": "item"},
            "history": {"id": "history", "table": "item2", "pool": "mean"},
            "price": {"dense": "price"},
        },
        "tables": {"default": {"dim": 4}, "item2": {"dim": 3}},
        "model": {"deepfm": {"mlp": [8], "dropout": 0.1}},
        "train": {"batch_rows": 8, "checkpoint_every": "5 steps", "seed": 7},
    }
    return Experiment.model_validate(content | changes)


def feed(partitions: int = 2, every: str = "60s") -> Feed:
    return Feed.model_validate(
        {
            "feed": "rows",
            "files": {"url": "data"},
            "format": "parquet",
            "columns": {"user": "int64", "item": "int64", "history": "list<int64>", "price": "float32",
                        "click": "int64", "time": "int64"},
            "event_time": {"column": "time"},
            "key": ["user"],
            "partitions": partitions,
            "cuts": {"every": every},
        }
    )  # fmt: skip


def version(partitions: int = 2, every: str = "60s", **changes: Any) -> Version:
    spec = experiment(**changes)
    view = view_of(spec, {"rows": feed(partitions, every)})
    return Version(spec, view, 1, "live", "0" * 32, (0,) * partitions, None, 0)


def local_batch(spec: Experiment, bucket: int, number: int, rows: int, seed: int, first_us: int) -> LocalBatch:
    """Rows drawn from a seed; ids repeat, among them 0, −1, −2 and the extremes; lists of 0 to 3 items."""
    rng = np.random.default_rng(seed)
    ids = np.array([0, -1, -2, -(2**63), 2**63 - 1, *range(5, 25)], np.int64)
    tables = {}
    for table in layout_of(spec).tables:
        counts = [rng.integers(0, 4, rows) if f.pool == "mean" else np.ones(rows, int) for f in table.features]
        logical = np.concatenate([np.full(c.sum(), f.logical) for f, c in zip(table.features, counts, strict=True)])
        keys = list(zip(logical.tolist(), rng.choice(ids, len(logical)).tolist(), strict=True))
        unique = list(dict.fromkeys(keys))
        place = {key: u for u, key in enumerate(unique)}
        lengths = np.concatenate(counts)
        tables[table.name] = TableIds(
            np.array([key[0] for key in unique], np.uint16),
            np.array([key[1] for key in unique], np.int64),
            np.array([place[key] for key in keys], np.uint32),
            None if (lengths == 1).all() else np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        )
    dense = rng.standard_normal((rows, len(layout_of(spec).dense))).astype(np.float32)
    return LocalBatch(
        bucket=bucket,
        number=number,
        labels_B=(rng.random(rows) < 0.4).astype(np.float32),
        weights_B=np.ones(rows, np.float32),
        times_B=np.sort(first_us + rng.integers(0, MINUTE_US, rows)),
        dense_BX=dense,
        tables=tables,
        files=("a.parquet", "b.parquet"),
        file_B=rng.integers(0, 2, rows).astype(np.int32),
        row_B=seed * 1000 + np.arange(rows),
    )


Message = LocalBatch | int
"""A local batch, or a value of V."""


def messages(spec: Experiment, partitions: int, buckets: int, seed: int = 1) -> list[list[Message]]:
    """Per partition: full local batches, a short one at the end of some buckets, V between and T_END at last."""
    rng = np.random.default_rng(seed)
    full = spec.train.batch_rows // partitions
    first_bucket = START_US // MINUTE_US
    out: list[list[Message]] = []
    for partition in range(partitions):
        stream: list[Message] = []
        for bucket in range(first_bucket, first_bucket + buckets):
            rows = int(rng.integers(0, 4 * full))
            for number, start in enumerate(range(0, rows, full)):
                size = min(full, rows - start)
                batch_seed = seed * 1_000_000 + partition * 10_000 + (bucket - first_bucket) * 100 + number
                stream.append(local_batch(spec, bucket, number, size, batch_seed, bucket * MINUTE_US))
            if rng.random() < 0.7:
                stream.append((bucket + 1) * MINUTE_US)
        out.append([*stream, T_END])
    return out


@dataclass
class World:
    """A log with the topics of one version."""

    path: Path
    version: Version
    clock: SettableClock = field(default_factory=SettableClock)
    settings: dict[str, Any] = field(default_factory=dict)
    retention_bytes: int | None = None

    def __post_init__(self) -> None:
        self.log: Log = open_log(self.path / "log")
        self.topic = exp(self.version.name, self.version.number)
        self.log.create_topic(TopicSpec(self.topic, self.version.view.partitions, retention_bytes=self.retention_bytes))
        self.log.create_topic(TopicSpec(dead_letters(self.version.name), 1))
        self._producer = self.log.producer("test")

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints" / f"{self.version.name}.v{self.version.number}"

    def make_topic_again(self) -> None:
        """Delete the topic of the batches and create it under the same name."""
        self.log.delete_topic(self.topic)
        self.log.create_topic(TopicSpec(self.topic, self.version.view.partitions))
        self._producer = self.log.producer("test")

    def send(self, partition: int, *stream: Message | Packed) -> None:
        """One transaction."""
        self._producer.begin()
        for message in stream:
            packed = self.pack(message)
            self._producer.send(self.topic, partition, packed.value, headers=packed.headers)
        self._producer.commit()

    def pack(self, message: Message | Packed) -> Packed:
        if isinstance(message, Packed):
            return message
        if isinstance(message, int):
            return control(FRONTIER, message)
        layout = layout_of(self.version.experiment)
        return encode_batch(message, layout, lineage={"p": 0}, compression="none")

    def send_all(self, streams: Sequence[Sequence[Message]]) -> None:
        for partition, stream in enumerate(streams):
            self.send(partition, *stream)

    def trainer(self, **options: Any) -> Trainer:
        config = Config(str(self.path / "checkpoints"), **(self.settings | options.pop("config", {})))
        return Trainer(self.log, self.version, config, NoCache(), clock=self.clock, **options)

    def ahead(self) -> dict[str, Any]:
        """Options of a trainer that reads ahead through a small cache."""
        from cache.memory import MemoryTier
        from cache.prefetch import Prefetcher
        from cache.tiers import TieredCache

        cache = TieredCache([MemoryTier(50_000)])
        return {"make_reader": lambda topic: Prefetcher(self.log, topic, cache, max_bytes=4096, poll_bytes=4096)}

    def train(self, **options: Any) -> dict[str, Any]:
        """A trainer until it finished; its report."""
        trainer = self.trainer(**options)
        try:
            run(trainer)
            assert trainer.finished
            return trainer.report()
        finally:
            trainer.close()

    def close(self) -> None:
        self._producer.close()
        self.log.close()


class NoCache:
    """``cache.contracts.Cache`` that keeps nothing."""

    def get_or_load(self, key: Key, loader: Callable[[], bytes | memoryview]) -> bytes | memoryview:
        return loader()

    def counters(self) -> dict[str, Counters]:
        return {}

    def close(self) -> None:
        pass


def run(trainer: Trainer, within_s: float = 60) -> None:
    """Step until it finished or is stuck. A reader that works ahead needs a moment now and then."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        moved = trainer.step()
        if trainer.finished or trainer.stuck:
            return
        if not moved:
            time.sleep(0.001)
    raise AssertionError("the trainer neither finishes nor gets stuck")


def steps_of(ledger: Path) -> Iterator[tuple[int, str, int]]:
    """(step, file, row) of all ledger files in order."""
    import pyarrow as pa

    for path in sorted(ledger.glob("*.arrow")):
        for row in pa.ipc.open_file(path).read_all().to_pylist():
            yield row["step"], row["file"], row["row"]
