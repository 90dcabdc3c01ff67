"""Declared types: exact, and decided for each value alone."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from experiments.fields import arrow_type
from ingest.conversion import Target, convert, refusal

UTC = dt.UTC
BAD = object()


def texts(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


@pytest.mark.parametrize(
    ("column", "declared", "want"),
    [
        (texts(b"1", b" 2 ", None, b"x", b"1.5", b"18446744073709551616"), "int64", [1, 2, None, BAD, BAD, BAD]),
        (texts(b"18446744073709551615", b"-1"), "uint64", [2**64 - 1, BAD]),
        (texts(b"0123", b"1e3", b"nan?"), "float64", [123.0, 1000.0, BAD]),
        (texts(b"true", b"FALSE", b"1", b"0", b"yes", b"2"), "bool", [True, False, True, False, BAD, BAD]),
        (texts(b"NA", b"\xff", b""), "string", ["NA", BAD, ""]),
        (texts(b"\xff"), "bytes", [b"\xff"]),
        (pa.array([1, 2**63, 2**64 - 1], pa.uint64()), "int64", [1, BAD, BAD]),
        (pa.array([1, 2**63, 2**64 - 1], pa.uint64()), "uint64", [1, 2**63, 2**64 - 1]),
        (pa.array([7, -1]), "uint64", [7, BAD]),
        (pa.array([1.0, 1.5, float("nan"), 2.0**63]), "int64", [1, BAD, BAD, BAD]),
        (pa.array([2**24 + 1]), "float32", [2.0**24]),
        (pa.array([0, 1, 2, None]), "bool", [False, True, BAD, None]),
        (pa.array([Decimal("2"), Decimal("1.5")]), "int64", [2, BAD]),
        (pa.array([1]), "string", [BAD]),
        (pa.array([True]), "int64", [BAD]),
        (pa.array(["7", "b"]).dictionary_encode(), "int64", [7, BAD]),
        (pa.array([[1, 2], None, [], [-1]]), "list<uint64>", [[1, 2], None, [], BAD]),
        (pa.array([[1], [2**40]]).slice(1), "list<float64>", [[2.0**40]]),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)), "list<int64>", [[1, 2], [3, 4]]),
        (pa.array([["a"], ["b", None]]), "list<string>", [["a"], ["b", None]]),
        (pa.nulls(2), "list<string>", [None, None]),
        (pa.array([], pa.int8()), "float32", []),
    ],
)  # fmt: skip
def test_values(column: pa.Array, declared: str, want: list[Any]) -> None:
    done = convert(column, Target(declared, None))
    assert done.column.type == arrow_type(declared)
    done.column.validate(full=True)
    got = [BAD if bad else value for value, bad in zip(done.column.to_pylist(), done.bad_N, strict=True)]
    assert got == want
    assert sorted(done.why) == [at for at, value in enumerate(want) if value is BAD]
    assert all(text.startswith("expected ") for text in done.why.values())


@pytest.mark.parametrize(
    ("cell", "want"),
    [
        (b"1 2  3", [1, 2, 3]), (b" 4 ", [4]), (b"", []), (b"5 x", BAD), (b"6", [6]), (None, None),
    ],
)  # fmt: skip
def test_list_cells(cell: bytes | None, want: object) -> None:
    done = convert(texts(b"9", cell, b"8 7"), Target("list<int64>", None, " "))
    assert done.column[0].as_py() == [9]
    assert done.column[2].as_py() == [8, 7]
    assert done.bad_N.tolist() == [False, want is BAD, False]
    assert want is BAD or done.column[1].as_py() == want


NOON = dt.datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "zone", "want"),
    [
        (b"2024-05-01T12:00:00Z", None, NOON),
        (b"2024-05-01 20:00:00+08:00", None, NOON),
        (b"20240501T120000Z", None, NOON),
        (b"2024-05-01 12:00:00", None, BAD),
        (b"2024-05-01 12:00:00", "UTC", NOON),
        (b"2024-05-01 20:00:00", "Asia/Shanghai", NOON),
        (b"2024-05-01T12:00:00Z", "Asia/Shanghai", NOON),
        (b"2024-05-01", None, BAD),
        (b"2024-05-01", "UTC", NOON.replace(hour=0)),
        (b"noon", "UTC", BAD),
        (b"2024-10-27 02:30:00", "Europe/Berlin", dt.datetime(2024, 10, 27, 0, 30, tzinfo=UTC)),
    ],
)
def test_times(value: bytes, zone: str | None, want: object) -> None:
    others = texts(b"2024-05-01T12:00:00Z", value, b"bad")
    done = convert(others, Target("timestamp", zone))
    assert done.column[0].as_py() == NOON
    assert (BAD if done.bad_N[1] else done.column[1].as_py()) == want


def test_a_value_is_decided_alone() -> None:
    """Any mixture of neighbours gives the same values and the same bad ones."""
    rng = random.Random(5)
    pool = [b"1", b" 2", b"x", b"", None, b"3.5", b"0x10", b"+4", b"-0", b"1e2", b"nan", b"2024-01-01T00:00:00Z",
            b"2024-01-01 00:00:00", b"2024-01-01", b"true", b"\xff", b"1 2", b"1  x", b"99999999999999999999"]  # fmt: skip
    for declared in (
        "int64",
        "uint64",
        "float32",
        "float64",
        "bool",
        "timestamp",
        "string",
        "list<int64>",
        "list<string>",
    ):
        target = Target(declared, rng.choice([None, "UTC"]), " ")
        alone = {}
        for value in pool:
            one = convert(texts(value), target)
            alone[value] = (bool(one.bad_N[0]), repr(one.column[0].as_py()))
        for _ in range(30):
            values = rng.choices(pool, k=rng.randint(1, 12))
            many = convert(texts(*values), target)
            for at, value in enumerate(values):
                assert (bool(many.bad_N[at]), repr(many.column[at].as_py())) == alone[value], (declared, value)


@pytest.mark.parametrize(
    ("kind", "declared", "zone", "refused"),
    [
        (pa.int64(), "timestamp", "UTC", True),
        (pa.timestamp("us"), "timestamp", None, True),
        (pa.timestamp("us"), "timestamp", "UTC", False),
        (pa.timestamp("ns", "Asia/Tokyo"), "timestamp", None, False),
        (pa.list_(pa.string()), "string", None, True),
        (pa.string(), "list<int64>", None, True),
        (pa.large_list(pa.int8()), "list<int64>", None, False),
        (pa.dictionary(pa.int32(), pa.string()), "string", None, False),
        (pa.struct([("a", pa.int64())]), "int64", None, True),
        (pa.null(), "int64", None, False),
        (pa.decimal128(5, 2), "float64", None, False),
    ],
)
def test_types_that_never_fit_are_told_before_reading(
    kind: pa.DataType, declared: str, zone: str | None, refused: bool
) -> None:
    assert bool(refusal(kind, Target(declared, zone))) == refused
