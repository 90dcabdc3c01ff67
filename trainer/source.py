"""Local batches of ``exp`` in the order of each partition, one held per partition until its step comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from preprocess.contracts import BATCH, FRONTIER, BatchLayout, LocalBatch, decode_batch
from streams.contracts import Record
from streams.errors import Broken, Exhausted, HeadraceError
from streams.packed import CONTROL, DIGEST, Limits, kind_of, place, read_control
from trainer.contracts import PartitionPosition, Step
from trainer.errors import Contradiction
from trainer.steps import Buckets, after_batch, after_control, after_unreadable, check_order, next_step


class Records(Protocol):
    """Where records come from (``cache.prefetch.Prefetcher``)."""

    def take(self, partition: int, timeout_s: float) -> Record | None:
        """The next record of a partition, or ``None`` if none came in time."""


@dataclass(frozen=True, slots=True)
class Held:
    """A local batch and the message it came in."""

    batch: LocalBatch
    record: Record

    @property
    def step(self) -> Step:
        """The step it belongs to."""
        return Step(self.batch.bucket, self.batch.number)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message that could not be decoded, and why."""

    record: Record
    error: HeadraceError


@dataclass(frozen=True, slots=True)
class Shape:
    """What the batches of a version look like: their layout, the rows of a full local batch, the buckets of time."""

    layout: BatchLayout
    full_rows: int
    buckets: Buckets
    limits: Limits


class Source:
    """Turns records into steps. Keeps the position of each partition: what was used, not what was fetched."""

    def __init__(self, records: Records, shape: Shape, positions: Sequence[PartitionPosition]) -> None:
        self._records = records
        self._shape = shape
        self.positions = list(positions)
        self.heads: list[Held | None] = [None] * len(positions)
        self.unreadable: list[Unreadable] = []
        self.waits_for: tuple[int, ...] = ()

    def next(self) -> tuple[Step, list[Held]] | None:
        """The next step and its local batches in partition order, which count as used from now on. ``None``: nothing can
        be trained now (``waits_for``: partitions whose proof is missing). Never blocks.

        Messages that cannot be decoded are put into ``unreadable``. Raises ``Broken`` when the messages contradict each
        other (a number is missing, a row is older than V).
        """
        for partition, head in enumerate(self.heads):
            if head is None:
                self._fill(partition)
        step, self.waits_for = next_step(
            [head.step if head else None for head in self.heads], self.positions, self._shape.buckets
        )
        if step is None:
            return None
        parts = []
        for partition, head in enumerate(self.heads):
            if head is not None and head.step == step:
                parts.append(head)
                self.heads[partition] = None
                self.positions[partition] = after_batch(
                    self.positions[partition], step, head.batch.rows, self._shape.full_rows, _used(head.record)
                )
        return step, parts

    def _fill(self, partition: int) -> None:
        while self.heads[partition] is None and (record := self._records.take(partition, 0.0)) is not None:
            try:
                self._accept(partition, record)
            except (Broken, Exhausted) as error:
                self.unreadable.append(Unreadable(record, error))
                self.positions[partition] = after_unreadable(self.positions[partition], _used(record))

    def _accept(self, partition: int, record: Record) -> None:
        kind = kind_of(record)
        if kind == BATCH:
            batch = decode_batch(record, self._shape.layout, self._shape.limits)
            self._check(self.positions[partition], batch, record)
            self.heads[partition] = Held(batch, record)
            return
        control = read_control(record) if kind == CONTROL else None
        if control is None or control[0] != FRONTIER:
            raise Broken(
                expected=f"a message of kind {BATCH!r} or the control record {FRONTIER}",
                got=repr(kind) if control is None else f"the control record {control[0]}",
                where=place(record),
                do="The message goes to the dead letters.",
            )
        self.positions[partition] = after_control(self.positions[partition], control[1], _used(record))

    def _check(self, position: PartitionPosition, batch: LocalBatch, record: Record) -> None:
        """A readable batch that contradicts the messages before it means that rows were lost or doubled: stop."""
        buckets = self._shape.buckets
        step = Step(batch.bucket, batch.number)
        expected, got = check_order(position, step), f"bucket {step.bucket}, batch {step.number}"
        if expected is None and batch.rows > self._shape.full_rows:
            expected, got = f"at most {self._shape.full_rows} rows", f"{batch.rows} rows"
        if expected is None and batch.rows:
            oldest, newest = int(batch.times_B.min()), int(batch.times_B.max())
            if oldest < position.V:
                expected, got = f"rows not older than V = {position.V}", f"a row of {oldest}"
            elif newest >= buckets.end(batch.bucket) or oldest < buckets.start(batch.bucket):
                expected, got = f"rows of bucket {batch.bucket} alone", f"rows from {oldest} to {newest}"
        if expected is not None:
            raise Contradiction(
                expected=expected,
                got=got,
                where=place(record),
                do="Rows before this message are missing or doubled, so training stopped. If the log was cut or restored,"
                " restore it whole; else publish the experiment under another name, which trains from the stored rows.",
            )


def _used(record: Record) -> tuple[int, str]:
    return record.offset, (record.header(DIGEST) or b"").decode("ascii", "replace")
