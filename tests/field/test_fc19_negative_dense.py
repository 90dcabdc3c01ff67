"""Field case 19: NaN loss on Criteo, from log(x + 1) of a negative count. Sibling inputs: sqrt, infinite, too big for float32."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.view import view_of
from preprocess.featurize.batch import Featurizer
from preprocess.featurize.cutting import Cut
from preprocess.featurize.graph import compile_plan
from tests.preprocess.featurize.samples import batch_of, experiment, feed


def _dense(kind: str, values: list[object], **feature: object) -> tuple[list[float], int]:
    spec = experiment({"d": {"dense": "x", **feature}, "i": {"id": "t"}})
    view = view_of(spec, {"s": feed({"x": kind})})
    featurizer, n = Featurizer(compile_plan(spec, view)), len(values)
    rows = batch_of(view, {"x": values, "t": [0] * n}, [0] * n)
    (batch,) = featurizer.batches(rows, [Cut(0, 0, 0, n)])
    return batch.dense_BX[:, 0].tolist(), featurizer.replaced


@pytest.mark.parametrize("kind", ["int64", "float32", "float64"])
def test_the_case(kind: str) -> None:
    found, replaced = _dense(kind, [-3, -1, 0, 5, None], ops=["log1p"])
    assert found == [0.0, 0.0, 0.0, float(np.float32(math.log(6))), 0.0]
    assert replaced == 1, "the empty cell is counted"


def test_siblings() -> None:
    assert _dense("float64", [-3.0, 4.0, None], ops=["sqrt"], default=9)[0] == [0.0, 2.0, 3.0]
    most = float(np.finfo(np.float32).max)
    found, replaced = _dense("float64", [1e300, -1e300, math.inf, -math.inf, math.nan], default=7)
    assert (found, replaced) == ([most, -most, 7.0, 7.0, 7.0], 3)
    assert _dense("uint64", [2**64 - 1], ops=["log1p"])[0] == [float(np.float32(math.log(2.0**64)))]
    assert _dense("int64", [-(2**63), 2**63 - 1], ops=["log1p"])[0] == [0.0, float(np.float32(math.log(2.0**63)))]
    assert _dense("float64", [1e308], ops=[{"scale": 1e308}])[0] == [most]
