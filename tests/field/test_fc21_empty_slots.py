"""Field case 21: a slot without ids kills the run ("pad it yourself"). Here an empty list is legal everywhere and adds no id."""

from __future__ import annotations

import pytest

from experiments.view import view_of
from preprocess.contracts import LocalBatch, decode_batch, encode_batch
from preprocess.featurize.batch import Featurizer
from preprocess.featurize.cutting import Cut
from preprocess.featurize.graph import compile_plan
from streams.contracts import Record
from streams.packed import Limits
from tests.preprocess.featurize.samples import assert_same, batch_of, experiment, feed


def _batch(lists: list[object]) -> LocalBatch:
    spec = experiment({"s": {"hash": "x", "table": "t"}, "u": {"id": "l"}}, tables={"default": {"dim": 4}})
    view = view_of(spec, {"s": feed({"x": "list<string>", "l": "list<int64>"})})
    n = len(lists)
    plan = compile_plan(spec, view)
    rows = batch_of(view, {"x": lists, "l": [[7]] * n}, [0] * n)
    (batch,) = Featurizer(plan).batches(rows, [Cut(0, 0, 0, n)])
    packed = encode_batch(batch, plan.layout, lineage={}, compression="none")
    again = decode_batch(Record("exp", 0, 0, None, packed.value, packed.headers), plan.layout, Limits())
    assert_same(batch, again)
    return again


@pytest.mark.parametrize(
    ("lists", "lengths"),
    [
        ([[], [], []], [0, 0, 0]),
        ([["a"], [], ["b", "c"]], [1, 0, 2]),
        ([[], ["a"]], [0, 1]),
        ([["a"], []], [1, 0]),
        ([None, [None], [None, "a"]], [0, 0, 1]),
        ([None], [0]),
    ],
)
def test_empty_in_all_rows_in_one_in_the_first_in_the_last(lists: list[object], lengths: list[int]) -> None:
    (ids,) = _batch(lists).tables.values()
    assert ids.offsets is not None
    n = len(lists)
    assert (ids.offsets[1 : n + 1] - ids.offsets[:n]).tolist() == lengths
    assert (ids.offsets[n + 1 :] - ids.offsets[n:-1]).tolist() == [1] * n
    assert len(ids.inverse_N) == sum(lengths) + n
    assert 0 not in ids.ids_U.tolist(), "no id was made up for an empty slot"
