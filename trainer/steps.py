"""Steps as a function of the log: which local batches make the next step, and whether that is proven. Pure.

Step (b, j) holds the j-th local batch of bucket b of *each* partition. A partition that has none there gives zero rows,
but only once it is **proven** that none comes: by V (no later row is older than V), by a message of a later step, or by
a short batch, which ends its bucket. Until then the step waits. "Nothing there now, so zero rows" would make the steps
depend on the speed of the preprocessors: other steps on another day, hence another model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ingest.contracts import T_END, T_MIN
from trainer.contracts import PartitionPosition, Step


@dataclass(frozen=True, slots=True)
class Buckets:
    """Buckets of event time of the sample feed.

    Args:
        every_us: length of a bucket; ``None``: one bucket 0 for all time, which ends with the feed.
    """

    every_us: int | None

    def start(self, bucket: int) -> int:
        """First event time of a bucket, µs."""
        return T_MIN if self.every_us is None else bucket * self.every_us

    def end(self, bucket: int) -> int:
        """First event time behind a bucket, µs."""
        return T_END if self.every_us is None else (bucket + 1) * self.every_us


def next_step(
    heads: Sequence[Step | None], positions: Sequence[PartitionPosition], buckets: Buckets
) -> tuple[Step | None, tuple[int, ...]]:
    """The next step, and the partitions whose proof is missing.

    Args:
        heads: step of the first unused local batch of each partition, where one is there.
        positions: what was used and seen of each partition.

    Returns:
        The step if it can be trained now, else ``None``; and the partitions that it waits for (none there when no
        partition has a head).
    """
    known = [head for head in heads if head is not None]
    if not known:
        return None, ()
    step = min(known)
    end = buckets.end(step.bucket)
    waits = tuple(
        partition
        for partition, (head, position) in enumerate(zip(heads, positions, strict=True))
        if head is None and not _nothing_comes(position, step, end)
    )
    return (None if waits else step), waits


def _nothing_comes(position: PartitionPosition, step: Step, end: int) -> bool:
    if end <= position.V:
        return True
    last = position.last
    return last is not None and position.over and last.bucket >= step.bucket


def check_order(position: PartitionPosition, step: Step) -> str | None:
    """Whether a local batch may come next in its partition: what is wrong, or ``None``.

    Numbers run 0, 1, 2 … in a bucket. A message that could not be read leaves a gap of one number.
    """
    last, allowed = position.last, position.missing
    if last is None or step.bucket > last.bucket:
        expected = 0
    elif step.bucket < last.bucket or position.over:
        return f"a batch of a bucket after {last.bucket}"
    else:
        expected = last.number + 1
    if expected <= step.number <= expected + allowed:
        return None
    return f"batch number {expected}" + (f" to {expected + allowed}" if allowed else "")


def after_batch(
    position: PartitionPosition, step: Step, rows: int, full_rows: int, used: tuple[int, str]
) -> PartitionPosition:
    """The position after a local batch was used; ``used``: offset and digest of its message."""
    offset, digest = used
    return replace(
        position,
        next_offset=offset + 1,
        last_offset=offset,
        last_digest=digest,
        last=step,
        over=rows < full_rows,
        missing=0,
    )


def after_control(position: PartitionPosition, V: int, used: tuple[int, str]) -> PartitionPosition:
    """The position after a control record."""
    offset, digest = used
    return replace(position, next_offset=offset + 1, last_offset=offset, last_digest=digest, V=max(position.V, V))


def after_unreadable(position: PartitionPosition, used: tuple[int, str]) -> PartitionPosition:
    """The position after a message that could not be decoded: an empty local batch whose number is unknown."""
    offset, digest = used
    return replace(
        position, next_offset=offset + 1, last_offset=offset, last_digest=digest, missing=position.missing + 1
    )
