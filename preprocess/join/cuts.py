"""Where joined messages close: a function of the sequence of rows, never of a clock."""

from __future__ import annotations

import numpy as np

from experiments.feed import Cuts
from ingest.contracts import T_END
from preprocess.contracts import Int64


def bucket_of(times_N: Int64, every: int | None) -> Int64:
    """Bucket of event time (floor division; one bucket without ``every``)."""
    return np.zeros(len(times_N), np.int64) if every is None else times_N // every


def ends_of_messages(times_N: Int64, cuts: Cuts, W: int) -> Int64:
    """Ends (exclusive) of the messages that can be closed, rising; rows after the last one are held.

    ``times_N`` are the times of the rows that follow the last closed message. A message closes at ``cuts.rows`` rows, before the
    first row of another bucket, or when no row of its bucket can come any more.
    """
    if not len(times_N):
        return np.empty(0, np.int64)
    buckets = bucket_of(times_N, cuts.every)
    starts = np.concatenate([[0], np.flatnonzero(np.diff(buckets)) + 1])
    stops = np.concatenate([starts[1:], [len(times_N)]])
    messages = -(-(stops - starts) // cuts.rows)  # of each bucket, the last of them maybe short
    first = np.repeat(np.cumsum(messages) - messages, messages)
    number = np.arange(len(first)) - first
    ends = np.minimum(np.repeat(starts, messages) + (number + 1) * cuts.rows, np.repeat(stops, messages))
    short = (stops[-1] - starts[-1]) % cuts.rows != 0
    if short and not _is_over(int(buckets[-1]), cuts.every, W):
        ends = ends[:-1]
    return ends.astype(np.int64)


def _is_over(bucket: int, every: int | None, W: int) -> bool:
    return (bucket + 1) * every <= W if every is not None else W >= T_END


def ends_of_messages_reference(times_N: Int64, cuts: Cuts, W: int) -> list[int]:
    """As ``ends_of_messages``, row by row."""
    ends: list[int] = []
    start = 0
    for at, time in enumerate(times_N.tolist()):
        bucket = time // cuts.every if cuts.every else 0
        if at > start and bucket != (times_N[at - 1] // cuts.every if cuts.every else 0):
            ends.append(at)
            start = at
        if at + 1 - start == cuts.rows:
            ends.append(at + 1)
            start = at + 1
    if start < len(times_N) and _is_over(int(times_N[-1]) // cuts.every if cuts.every else 0, cuts.every, W):
        ends.append(len(times_N))
    return ends
