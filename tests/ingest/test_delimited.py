"""Delimited text: rows, numbers, lines and letters, however the file is divided."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from ingest.contracts import Config
from ingest.formats.build import format_of
from ingest.formats.reading import Start
from ingest.sources import Folder
from tests.ingest.world import Read, feed_of, read_text, split_of, text_feed, write

COLUMNS = {"k": "int64", "s": "string", "v": "float32", "l": "list<int64>"}


def nasty(rng: random.Random, rows: int) -> bytes:
    """A file with everything in it that is hard to divide."""
    out = [b"k,s,v,l\n"]
    for row in range(rows):
        text = rng.choice(
            [
                "plain",
                '"quoted, with comma"',
                '"two\nlines"',
                '"crlf\r\nin it"',
                '"say ""hi"""',
                'in"ches',
                "NA",
                "",
                "\xe9",
            ]
        )
        line = f"{row},{text},{rng.choice(['1.5', '', 'x', ' 2'])},{rng.choice(['1 2', '', '3', '4 y'])}".encode(
            "latin-1" if rng.random() < 0.1 else "utf-8"
        )
        line = rng.choice([line, line, line, line + b",more", b"short", b"", b"\xff"])
        out.append(line + rng.choice([b"\n", b"\n", b"\r\n"]))
    if rng.random() < 0.3:
        out.append(b'9,"never closed,1,1\n8,b,1,1\n')
    return b"".join(out)


@pytest.mark.parametrize("seed", range(12))
def test_divisions_change_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    data = nasty(rng, rng.randint(0, 60))
    whole = read_text(tmp_path / "w", data, COLUMNS)
    assert len(whole.ranges) == 1
    assert sorted([*whole.rows, *whole.reasons]) == list(range(whole.next_row))
    for block, split, part in ((16, 1, 1), (64, 50, 3), (200, 400, 7), (10**6, 300, 2)):
        config = Config(split_bytes=split, part_rows=part, part_bytes=block)
        divided = read_text(tmp_path / "d", data, COLUMNS, config)
        assert divided.outcome == whole.outcome
        write(tmp_path / "z" / "a.csv", gzip.compress(data))
        assert Read(text_feed(COLUMNS), tmp_path / "z", "a.csv", config).outcome == whole.outcome


def test_resuming_after_any_part_gives_the_rest(tmp_path: Path) -> None:
    data = nasty(random.Random(99), 40)
    write(tmp_path / "a.csv", data)
    write(tmp_path / "a.gz", gzip.compress(data))
    feed, source = text_feed(COLUMNS), Folder(str(tmp_path))
    how = format_of(feed, Config(part_rows=3))
    for path in ("a.csv", "a.gz"):
        whole = Read(feed, tmp_path, path, Config(part_rows=3))
        file = source.stat(path)
        assert file is not None
        split = split_of(file, whole.ranges[0])
        parts = list(how.read(source, split, None))
        for number, part in enumerate(parts):
            rest = list(how.read(source, split, part.resume))
            got = [(r.rows_N.tolist(), r.batch.to_pylist(), r.letters) for r in rest]
            assert got == [(r.rows_N.tolist(), r.batch.to_pylist(), r.letters) for r in parts[number + 1 :]]


def test_headers(tmp_path: Path) -> None:
    want = {0: {"k": 1, "s": "x"}}
    columns = {"k": "int64", "s": {"type": "string", "from": "s s"}}
    for data in (b"k,s s\n1,x\n", b"\xef\xbb\xbfk,s s\r\n1,x", b"\n\nother,s s,k\n?,x,1\n", b'"k","s s"\n1,"x"\n'):
        assert read_text(tmp_path, data, columns).rows == want
    assert read_text(tmp_path, b"1,x\n", columns, header=False).rows == want
    assert read_text(tmp_path, b"k\n1\n", {"k": "int64", "o": {"type": "string", "optional": True}}).rows == {
        0: {"k": 1, "o": None}
    }
    assert read_text(tmp_path, b"x\n1\n", {"k": {"type": "int64", "optional": True}}).rows == {0: {"k": None}}
    for data in (b"k,s\n1,x\n", b"k,s s,k\n1,x,2\n", b"\n\n", b"\xff\n"):
        rejected = read_text(tmp_path, data, columns).rejected
        assert rejected is not None
        assert rejected.reason in ("missing-column", "bad-header")


def test_null_texts(tmp_path: Path) -> None:
    columns = {"k": "int64", "s": "string", "b": "bool", "l": "list<string>"}
    rows = read_text(tmp_path, b"k,s,b,l\n1,,,\n\\N,\\N,\\N,\\N\n", columns, null="\\N").rows
    assert rows == {0: {"k": 1, "s": "", "b": None, "l": []}, 1: {"k": None, "s": None, "b": None, "l": None}}
    assert read_text(tmp_path, b"k,s,b,l\n1,,,\n", columns).rows == {0: {"k": 1, "s": None, "b": None, "l": None}}


def test_bounds_of_ranges_rise_and_ignore_garbage(tmp_path: Path) -> None:
    rows = [f"{i},{1000 + i}" for i in range(100)]
    rows[0], rows[1] = "0,", "1,9999999999"
    write(tmp_path / "a.csv", "k,t\n" + "\n".join(rows) + "\n")
    feed = feed_of(tmp_path, {"k": "int64", "t": "int64"}, disorder="3s")
    source, how = Folder(str(tmp_path)), format_of(feed, Config(split_bytes=200))
    file = source.stat("a.csv")
    assert file is not None
    lows, start = [], Start()
    while start is not None:
        (part,) = how.plan(source, file, start, 2_000_000_000_000_000).ranges
        assert part.first_row == start.row
        lows.append(part.lo)
        start = part.next
    assert lows[0] == 1_002_000_000 - 3_000_000
    assert lows == sorted(lows)
    assert len(set(lows)) == len(lows) >= 3
