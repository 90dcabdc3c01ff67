"""Field case 3: 64-bit unsigned ids are exact in every format, never inferred, never a float."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.feed import Feed
from ingest.contracts import Config
from streams.contracts import Log
from tests.ingest.world import Ingest, raw_rows, write

IDS = [1, 2**53 + 1, 2**63, 2**63 + 1, 2**64 - 1, 0]


@pytest.mark.parametrize("form", ["parquet", "parquet text", "csv", "csv with a bad neighbour", "gz"])
def test_ids_come_through(log: Log, tmp_path: Path, form: str) -> None:
    text = "id,l\n" + "".join(f"{id},{id} {id}\n" for id in IDS)
    table = pa.table({"id": pa.array(IDS, pa.uint64()), "l": pa.array([[id, id] for id in IDS], pa.list_(pa.uint64()))})
    folder = tmp_path / "in"
    if form.startswith("parquet"):
        if form.endswith("text"):
            table = table.set_column(0, "id", pa.array([str(id) for id in IDS]))
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        write(folder / "a", sink.getvalue().to_pybytes())
    elif form == "gz":
        write(folder / "a", gzip.compress(text.encode()))
    else:
        write(folder / "a", text + ("18446744073709551616,\n-1,\n1.0,\n" if "bad" in form else ""))
    feed = Feed.model_validate(
        {
            "feed": "f", "files": {"url": str(folder)}, "snapshot": True, "key": ["id"], "partitions": 3,
            "format": "parquet" if form.startswith("parquet") else {"delimited": {}},
            "columns": {"id": "uint64", "l": "list<uint64>"},
        }
    )  # fmt: skip
    ingest = Ingest(log, feed, Config(listing_s=0.0))
    ingest.settle()
    rows = raw_rows(log, feed)
    assert {row: rows["a", row]["id"] for row in range(len(IDS))} == dict(enumerate(IDS))
    assert all(rows["a", row]["l"] == [id, id] for row, id in enumerate(IDS))
    assert len(rows) == len(IDS)
    assert sum(row["id"] >= 2**63 for row in rows.values()) == 3
    ingest.close()
