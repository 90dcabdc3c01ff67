"""Field case 5: markers, checksums and unfinished copies beside the data are no data."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from experiments.feed import Feed
from ingest.contracts import Config
from streams.contracts import Log
from tests.ingest.world import Ingest, letters, raw_rows, write

JUNK = [
    "_SUCCESS", ".p0.parquet.crc", "p0.parquet.crc", "_temporary/0/x.parquet", "p1.parquet._COPYING_", "p2.parquet.tmp",
    "p3.parquet.inprogress", "_metadata", ".hidden/p4.parquet", "sub/_x.parquet", "sub/.staging/p.parquet",
]  # fmt: skip


def test_only_the_good_part_is_read(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"k": [1, 2]}), sink)
    for name in ("p0.parquet", "sub/p0.parquet"):
        write(folder / name, sink.getvalue().to_pybytes())
    for name in JUNK:
        write(folder / name, b"" if name == "_SUCCESS" else b"junk")
    feed = Feed.model_validate(
        {
            "feed": "f", "files": {"url": str(folder), "match": "**/*"}, "format": "parquet", "columns": {"k": "int64"},
            "key": ["k"], "snapshot": True,
        }
    )  # fmt: skip
    ingest = Ingest(log, feed, Config(listing_s=0.0))
    ingest.settle()
    assert sorted(raw_rows(log, feed)) == [(f, r) for f in ("p0.parquet", "sub/p0.parquet") for r in (0, 1)]
    assert not letters(log, feed)
    assert sorted(ingest.workers[0].report()["skipped"]) == sorted(JUNK)
    ingest.close()
