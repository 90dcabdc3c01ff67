"""Field case 48: a time without a zone is refused unless the feed gives one; with it, equal instants are equal."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.feed import Feed
from ingest.contracts import Config
from streams.contracts import Log
from tests.ingest.world import Ingest, letters, raw_rows, write

INSTANT = dt.datetime(2023, 5, 1, 4, tzinfo=dt.UTC)


def feed(folder: Path, form: str, zone: str | None) -> Feed:
    return Feed.model_validate(
        {
            "feed": "f", "files": {"url": str(folder)}, "columns": {"k": "int64", "t": "timestamp"},
            "format": form if form == "parquet" else {form: {}}, "key": ["k"], "settle": "0s",
            "event_time": {"column": "t"} | ({"zone": zone} if zone else {}),
        }
    )  # fmt: skip


def test_text_with_and_without_zone(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a", "k,t\n1,2023-05-01T04:00:00Z\n2,2023-05-01 12:00:00+08:00\n3,2023-05-01 12:00:00\n")
    ingest = Ingest(log, feed(folder, "delimited", None), Config(listing_s=0.0))
    ingest.finish()
    assert {row["__time"] for row in raw_rows(log, ingest.feed).values()} == {int(INSTANT.timestamp()) * 10**6}
    (letter,) = letters(log, ingest.feed)
    assert (letter.position, letter.line) == (2, 4)
    assert "event_time.zone" in letter.detail
    ingest.close()


def test_text_with_the_zone_of_the_feed(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a", "k,t\n1,2023-05-01T04:00:00Z\n2,2023-05-01 12:00:00+08:00\n3,2023-05-01 12:00:00\n")
    ingest = Ingest(log, feed(folder, "delimited", "Asia/Shanghai"), Config(listing_s=0.0))
    ingest.finish()
    rows = raw_rows(log, ingest.feed)
    assert len(rows) == 3
    assert {row["__time"] for row in rows.values()} == {int(INSTANT.timestamp()) * 10**6}
    ingest.close()


@pytest.mark.parametrize("zone", [None, "Asia/Shanghai"])
def test_parquet_says_it_once_a_file(log: Log, tmp_path: Path, zone: str | None) -> None:
    folder = tmp_path / "in"
    naive = pa.array([dt.datetime(2023, 5, 1, 12)] * 3, pa.timestamp("ms"))
    aware = pa.array([INSTANT] * 3, pa.timestamp("ns", "America/New_York"))
    for name, times in (("naive", naive), ("aware", aware)):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"k": range(3), "t": times}), sink)
        write(folder / name, sink.getvalue().to_pybytes())
    ingest = Ingest(log, feed(folder, "parquet", zone), Config(listing_s=0.0))
    ingest.finish()
    rows, found = raw_rows(log, ingest.feed), letters(log, ingest.feed)
    assert {row["__time"] for row in rows.values()} == {int(INSTANT.timestamp()) * 10**6}
    assert len(rows) == (6 if zone else 3)
    assert [(x.source, x.reason) for x in found] == ([] if zone else [("naive", "wrong-type")])
    assert all("event_time.zone" in letter.detail for letter in found)
    ingest.close()
