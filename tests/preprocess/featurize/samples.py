"""Rows of all types for the tests of featurize, and comparison of batches."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa

from experiments.experiment import Experiment
from experiments.feed import Feed
from experiments.view import View, view_of
from preprocess.contracts import LocalBatch, joined_schema

NAN, INF = float("nan"), float("inf")

AWKWARD: dict[str, list[object]] = {
    "int64": [0, -1, -2, 1, 2, 3, 40, -(2**63), 2**63 - 1, 123456789012345],
    "uint64": [0, 1, 2, 3, 2**63, 2**63 - 1, 2**64 - 1, 2**64 - 2],
    "bool": [True, False],
    "float32": [0.0, -0.0, NAN, INF, -INF, -1.0, 1.0, 3.5, 1e-45, 3.4028234663852886e38],
    "float64": [0.0, -0.0, NAN, INF, -INF, -1.0, 1.0, 3.5, 5e-324, 1e308, -1e308, 0.1],
    "string": ["", "a", "é", "日本", "x" * 7, "x" * 8, "x" * 31, "x" * 32, "x" * 33, "y" * 75],
    "bytes": [b"", b"\0", b"\xff" * 3, b"0123456789abcdef" * 3, b"z" * 100],
    "timestamp": [
        0,
        -1,
        -3_600_000_000,
        1_700_000_000_000_000,
        1_699_164_000_000_000,
        1_699_163_999_999_999,
        -62 * 10**15,
    ],
}
"""Values of each type at the edges of what is legal, and some that repeat."""


def cells(kind: str, n: int, rng: random.Random) -> list[object]:
    """n values; sometimes without a null, sometimes all null, sometimes exactly one item in every list."""
    null_share = rng.choice([0.0, 0.3, 1.0])
    if not kind.startswith("list<"):
        return [None if rng.random() < null_share else rng.choice(AWKWARD[kind]) for _ in range(n)]
    if rng.random() < 0.3:
        return [[rng.choice(AWKWARD[kind[5:-1]])] for _ in range(n)]
    return [None if rng.random() < null_share else [*cells(kind[5:-1], rng.randrange(6), rng)] for _ in range(n)]


def feed(columns: dict[str, str], **changes: object) -> Feed:
    return Feed.model_validate(
        {
            "feed": "s",
            "files": {"url": "data"},
            "format": "parquet",
            "columns": {"t": "int64", "y": "float32", **columns},
            "event_time": {"column": "t", "unit": "us"},
            "key": ["t"],
            **changes,
        }
    )


def experiment(features: dict[str, object], **changes: object) -> Experiment:
    return Experiment.model_validate(
        {
            "experiment": "e",
            "sample": "s",
            "labels": {"y": {"column": "y"}},
            "features": features,
            "model": "lr",
            **changes,
        }
    )


ALL_TYPES = {f"c_{name}": name for name in AWKWARD} | {f"l_{name}": f"list<{name}>" for name in AWKWARD}


def wide() -> tuple[Experiment, View]:
    """Every kind of feature over every type it takes, in three physical tables."""
    features: dict[str, object] = {}
    for name in AWKWARD:
        features[f"h_{name}"] = {"hash": f"c_{name}"}
        features[f"hl_{name}"] = {"hash": f"l_{name}", "last": 2, "pool": "mean", "table": "lists"}
        if name not in ("string", "bytes", "timestamp"):
            features[f"d_{name}"] = {"dense": f"c_{name}", "ops": [{"scale": 2.5, "offset": 1}, {"clip": [-3, 1e300]}]}
    features |= {
        "again": {"hash": "c_int64", "table": "h_int64"},
        "as_int": {"id": "c_int64", "table": "plain"},
        "as_uint": {"id": "c_uint64", "table": "plain"},
        "list_ids": {"id": "l_int64", "table": "plain", "last": 3},
        "list_all": {"id": "l_uint64", "table": "plain"},
        "cross": {"cross": ["c_int64", "c_string", "c_float64"]},
        "hour": {"hour_of": "event_time", "zone": "Asia/Kathmandu", "table": "clock"},
        "stamp_hour": {"hour_of": "c_timestamp", "zone": "America/New_York", "table": "clock"},
        "day": {"day_of_week": "c_timestamp", "table": "days"},
        "d_log": {"dense": "c_float64", "ops": ["log1p", "sqrt"], "default": -7},
        "d_huge": {"dense": "c_float64", "ops": [{"scale": 1e300}], "default": 3},
    }
    spec = experiment(features, tables={"plain": {"dim": 8}, "clock": {"dim": 4}, "days": {"dim": 4}})
    return spec, view_of(spec, {"s": feed(ALL_TYPES)})


def batch_of(view: View, columns: dict[str, list[object]], times: list[int]) -> pa.RecordBatch:
    """Joined rows; columns not named are null."""
    n = len(times)
    arrays = []
    for field in joined_schema(view):
        if field.name in columns:
            arrays.append(pa.array(columns[field.name], field.type))
        elif field.name == "__time":
            arrays.append(pa.array(times, pa.int64()))
        elif field.name == "__file":
            arrays.append(pa.array([f"f{i % 3}.tsv" for i in range(n)], pa.string()))
        elif field.name == "__row":
            arrays.append(pa.array(range(n), pa.int64()))
        elif field.name.startswith("label."):
            arrays.append(pa.array([i % 2 for i in range(n)], pa.float32()))
        else:
            arrays.append(pa.nulls(n, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=joined_schema(view))


def assert_same(left: LocalBatch, right: LocalBatch, *, ulps: int = 0) -> None:
    """Equal in every array, dtype and bit; dense within some units in the last place."""
    assert (left.bucket, left.number, left.files) == (right.bucket, right.number, right.files)
    for name in ("labels_B", "weights_B", "times_B", "file_B", "row_B"):
        _assert_array(getattr(left, name), getattr(right, name), name)
    assert left.dense_BX.shape == right.dense_BX.shape
    assert np.isfinite(left.dense_BX).all()
    if ulps:
        np.testing.assert_array_max_ulp(left.dense_BX, right.dense_BX, maxulp=ulps)
    else:
        np.testing.assert_array_equal(left.dense_BX, right.dense_BX)
    assert left.tables.keys() == right.tables.keys()
    for name, ids in left.tables.items():
        other = right.tables[name]
        for part in ("logical_U", "ids_U", "inverse_N"):
            _assert_array(getattr(ids, part), getattr(other, part), f"{name}.{part}")
        assert (ids.offsets is None) == (other.offsets is None), name
        if ids.offsets is not None and other.offsets is not None:
            _assert_array(ids.offsets, other.offsets, f"{name}.offsets")


def _assert_array(left: np.ndarray, right: np.ndarray, name: str) -> None:
    assert left.dtype == right.dtype, (name, left.dtype, right.dtype)
    np.testing.assert_array_equal(left, right, err_msg=name)
