"""Where local batches end: a function of the rows of a partition alone, not of the messages they came in.

Inside a bucket of event time the rows of a partition are one sequence; local batch j is rows [j·B', (j+1)·B') of it. A batch
never crosses a bucket. The last batch of a bucket may be short, and is cut only once the bucket is *proved* over: by a row
of a later bucket, or by V. Were it cut when "nothing is there now", batches would depend on timing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from preprocess.contracts import Int64

END_OF_TIME = 2**62
"""V of a closed partition, and the end of the one bucket when ``cuts.every`` is off."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """The next batch of a partition: ``number`` of ``bucket``. Of a partition never cut, bucket is ``None``."""

    bucket: int | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """A local batch: rows [start, stop) of those given."""

    bucket: int
    number: int
    start: int
    stop: int


def bucket_of(time_us: int, every_us: int | None) -> int:
    """Bucket of a time: floor division, also of negative times. 0 when there is one bucket for all time."""
    return 0 if every_us is None else time_us // every_us


def bucket_end(bucket: int, every_us: int | None) -> int:
    """First time µs behind the bucket."""
    return END_OF_TIME if every_us is None else (bucket + 1) * every_us


@dataclass(frozen=True, slots=True)
class Rule:
    """Of a version: ``batch_rows`` B' of a full local batch, and the bucket's length in µs (``None``: one bucket)."""

    batch_rows: int
    every_us: int | None


def cut(times_B: Int64, cursor: Cursor, rule: Rule, bound_us: int | None, most: int) -> tuple[list[Cut], Cursor]:
    """The batches that can be cut from rows not yet in a batch, and the cursor behind them.

    Args:
        times_B: event times of the rows in order, never falling. The first row is row ``cursor.number · batch_rows`` of its
            bucket if that is ``cursor.bucket``.
        bound_us: V of the input: every row that comes later is at or after it. ``None``: not known.

    Raises ``ValueError`` when the rows are not in order or belong to a bucket before the cursor's.
    """
    cuts: list[Cut] = []
    for bucket, start, stop in _runs(times_B, rule.every_us):
        if cursor.bucket is not None and bucket < cursor.bucket:
            raise ValueError(f"a row of bucket {bucket} after bucket {cursor.bucket} was cut")
        number = cursor.number if bucket == cursor.bucket else 0
        over = stop < len(times_B) or (bound_us is not None and bound_us >= bucket_end(bucket, rule.every_us))
        for begin in range(start, stop, rule.batch_rows):
            end = min(begin + rule.batch_rows, stop)
            if len(cuts) == most or (end - begin < rule.batch_rows and not over):
                return cuts, cursor
            cuts.append(Cut(bucket, number, begin, end))
            number += 1
            cursor = Cursor(bucket, number)
    return cuts, cursor


def _runs(times_B: Int64, every_us: int | None) -> list[tuple[int, int, int]]:
    """(bucket, start, stop) of each run of rows of one bucket."""
    if len(times_B) == 0:
        return []
    if (times_B[1:] < times_B[:-1]).any():
        raise ValueError("rows are not in order of event time")
    if every_us is None:
        return [(0, 0, len(times_B))]
    buckets_B: npt.NDArray[np.int64] = times_B // every_us
    edges = [0, *(np.flatnonzero(buckets_B[1:] != buckets_B[:-1]) + 1).tolist(), len(times_B)]
    return [(int(buckets_B[edges[i]]), edges[i], edges[i + 1]) for i in range(len(edges) - 1)]
