"""Joined rows → local batches, many at once: one pass of the kernels over a block of rows, then slices of the results.

What a batch holds depends on its own rows alone, never on the block it was computed in; a block only shares the cost.
``preprocess.featurize.plain`` is the twin that anybody can check by eye.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from experiments.experiment import Clip, DenseOp, Scale
from preprocess.contracts import (
    FILE_COLUMN,
    ROW_COLUMN,
    TIME_COLUMN,
    Float32,
    Int32,
    Int64,
    LocalBatch,
    PhysicalTable,
    TableIds,
    UInt16,
    UInt32,
)
from preprocess.featurize.columns import NONE_MARKED, UInt8, Values, values_of
from preprocess.featurize.cutting import Cut
from preprocess.featurize.graph import AsIs, Cross, Hash, Number, Pick, Plan, TimePart
from preprocess.featurize.ops import signed
from preprocess.kernels import featurize as kernels

_STAMP_LIMIT = 2**30


@dataclass(frozen=True, slots=True)
class Ids:
    """Ids of one feature for a block: row b has [offsets[b], offsets[b+1]); ``None``: one id a row."""

    values_N: Int64
    offsets_B1: Int32 | None


@dataclass(frozen=True, slots=True)
class Unique:
    """Ids of one physical table for all batches of a block; batch j has the parts [starts[j], starts[j+1])."""

    logical_U: UInt16
    ids_U: Int64
    inverse_N: UInt32
    unique_J1: list[int]
    start_J1: list[int]


class Featurizer:
    """Computes a plan. Holds scratch memory: one thread at a time. ``replaced`` counts dense values that were not finite."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.replaced = 0
        self._program = _Program(plan.numbers)
        self._seeds_C = np.array([part.seed for part in plan.hashes], np.uint64)
        self._slab = np.empty(0, np.int64)
        self._dedup = _Dedup()
        self._file_dedup = _Dedup()

    def batches(self, rows: pa.RecordBatch, cuts: Sequence[Cut]) -> list[LocalBatch]:
        """Featurize.

        Args:
            rows: with at least ``plan.needed``, already validated, the identity and the label without nulls.
            cuts: adjacent: the first starts at row 0, each next where the one before stops.
        """
        if not cuts:
            return []
        rows = rows.slice(0, cuts[-1].stop)
        edges_J1 = np.array([0, *(cut.stop for cut in cuts)], np.int64)
        assert cuts[0].start == 0
        columns = {name: values_of(rows.column(name)) for name in self.plan.columns}
        dense_BX = self._dense(columns, len(rows))
        picks = self._picks(columns, len(rows))
        tables = {
            table.name: self._table(table, [picks[place] for place in places], edges_J1)
            for table, places in zip(self.plan.layout.tables, self.plan.tables, strict=True)
        }
        files = rows.column(FILE_COLUMN).dictionary_encode()
        codes = Ids(files.indices.to_numpy().astype(np.int64), None)
        names = files.dictionary.to_pylist()
        places = self._file_dedup.run([codes], np.zeros(1, np.int64), edges_J1)
        labels_B = _numpy(rows.column(self.plan.label))
        weights_B = np.ones(len(rows), np.float32)
        times_B, row_B = _numpy(rows.column(TIME_COLUMN)), _numpy(rows.column(ROW_COLUMN))
        file_B = places.inverse_N.view(np.int32)
        return [
            LocalBatch(
                bucket=cut.bucket,
                number=cut.number,
                labels_B=labels_B[cut.start : cut.stop],
                weights_B=weights_B[cut.start : cut.stop],
                times_B=times_B[cut.start : cut.stop],
                dense_BX=dense_BX[cut.start : cut.stop],
                tables={name: batches[j] for name, batches in tables.items()},
                files=tuple(names[code] for code in places.ids_U[places.unique_J1[j] : places.unique_J1[j + 1]]),
                file_B=file_B[cut.start : cut.stop],
                row_B=row_B[cut.start : cut.stop],
            )
            for j, cut in enumerate(cuts)
        ]

    def _dense(self, columns: dict[str, Values], rows: int) -> Float32:
        program = self._program
        dense_BX = np.empty((rows, len(self.plan.numbers)), np.float32)
        read = [columns[number.column] for number in self.plan.numbers]
        columns_X4 = np.array([(v.kind, v.data, v.validity, v.start) for v in read], np.int64).reshape(-1, 4)
        self.replaced += kernels.dense_columns(
            columns_X4, program.defaults_X, program.starts_X1, program.codes, program.numbers_2, dense_BX
        )
        return dense_BX

    def _picks(self, columns: dict[str, Values], rows: int) -> list[Ids]:
        hashes = self._hash(columns)
        return [self._pick(pick, columns, hashes, rows) for pick in self.plan.picks]

    def _hash(self, columns: dict[str, Values]) -> dict[Hash, tuple[Int64, UInt8]]:
        """Values and marks (empty when every value has a hash) of each ``Hash`` of the plan, in the slab."""
        read = [columns[part.column] for part in self.plan.hashes]
        sizes = [len(values) + (len(values) + 7) // 8 for values in read]
        if sum(sizes) > len(self._slab):
            self._slab = np.empty(sum(sizes) * 5 // 4, np.int64)
        starts = list(accumulate(sizes, initial=0))
        base = self._slab.ctypes.data
        columns_C7 = np.array(
            [
                (v.kind, v.data, v.ends, v.validity, v.start, len(v), base + 8 * start)
                for v, start in zip(read, starts[:-1], strict=True)
            ],
            np.int64,
        ).reshape(-1, 7)
        missing_C = np.array([-1 if v.nulls or v.kind in (kernels.F32, kernels.F64) else 0 for v in read], np.int64)
        kernels.hash_columns(columns_C7, self._seeds_C, missing_C)
        result = {}
        for part, values, start, missing in zip(self.plan.hashes, read, starts[:-1], missing_C.tolist(), strict=True):
            n = len(values)
            marks = self._slab[start + n : start + n + (n + 7) // 8].view(np.uint8)[:n] if missing else NONE_MARKED
            result[part] = (self._slab[start : start + n], marks)
        return result

    def _pick(self, pick: Pick, columns: dict[str, Values], hashes: dict[Hash, tuple[Int64, UInt8]], rows: int) -> Ids:
        source = pick.source
        if isinstance(source, Cross):
            state_B = np.full(rows, signed(source.seed), np.int64)
            for part in source.parts:
                kernels.mix_into(state_B, hashes[part][0])
            return Ids(state_B, None)
        column = columns[source.column]
        if isinstance(source, Hash):
            values, marks = hashes[source]
        elif isinstance(source, AsIs):
            values, marks = _numpy(column.array, np.int64), column.marks()
        else:
            values, marks = _time_part(column.array, source), column.marks()
        if not len(column.starts_B1) and not len(marks):
            return Ids(values, None)
        out_N, offsets_B1 = np.empty(len(values), np.int64), np.empty(rows + 1, np.int32)
        kernels.jagged(values, marks, column.starts_B1, column.list_valid_B, pick.last, out_N, offsets_B1)
        return Ids(out_N, offsets_B1)

    def _table(self, table: PhysicalTable, features: list[Ids], edges_J1: Int64) -> list[TableIds]:
        logical_F = np.array([feature.logical for feature in table.features], np.int64)
        unique = self._dedup.run(features, logical_F, edges_J1)
        offsets = _offsets(features, edges_J1)
        ends_U, ends_N = unique.unique_J1, unique.start_J1
        return [
            TableIds(
                unique.logical_U[ends_U[j] : ends_U[j + 1]],
                unique.ids_U[ends_U[j] : ends_U[j + 1]],
                unique.inverse_N[ends_N[j] : ends_N[j + 1]],
                offsets[j],
            )
            for j in range(len(edges_J1) - 1)
        ]


class _Dedup:
    """Unique ids of many batches; owns the slots."""

    def __init__(self) -> None:
        self._slots_S2 = np.zeros((0, 2), np.int64)
        self._stamp = 1
        self._key: tuple[tuple[int, ...], tuple[int, ...]] | None = None
        self._kept_L2 = np.zeros((0, 2), np.int64)

    def run(self, features: list[Ids], logical_F: Int64, edges_J1: Int64) -> Unique:
        batches = len(edges_J1) - 1
        bounds_FJ1 = np.array(
            [edges_J1 if f.offsets_B1 is None else f.offsets_B1[edges_J1] for f in features], np.int64
        )
        lengths_FJ = bounds_FJ1[:, 1:] - bounds_FJ1[:, :-1]
        total = int(lengths_FJ.sum())
        regions_L2 = self._regions(lengths_FJ, logical_F)
        marks = batches * len(regions_L2)
        if self._stamp + marks > _STAMP_LIMIT:
            self._slots_S2[:] = 0
            self._stamp = 1
        out = (
            np.empty(total + 1, np.uint16),
            np.empty(total + 1, np.int64),
            np.empty(total, np.uint32),
            np.empty(batches + 1, np.int64),
            np.empty(batches + 1, np.int64),
        )
        ids_F = np.array([feature.values_N.__array_interface__["data"][0] for feature in features], np.int64)
        kernels.unique_ids(ids_F, bounds_FJ1, logical_F, regions_L2, self._slots_S2, self._stamp, out)
        self._stamp += marks
        return Unique(out[0], out[1], out[2], out[3].tolist(), out[4].tolist())

    def _regions(self, lengths_FJ: Int64, logical_F: Int64) -> Int64:
        """A region for each logical table, with at least twice as many slots as any batch has ids for it.

        Tables whose features stand together are done one after the other and share the first region.
        """
        order = tuple(logical_F.tolist())
        longest = tuple(lengths_FJ.max(axis=1, initial=0).tolist())
        if (order, longest) == self._key:
            return self._kept_L2
        most: dict[int, int] = {}
        runs: dict[int, int] = {}
        for f, logical in enumerate(order):
            most[logical] = most.get(logical, 0) + longest[f]
            if f == 0 or order[f - 1] != logical:
                runs[logical] = runs.get(logical, 0) + 1
        bits = {logical: max(4, (2 * count - 1).bit_length()) for logical, count in most.items()}
        together = [logical for logical in bits if runs[logical] == 1]
        first = max((1 << bits[logical] for logical in together), default=0)
        regions = np.zeros((max(order) + 1, 2), np.int64)
        for logical, size in bits.items():
            regions[logical] = (0 if runs[logical] == 1 else first, 64 - size)
            first += 0 if runs[logical] == 1 else 1 << size
        if first > len(self._slots_S2):
            self._slots_S2 = np.zeros((first, 2), np.int64)
        self._key, self._kept_L2 = (order, longest), regions
        return regions


class _Program:
    """Dense ops as flat arrays."""

    def __init__(self, numbers: tuple[Number, ...]) -> None:
        steps = [[_step(op) for op in number.ops] for number in numbers]
        flat = [step for part in steps for step in part]
        self.defaults_X = np.nan_to_num(np.array([n.default for n in numbers], np.float64), nan=0.0)
        self.starts_X1 = np.array([0, *np.cumsum([len(part) for part in steps])], np.int64)
        self.codes = np.array([code for code, _, _ in flat], np.int64)
        self.numbers_2 = np.array([(first, second) for _, first, second in flat], np.float64).reshape(-1, 2)


def _step(op: DenseOp) -> tuple[int, float, float]:
    if isinstance(op, Clip):
        return kernels.CLIP, *op.clip
    if isinstance(op, Scale):
        return kernels.SCALE, op.scale, op.offset
    return {"log1p": kernels.LOG1P, "sqrt": kernels.SQRT}[op], 0.0, 0.0


def _offsets(features: list[Ids], edges_J1: Int64) -> list[Int32 | None]:
    """Offsets of each batch; ``None`` where every cell has exactly one id."""
    batches = len(edges_J1) - 1
    if all(feature.offsets_B1 is None for feature in features):
        return [None] * batches
    offsets_F = np.array([0 if f.offsets_B1 is None else f.offsets_B1.ctypes.data for f in features], np.int64)
    out_N = np.empty(len(features) * int(edges_J1[-1]) + batches, np.int32)
    starts_J1, plain_J = np.empty(batches + 1, np.int64), np.empty(batches, np.uint8)
    kernels.batch_offsets(offsets_F, edges_J1, out_N, starts_J1, plain_J)
    return [None if plain_J[j] else out_N[starts_J1[j] : starts_J1[j + 1]] for j in range(batches)]


def _time_part(array: pa.Array, source: TimePart) -> Int64:
    """Hours or days, int64; what stands at a null is not to be used."""
    stamps = array.view(pa.int64()).view(pa.timestamp("us", tz=source.zone))
    part = pc.hour(stamps) if source.part == "hour" else pc.day_of_week(stamps)
    return _numpy(part)


def _numpy(array: pa.Array, dtype: type[np.generic] | None = None) -> npt.NDArray[Any]:
    """View of the values of a column of fixed width, also where they are null."""
    kind = np.dtype(dtype or array.type.to_pandas_dtype())
    buffer = array.buffers()[1]
    if buffer is None:
        return np.empty(0, kind)
    return np.frombuffer(buffer, kind, len(array), array.offset * kind.itemsize)
