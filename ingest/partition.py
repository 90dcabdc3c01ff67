"""Rows → partitions, by the hash of their key or in turn; order inside a partition stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import xxhash

from experiments.feed import Feed
from ingest.kernels import keys as kernels
from ingest.verdicts import Int64

UInt64 = np.ndarray[tuple[int], np.dtype[np.uint64]]


def key_hashes(columns: Sequence[pa.Array]) -> UInt64:
    """uint64 [N] over the key columns (no nulls): integers, booleans and times by value, floats by the bits of their double
    (−0 as 0), texts and bytes by content. See ``ingest.kernels.keys`` for the function (version 1)."""
    hashes = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
            data = column.buffers()[2]
            body = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
            kernels.fold_bytes(body, offsets if len(offsets) else np.zeros(1, np.int32), hashes)
        else:
            kernels.fold_integers(_as_integers(column), hashes)
    return hashes


def _as_integers(column: pa.Array) -> UInt64:
    kind = column.type
    if pa.types.is_boolean(kind):
        return column.to_numpy(zero_copy_only=False).astype(np.uint64)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.int64())
    values = column.to_numpy(zero_copy_only=False)
    if pa.types.is_floating(kind):
        return (values.astype(np.float64) + 0.0).view(np.uint64)
    return values.view(np.uint64) if values.dtype.itemsize == 8 else values.astype(np.int64).view(np.uint64)


def key_hashes_reference(columns: Sequence[pa.Array]) -> list[int]:
    """As ``key_hashes``, plainly."""
    mask = (1 << 64) - 1

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    def fnv(data: bytes) -> int:
        h = 0xCBF29CE484222325
        for byte in data:
            h = ((h ^ byte) * 0x100000001B3) & mask
        return h

    out = [0] * len(columns[0])
    for column in columns:
        values = column.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist()
        for i, value in enumerate(values):
            if isinstance(value, str | bytes):
                part = fnv(value.encode() if isinstance(value, str) else value)
            elif isinstance(value, float):
                part = int(np.float64(value + 0.0).view(np.uint64))
            else:
                part = int(value) & mask
            out[i] = mix((out[i] + 0x9E3779B97F4A7C15 + part) & mask)
    return out


class Spread(Protocol):
    """Which partition a row goes to: a function of the row's key, or of its file and number; never of anything else."""

    def divide(self, batch: pa.RecordBatch, file: str, rows_N: Int64) -> list[tuple[int, pa.RecordBatch]]:
        """(partition, its rows in order) of rows without null keys; partitions without rows are left out. New memory."""


class ByKey:
    """By the hash of the key: rows of one key lie in one partition, as joins need it."""

    def __init__(self, key: Sequence[str], partitions: int) -> None:
        self._key, self._partitions = tuple(key), partitions

    def divide(self, batch: pa.RecordBatch, file: str, rows_N: Int64) -> list[tuple[int, pa.RecordBatch]]:
        """By ``key_hashes`` modulo the partitions."""
        hashes = key_hashes([batch.column(name) for name in self._key]) if batch.num_rows else np.empty(0, np.uint64)
        return _divided(batch, hashes, self._partitions)


class InTurn:
    """Dealt out in turn by the row's number in its file; each file begins at a partition that its path gives.

    For feeds without buckets of event time: there partitions advance by rows, and nothing but an even deal keeps them at the
    same moment (``docs/decisions/0007``).
    """

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions

    def divide(self, batch: pa.RecordBatch, file: str, rows_N: Int64) -> list[tuple[int, pa.RecordBatch]]:
        """By (xxh3-64 of the path + row number) modulo the partitions."""
        first = xxhash.xxh3_64_intdigest(file.encode()) % self._partitions
        return _divided(batch, (rows_N + first).astype(np.uint64), self._partitions)


def spread_of(feed: Feed) -> Spread:
    """How a feed's rows are spread: by key, or in turn where ``cuts.every`` is off. Side tables by key."""
    if feed.cuts.every is None and not feed.snapshot:
        return InTurn(feed.partitions)
    return ByKey(feed.key, feed.partitions)


def _divided(batch: pa.RecordBatch, numbers_N: UInt64, partitions: int) -> list[tuple[int, pa.RecordBatch]]:
    assert len(numbers_N) == batch.num_rows  # the kernel does not check
    if not batch.num_rows:
        return []
    order, ends = np.empty(batch.num_rows, np.int64), np.empty(partitions, np.int64)
    kernels.order_by_partition(numbers_N, partitions, order, ends)
    sorted_rows = batch.take(pa.array(order))
    starts = np.concatenate([[0], ends[:-1]])
    return [
        (p, sorted_rows.slice(start, end - start))
        for p, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True))
        if end > start
    ]
