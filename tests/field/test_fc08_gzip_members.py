"""Field case 8: every member of a gzip file is read; a cut one, or something behind it, is an error, not an end."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.ingest.world import read_text

HEADER, ROWS = b"k,x\n", [f"{i},value {i}\n".encode() for i in range(5000)]
COLUMNS = {"k": "int64", "x": "string"}
FIRST, SECOND = gzip.compress(HEADER + b"".join(ROWS[:2000])), gzip.compress(b"".join(ROWS[2000:]))


@pytest.mark.parametrize(
    "data",
    [
        FIRST + SECOND,
        FIRST + gzip.compress(b"") + SECOND,
        gzip.compress(HEADER) + b"".join(gzip.compress(row) for row in ROWS),
        FIRST + SECOND + bytes(512),
    ],
)
def test_all_members(tmp_path: Path, data: bytes) -> None:
    got = read_text(tmp_path, data, COLUMNS)
    assert got.rejected is None
    assert [row["k"] for row in got.rows.values()] == list(range(5000))


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        (FIRST + SECOND[:-3], 5000),
        (FIRST + SECOND[:-2000], None),
        (FIRST + SECOND + b"junk", 5000),
        (FIRST + b"junk", 2000),
        (FIRST[:-1], 2000),
        (FIRST + SECOND[:-8] + bytes(8), None),
    ],
)
def test_damage_is_told_and_whole_lines_before_it_are_kept(tmp_path: Path, data: bytes, kept: int | None) -> None:
    got = read_text(tmp_path, data, COLUMNS)
    assert got.rejected is not None
    assert got.rejected.reason == "damaged-gzip"
    assert got.rejected.row == len(got.rows)
    assert got.rows == {i: {"k": i, "x": f"value {i}"} for i in range(len(got.rows))}
    assert len(got.rows) == kept if kept is not None else len(got.rows) >= 2000
    again = read_text(tmp_path, data, COLUMNS)
    assert again.outcome == got.outcome
