"""Field case 46: one row dated far ahead does not move event time: it goes to the dead letters, and W stays with the others."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.feed import Feed
from ingest.contracts import Config
from ingest.status import FeedStatus
from streams.contracts import Log
from tests.ingest.world import Ingest, letters, raw_rows, write

FAR_S = 4_070_908_800  # 2099
START_S = 1_690_000_000


@pytest.mark.parametrize("place", [0, 57, 99])
@pytest.mark.parametrize("form", ["parquet", "delimited"])
@pytest.mark.parametrize("order", ["any", "in_order"])
def test_the_others_are_used(log: Log, tmp_path: Path, place: int, form: str, order: str) -> None:
    folder = tmp_path / "in"
    for n in range(3):
        times = [START_S + 100 * n + i for i in range(100)]
        if n == 1:
            times[place] = FAR_S
        table = pa.table({"k": range(100), "t": times})
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=30)
        text = "k,t\n" + "".join(f"{k},{t}\n" for k, t in enumerate(times))
        write(folder / f"p{n}", sink.getvalue().to_pybytes() if form == "parquet" else text)
    feed = Feed.model_validate(
        {
            "feed": "f", "files": {"url": str(folder), "order": order}, "columns": {"k": "int64", "t": "int64"},
            "format": form if form == "parquet" else {form: {}}, "key": ["k"], "event_time": {"column": "t"}, "settle": "0s",
        }
    )  # fmt: skip
    ingest = Ingest(log, feed, Config(listing_s=0.0, part_rows=10, split_bytes=200))
    ingest.settle()
    report = FeedStatus(log, "f").refresh()
    assert report is not None
    assert (report.used, report.late, report.rejected, report.reasons) == (299, 0, 1, {"future-time": 1})
    assert report.W <= (START_S + 299) * 1_000_000
    (letter,) = letters(log, feed)
    assert (letter.source, letter.position) == ("p1", place)
    assert len(raw_rows(log, feed)) == 299
    ingest.close()


def test_a_file_of_nothing_else(log: Log, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a", f"k,t\n1,{FAR_S}\n2,{FAR_S}\n")
    write(folder / "b", f"k,t\n1,{START_S}\n")
    feed = Feed.model_validate(
        {
            "feed": "f", "files": {"url": str(folder)}, "columns": {"k": "int64", "t": "int64"},
            "format": {"delimited": {}}, "key": ["k"], "event_time": {"column": "t"}, "settle": "0s",
        }
    )  # fmt: skip
    ingest = Ingest(log, feed, Config(listing_s=0.0))
    ingest.finish()
    assert list(raw_rows(log, feed)) == [("b", 0)]
    assert [letter.reason for letter in letters(log, feed)] == ["future-time"] * 2
    ingest.close()
