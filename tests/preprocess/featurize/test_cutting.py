from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preprocess.featurize.cutting import END_OF_TIME, Cursor, Cut, Rule, bucket_end, bucket_of, cut


def test_never_across_a_bucket_and_short_only_where_it_is_proved_over() -> None:
    times = np.array([0, 1, 2, 10, 11, 12, 13, 14])
    cuts, cursor = cut(times, Cursor(), Rule(2, 10), None, 99)
    assert cuts == [Cut(0, 0, 0, 2), Cut(0, 1, 2, 3), Cut(1, 0, 3, 5), Cut(1, 1, 5, 7)]
    assert cursor == Cursor(1, 2)
    assert cut(times[7:], cursor, Rule(2, 10), 19, 99) == ([], cursor)
    assert cut(times[7:], cursor, Rule(2, 10), 20, 99) == ([Cut(1, 2, 0, 1)], Cursor(1, 3))


def test_one_bucket_ends_with_time_itself() -> None:
    times = np.array([-5, 7, 2**40])
    assert cut(times, Cursor(), Rule(2, None), END_OF_TIME - 1, 99)[0] == [Cut(0, 0, 0, 2)]
    assert cut(times, Cursor(), Rule(2, None), END_OF_TIME, 99)[0] == [Cut(0, 0, 0, 2), Cut(0, 1, 2, 3)]


def test_buckets_of_negative_times() -> None:
    assert [bucket_of(t, 10) for t in (-11, -10, -1, 0, 9)] == [-2, -1, -1, 0, 0]
    assert bucket_end(-1, 10) == 0
    assert bucket_of(-11, None) == 0


def test_no_rows() -> None:
    assert cut(np.empty(0, np.int64), Cursor(3, 1), Rule(2, 10), END_OF_TIME, 9) == ([], Cursor(3, 1))


@pytest.mark.parametrize(("times", "cursor"), [([1, 0], Cursor()), ([5], Cursor(1, 0))])
def test_rows_out_of_order(times: list[int], cursor: Cursor) -> None:
    with pytest.raises(ValueError):
        cut(np.array(times), cursor, Rule(2, 10), None, 9)


@settings(deadline=None)
@given(
    st.lists(st.integers(-40, 40), max_size=40),
    st.integers(1, 7),
    st.sampled_from([None, 1, 7, 30]),
    st.integers(0, 2**32),
)
def test_however_rows_arrive_the_batches_are_the_same(
    times: list[int], batch_rows: int, every: int | None, seed: int
) -> None:
    rule, sequence, rng = Rule(batch_rows, every), np.array(sorted(times), np.int64), random.Random(seed)
    whole, _ = cut(sequence, Cursor(), rule, END_OF_TIME, 10**6)
    assert [i for c in whole for i in range(c.start, c.stop)] == list(range(len(sequence)))
    found: list[Cut] = []
    taken, seen, cursor = 0, 0, Cursor()
    while seen < len(sequence) or taken < len(sequence):
        seen = min(len(sequence), seen + rng.randrange(4))
        bound = END_OF_TIME if seen == len(sequence) else int(sequence[seen])
        cuts, cursor = cut(sequence[taken:seen], cursor, rule, rng.choice([None, bound]), rng.randrange(1, 5))
        found += [Cut(c.bucket, c.number, taken + c.start, taken + c.stop) for c in cuts]
        taken += cuts[-1].stop if cuts else 0
    assert found == whole
