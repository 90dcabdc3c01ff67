"""Records of text files: the grammar, and that no way of dividing a file changes them."""

from __future__ import annotations

import gzip
import itertools
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.feed import Delimited
from ingest.errors import FileRejected
from ingest.formats import blocks
from ingest.formats.blocks import Span, scan, scan_reference
from ingest.sources import Folder
from tests.ingest.world import write

NASTY = st.text(alphabet='ab,,\n\n\r""', max_size=40).map(str.encode)


@settings(max_examples=400, deadline=None)
@given(NASTY)
def test_kernel_equals_reference_and_pyarrow(data: bytes) -> None:
    starts, end, quoted = scan(data, Delimited())
    plain, plain_end, plain_quoted = scan_reference(data, Delimited())
    assert (starts.tolist(), end, quoted) == (plain.tolist(), plain_end, plain_quoted)
    wrong: list[int] = []
    table = pacsv.read_csv(
        pa.py_buffer(data or b"\n"),
        pacsv.ReadOptions(use_threads=False, column_names=["a", "b"]),
        pacsv.ParseOptions(
            newlines_in_values=True, invalid_row_handler=lambda row: (wrong.append(row.number), "skip")[1]
        ),
        pacsv.ConvertOptions(column_types={"a": pa.binary(), "b": pa.binary()}),
    )
    assert table.num_rows + len(wrong) == len(starts)


def joined(folder: Path, span: Span, piece: int) -> tuple[bytes, list[bytes]]:
    found = list(blocks.blocks(Folder(str(folder)), "a", span, Delimited(), piece_bytes=piece))
    whole = b"".join(block.data for block in found)
    records = []
    for block in found:
        assert block.data == whole[block.offset - span.begin : block.end - span.begin]
        assert block.line == span.line + whole.count(b"\n", 0, block.offset - span.begin)
        starts = [0] if block.broken else scan(block.data, Delimited())[0].tolist()
        records += [block.data[a:b] for a, b in itertools.pairwise([*starts, len(block.data)])]
    return whole, [record.strip(b"\r\n") for record in records]


@pytest.mark.parametrize("seed", range(40))
def test_records_do_not_depend_on_pieces_or_compression(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = "".join(rng.choice('aab,,\n\n\r\n"x') for _ in range(rng.randint(1, 200))).encode()
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    write(plain / "a", data)
    half = len(data) // 2
    write(packed / "a", gzip.compress(data[:half]) + gzip.compress(data[half:]) + bytes(9))
    want = joined(plain, Span(), 10**6)
    assert want[0] == data
    for piece in (1, 2, 7, 64):
        assert joined(plain, Span(), piece) == want
        assert joined(packed, Span(), piece) == want


def test_a_quote_never_closed_costs_one_line(tmp_path: Path) -> None:
    write(tmp_path / "a", b'1,2\n3,"x\n4,5\n6,y\n')
    assert joined(tmp_path, Span(), 4)[1] == [b"1,2", b'3,"x', b"4,5", b"6,y"]


def test_old_line_ends(tmp_path: Path) -> None:
    write(tmp_path / "a", b"1,2\r3,4\r5,6")
    assert joined(tmp_path, Span(), 3)[1] == [b"1,2", b"3,4", b"5,6"]


@pytest.mark.parametrize("magic", list(blocks.FOREIGN))
def test_what_is_no_text_is_refused(tmp_path: Path, magic: bytes) -> None:
    write(tmp_path / "a.csv", magic + b"1,2\n")
    with pytest.raises(FileRejected, match=blocks.FOREIGN[magic]):
        blocks.is_gzip(Folder(str(tmp_path)), "a.csv")


def test_a_file_that_got_shorter(tmp_path: Path) -> None:
    write(tmp_path / "a", b"1,2\n3")
    with pytest.raises(FileRejected, match="file-changed"):
        list(blocks.blocks(Folder(str(tmp_path)), "a", Span(0, 9), Delimited()))
