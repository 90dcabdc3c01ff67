"""The same rows are the same bytes, whatever slice of whatever they are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from streams.packed import pack

COLUMNS = {
    "int64": pa.array([1, None, 3, 4, 5, None, 7]),
    "bool": pa.array([True, False, None, True, True, False, True]),
    "string": pa.array(["a", "bb", None, "dddd", "", "f", "ggg"]),
    "bytes": pa.array([b"a", b"bb", None, b"dddd", b"", b"f", b"ggg"]),
    "list": pa.array([[1], [2, 3], None, [], [4], [5, None], [6]]),
    "list of strings": pa.array([["a"], ["b", "cc"], None, [], ["d"], ["e", None], ["f"]]),
    "timestamp": pa.array([1, None, 3, 4, 5, 6, 7], pa.timestamp("us", "UTC")),
}


def value_of(batch: pa.RecordBatch) -> bytes:
    return b"".join(
        bytes(pack(batch, kind="rows", times=None, lineage={}, compression=kind).value)
        for kind in ("none", "lz4", "zstd")
    )


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("start", range(7))
def test_a_slice_is_written_as_its_rows(name: str, start: int) -> None:
    whole = pa.record_batch({"x": COLUMNS[name]})
    for length in range(7 - start + 1):
        part = whole.slice(start, length)
        fresh = pa.record_batch({"x": pa.array(part.column(0).to_pylist(), part.column(0).type)})
        joined = pa.concat_tables([pa.Table.from_batches([part.slice(0, 1), part.slice(1)])]).combine_chunks()
        assert value_of(part) == value_of(fresh)
        if length:
            assert value_of(joined.to_batches()[0]) == value_of(fresh)
