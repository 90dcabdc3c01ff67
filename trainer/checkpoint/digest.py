"""``model_digest``: one number for the whole learned state, to compare runs. See ``docs/digest.md``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from preprocess.contracts import Float32

_CHUNK_ROWS = 65_536
SLOTS = ("exp_avg", "exp_avg_sq", "step")


def model_digest(
    tables: Mapping[str, pa.Table],
    dense: Mapping[str, Float32],
    optimizer: Mapping[str, Mapping[str, npt.NDArray[np.generic]]],
) -> str:
    """sha256, 64 hex digits.

    Args:
        tables: by physical table, the rows of ``EmbeddingTable.export``: sorted by (logical name, signed id).
        dense: float32 by parameter. optimizer: by parameter and slot.
    """
    digest = hashlib.sha256()
    logical = [item for table in tables.values() for item in _logical_tables(table)]
    for _, rows in sorted(logical, key=lambda item: item[0]):
        for start in range(0, rows.num_rows, _CHUNK_ROWS):
            digest.update(_row_bytes(rows.slice(start, _CHUNK_ROWS)))
    for _, value in sorted(dense.items()):
        digest.update(_little(value, np.dtype("<f4")))
    for _, slots in sorted(optimizer.items()):
        for slot, numbers in sorted(slots.items()):
            digest.update(_little(numbers, np.dtype("<i8") if slot == "step" else np.dtype("<f4")))
    return digest.hexdigest()


def _logical_tables(table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Name and rows (a view) of each logical table."""
    counts = pc.value_counts(table["logical"])
    start = 0
    for name, rows in sorted(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)):
        yield name, table.slice(start, rows)
        start += rows


def _row_bytes(rows: pa.Table) -> bytes:
    """Rows one after the other, without padding: id, weights, state, count; little endian."""
    weights, state = _matrix(rows, "weights"), _matrix(rows, "state")
    layout: Any = [
        ("id", "<i8"),
        ("weights", "<f4", (weights.shape[1],)),
        ("state", "<f4", (state.shape[1],)),
        ("count", "<u4"),
    ]
    packed = np.empty(rows.num_rows, np.dtype(layout))
    packed["id"] = rows["id"].to_numpy()
    packed["weights"], packed["state"] = weights, state
    packed["count"] = rows["count"].to_numpy()
    ids = packed["id"]
    assert (ids[1:] > ids[:-1]).all(), "rows are sorted by signed id"
    return packed.tobytes()


def _matrix(rows: pa.Table, column: str) -> Float32:
    values = rows[column].combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # a table without rows
        values = pa.array([], rows.schema.field(column).type)
    return values.flatten().to_numpy().reshape(rows.num_rows, values.type.list_size)  # type: ignore[no-any-return]


def _little(value: npt.NDArray[np.generic], dtype: np.dtype[Any]) -> bytes:
    assert value.dtype.newbyteorder("<") == dtype, (value.dtype, dtype)
    return np.ascontiguousarray(value).astype(dtype, copy=False).tobytes()
