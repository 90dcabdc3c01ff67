from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from experiments.view import view_of
from preprocess.featurize.batch import Featurizer
from preprocess.featurize.cutting import Cursor, Cut, Rule, cut
from preprocess.featurize.graph import compile_plan
from preprocess.featurize.plain import batches_plain
from tests.preprocess.featurize.samples import ALL_TYPES, assert_same, batch_of, cells, experiment, feed, wide

SPEC, VIEW = wide()
PLAN = compile_plan(SPEC, VIEW)
FAST = Featurizer(PLAN)
QUICK = settings(deadline=None, max_examples=40, database=None)


def rows_and_cuts(seed: int, n: int, edges: set[int]) -> tuple[pa.RecordBatch, list[Cut]]:
    """n rows out of the middle of a longer batch, and cuts at ``edges`` and the end."""
    rng = random.Random(seed)
    before, behind = rng.choice([0, 1, 9]), rng.choice([0, 3])
    total = before + n + behind
    columns = {name: cells(kind, total, rng) for name, kind in ALL_TYPES.items()}
    times = sorted(rng.randrange(-62 * 10**15, 250 * 10**15) for _ in range(total))
    rows = batch_of(VIEW, columns, times).slice(before, n)
    stops = sorted({edge for edge in edges if edge < n} | {n}) if n else []
    return rows, [Cut(3, i, a, b) for i, (a, b) in enumerate(zip([0, *stops], stops, strict=False))]


@QUICK
@given(st.integers(0, 2**32), st.integers(0, 40), st.sets(st.integers(1, 39), max_size=4))
@example(0, 0, set())
@example(1, 1, set())
def test_kernels_give_what_the_plain_version_gives(seed: int, n: int, edges: set[int]) -> None:
    rows, cuts = rows_and_cuts(seed, n, edges)
    fast, plain = FAST.batches(rows, cuts), batches_plain(PLAN, rows, cuts)
    assert len(fast) == len(plain) == len(cuts)
    for left, right in zip(fast, plain, strict=True):
        assert_same(left, right, ulps=1)


def _random_rows(n: int, seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    words = [None, "", "a", "ab" * 30, "é"]
    columns = {
        "c_int64": [None if x > 40 else int(x) for x in rng.zipf(1.3, n)],
        "c_uint64": rng.integers(0, 5, n).tolist(),
        "c_string": [words[i] for i in rng.integers(0, 5, n)],
        "l_int64": [rng.integers(0, 9, k).tolist() for k in rng.integers(0, 6, n)],
        "c_float64": rng.normal(size=n).tolist(),
        "c_timestamp": rng.integers(0, 10**15, n).tolist(),
    }
    return batch_of(VIEW, columns, sorted(rng.integers(0, 10**15, n).tolist()))


def test_a_batch_depends_on_its_rows_alone() -> None:
    rows = _random_rows(3000, 1)
    whole = Featurizer(PLAN).batches(rows, [Cut(0, j, j * 100, j * 100 + 100) for j in range(30)])
    for size in (1, 7):
        for j in range(0, 30, size):
            part = rows.slice(j * 100, 100 * size)
            cuts = [Cut(0, j + i, i * 100, i * 100 + 100) for i in range(min(size, 30 - j))]
            for i, batch in enumerate(FAST.batches(part, cuts)):
                assert_same(batch, whole[j + i])


def test_many_rows_as_the_plain_version() -> None:
    rows = _random_rows(2000, 2)
    cuts, _ = cut(rows.column("__time").to_numpy(), Cursor(), Rule(333, None), 2**62, 99)
    assert [c.stop - c.start for c in cuts] == [333] * 6 + [2]
    for left, right in zip(FAST.batches(rows, cuts), batches_plain(PLAN, rows, cuts), strict=True):
        assert_same(left, right, ulps=1)


def test_ids_out_of_a_full_table_of_every_id() -> None:
    """All ids distinct, many in one region: the slots never run out."""
    spec = experiment({"a": {"id": "x"}, "b": {"id": "x", "table": "a"}, "c": {"hash": "x"}})
    view = view_of(spec, {"s": feed({"x": "int64"})})
    plan = compile_plan(spec, view)
    n = 5000
    rows = batch_of(view, {"x": list(range(n))}, list(range(n)))
    (batch,) = Featurizer(plan).batches(rows, [Cut(0, 0, 0, n)])
    (plain,) = batches_plain(plan, rows, [Cut(0, 0, 0, n)])
    assert_same(batch, plain)
    (ids,) = batch.tables.values()
    assert len(ids.ids_U) == 2 * n
    assert len(ids.inverse_N) == 3 * n
    assert ids.offsets is None


def test_stamps_begin_again_before_they_overflow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preprocess.featurize.batch._STAMP_LIMIT", 50)
    rows = _random_rows(60, 3)
    cuts = [Cut(0, j, j, j + 1) for j in range(60)]
    fast = Featurizer(PLAN)
    for left, right in zip(fast.batches(rows, cuts[:40]), batches_plain(PLAN, rows, cuts[:40]), strict=True):
        assert_same(left, right, ulps=1)
    for left, right in zip(fast.batches(rows, cuts[:40]), batches_plain(PLAN, rows, cuts[:40]), strict=True):
        assert_same(left, right, ulps=1)


def test_replaced_dense_values_are_counted() -> None:
    spec = experiment({"d": {"dense": "x", "ops": ["log1p"], "default": 2}, "i": {"id": "t"}})
    view = view_of(spec, {"s": feed({"x": "float64"})})
    fast = Featurizer(compile_plan(spec, view))
    values = [None, float("nan"), float("inf"), -5.0, 0.0, 1.0]
    (batch,) = fast.batches(batch_of(view, {"x": values, "t": [1] * 6}, [0] * 6), [Cut(0, 0, 0, 6)])
    assert fast.replaced == 3
    log3, log2 = np.float32(np.log1p(2.0)), np.float32(np.log1p(1.0))
    assert batch.dense_BX[:, 0].tolist() == [log3, log3, log3, 0.0, 0.0, log2]
