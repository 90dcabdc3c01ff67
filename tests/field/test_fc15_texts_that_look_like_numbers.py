"""Field case 15: types come from the feed: leading zeros, hex, NA and null stay what they are."""

from __future__ import annotations

from pathlib import Path

from tests.ingest.world import read_text

ROWS = b"id\tlist\n68fd1e64\t1,2,3\n0123\t\nNA\t7\nnull\t1,x\n\t5\nshort\n7\t8\tlong\n1e5\t9\n"


def test_as_strings(tmp_path: Path) -> None:
    got = read_text(tmp_path, ROWS, {"id": "string", "list": "list<int64>"}, sep="\t", list_sep=",")
    assert got.rows == {
        0: {"id": "68fd1e64", "list": [1, 2, 3]},
        1: {"id": "0123", "list": None},
        2: {"id": "NA", "list": [7]},
        4: {"id": None, "list": [5]},
        7: {"id": "1e5", "list": [9]},
    }
    assert got.reasons == {3: "bad-value", 5: "bad-columns", 6: "bad-columns"}
    assert {letter.raw for letter in got.letters} == {b"null\t1,x", b"short", b"7\t8\tlong"}


def test_as_numbers(tmp_path: Path) -> None:
    got = read_text(tmp_path, ROWS, {"id": "int64", "list": "string"}, sep="\t")
    assert {row: got.rows[row]["id"] for row in got.rows} == {1: 123, 4: None}
    assert got.reasons == {
        0: "bad-value", 2: "bad-value", 3: "bad-value", 5: "bad-columns", 6: "bad-columns", 7: "bad-value",
    }  # fmt: skip


def test_a_null_text_of_ones_own(tmp_path: Path) -> None:
    got = read_text(tmp_path, b'id\nNA\n\\N\n""\n', {"id": "string"}, null="\\N")
    assert [row["id"] for row in got.rows.values()] == ["NA", None, ""]
