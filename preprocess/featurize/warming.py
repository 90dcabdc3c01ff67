"""Compile all kernels of featurize once, so that no first batch waits seconds for it (numba keeps them on disk)."""

from __future__ import annotations

import pyarrow as pa

from experiments.experiment import Experiment
from experiments.feed import Feed
from experiments.view import view_of
from preprocess.contracts import joined_schema
from preprocess.featurize.batch import Featurizer
from preprocess.featurize.cutting import Cut
from preprocess.featurize.graph import compile_plan

_FEATURES: dict[str, object] = {
    "number": {"dense": "n", "ops": ["log1p"]},
    "hashed": {"hash": "n"},
    "text": {"hash": "s"},
    "plain": {"id": "n"},
    "list_hashed": {"hash": "l"},
    "list_plain": {"id": "l"},
    "cross": {"cross": ["n", "s"]},
    "hour": {"hour_of": "t"},
}


def warm() -> None:
    """Featurize two made-up rows that pass every kernel in every way it is called. Takes seconds the first time."""
    feed = Feed.model_validate(
        {
            "feed": "warm",
            "files": {"url": "."},
            "format": "parquet",
            "columns": {"n": "int64", "s": "string", "l": "list<int64>", "t": "timestamp"},
            "event_time": {"column": "t"},
            "key": ["n"],
        }
    )
    experiment = Experiment.model_validate(
        {
            "experiment": "warm",
            "sample": "warm",
            "labels": {"y": {"column": "n"}},
            "features": _FEATURES,
            "model": "lr",
        }
    )
    view = view_of(experiment, {"warm": feed})
    rows = [
        {"n": 1, "s": "a", "l": [1, 2], "t": 0, "label.y": 0.0, "__time": 0, "__file": "f", "__row": 0},
        {"n": None, "s": None, "l": None, "t": None, "label.y": 0.0, "__time": 0, "__file": "f", "__row": 1},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=joined_schema(view))
    featurizer = Featurizer(compile_plan(experiment, view))
    featurizer.batches(batch, [Cut(0, 0, 0, 2)])
    featurizer.batches(batch, [Cut(0, 0, 0, 1)])
