"""Spreading rows over partitions."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from ingest.partition import ByKey, InTurn, key_hashes, key_hashes_reference

COLUMNS = [
    pa.array([0, -1, 2**63 - 1, -(2**63), 7]),
    pa.array([0, 2**63, 2**64 - 1, 1, 2], pa.uint64()),
    pa.array(["", "a", "ä", "aa", "b" * 1000]),
    pa.array([b"", b"\x00", b"\xff", b"a", b"\x00\x00"]),
    pa.array([0.0, -0.0, 1.5, float("inf"), -1e300]),
    pa.array([0.5, -0.0, 1.5, 0.1, 3.0], pa.float32()),
    pa.array([True, False, True, True, False]),
    pa.array([dt.datetime(2024, 1, i + 1, tzinfo=dt.UTC) for i in range(5)], pa.timestamp("us", "UTC")),
]


@pytest.mark.parametrize("count", [1, 2, len(COLUMNS)])
def test_hash_equals_reference_whole_and_sliced(count: int) -> None:
    for first in range(len(COLUMNS)):
        columns = [COLUMNS[(first + at) % len(COLUMNS)] for at in range(count)]
        assert key_hashes(columns).tolist() == key_hashes_reference(columns)
        for begin, size in ((1, 3), (0, 0), (4, 1)):
            some = [column.slice(begin, size) for column in columns]
            assert key_hashes(some).tolist() == key_hashes_reference(some)


def test_hash_version_1_stays() -> None:
    """Written down: another hash would move keys between partitions of feeds that exist."""
    got = key_hashes([pa.array([0, 1, -1]), pa.array(["", "a", "ab"])])
    assert [f"{value:016x}" for value in got.tolist()] == VECTORS


VECTORS = ["1343cb60f2520258", "30e1bbcf40c9b4cb", "2f8ef509071ac6a2"]


def test_a_key_has_one_partition_and_keeps_its_order() -> None:
    rng = np.random.default_rng(1)
    batch = pa.RecordBatch.from_pydict({"k": rng.integers(0, 50, 1000), "n": range(1000)})
    seen: dict[int, int] = {}
    total = 0
    for p, rows in ByKey(["k"], 7).divide(batch, "f", np.arange(1000)):
        assert rows["n"].to_pylist() == sorted(rows["n"].to_pylist())
        for key in set(rows["k"].to_pylist()):
            assert seen.setdefault(key, p) == p
        total += rows.num_rows
    assert total == 1000
    assert ByKey(["k"], 7).divide(batch.slice(0, 0), "f", np.arange(0)) == []


def test_equal_zeros_are_one_key() -> None:
    hashes = key_hashes([pa.array([0.0, -0.0])])
    assert hashes[0] == hashes[1]


def test_in_turn_is_a_function_of_file_and_row() -> None:
    batch = pa.RecordBatch.from_pydict({"n": range(10, 20)})
    whole = {n: p for p, rows in InTurn(3).divide(batch, "f", np.arange(10, 20)) for n in rows["n"].to_pylist()}
    parts = {
        n: p
        for begin in (0, 4)
        for p, rows in InTurn(3).divide(
            batch.slice(begin, 4 + begin // 2), "f", np.arange(10 + begin, 14 + begin + begin // 2)
        )
        for n in rows["n"].to_pylist()
    }
    assert parts == whole
    assert {abs(whole[n + 1] - whole[n]) for n in range(10, 19)} <= {1, 2}
