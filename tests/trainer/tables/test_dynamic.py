"""The dynamic table against the plain one, over odd shapes, growth and reloading."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.experiment import RowwiseAdagrad
from preprocess.contracts import IdFeature, PhysicalTable, TableIds
from streams.errors import Exhausted, SchemaMismatch
from trainer.kernels import index as kernels
from trainer.tables.dynamic import DynamicTable
from trainer.tables.merge import merge_slots, merge_slots_reference
from trainer.tables.reference import ReferenceTable

EDGES = [0, -1, -2, 1, -(2**63), 2**63 - 1, 2**32, -(2**32)]


def spec(dim: int = 3, logical: tuple[str, ...] = ("a", "b"), init: float = 0.1) -> PhysicalTable:
    features = (IdFeature("f", 0, "sum"), IdFeature("g", len(logical) - 1, "mean"))
    return PhysicalTable("a", dim, init, RowwiseAdagrad(lr=0.1, initial=0.0), logical, features)


def tables(dim: int = 3, width: int = 4, max_rows: int = 100_000) -> tuple[DynamicTable, ReferenceTable]:
    kinds = (DynamicTable, ReferenceTable)
    fast, plain = (kind(spec(dim), width, seed=7, max_rows=max_rows) for kind in kinds)
    return fast, plain


def random_ids(rng: np.random.Generator, rows: int, *, jagged: bool, space: int = 50) -> TableIds:
    """Ids of two features over ``rows`` rows."""
    lengths = rng.integers(0, 4, 2 * rows) if jagged else np.ones(2 * rows, np.int64)
    n = int(lengths.sum())
    logical = np.repeat([0, 1], [int(lengths[:rows].sum()), int(lengths[rows:].sum())])
    raw = np.where(rng.random(n) < 0.2, rng.choice(EDGES, n), rng.integers(-space, space, n))
    places: dict[tuple[int, int], int] = {}
    inverse = np.array(
        [places.setdefault((int(a), int(b)), len(places)) for a, b in zip(logical, raw, strict=True)], np.uint32
    )
    keys = list(places) or []
    return TableIds(
        np.array([k[0] for k in keys], np.uint16),
        np.array([k[1] for k in keys], np.int64),
        inverse,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32) if jagged else None,
    )


def train(table: Any, batches: list[tuple[TableIds, np.ndarray]], now_us: int) -> list[np.ndarray]:
    """One step over several local batches; what was pooled."""
    slots = [table.find_or_insert(ids.logical_U, ids.ids_U, now_us) for ids, _ in batches]
    pooled = []
    for (ids, grad), own in zip(batches, slots, strict=True):
        out = np.full(grad.shape, np.nan, np.float32)
        table.pool(own, ids, out)
        pooled.append(out)
    distinct, into = merge_slots(slots)
    grads = np.zeros((len(distinct), table.width), np.float32)
    for (ids, grad), where in zip(batches, into, strict=True):
        table.accumulate(ids, grad, where, grads)
    table.apply(distinct, grads)
    return pooled


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), jagged=st.booleans(), rows=st.lists(st.integers(0, 9), min_size=1, max_size=4))
def test_equals_the_plain_table(seed: int, jagged: bool, rows: list[int]) -> None:
    rng = np.random.default_rng(seed)
    fast, plain = tables()
    for step in range(3):
        batches = []
        for count in rows:
            ids = random_ids(rng, count, jagged=jagged)
            batches.append((ids, rng.normal(size=(2, count, 4)).astype(np.float32)))
        for got, want in zip(train(fast, batches, step), train(plain, batches, step), strict=True):
            np.testing.assert_array_equal(got, want)
    assert fast.export().equals(plain.export())
    reloaded = DynamicTable(spec(), 4, seed=7, max_rows=100_000)
    reloaded.load(fast.export())
    assert reloaded.export().equals(fast.export())


def test_growth_and_order_of_insertion_change_nothing() -> None:
    """Keys inserted at once, one by one, backwards, and through a reload: the same rows."""
    ids = np.random.default_rng(1).permutation(np.arange(-20_000, 20_000))
    logical = (ids % 2).astype(np.uint16)
    exports = []
    for order in (np.arange(len(ids)), np.argsort(ids), np.argsort(-ids)):
        table = DynamicTable(spec(), 3, seed=1, max_rows=50_000)
        for part in np.array_split(order, 7):
            table.find_or_insert(logical[part], ids[part], 5)
        assert table.rows == len(ids)
        exports.append(table.export())
    assert exports[0].equals(exports[1])
    assert exports[0].equals(exports[2])
    assert np.unique(exports[0]["weights"].combine_chunks().flatten().to_numpy()).size > 100_000


def test_training_after_a_reload_is_the_same() -> None:
    rng = np.random.default_rng(3)
    steps = [
        [(random_ids(rng, 5, jagged=True, space=4000), rng.normal(size=(2, 5, 4)).astype(np.float32))]
        for _ in range(30)
    ]
    straight, _ = tables()
    for now, step in enumerate(steps):
        train(straight, step, now)
    broken, _ = tables()
    for now, step in enumerate(steps):
        if now % 7 == 3:
            fresh, _ = tables()
            fresh.load(broken.export())
            broken = fresh
        train(broken, step, now)
    assert broken.export().equals(straight.export())


def test_first_order_columns_start_at_zero_and_init_is_used() -> None:
    table = DynamicTable(spec(dim=3, init=0.5), 5, seed=1, max_rows=1000)
    ids = np.arange(500)
    table.find_or_insert(np.zeros(500, np.uint16), ids, 0)
    weights = table.export()["weights"].combine_chunks().flatten().to_numpy().reshape(-1, 5)
    assert (weights[:, 3:] == 0).all()
    assert weights[:, :3].min() >= -0.5
    assert weights[:, :3].max() < 0.5
    assert abs(float(weights[:, :3].mean())) < 0.05
    assert weights[:, :3].std() == pytest.approx(0.5 / np.sqrt(3), rel=0.1)


def test_more_rows_than_reserved_are_refused_and_nothing_changes() -> None:
    table = DynamicTable(spec(), 3, seed=1, max_rows=10)
    table.find_or_insert(np.zeros(8, np.uint16), np.arange(8), 0)
    before = table.export()
    with pytest.raises(Exhausted) as caught:
        table.find_or_insert(np.zeros(4, np.uint16), np.array([1, 100, 101, 102]), 9)
    assert "max_rows" in caught.value.do
    assert table.export().equals(before)
    table.find_or_insert(np.zeros(3, np.uint16), np.array([1, 100, 101]), 9)
    assert table.rows == 10


def test_other_tables_and_widths_are_refused() -> None:
    table = DynamicTable(spec(), 3, seed=1, max_rows=10)
    table.find_or_insert(np.zeros(1, np.uint16), np.arange(1), 0)
    exported = table.export()
    with pytest.raises(SchemaMismatch):
        DynamicTable(spec(), 4, seed=1, max_rows=10).load(exported)
    with pytest.raises(SchemaMismatch):
        DynamicTable(spec(logical=("x", "y")), 3, seed=1, max_rows=10).load(exported)
    with pytest.raises(SchemaMismatch):
        table.load(exported)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 100])
def test_merge_equals_the_plain_one(count: int) -> None:
    rng = np.random.default_rng(count)
    parts = [rng.integers(0, 30, size).astype(np.int64) for size in (count, 0, count // 2, count)]
    got, want = merge_slots(parts), merge_slots_reference(parts)
    np.testing.assert_array_equal(got[0], want[0])
    for a, b in zip(got[1], want[1], strict=True):
        np.testing.assert_array_equal(a, b)
    assert merge_slots([])[1] == []


def test_segments_split_evenly() -> None:
    """The index stays within its memory: no more segments than four times what the rows fill."""
    table = DynamicTable(spec(), 3, seed=1, max_rows=300_000)
    ids = np.arange(300_000)
    table.find_or_insert(np.zeros(len(ids), np.uint16), ids, 0)
    assert int(table._shape[1]) <= 4 * len(ids) // kernels.FULL + 4
    assert table.rows == len(ids)
