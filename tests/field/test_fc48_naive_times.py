"""Field case 48: a time without a zone is refused unless the feed gives one; with it, equal instants are equal."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from experiments.experiment import Experiment
from experiments.feed import Feed
from ingest.contracts import Config
from streams.contracts import Log
from tests.ingest.world import Ingest, letters, raw_rows, write

INSTANT = dt.datetime(2023, 5, 1, 4, tzinfo=dt.UTC)


FEED = {
    "feed": "f", "files": {"url": "x"}, "columns": {"k": "int64", "t": "timestamp"}, "format": "parquet", "key": ["k"],
    "event_time": {"column": "t"},
}  # fmt: skip


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


SPEC = {
    "experiment": "e",
    "sample": "f",
    "labels": {"y": {"column": "k"}},
    "features": {"k": {"id": "k"}},
    "model": "lr",
}


@pytest.mark.parametrize("text", ["2023-05-01T04:00:00Z", "2023-05-01 12:00:00+08:00", "20230501T040000+0000"])
def test_times_of_a_spec_are_instants(text: str) -> None:
    assert Experiment.model_validate(SPEC | {"start": text}).start == int(INSTANT.timestamp()) * 10**6
    assert Feed.model_validate(FEED | {"min_time": text}).min_time == int(INSTANT.timestamp()) * 10**6


@pytest.mark.parametrize("text", ["2023-05-01T12:00:00", "2023-05-01 12:00", "2023-05-01T12", "20230501T120000"])
def test_times_of_a_spec_without_zone_are_refused(text: str) -> None:
    for model, body in ((Experiment, SPEC | {"start": text}), (Feed, FEED | {"min_time": text})):
        with pytest.raises(ValidationError, match=r"a time with its zone, for example .*\+08:00"):
            model.model_validate(body)


@pytest.mark.parametrize("text", ["2023-05-01", "20230501", "2023-W18-1"])
def test_a_date_alone_is_midnight_utc(text: str) -> None:
    midnight = dt.datetime(2023, 5, 1, tzinfo=dt.UTC)
    assert Feed.model_validate(FEED | {"min_time": text}).min_time == int(midnight.timestamp()) * 10**6


@pytest.mark.parametrize("zone", ["Asia/Shangai", "CST8", "+08:00", "", "../UTC"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValidationError, match="a zone such as UTC or Asia/Shanghai"):
        Feed.model_validate(FEED | {"event_time": {"column": "t", "zone": zone}})
