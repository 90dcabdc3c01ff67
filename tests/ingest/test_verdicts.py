"""Event times and verdicts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.feed import EventTime
from ingest.contracts import T_END, T_MIN
from ingest.verdicts import Bounds, judge, judge_reference, limit_of, times_us


@given(
    st.lists(st.tuples(st.integers(-30, 60), st.booleans()), max_size=40),
    st.integers(-20, 30),
    st.none() | st.integers(0, 20),
    st.just(T_MIN) | st.integers(-10, 40),
    st.integers(0, 40),
)
def test_verdicts_equal_the_reference_however_rows_are_parted(
    rows: list[tuple[int, bool]], L: int, disorder: int | None, maxseen: int, cut: int
) -> None:
    times, usable = np.array([t for t, _ in rows], np.int64), np.array([u for _, u in rows], np.bool_)
    bounds = Bounds(L, disorder, 50)
    want, last = judge_reference(times, usable, bounds, maxseen)
    got: list[str] = []
    seen = maxseen
    for some in (slice(0, cut), slice(cut, None)):
        done = judge(times[some], usable[some], bounds, seen)
        seen = done.maxseen
        got += [
            "used" if u else "late" if late else "future" if f else "bad"
            for u, late, f in zip(done.used_N, done.late_N, done.future_N, strict=True)
        ]
    assert (got, seen) == (want, last)
    for verdict, time in zip(want, times.tolist(), strict=True):
        assert verdict != "used" or time >= L


def test_no_row_that_follows_is_below_the_bound() -> None:
    bounds = Bounds(5, 3, T_END)
    assert bounds.bound(T_MIN) == 5
    assert bounds.bound(20) == 17
    assert Bounds(5, None, T_END).bound(20) == 5


@pytest.mark.parametrize(
    ("column", "unit", "want"),
    [
        (pa.array([1, None, -1]), "s", [1_000_000, None, -1_000_000]),
        (pa.array([1.5, float("nan"), float("inf")]), "s", [1_500_000, None, None]),
        (pa.array([1999, -1]), "ns", [1, -1]),
        (pa.array([2**62]), "s", [None]),
        (pa.array([2**64 - 1], pa.uint64()), "us", [None]),
        (pa.array([881250949], pa.float64()), "s", [881250949_000_000]),
        (pa.array([1_700_000_000_123]), "ms", [1_700_000_000_123_000]),
        (pa.array([7, None], pa.timestamp("us", "UTC")), "s", [7, None]),
    ],
)
def test_units(column: pa.Array, unit: str, want: list[int | None]) -> None:
    times, usable = times_us(column, EventTime.model_validate({"column": "t", "unit": unit}))
    assert [t if u else None for t, u in zip(times.tolist(), usable.tolist(), strict=True)] == want


def test_far_limits_do_not_overflow() -> None:
    assert limit_of(2**61, 2**61 + 5) == T_END - 1
