"""Field case 4: what a file is, its first bytes say, not its name."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.ingest.world import Read, read_text, text_feed, write

COLUMNS = {"k": "int64", "x": "string"}
TEXT = b"k,x\n1,a\n2,b\n"


def test_gzip_under_a_plain_name_is_read(tmp_path: Path) -> None:
    assert read_text(tmp_path, gzip.compress(TEXT), COLUMNS).rows == {0: {"k": 1, "x": "a"}, 1: {"k": 2, "x": "b"}}


def parquet() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": [1], "x": ["a"]}), sink)
    return bytes(sink.getvalue().to_pybytes())


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("a.csv.gz", TEXT, "named .gz"),
        ("a.csv", b"\x28\xb5\x2f\xfd" + bytes(9), "zstd"),
        ("a.csv", parquet(), "parquet"),
        ("a.csv", "k,x\n1,a\n".encode("utf-16"), "UTF-16"),
        ("a.csv", gzip.compress(gzip.compress(TEXT)), "UTF-8"),
        ("a.csv", b"PK\x03\x04junk", "zip"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_name(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    write(tmp_path / name, data)
    got = Read(text_feed(COLUMNS), tmp_path, name)
    assert got.rejected is not None
    assert says in got.rejected.detail
    assert not got.rows
