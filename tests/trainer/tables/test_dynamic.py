"""The dynamic table against the plain one, over odd shapes, growth and reloading."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.experiment import RowwiseAdagrad
from preprocess.contracts import IdFeature, PhysicalTable, TableIds
from streams.errors import Exhausted, SchemaMismatch
from trainer.tables.dynamic import DynamicTable
from trainer.tables.merge import merge_slots, merge_slots_reference
from trainer.tables.reference import ReferenceTable

EDGES = [0, -1, -2, 1, -(2**63), 2**63 - 1, 2**32, -(2**32)]


def spec(dim: int = 3, logical: tuple[str, ...] = ("a", "b"), init: float = 0.1, initial: float = 0.0) -> PhysicalTable:
    features = (IdFeature("f", 0, "sum"), IdFeature("g", len(logical) - 1, "mean"))
    return PhysicalTable("a", dim, init, RowwiseAdagrad(lr=0.1, initial=initial), logical, features)


def tables(
    dim: int = 3, width: int = 4, max_rows: int = 100_000, initial: float = 0.0
) -> tuple[DynamicTable, ReferenceTable]:
    kinds = (DynamicTable, ReferenceTable)
    fast, plain = (kind(spec(dim, initial=initial), width, seed=7, max_rows=max_rows) for kind in kinds)
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
    arrays = (
        np.array([k[0] for k in places], np.uint16),
        np.array([k[1] for k in places], np.int64),
        inverse,
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
    )
    for array in arrays:
        array.flags.writeable = bool(rng.integers(2))  # those of a decoded batch are read-only
    return TableIds(*arrays) if jagged else TableIds(*arrays[:3], None)


def train(table: Any, batches: list[tuple[TableIds, np.ndarray]], now_us: int) -> list[np.ndarray]:
    """One step over several local batches, as the learner does it, in views of one array; what was pooled."""
    slots = [table.find_or_insert(ids.logical_U, ids.ids_U, now_us) for ids, _ in batches]
    together = np.full((2, sum(grad.shape[1] for _, grad in batches), table.width), np.nan, np.float32)
    pooled = np.split(together, np.cumsum([grad.shape[1] for _, grad in batches])[:-1], axis=1)
    for (ids, _), own, out in zip(batches, slots, pooled, strict=True):
        table.pool(own, ids, out)
    distinct, into = merge_slots(slots)
    grads = np.zeros((len(distinct), table.width), np.float32)
    for (ids, grad), where in zip(batches, into, strict=True):
        grad.flags.writeable = False
        table.accumulate(ids, grad, where, grads)
    table.apply(distinct, grads)
    return pooled


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    jagged=st.booleans(),
    rows=st.lists(st.integers(0, 9), min_size=1, max_size=4),
    dim=st.sampled_from([1, 3, 4, 8]),
    extra=st.integers(0, 1),
    initial=st.sampled_from([0.0, 0.1]),
)
def test_equals_the_plain_table(seed: int, jagged: bool, rows: list[int], dim: int, extra: int, initial: float) -> None:
    rng = np.random.default_rng(seed)
    width = dim + extra
    fast, plain = tables(dim, width, initial=initial)
    for step in range(3):
        batches = []
        for count in rows:
            ids = random_ids(rng, count, jagged=jagged)
            batches.append((ids, rng.normal(size=(2, count, width)).astype(np.float32)))
        for got, want in zip(train(fast, batches, step), train(plain, batches, step), strict=True):
            np.testing.assert_array_equal(got, want)
    assert fast.export().read_all().equals(plain.export().read_all())
    reloaded, _ = tables(dim, width, initial=initial)
    reloaded.load(fast.export())
    assert reloaded.export().read_all().equals(fast.export().read_all())


class Step(NamedTuple):
    """Keys of one look-up, and whether the table is saved and loaded before it."""

    seed: int
    count: int
    reload: bool


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.builds(
            Step, st.integers(0, 9), st.sampled_from([0, 1, 2, 3, 255, 256, 257, 300, 2047, 2048, 6000]), st.booleans()
        ),
        min_size=1,
        max_size=8,
    )
)
def test_finds_what_a_dict_finds(steps: list[Step]) -> None:
    """Insert, grow, save, load: counts, times and slots of the same keys as in a dict."""
    table, _ = tables(max_rows=60_000)
    model: dict[tuple[int, int], tuple[int, int]] = {}
    for now, step in enumerate(steps):
        if step.reload:
            fresh, _ = tables(max_rows=60_000)
            fresh.load(table.export())
            table = fresh
        rng = np.random.default_rng(step.seed)
        keys = np.unique(np.stack([rng.integers(0, 2, step.count), rng.integers(-9000, 9000, step.count)]), axis=1)
        slots = table.find_or_insert(keys[0].astype(np.uint16), keys[1], now)
        assert len(np.unique(slots)) == keys.shape[1]
        for key in zip(*keys.tolist(), strict=True):
            model[key] = (model.get(key, (0, 0))[0] + 1, now)
    got = {
        (table.spec.logical.index(row["logical"]), row["id"]): (row["count"], row["last_seen"])
        for row in table.export().read_all().to_pylist()
    }
    assert got == model


def test_one_id_each_is_the_same_with_and_without_offsets() -> None:
    rng = np.random.default_rng(8)
    ids = random_ids(rng, 20, jagged=False)
    grad = rng.normal(size=(2, 20, 4)).astype(np.float32)
    results = []
    for offsets in (None, np.arange(41, dtype=np.int32)):
        table, _ = tables()
        pooled = [train(table, [(replace(ids, offsets=offsets), grad)], now)[0] for now in range(3)]
        results.append((table.export().read_all(), np.stack(pooled).tobytes()))
    assert results[0][0].equals(results[1][0])
    assert results[0][1] == results[1][1]


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
        exports.append(table.export().read_all())
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
    assert broken.export().read_all().equals(straight.export().read_all())


def test_first_order_columns_start_at_zero_and_init_is_used() -> None:
    table = DynamicTable(spec(dim=3, init=0.5), 5, seed=1, max_rows=1000)
    ids = np.arange(500)
    table.find_or_insert(np.zeros(500, np.uint16), ids, 0)
    weights = table.export().read_all()["weights"].combine_chunks().flatten().to_numpy().reshape(-1, 5)
    assert (weights[:, 3:] == 0).all()
    assert weights[:, :3].min() >= -0.5
    assert weights[:, :3].max() < 0.5
    assert abs(float(weights[:, :3].mean())) < 0.05
    assert weights[:, :3].std() == pytest.approx(0.5 / np.sqrt(3), rel=0.1)


def test_more_rows_than_reserved_are_refused_and_nothing_changes() -> None:
    table = DynamicTable(spec(), 3, seed=1, max_rows=10)
    table.find_or_insert(np.zeros(8, np.uint16), np.arange(8), 0)
    before = table.export().read_all()
    with pytest.raises(Exhausted) as caught:
        table.find_or_insert(np.zeros(4, np.uint16), np.array([1, 100, 101, 102]), 9)
    assert "max_rows" in caught.value.do
    assert table.export().read_all().equals(before)
    table.find_or_insert(np.zeros(3, np.uint16), np.array([1, 100, 101]), 9)
    assert table.rows == 10


def test_other_tables_and_widths_are_refused() -> None:
    table = DynamicTable(spec(), 3, seed=1, max_rows=10)
    table.find_or_insert(np.zeros(1, np.uint16), np.arange(1), 0)
    exported = table.export().read_all()
    with pytest.raises(SchemaMismatch):
        DynamicTable(spec(), 4, seed=1, max_rows=10).load(exported.to_reader())
    with pytest.raises(SchemaMismatch):
        DynamicTable(spec(logical=("x", "y")), 3, seed=1, max_rows=10).load(exported.to_reader())
    with pytest.raises(SchemaMismatch):
        table.load(exported.to_reader())


def crafted(count: int) -> np.ndarray:
    """Ids of logical table 0 whose hashes differ only in their highest bits: all belong in one segment, at one place."""
    inverse_a, inverse_b = (pow(a, -1, 2**64) for a in (0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
    ids = []
    for high in range(count):
        x = high << 44
        x ^= (x >> 31) ^ (x >> 62)
        x = x * inverse_b % 2**64
        x ^= (x >> 27) ^ (x >> 54)
        x = x * inverse_a % 2**64
        x ^= (x >> 30) ^ (x >> 60)
        ids.append((x - 0x9E3779B97F4A7C15) % 2**64)
    return np.array(ids, np.uint64).view(np.int64)


def test_crafted_ids_are_kept_up_to_a_segment_then_refused_and_nothing_changes() -> None:
    table, _ = tables()
    ids = crafted(5000)
    zeros = np.zeros(5000, np.uint16)
    others = np.arange(3000)
    table.find_or_insert(zeros[:3000], others, 0)
    slots = table.find_or_insert(zeros[:2500], ids[:2500], 1)
    before = table.export().read_all()
    with pytest.raises(Exhausted):
        table.find_or_insert(zeros, np.concatenate([np.arange(5000, 5800), ids[:4200]]), 2)
    with pytest.raises(Exhausted):
        table.find_or_insert(zeros, ids, 2)
    assert table.export().read_all().equals(before)
    np.testing.assert_array_equal(table.find_or_insert(zeros[:2500], ids[:2500], 1), slots)
    table.find_or_insert(zeros[:1000], ids[2500:3500], 3)
    table.find_or_insert(zeros[:3000], others, 3)
    assert table.rows == 3000 + 3500


def test_rows_with_the_same_key_are_not_loaded() -> None:
    table, _ = tables()
    table.find_or_insert(np.zeros(3, np.uint16), np.arange(3), 0)
    rows = table.export().read_all()
    with pytest.raises(SchemaMismatch):
        tables()[0].load(pa.concat_tables([rows, rows.slice(1, 1)]).to_reader())


LITTLE_ADDRESS_SPACE = """
import resource
import numpy as np
from tests.trainer.tables.test_dynamic import spec
from streams.errors import Exhausted
from trainer.tables.dynamic import DynamicTable
in_use = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (in_use + 2**30,) * 2)
table = DynamicTable(spec(), 4, seed=1, max_rows=10**9)
ids = np.arange(100_000)
try:
    for start in range(0, 10**9, 100_000):
        table.find_or_insert(np.zeros(100_000, np.uint16), ids + start, 0)
except Exhausted as error:
    print(table.rows, error.do)
"""


def test_with_little_address_space_it_holds_fewer_rows_and_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LITTLE_ADDRESS_SPACE], capture_output=True, text=True, check=True, timeout=200
    )
    rows, do = done.stdout.split(" ", 1)
    assert 100_000 <= int(rows) < 10**8
    assert "ulimit -v" in do


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
    """The index stays within its memory: segments are a quarter full on average, at least."""
    table = DynamicTable(spec(), 3, seed=1, max_rows=300_000)
    ids = np.arange(300_000)
    table.find_or_insert(np.zeros(len(ids), np.uint16), ids, 0)
    assert int(table._index.shape[1]) <= len(ids) // 1000
    assert table.rows == len(ids)
