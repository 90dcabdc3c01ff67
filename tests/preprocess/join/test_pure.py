"""Order, cuts, labels and look-ups against plain versions."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.experiment import ColumnLabel
from experiments.feed import Cuts
from experiments.view import LookupTable
from ingest.contracts import T_END
from preprocess.join.cuts import ends_of_messages, ends_of_messages_reference
from preprocess.join.labels import label_of
from preprocess.join.lookups import LookupIndex, TableRows
from preprocess.join.order import Chunk, RowKey, bounds_up_to, chunk_of, in_order, in_order_reference, split_final
from preprocess.join.rejected import label_rows
from streams.dead_letters import DeadLetter
from tests.preprocess.join.world import table_feed

chunk_strategy = st.lists(
    st.tuples(st.sampled_from(["a", "b", "b/c"]), st.lists(st.integers(0, 6), min_size=1, max_size=6)), max_size=6
)


def chunks_of(drawn: list[tuple[str, list[int]]]) -> list[Chunk]:
    rows_of: dict[str, int] = {}
    chunks = []
    for offset, (file, times) in enumerate(drawn):
        first = rows_of.get(file, 0)
        rows_of[file] = first + len(times)
        rows = np.arange(first, first + len(times))
        columns = pa.record_batch({"x": pa.array([None if r % 3 == 0 else int(r) for r in rows], pa.int64())})
        chunks.append(chunk_of(columns, np.array(times, np.int64), rows, file, offset))
    return chunks


@settings(max_examples=200, deadline=None)
@given(chunk_strategy, st.randoms(use_true_random=False), st.integers(0, 7))
def test_order_equals_the_plain_one(drawn: list[tuple[str, list[int]]], random, W: int) -> None:  # type: ignore[no-untyped-def]
    chunks = chunks_of(drawn)
    random.shuffle(chunks)
    final, pending = split_final(chunks, W)
    want = [key for key in in_order_reference(chunks) if key.time_us < W]
    assert sum(len(c.times_N) for c in pending) == sum(len(c.times_N) for c in chunks) - len(want)
    if not final:
        assert not want
        return
    got = in_order(final)
    keys = [RowKey(int(t), got.files[f], int(r)) for t, f, r in zip(got.times_N, got.file_N, got.rows_N, strict=True)]
    assert keys == want
    assert got.file_column().to_pylist() == [key.file for key in want]
    assert got.columns["x"].to_pylist() == [None if key.row % 3 == 0 else key.row for key in want]
    assert [chunks_by.offset for chunks_by in chunks if chunks_by.offset in set(got.offsets_N.tolist())]


@settings(max_examples=200, deadline=None)
@given(chunk_strategy, st.tuples(st.integers(-1, 7), st.sampled_from(["", "a", "b", "b/c", "z"]), st.integers(-1, 12)))
def test_after_a_key(drawn: list[tuple[str, list[int]]], key: tuple[int, str, int]) -> None:
    for chunk in chunks_of(drawn):
        rest = chunk.after(RowKey(*key))
        got = [] if rest is None else in_order_reference([rest])
        assert got == [k for k in in_order_reference([chunk]) if k > RowKey(*key)]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(-20, 60), max_size=40),
    st.integers(1, 7),
    st.sampled_from([None, 1, 5, 10]),
    st.sampled_from([-20, 0, 30, 59, 60, 61, 70, T_END]),
)
def test_cuts_equal_the_plain_ones(times: list[int], rows: int, every: int | None, W: int) -> None:
    ordered = np.sort(np.array(times, np.int64))
    cuts = Cuts.model_construct(rows=rows, every=every)
    assert ends_of_messages(ordered, cuts, W).tolist() == ends_of_messages_reference(ordered, cuts, W)


@pytest.mark.parametrize(
    ("column", "rule", "labels", "usable"),
    [
        (
            pa.array([3.0, 4.0, 5.0, None, float("nan"), 6.0]),
            {"at_least": 4, "range": [1, 5]},
            [0, 1, 1, 0, 0, 0],
            [1, 1, 1, 0, 0, 0],
        ),
        (pa.array([0, 1, 2, -1, None]), {}, [0, 1, 0, 0, 0], [1, 1, 0, 0, 0]),
        (pa.array([True, False, None]), {}, [1, 0, 0], [1, 1, 0]),
        (pa.array(["click", "view", None]), {"equals": "click"}, [1, 0, 0], [1, 1, 0]),
        (pa.array([2, 3, 2], pa.uint64()), {"equals": 2}, [1, 0, 1], [1, 1, 1]),
        (pa.array([float("inf"), 1.0]), {"at_least": 0}, [0, 1], [0, 1]),
        (pa.array([], pa.int64()), {}, [], []),
    ],
)
def test_labels(column: pa.Array, rule: dict[str, object], labels: list[int], usable: list[int]) -> None:
    got = label_of(column, ColumnLabel.model_validate({"column": "x"} | rule))
    assert got[0].dtype == np.float32
    assert got[0].tolist() == labels
    assert got[1].tolist() == [bool(u) for u in usable]


@pytest.mark.parametrize("key_type", ["int64", "uint64", "string"])
def test_lookup_takes_the_first_of_equal_keys(key_type: str) -> None:
    def key(n: int) -> object:
        return str(n) if key_type == "string" else n

    feed = table_feed(key_type)
    arrow = feed.columns["item_id"].type
    big = 2**64 - 1 if key_type == "uint64" else 9
    parts = [("b", [1, 2, big], [10, 20, 90]), ("a", [2, 3, 2], [21, 30, 22]), ("c", [], [])]
    kind = {"int64": pa.int64(), "uint64": pa.uint64(), "string": pa.string()}[arrow]
    rows = [
        TableRows(
            pa.record_batch({"item_id": pa.array([key(k) for k in keys], kind), "price": pa.array(v, pa.float64())}),
            file,
            np.arange(len(keys)),
        )
        for file, keys, v in parts
    ]
    index = LookupIndex(LookupTable("item", feed, "item_id"), rows)
    asked = pa.array([key(2), key(7), None, key(big), key(1), key(3)], kind)
    got = index.columns_for(asked)
    assert got[1].to_pylist() == [21.0, None, None, 90.0, 10.0, 30.0]
    assert got[0].to_pylist() == [key(2), None, None, key(big), key(1), key(3)]
    assert index.duplicates() == [("a", 2), ("b", 1)]
    assert index.duplicates(1, 2) == [("b", 1)]
    assert index.num_duplicates == 2
    empty = LookupIndex(LookupTable("item", feed, "item_id"), [])
    assert empty.columns_for(asked)[1].to_pylist() == [None] * 6
    assert [len(column) for column in index.columns_for(asked.slice(0, 0))] == [0, 0]


LABELS = st.lists(
    st.one_of(st.none(), st.sampled_from([0.0, 1.0, 2.0, -1.0, float("nan"), float("inf")])), min_size=1, max_size=20
)


@settings(max_examples=150, deadline=None)
@given(LABELS, LABELS, st.integers(0, 3), st.integers(-1, 20))
def test_rejected_rows_equal_the_plain_ones(
    first: list[float | None], second: list[float | None], time: int, row: int
) -> None:
    count = min(len(first), len(second))
    values = {"x": pa.array(first[:count], pa.float64()), "y": pa.array(second[:count], pa.float64())}
    chunk = chunk_of(pa.record_batch(values), np.arange(count) // 4, np.arange(count), "f", 3)
    rules = [ColumnLabel(column="x", range=(0, 1), at_least=0.5), ColumnLabel(column="y")]
    columns, usable, rejected = label_rows(in_order([chunk]), rules, RowKey(time, "f", row))
    want = []
    for at in range(count):
        x, y = first[at], second[at]
        bad = "x" if x is None or not 0 <= x <= 1 else "y" if y is None or y not in (0, 1) else ""
        assert bool(usable[at]) == (not bad)
        if bad and RowKey(at // 4, "f", at) > RowKey(time, "f", row):
            want.append((RowKey(at // 4, "f", at), f"column {bad}: expected "))
        if not bad:
            assert [column[at].as_py() for column in columns] == [float(x or 0), float(y or 0)]
    letters = [DeadLetter(**letter) for letter in rejected.letters.to_pylist()]
    assert [(rejected.key_at(at), letter.detail[:19]) for at, letter in enumerate(letters)] == want
    assert all(letter.detail.endswith(f"got {letter.raw.decode()}") for letter in letters)
    assert {letter.reason for letter in letters} <= {"bad-label"}
    assert rejected.offsets_N.tolist() == [3] * len(want)


def test_one_run_of_rows_is_a_view_and_a_few_rows_are_not() -> None:
    chunk = chunk_of(pa.record_batch({"x": np.arange(1000)}), np.arange(1000), np.arange(1000), "f", 0)
    address = chunk.columns.column(0).buffers()[1].address  # type: ignore[union-attr]
    for low, shared in ((500, True), (990, False)):
        part = chunk.part(low, 1000)
        assert part is not None
        assert (part.columns.column(0).buffers()[1].address == address) == shared  # type: ignore[union-attr]
        assert part.columns.column(0).to_pylist() == list(range(low, 1000))
    for low in range(0, 1000, 100):  # what is left of what is left pins no message either
        assert chunk is not None
        chunk = chunk.part(100 if low else 0, len(chunk.times_N))
    assert chunk is not None
    assert (chunk.pinned, chunk.columns.column(0).to_pylist()) == (100, list(range(900, 1000)))


@settings(max_examples=200, deadline=None)
@given(chunk_strategy, st.integers(0, 7), st.integers(1, 9))
def test_bounds_divide_final_rows(drawn: list[tuple[str, list[int]]], W: int, rows: int) -> None:
    chunks = chunks_of(drawn)
    times = sorted(time for _, times in drawn for time in times if time < W)
    bounds = bounds_up_to(chunks, W, rows)
    assert bounds[-1] == W
    assert bounds == sorted(set(bounds))
    low = -1
    for bound in bounds:
        part = [time for time in times if low <= time < bound]
        assert len(part) <= rows + times.count(part[0]) if part else bound == W
        low = bound
    whole = in_order_reference(split_final(chunks, W)[0])
    pieces = []
    for bound in bounds:
        final, chunks = split_final(chunks, bound)
        pieces += in_order_reference(final)
    assert pieces == whole
