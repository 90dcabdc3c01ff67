"""Field case 7: a column that a file lacks is never silently absent."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from experiments.feed import Feed
from ingest.contracts import Config
from streams.contracts import Log
from tests.ingest.world import Ingest, letters, raw_rows, write


@pytest.mark.parametrize("form", ["parquet", "delimited"])
@pytest.mark.parametrize("optional", [False, True])
def test_required_rejects_the_file_optional_gives_nulls(log: Log, tmp_path: Path, form: str, optional: bool) -> None:
    folder = tmp_path / "in"
    for name, table in (("a", pa.table({"k": [1], "c": [7]})), ("b", pa.table({"k": [2], "C": [8]}))):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        text = ",".join(table.column_names) + "\n" + ",".join(str(v[0]) for v in table.columns) + "\n"
        write(folder / name, sink.getvalue().to_pybytes() if form == "parquet" else text)
    feed = Feed.model_validate(
        {
            "feed": "f", "files": {"url": str(folder)}, "format": form if form == "parquet" else {form: {}}, "key": ["k"],
            "columns": {"k": "int64", "c": {"type": "int64", "optional": optional}}, "snapshot": True,
        }
    )  # fmt: skip
    ingest = Ingest(log, feed, Config(listing_s=0.0))
    ingest.settle()
    rows, found = raw_rows(log, feed), letters(log, feed)
    assert rows["a", 0]["c"] == 7
    if optional:
        assert rows["b", 0]["c"] is None
        assert not found
    else:
        assert list(rows) == [("a", 0)]
        (letter,) = found
        assert (letter.source, letter.reason, letter.position) == ("b", "missing-column", -1)
        assert "'c'" in letter.detail
    ingest.close()
