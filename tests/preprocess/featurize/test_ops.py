from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.experiment import Clip, Scale
from experiments.view import view_of
from preprocess.contracts import TableIds
from preprocess.featurize import ops
from preprocess.featurize.batch import Featurizer
from preprocess.featurize.cutting import Cut
from preprocess.featurize.graph import compile_plan
from tests.preprocess.featurize.samples import batch_of, experiment, feed

PAGE = (Path(__file__).parents[3] / "docs" / "feature-hash.md").read_text()
VECTORS = re.findall(r"^\| (item|pair) \| (.+?) \| (.+) \| (-?\d+) \|$", PAGE, re.MULTILINE)


def _value(kind: str, text: str) -> Any:
    if text == "null":
        return None
    if kind == "string":
        return text[1:-1]
    if kind == "bytes":
        return bytes.fromhex(text.removeprefix("hex "))
    if kind == "bool":
        return text == "True"
    return float(text) if kind.startswith("float") else int(text)


def _ids(features: dict[str, object], columns: dict[str, str], values: dict[str, list[object]]) -> TableIds:
    spec = experiment(features)
    view = view_of(spec, {"s": feed(columns)})
    (batch,) = Featurizer(compile_plan(spec, view)).batches(batch_of(view, values, [0]), [Cut(0, 0, 0, 1)])
    (ids,) = batch.tables.values()
    return ids


def test_the_page_has_vectors() -> None:
    assert len(VECTORS) == 20
    assert f'`seed("item")` = 0x{ops.seed_of("item"):016x}' in PAGE


@pytest.mark.parametrize(("table", "kind", "text", "expected"), VECTORS)
def test_vectors_of_the_page(table: str, kind: str, text: str, expected: str) -> None:
    seed = ops.seed_of(table)
    if table == "item":
        value = _value(kind, text)
        hashed = ops.hash_value(value, seed)
        ids = _ids({"f": {"hash": "x", "table": table}}, {"x": kind}, {"x": [value]})
    else:
        kinds = kind.removeprefix("cross of ").split(", ")
        values = [_value(k, part) for k, part in zip(kinds, text.split(", "), strict=True)]
        hashed = ops.cross_values(values, seed)
        ids = _ids(
            {"f": {"cross": ["x", "y"], "table": table}},
            {"x": kinds[0], "y": kinds[1]},
            {"x": values[:1], "y": values[1:]},
        )
    assert hashed is not None
    assert ops.signed(hashed) == int(expected)
    assert ids.ids_U.tolist() == [int(expected)]


@given(st.integers(0, 2**64 - 1))
def test_mix64_can_be_undone(value: int) -> None:
    def unshift(x: int, by: int) -> int:
        y = x
        for _ in range(64 // by):
            y = x ^ (y >> by)
        return y

    mixed = ops.mix64(value)
    back = unshift(mixed, 31) * pow(0x94D049BB133111EB, -1, 2**64) & ops.MASK
    back = unshift(back, 27) * pow(0xBF58476D1CE4E5B9, -1, 2**64) & ops.MASK
    assert unshift(back, 30) == value


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia"])
def test_clock_and_calendar_of_a_zone(zone: str) -> None:
    """Every hour of some weeks around changes of the clock, and times before 1970."""
    hour = 3_600_000_000
    changes = [1_699_164_000, 1_710_054_000, 1_325_239_200, -1_000_000_000, 0]
    times = [c * 1_000_000 + h * hour + d for c in changes for h in range(-40, 40) for d in (-1, 0, 1)]
    spec = experiment({"h": {"hour_of": "x", "zone": zone}, "d": {"day_of_week": "x", "zone": zone}})
    view = view_of(spec, {"s": feed({"x": "timestamp"})})
    n = len(times)
    rows = batch_of(view, {"x": list(times)}, [0] * n)
    (batch,) = Featurizer(compile_plan(spec, view)).batches(rows, [Cut(0, 0, 0, n)])
    ids = next(iter(batch.tables.values()))
    found = ids.ids_U[ids.inverse_N]
    assert found[:n].tolist() == [ops.day_of_week(t, zone) for t in times]
    assert found[n:].tolist() == [ops.hour_of(t, zone) for t in times]


def test_the_ends_of_time_have_an_hour() -> None:
    stamps = pa.array([-(2**63), 2**63 - 1, 0], pa.int64()).view(pa.timestamp("us", tz="UTC"))
    spec = experiment({"h": {"hour_of": "x"}})
    view = view_of(spec, {"s": feed({"x": "timestamp"})})
    rows = batch_of(view, {"x": stamps.to_numpy().astype(np.int64).tolist()}, [0] * 3)
    (batch,) = Featurizer(compile_plan(spec, view)).batches(rows, [Cut(0, 0, 0, 3)])
    ids = next(iter(batch.tables.values()))
    hour = 3_600_000_000
    assert ids.ids_U[ids.inverse_N].tolist() == [-(2**63) // hour % 24, (2**63 - 1) // hour % 24, 0]


@pytest.mark.parametrize("default", [0.0, -3.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "steps",
    [
        (),
        ("log1p",),
        ("sqrt", "log1p"),
        (Clip(clip=(-1, 2)),),
        (Clip(clip=(-math.inf, math.inf)),),
        (Scale(scale=1e308, offset=-1e308), Scale(scale=1e308)),
        (Scale(scale=math.inf, offset=1.0),),
        (Scale(scale=math.nan),),
    ],
)
def test_dense_values_are_finite_whatever_comes(default: float, steps: tuple[Any, ...]) -> None:
    for value in (None, math.nan, math.inf, -math.inf, 0.0, -1.0, 1e308, -1e308, 2**63, True):
        found, replaced = ops.dense_value(value, default, steps)
        assert np.isfinite(found)
        assert replaced == (value is None or not math.isfinite(value))
