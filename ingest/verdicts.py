"""Event time of each row, and what becomes of the row: by its file and itself alone, so the same on every run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from experiments.feed import EventTime
from ingest.contracts import T_END, T_MIN

Int64 = np.ndarray[tuple[int], np.dtype[np.int64]]
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]

_PER_UNIT_NS = {"s": 10**9, "ms": 10**6, "us": 1000, "ns": 1}
_LIMIT = 2.0**61


def times_us(column: pa.Array, event_time: EventTime) -> tuple[Int64, Bools]:
    """(event times in µs, usable). Null, NaN, infinite and absurd times are not usable (their value is 0)."""
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    if pa.types.is_timestamp(column.type):
        return np.where(valid, column.cast(pa.int64()).fill_null(0).to_numpy(), 0), valid
    ns = _PER_UNIT_NS[event_time.unit]
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    as_float = values.astype(np.float64) * (ns / 1000)
    usable = valid & np.isfinite(as_float) & (np.abs(as_float) < _LIMIT)
    if pa.types.is_integer(column.type):
        whole = np.where(usable, values, 0).astype(np.int64)
        exact = whole * (ns // 1000) if ns >= 1000 else whole // (1000 // ns)
        return exact, usable
    return np.rint(np.where(usable, as_float, 0.0)).astype(np.int64), usable


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a split says about lateness.

    Args:
        L: older rows are late. disorder_us: also rows older than the newest row before them, less this; ``None``: not.
        limit_us: rows at or after it are rejected (plan time + ``max_future``).
    """

    L: int
    disorder_us: int | None
    limit_us: int

    def bound(self, maxseen: int) -> int:
        """No row that follows counts as on time below it."""
        return self.L if self.disorder_us is None or maxseen <= T_MIN else max(self.L, maxseen - self.disorder_us)


@dataclass(frozen=True, slots=True)
class Judged:
    """Verdicts [N]: each row is exactly one of them. ``maxseen`` after the last row: rejected rows do not count, late ones do."""

    used_N: Bools
    late_N: Bools
    future_N: Bools
    maxseen: int


def judge(times_N: Int64, usable_N: Bools, bounds: Bounds, maxseen: int) -> Judged:
    """Verdict of each row; rows that are not usable are none of used, late and future."""
    future = usable_N & (times_N >= bounds.limit_us)
    good = usable_N & ~future
    seen = np.where(good, times_N, T_MIN)
    running = np.maximum.accumulate(np.concatenate([[maxseen], seen]))
    late = good & (times_N < bounds.L)
    if bounds.disorder_us is not None:
        late |= good & (times_N < running[:-1] - bounds.disorder_us)
    return Judged(good & ~late, late, future, int(running[-1]))


def judge_reference(times_N: Int64, usable_N: Bools, bounds: Bounds, maxseen: int) -> tuple[list[str], int]:
    """As ``judge``, row by row: ``used``, ``late``, ``future`` or ``bad``."""
    out = []
    for time, usable in zip(times_N.tolist(), usable_N.tolist(), strict=True):
        if not usable:
            out.append("bad")
        elif time >= bounds.limit_us:
            out.append("future")
        else:
            late = time < bounds.L or (bounds.disorder_us is not None and time < maxseen - bounds.disorder_us)
            out.append("late" if late else "used")
            maxseen = max(maxseen, time)
    return out, maxseen


def limit_of(plan_time_us: int, max_future_us: int) -> int:
    """First time that is too far in the future; never beyond what arithmetic on times can carry."""
    return min(plan_time_us + max_future_us, T_END - 1)
