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
"""Rows are views of their message; if they are less than this part of it, they are copied, so that a few rows pin no message."""

BEFORE_ALL = RowKey(-(2**62), "", -1)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one raw message (one file), in order (see ``chunk_of``).

    Args:
        columns: declared columns of the sample. times_N, rows_N: int64. file: relative path. offset: of the message.
        pinned: rows of the memory that these rows keep.
    """

    columns: pa.RecordBatch
    times_N: Int64
    rows_N: Int64
    file: str
    offset: int
    pinned: int

    @property
    def first_us(self) -> int:
        """Smallest time."""
        return int(self.times_N[0])

    def part(self, start: int, stop: int) -> Chunk | None:
        """Rows [start, stop): a view, or a copy of few rows; ``None`` if there is none."""
        rows = stop - start
        if rows == len(self.times_N):
            return self if rows else None
        if rows <= 0:
            return None
        columns, times, numbers = self.columns.slice(start, rows), self.times_N[start:stop], self.rows_N[start:stop]
        if rows * SPARSE > self.pinned:
            return Chunk(columns, times, numbers, self.file, self.offset, self.pinned)
        columns = columns.take(pa.array(np.arange(rows)))
        return Chunk(columns, times.copy(), numbers.copy(), self.file, self.offset, rows)

    def after(self, key: RowKey) -> Chunk | None:
        """The rows that come after ``key`` in the order."""
        start, stop = (int(np.searchsorted(self.times_N, key.time_us, side)) for side in ("left", "right"))
        if self.file < key.file:
            start = stop
        elif self.file == key.file:
            start += int(np.searchsorted(self.rows_N[start:stop], key.row, "right"))
        return self.part(start, len(self.times_N))


def chunk_of(columns: pa.RecordBatch, times_N: Int64, rows_N: Int64, file: str, offset: int) -> Chunk:
    """Rows of a message, whose row numbers rise, put in order of time. Views, unless they have to be sorted."""
    if len(times_N) and not (times_N[1:] >= times_N[:-1]).all():
        order = np.argsort(times_N, kind="stable")
        columns, times_N, rows_N = columns.take(pa.array(order)), times_N[order], rows_N[order]
    return Chunk(columns, times_N, rows_N, file, offset, len(times_N))


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
        end, rows = int(np.searchsorted(chunk.times_N, W)), len(chunk.times_N)
        final += [part] if (part := chunk.part(0, end)) else []
        pending += [part] if (part := chunk.part(end, rows)) else []
    return final, pending


def bounds_up_to(chunks: Sequence[Chunk], W: int, rows: int) -> list[int]:
    """Rising times, the last one W, such that about ``rows`` of the rows below W lie between one and the next (more only where
    more have the same time)."""
    times = [chunk.times_N[: int(np.searchsorted(chunk.times_N, W))] for chunk in chunks]
    total = sum(map(len, times))
    if total <= rows:
        return [W]
    at = list(range(rows, total, rows))
    found = np.unique(np.partition(np.concatenate(times), at)[at])
    return [int(time) for time in found if time < W and time > min(int(t[0]) for t in times if len(t))] + [W]


def in_order(chunks: Sequence[Chunk]) -> Ordered:
    """Rows of at least one chunk, sorted. New memory, or views of the chunks where they are in order already; the bytes under
    nulls are zeros whatever came in.

    Chunks of one file have rows between other limits, so with the chunks in (file, any row) order one stable sort by time gives
    the whole order.
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
