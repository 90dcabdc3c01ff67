"""Field case 23: padding id 0 trained as a real item, or a real item 0 frozen as padding. No padding exists: a real 0 is an
id like any other, and what is missing is no id."""

from __future__ import annotations

import pytest

from experiments.view import view_of
from preprocess.featurize.batch import Featurizer
from preprocess.featurize.cutting import Cut
from preprocess.featurize.graph import compile_plan
from tests.preprocess.featurize.samples import batch_of, experiment, feed


@pytest.mark.parametrize("kind", ["int64", "uint64"])
def test_a_real_zero_is_an_id_and_a_null_is_none(kind: str) -> None:
    spec = experiment({"item": {"id": "x"}})
    view = view_of(spec, {"s": feed({"x": kind})})
    rows = batch_of(view, {"x": [0, None, 0, 5]}, [0] * 4)
    (batch,) = Featurizer(compile_plan(spec, view)).batches(rows, [Cut(0, 0, 0, 4)])
    (ids,) = batch.tables.values()
    assert ids.ids_U.tolist() == [0, 5]
    assert ids.inverse_N.tolist() == [0, 0, 1]
    assert ids.offsets is not None
    assert ids.offsets.tolist() == [0, 1, 1, 2, 3]


def test_zeros_inside_lists_and_two_tables_with_a_zero() -> None:
    spec = experiment({"a": {"id": "l", "last": 2}, "b": {"id": "x"}})
    view = view_of(spec, {"s": feed({"x": "int64", "l": "list<int64>"})})
    rows = batch_of(view, {"x": [0, 0], "l": [[9, 0, None, 0], []]}, [0, 0])
    (batch,) = Featurizer(compile_plan(spec, view)).batches(rows, [Cut(0, 0, 0, 2)])
    (ids,) = batch.tables.values()
    assert list(zip(ids.logical_U.tolist(), ids.ids_U.tolist(), strict=True)) == [(0, 0), (1, 0)]
    assert ids.inverse_N.tolist() == [0, 0, 1, 1]
