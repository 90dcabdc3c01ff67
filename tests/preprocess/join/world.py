"""Raw topics written by hand, and what a join must make of them, computed plainly."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from experiments import names
from experiments.experiment import ColumnLabel
from experiments.feed import Feed
from experiments.publishing import feed_topics, view_topics
from experiments.view import LookupTable, View
from ingest.contracts import ROWS, T_END, WATERMARK, raw_schema
from preprocess.contracts import JOINED, joined_schema
from streams.contracts import Log, TopicPartition
from streams.packed import Limits, control, lineage_of, pack, read_control, unpack
from streams.tail import read_to_end

Row = tuple[int, str, int, int, float | None]
"""time, file, row, item, label."""


def table_feed(key_type: str = "int64") -> Feed:
    return Feed.model_validate(
        {
            "feed": "items",
            "files": {"url": "items"},
            "format": "parquet",
            "columns": {"item_id": key_type, "price": "float64"},
            "snapshot": True,
            "key": ["item_id"],
            "partitions": 2,
        }
    )


def sample_feed(partitions: int, rows: int, every: str) -> Feed:
    return Feed.model_validate(
        {
            "feed": "views",
            "files": {"url": "views"},
            "format": "parquet",
            "columns": {"item_id": "int64", "label": "float64", "time": "timestamp"},
            "event_time": {"column": "time", "zone": "UTC"},
            "key": ["item_id"],
            "partitions": partitions,
            "cuts": {"rows": rows, "every": every},
        }
    )


@dataclass
class World:
    """A view, its raw rows by partition in the order they are written, and W between them."""

    view: View
    rows: dict[int, list[Row]]
    items: list[tuple[str, int, int, float]]
    messages: list[tuple[int, object]] = field(default_factory=list)

    @classmethod
    def random(cls, seed: int, files: int | None = None) -> World:
        rng = random.Random(seed)
        feed = sample_feed(rng.randint(1, 3), rng.randint(1, 5), rng.choice(["off", "10us", "25us"]))
        view = View(
            feed,
            (LookupTable("item", table_feed(), "item_id"),),
            (("liked", ColumnLabel(column="label", range=(0, 5), at_least=3)),),
        )
        items = [(rng.choice("ab"), i, rng.randint(0, 6), float(i)) for i in range(rng.randint(0, 8))]
        world = cls(view, {p: [] for p in range(feed.partitions)}, items)
        world._files(rng, rng.randint(0, 5) if files is None else files)
        return world

    def _files(self, rng: random.Random, files: int) -> None:
        """Files interleave; W follows behind: never above a row that still comes."""
        pending: list[tuple[int, list[Row]]] = []
        for number in range(files):
            base = rng.randint(0, 60) if files < 10 else 10 * number
            rows: dict[int, list[Row]] = {p: [] for p in self.rows}
            for row in range(rng.randint(0, 12)):
                label = rng.choice([0.0, 2.0, 3.0, 5.0, 6.0, None, float("nan")])
                rows[rng.choice(list(rows))].append(
                    (base + rng.randint(0, 15), f"f{number}", row, rng.randint(0, 8), label)
                )
            for p, part in rows.items():
                while part:
                    size = rng.randint(1, 4)
                    pending.append((p, part[:size]))
                    part = part[size:]
        order = list(range(len(pending)))
        keys = {i: rng.random() if files < 10 else i / len(order) + 0.15 * rng.random() for i in order}
        by_file: dict[tuple[int, str], list[int]] = {}
        for i in order:
            by_file.setdefault((pending[i][0], pending[i][1][0][1]), []).append(i)
        for ids in by_file.values():  # rows of one file keep their order in a partition
            keys |= dict(zip(ids, sorted(keys[i] for i in ids), strict=True))
        order.sort(key=keys.__getitem__)
        for at, i in enumerate(order):
            p, rows_ = pending[i]
            self.rows[p] += rows_
            self.messages.append((p, rows_))
            if rng.random() < 0.5:
                left = [row[0] for j in order[at + 1 :] for row in pending[j][1]]
                W = min(left, default=100) - rng.choice([0, 0, 3])
                self.messages.append((-1, W))
        self.messages.append((-1, T_END))

    def create(self, log: Log) -> None:
        for feed in self.view.feeds:
            for spec in feed_topics(feed):
                log.create_topic(spec)
        for spec in view_topics(self.view):
            log.create_topic(spec)

    def write_items(self, log: Log) -> None:
        producer = log.producer("test-items")
        producer.begin()
        schema = raw_schema(table_feed())
        for file, row, item, price in self.items:
            body = pa.record_batch([[item], [price], [0], [row]], schema=schema)
            packed = pack(body, kind=ROWS, times=None, lineage={"file": file}, compression="lz4")
            producer.send("raw.items", item % 2, packed.value, headers=packed.headers)
        for p in range(2):
            packed = control(WATERMARK, T_END)
            producer.send("raw.items", p, packed.value, headers=packed.headers)
        producer.commit()
        producer.close()

    def write(self, log: Log, start: int, stop: int) -> None:
        """Messages [start, stop) in one transaction."""
        producer = log.producer("test-views")
        producer.begin()
        W = -1
        for p, body in self.messages[start:stop]:
            if p < 0:
                W = max(W, int(body))  # type: ignore[call-overload]
                for q in self.rows:
                    packed = control(WATERMARK, W)
                    producer.send("raw.views", q, packed.value, headers=packed.headers)
                continue
            rows: list[Row] = body  # type: ignore[assignment]
            batch = pa.RecordBatch.from_arrays(
                [
                    pa.array([r[3] for r in rows], pa.int64()),
                    pa.array([r[4] for r in rows], pa.float64(), from_pandas=False),
                    pa.array([r[0] for r in rows], pa.timestamp("us", "UTC")),
                    pa.array([r[0] for r in rows], pa.int64()),
                    pa.array([r[2] for r in rows], pa.int64()),
                ],
                schema=raw_schema(self.view.sample),
            )
            packed = pack(batch, kind=ROWS, times=(0, 0), lineage={"file": rows[0][1]}, compression="lz4")
            producer.send("raw.views", p, packed.value, headers=packed.headers)
        producer.commit()
        producer.close()

    def prices(self) -> dict[int, float]:
        out: dict[int, float] = {}
        for _, _, item, price in sorted(self.items):
            out.setdefault(item, price)
        return out

    def oracle(self, p: int) -> tuple[list[list[Row]], list[tuple[str, int]]]:
        """(messages, rejected rows) of a partition at the end."""
        cuts, messages, rejected, current = self.view.sample.cuts, [], [], []
        for row in sorted(self.rows[p], key=lambda r: r[:3]):
            if row[4] is None or np.isnan(row[4]) or not 0 <= row[4] <= 5:
                rejected.append((row[1], row[2]))
                continue
            bucket = row[0] // cuts.every if cuts.every else 0
            if current and (len(current) == cuts.rows or bucket != (current[-1][0] // cuts.every if cuts.every else 0)):
                messages.append(current)
                current = []
            current.append(row)
        return messages + ([current] if current else []), rejected


def joined_of(
    log: Log, view: View, p: int
) -> tuple[list[bytes], list[list[Row]], list[int | None], list[int], list[int]]:
    """(values, rows, prices, numbers k, V records in their places are checked)."""
    values, rows, prices, numbers, bounds = [], [], [], [], []
    V = -(2**62)
    for record in read_to_end(log, names.joined(view.name), p):
        if (named := read_control(record)) is not None:
            assert named[0] == "V"
            assert named[1] > V
            V = named[1]
            bounds.append(V)
            continue
        batch = unpack(record, kind=JOINED, schema=joined_schema(view), limits=Limits())
        part = batch.to_pylist()
        assert all(r["__time"] >= V for r in part)
        values.append(bytes(record.value or b""))
        rows.append([(r["__time"], r["__file"], r["__row"], r["item_id"], r["label"]) for r in part])
        prices += [r["item.price"] for r in part]
        assert all(r["label.liked"] == float(r["label"] >= 3) for r in part)
        numbers.append(lineage_of(record)["k"])
    return values, rows, prices, numbers, bounds  # type: ignore[return-value]


def at_end(log: Log, view: View) -> bool:
    return all(
        (joined_of(log, view, p)[4] or [0])[-1] == T_END
        for p in range(log.topic(names.joined(view.name)).spec.partitions)  # type: ignore[union-attr]
    )


__all__ = ["TopicPartition", "World", "at_end", "joined_of", "sample_feed", "table_feed"]
