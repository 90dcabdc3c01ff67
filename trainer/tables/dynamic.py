"""A table whose rows come into being when their id is first seen; see ``trainer.contracts.EmbeddingTable``.

Memory is reserved once and used as it is touched, so growth copies nothing; the index splits one segment at a time. A new
row's weights follow from (seed, name of the logical table, id, column) alone, so they are the same on any shard, in any run,
in any order of insertion: uniform in [−init, init) in the first ``dim`` columns, 0 in those the model adds. Exactly, with
64-bit arithmetic modulo 2^64: salt = XXH64 of the name in UTF-8, seeded with the seed; h = mix64(mix64(id ^ salt) +
(column + 1) · 0x9E3779B97F4A7C15), with mix64 the finalizer of splitmix64; weight = (float32(h >> 40) · 2^−23 − 1) · init.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from preprocess.contracts import Float32, Int64, PhysicalTable, TableIds, UInt16
from streams.errors import Exhausted, SchemaMismatch
from trainer.contracts import Int32Map
from trainer.kernels import index as kernels
from trainer.kernels import rows as row_kernels
from trainer.tables.reserved import RECORD, reserve_rows

EXPORT_ROWS = 65_536
"""Rows of a piece of ``export``."""

_NO_OFFSETS = np.empty(0, np.int32)


def salt_of(name: str, seed: int) -> int:
    """uint64 that makes a logical table's initial weights its own: XXH64 of its name with the training seed."""
    return xxhash.xxh64_intdigest(name.encode(), seed)


def export_schema(width: int) -> pa.Schema:
    """Arrow schema of ``export``."""
    return pa.schema(
        [
            pa.field("logical", pa.dictionary(pa.int32(), pa.string())),
            pa.field("id", pa.int64()),
            pa.field("weights", pa.list_(pa.float32(), width)),
            pa.field("state", pa.list_(pa.float32(), 1)),
            pa.field("count", pa.uint32()),
            pa.field("last_seen", pa.int64()),
        ]
    )


class DynamicTable:
    """``EmbeddingTable`` in memory, with row-wise Adagrad.

    Args:
        spec: dimension, optimizer, initial range, logical tables.
        width: weights of a row, ≥ ``spec.dim``.
        seed: of the initial weights (``train.seed``).
        max_rows: address space is reserved for so many (or for fewer, if the system refuses); more raise ``Exhausted``.
    """

    def __init__(self, spec: PhysicalTable, width: int, *, seed: int, max_rows: int) -> None:
        self._spec = spec
        memory = reserve_rows(max_rows, width)
        self._max_rows, self._wanted_rows = len(memory.ids), max_rows
        self._index = memory.index
        self._weights = memory.weights
        self._state, self._count, self._last_seen = (memory.records[name] for name in ("state", "count", "last_seen"))
        self._keys = (memory.logical, memory.ids)
        self._salts = np.array([salt_of(name, seed) for name in spec.logical], np.uint64)
        self._mean_F = np.array([feature.pool == "mean" for feature in spec.features], np.bool_)

    @property
    def spec(self) -> PhysicalTable:
        """Dimension, optimizer and logical tables."""
        return self._spec

    @property
    def width(self) -> int:
        """Weights of one row."""
        return int(self._weights.shape[1])

    @property
    def rows(self) -> int:
        """Rows that exist."""
        return int(self._index.shape[2])

    def nbytes(self) -> int:
        """Bytes in use: rows and segments."""
        row = self.width * 4 + RECORD.itemsize + 2 + 8
        return int(self.rows * row + self._index.shape[1] * kernels.SEGMENT * 16)

    def find_or_insert(self, logical_U: UInt16, ids_U: Int64, now_us: int) -> Int64:
        """Slots of distinct keys; unknown ones get new rows. Raises ``Exhausted`` with nothing changed."""
        slots = self._place(logical_U, ids_U)
        kernels.touch(slots, now_us, self._count, self._last_seen)
        return slots

    def pool(self, slots_U: Int64, ids: TableIds, out_FBD: Float32) -> None:
        """Pooled embeddings of a local batch, in place."""
        offsets = _NO_OFFSETS if ids.offsets is None else ids.offsets
        assert _dense_rows(out_FBD), "the last axis is contiguous"
        row_kernels.pool(self._weights, slots_U, ids.inverse_N, offsets, self._mean_F, out_FBD)

    def accumulate(self, ids: TableIds, grad_FBD: Float32, into_U: Int32Map, grads_VD: Float32) -> None:
        """Add the gradients of a local batch's ids to ``grads_VD``, in place."""
        offsets = _NO_OFFSETS if ids.offsets is None else ids.offsets
        assert _dense_rows(grad_FBD), "the last axis is contiguous"
        row_kernels.accumulate(ids.inverse_N, offsets, self._mean_F, grad_FBD, into_U, grads_VD)

    def apply(self, slots_V: Int64, grads_VD: Float32) -> None:
        """One step of row-wise Adagrad on distinct slots, in place. All columns share the accumulator."""
        optimizer = self._spec.optimizer
        row_kernels.rowwise_adagrad(self._weights, self._state, slots_V, grads_VD, optimizer.lr, optimizer.eps)

    def export(self) -> pa.RecordBatchReader:
        """All rows, sorted by (logical name, signed id), in pieces. New memory: about 30 bytes a row of the largest logical
        table, and a piece."""
        schema = export_schema(self.width)
        return pa.RecordBatchReader.from_batches(schema, self._pieces(schema))

    def _pieces(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        names = pa.array(self._spec.logical, pa.string())
        for at in self._places_in_order():
            columns = [
                pa.DictionaryArray.from_arrays(pa.array(self._keys[0][at].astype(np.int32)), names),
                pa.array(self._keys[1][at]),
                _fixed(self._weights[at]),
                _fixed(self._state[at][:, None]),
                pa.array(self._count[at]),
                pa.array(self._last_seen[at]),
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _places_in_order(self) -> Iterator[Int64]:
        """Slots of all rows by (logical table, id), in pieces. One logical table after the other: that needs least memory."""
        logical, ids = self._keys[0][: self.rows], self._keys[1][: self.rows]
        for number in range(len(self._spec.logical)):
            places = np.flatnonzero(logical == number)
            places = places[np.argsort(ids[places])]
            for start in range(0, len(places), EXPORT_ROWS):
                yield places[start : start + EXPORT_ROWS]

    def load(self, rows: pa.RecordBatchReader) -> None:
        """Fill the empty table from ``export``. Raises ``SchemaMismatch`` if it does not fit."""
        if self.rows or not rows.schema.equals(export_schema(self.width)):
            raise SchemaMismatch(
                expected=f"an empty table and rows of {self.width} weights",
                got=f"{self.rows} rows, and {rows.schema.field('weights').type if 'weights' in rows.schema.names else rows.schema}",
                where=f"table {self._spec.name}",
                do="The checkpoint belongs to another version of the experiment.",
            )
        count = 0
        for piece in rows:
            self._load_piece(piece)
            count += piece.num_rows
        if self.rows != count:
            raise SchemaMismatch(
                expected="each key once",
                got=f"{self.rows} keys in {count} rows",
                where=f"table {self._spec.name}",
                do="The checkpoint was not written by this program; use another one.",
            )

    def _load_piece(self, rows: pa.RecordBatch) -> None:
        slots = self._place(self._logical_of(rows.column("logical")), rows.column("id").to_numpy())
        self._weights[slots] = _matrix(rows.column("weights"))
        self._state[slots] = _matrix(rows.column("state"))[:, 0]
        self._count[slots] = rows.column("count").to_numpy()
        self._last_seen[slots] = rows.column("last_seen").to_numpy()

    def _logical_of(self, names: pa.DictionaryArray) -> UInt16:
        known = {name: number for number, name in enumerate(self._spec.logical)}
        used = [names.dictionary[number].as_py() for number in np.unique(names.indices.to_numpy())]
        unknown = [name for name in used if name not in known]
        if unknown:
            raise SchemaMismatch(
                expected=f"rows of {', '.join(self._spec.logical)}",
                got=f"rows of {', '.join(map(str, unknown))}",
                where=f"table {self._spec.name}",
                do="The checkpoint belongs to another version of the experiment.",
            )
        numbers = np.array([known.get(name, 0) for name in names.dictionary.to_pylist()], np.uint16)
        return numbers[names.indices.to_numpy()]

    def _place(self, logical_U: UInt16, ids_U: Int64) -> Int64:
        logical_U, ids_U = np.ascontiguousarray(logical_U), np.ascontiguousarray(ids_U)
        slots_U = np.empty(len(ids_U), np.int64)
        index = self._index
        missing = kernels.find(index.directory, index.segments, index.shape, logical_U, ids_U, slots_U)
        if not missing:
            return slots_U
        first = self.rows
        if first + missing > self._max_rows:
            raise self._exhausted(first + missing)
        if not kernels.insert(*index, logical_U, ids_U, slots_U):
            raise self._exhausted(first + missing)
        values = (self._weights, self._state)
        initial = (self._spec.init, self._spec.optimizer.initial)
        kernels.start_rows(first, logical_U, ids_U, slots_U, self._keys, values, self._salts, self._spec.dim, initial)
        return slots_U

    def _exhausted(self, wanted: int) -> Exhausted:
        return Exhausted(
            expected=f"at most {self._max_rows} rows",
            got=f"{wanted} rows",
            where=f"table {self._spec.name} ({', '.join(self._spec.logical)})",
            do="Raise trainer.max_rows (it reserves address space, not memory), or hash into fewer ids."
            if self._max_rows == self._wanted_rows
            else f"The system refused address space for {self._wanted_rows} rows: see ulimit -v and vm.overcommit_memory.",
        )


def _dense_rows(values_FBD: Float32) -> bool:
    """Whether the last axis is contiguous; strides of axes of one value, or of empty arrays, may be anything."""
    return values_FBD.strides[2] == 4 or values_FBD.shape[2] == 1 or not values_FBD.size


def _fixed(values: npt.NDArray[Any]) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).reshape(-1)), values.shape[1])


def _matrix(lists: pa.FixedSizeListArray) -> Float32:
    return lists.flatten().to_numpy().reshape(-1, lists.type.list_size)
