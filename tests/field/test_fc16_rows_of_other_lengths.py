"""Field case 16: a row with too few or too many columns goes to the dead letters with its line; the rest is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.contracts import Config
from tests.ingest.world import read_text

COLUMNS = {"id": "int64", "v": "int64"}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("sep", [",", ";", "\t", "|", " "])
def test_bad_rows_and_blank_lines(tmp_path: Path, sep: str, end: str) -> None:
    text = f"id{sep}v\n1\n2{sep}3\n\n4{sep}5{sep}6\n\n\n7{sep}8\n9{sep}x\n".replace("\n", end)
    for config in (Config(), Config(part_rows=1, part_bytes=4, split_bytes=4)):
        got = read_text(tmp_path, text.encode(), COLUMNS, config, sep=sep, list_sep="/")
        assert got.rows == {1: {"id": 2, "v": 3}, 3: {"id": 7, "v": 8}}
        assert sorted((x.position, x.reason, x.line, x.raw) for x in got.letters) == [
            (0, "bad-columns", 2, b"1"),
            (2, "bad-columns", 5, f"4{sep}5{sep}6".encode()),
            (4, "bad-value", 9, f"9{sep}x".encode()),
        ]


def test_raw_text_is_capped(tmp_path: Path) -> None:
    got = read_text(tmp_path, b"id,v\n" + b"9" * 10_000 + b"\n1,2\n", COLUMNS, Config(dead_letter_bytes=100))
    assert [letter.raw for letter in got.letters] == [b"9" * 100]
    assert got.rows == {1: {"id": 1, "v": 2}}


@pytest.mark.parametrize("data", [b"id,v", b"id,v\n", b"id,v\r\n\r\n\n"])
def test_a_header_alone_has_no_rows(tmp_path: Path, data: bytes) -> None:
    got = read_text(tmp_path, data, COLUMNS)
    assert (got.rows, got.letters, got.rejected) == ({}, [], None)


def test_no_bytes_at_all_is_said(tmp_path: Path) -> None:
    got = read_text(tmp_path, b"", COLUMNS)
    assert got.rejected is not None
    assert (got.rejected.reason, got.rows) == ("empty-file", {})


def test_a_bad_row_that_is_not_utf8(tmp_path: Path) -> None:
    """pyarrow cannot tell of such a row, and refuses all that is read with it."""
    rows = [f"{i},{i}\n".encode() for i in range(500)]
    rows[250] = b"\xff\xfe\n"
    rows[300] = b"only one\n"
    got = read_text(tmp_path, b"id,v\n" + b"".join(rows), COLUMNS)
    assert sorted(got.rows) == [i for i in range(500) if i not in (250, 300)]
    assert got.reasons == {250: "bad-columns", 300: "bad-columns"}
