"""Rows of a partition until they are final, and their order: (event time, file, row in file).

Nothing here depends on the order in which messages came: a row is final when its time is below W, and rows that are final
are sorted by what they are, never by where they lay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from preprocess.contracts import Int64


class RowKey(NamedTuple):
    """Identity and order of a row. ``RowKey(t, "", -1)`` is before all rows of time t."""

    time_us: int
    file: str
    row: int


SPARSE = 8
"""A run of rows is a view of its message; if it is less than this part of it, it is copied, so that a few rows pin no message."""

BEFORE_ALL = RowKey(-(2**62), "", -1)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one raw message (one file), rows rising.

    Args:
        columns: declared columns of the sample. times_N, rows_N: int64. file: relative path. offset: of the message.
    """

    columns: pa.RecordBatch
    times_N: Int64
    rows_N: Int64
    file: str
    offset: int

    @property
    def first_us(self) -> int:
        """Smallest time."""
        return int(self.times_N.min())

    def select(self, keep_N: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Chunk | None:
        """The rows where ``keep_N``; ``None`` if there is none."""
        kept = int(np.count_nonzero(keep_N))
        if kept == len(keep_N):
            return self if kept else None
        if not kept:
            return None
        first = int(keep_N.argmax())
        run = slice(first, first + kept)
        if keep_N[run].all() and kept * SPARSE > len(keep_N):
            return Chunk(self.columns.slice(first, kept), self.times_N[run], self.rows_N[run], self.file, self.offset)
        return Chunk(
            self.columns.filter(pa.array(keep_N)), self.times_N[keep_N], self.rows_N[keep_N], self.file, self.offset
        )

    def after(self, key: RowKey) -> Chunk | None:
        """The rows that come after ``key`` in the order."""
        if self.file < key.file:
            keep = self.times_N > key.time_us
        elif self.file > key.file:
            keep = self.times_N >= key.time_us
        else:
            keep = (self.times_N > key.time_us) | ((self.times_N == key.time_us) & (self.rows_N > key.row))
        return self.select(keep)


@dataclass(frozen=True, slots=True)
class Ordered:
    """Final rows in order.

    Args:
        columns: of the sample. times_N, rows_N, offsets_N: int64. file_N: int32 into ``files``.
    """

    columns: pa.RecordBatch
    times_N: Int64
    rows_N: Int64
    offsets_N: Int64
    file_N: np.ndarray[tuple[int], np.dtype[np.int32]]
    files: tuple[str, ...]

    def file_column(self, at_M: Int64 | None = None) -> pa.Array:
        """The file of each row (or of the rows at these places), as strings. New memory."""
        places = self.file_N if at_M is None else self.file_N[at_M]
        return pa.array(self.files, pa.string()).take(pa.array(places))


def split_final(chunks: Sequence[Chunk], W: int) -> tuple[list[Chunk], list[Chunk]]:
    """(rows with time < W, the others)."""
    final: list[Chunk] = []
    pending: list[Chunk] = []
    for chunk in chunks:
        if chunk.first_us >= W:
            pending.append(chunk)
            continue
        below = chunk.times_N < W
        final += [part] if (part := chunk.select(below)) else []
        pending += [part] if (part := chunk.select(~below)) else []
    return final, pending


def in_order(chunks: Sequence[Chunk]) -> Ordered:
    """Rows of at least one chunk, sorted. New memory, or views of the chunks where they are in order already; the bytes under
    nulls are zeros whatever came in.

    Chunks are put in (file, first row) order first, so one stable sort by time gives the whole order.
    """
    chunks = sorted(chunks, key=lambda chunk: (chunk.file, int(chunk.rows_N[0])))
    files = tuple(sorted({chunk.file for chunk in chunks}))
    numbers = {file: number for number, file in enumerate(files)}
    lengths = [len(chunk.rows_N) for chunk in chunks]
    times = np.concatenate([chunk.times_N for chunk in chunks])
    order = np.argsort(times, kind="stable")
    rows = chunks[0].columns if len(chunks) == 1 else pa.concat_batches([chunk.columns for chunk in chunks])
    in_place = bool((times[1:] >= times[:-1]).all())
    return Ordered(
        _zeroed_under_nulls(rows) if in_place else rows.take(pa.array(order)),
        times[order],
        np.concatenate([chunk.rows_N for chunk in chunks])[order],
        np.repeat(np.array([chunk.offset for chunk in chunks], np.int64), lengths)[order],
        np.repeat(np.array([numbers[chunk.file] for chunk in chunks], np.int32), lengths)[order],
        files,
    )


def _zeroed_under_nulls(rows: pa.RecordBatch) -> pa.RecordBatch:
    """As ``take`` of all rows in order gives them, without a copy of the columns that have no nulls."""
    everything = pa.array(np.arange(rows.num_rows))
    columns = [
        column.take(everything) if column.null_count or pa.types.is_list(column.type) else column
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def in_order_reference(chunks: Sequence[Chunk]) -> list[RowKey]:
    """Keys as ``in_order`` sorts them, plainly."""
    keys = [
        RowKey(int(time), chunk.file, int(row))
        for chunk in chunks
        for time, row in zip(chunk.times_N, chunk.rows_N, strict=True)
    ]
    return sorted(keys)
