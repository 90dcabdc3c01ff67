"""Field case 6: files without rows, without bytes, without footer: none of them stops the load."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from experiments.feed import Feed
from ingest.contracts import Config
from ingest.status import FeedStatus
from streams.contracts import Log
from tests.ingest.world import OLD_S, Ingest, feed_of, letters, raw_rows, write


def feed(folder: Path, **more: object) -> Feed:
    base = {
        "feed": "f", "files": {"url": str(folder)}, "format": "parquet", "columns": {"k": "int64", "t": "int64"},
        "key": ["k"], "event_time": {"column": "t"}, "settle": "0s", "min_time": "1970-01-01",
    }  # fmt: skip
    return Feed.model_validate(base | more)


def parquet(*groups: list[int]) -> bytes:
    schema = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema) as writer:
        for group in groups:
            writer.write_table(pa.table({"k": group, "t": group}, schema), row_group_size=max(len(group), 1))
    return bytes(sink.getvalue().to_pybytes())


def test_each_kind(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    good = parquet([5, 6])
    write(folder / "a-no-rows", parquet([]))
    write(folder / "b-no-groups", parquet())
    write(folder / "c-empty-middle", parquet([1, 2], [], [3]))
    write(folder / "d-no-bytes", b"")
    write(folder / "e-no-footer", good[:-9])
    write(folder / "f-good", good)
    ingest = Ingest(log, feed(folder), Config(listing_s=0.0, split_bytes=1))
    ingest.finish()
    assert sorted(raw_rows(log, ingest.feed)) == [("c-empty-middle", i) for i in range(3)] + [
        ("f-good", 0),
        ("f-good", 1),
    ]
    assert {letter.source: letter.reason for letter in letters(log, ingest.feed)} == {
        "d-no-bytes": "not-parquet", "e-no-footer": "not-parquet",
    }  # fmt: skip
    report = FeedStatus(log, "f").refresh()
    assert report is not None
    assert (report.files, report.rows, report.rejected, report.closed) == (6, 5, 0, True)
    ingest.close()


def test_a_young_file_without_footer_is_waited_for(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    good = parquet([5, 6])
    ingest = Ingest(log, feed(folder, settle="30s"), Config(listing_s=0.0))
    path = write(folder / "a", good[:-9])
    now_s = ingest.clock.wall_us() / 1e6
    os.utime(path, (now_s, now_s))
    for _ in range(20):
        for worker in ingest.workers:
            worker.step()
        ingest.clock.advance(0.3)
    assert not letters(log, ingest.feed)
    path.write_bytes(good)
    os.utime(path, (OLD_S, OLD_S))
    ingest.finish()
    assert len(raw_rows(log, ingest.feed)) == 2
    assert not letters(log, ingest.feed)
    ingest.close()


def test_text_files_without_rows_and_empty_folders(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    ingest = Ingest(log, feed_of(folder, {"k": "int64", "t": "int64"}), Config(listing_s=0.0))
    ingest.settle()
    report = FeedStatus(log, "f").refresh()
    assert report is not None
    assert (report.calm, report.files) == (True, 0)
    write(folder / "a-no-bytes", b"")
    write(folder / "b-header", b"k,t\n")
    write(folder / "c-good", b"k,t\n1,1\n")
    ingest.finish()
    assert list(raw_rows(log, ingest.feed)) == [("c-good", 0)]
    report = FeedStatus(log, "f").refresh()
    assert report is not None
    assert (report.files, report.rows, report.reasons) == (3, 1, {"empty-file": 1})
    ingest.close()
