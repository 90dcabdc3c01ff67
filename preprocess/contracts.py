"""What preprocess promises to the trainer: local batches in ``exp.<name>.v<n>``, and V.

Shapes: ``B`` rows of the local batch, ``F`` id features of one physical table, ``N`` ids of the batch in one table (all
features), ``U`` unique ones, ``X`` dense features.

A *physical table* holds all logical tables of one dimension and optimizer; its key is (logical table, id). Ids are laid
out feature by feature, and inside a feature row by row.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from experiments.experiment import Experiment, RowwiseAdagrad
from experiments.fields import arrow_type
from experiments.view import View, canonical
from streams.contracts import Record
from streams.errors import Broken
from streams.packed import Compression, Limits, Packed, kind_of, lineage_of, pack, place, unpack

BATCH = "batch"
"""``hr.kind`` of a local batch in ``exp``."""

JOINED = "joined"
"""``hr.kind`` of a message of rows in ``joined.<view>``. Lineage: ``{"k": number of the message in its partition, …}``."""

FRONTIER = "V"
"""Control record in ``joined`` and ``exp``: every row that comes later has event time ≥ its value."""

TIME_COLUMN, FILE_COLUMN, ROW_COLUMN = "__time", "__file", "__row"
"""Of ``joined``: event time µs, file relative to the feed's root, row in the file: identity and order of a row."""

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
UInt32 = npt.NDArray[np.uint32]
UInt16 = npt.NDArray[np.uint16]
Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of preprocess.

    Args:
        poll_bytes: read at once, and not before what was read is out as far as it can go.
        transaction_bytes, transaction_messages: cap of one transaction's output. Dead letters and side rows have caps of their
            own, so a feed whose every row is rejected goes on in small transactions too.
        settle_rows: rows that a partition joins at once: so many are in memory a second time, however far W moves.
        side_table_bytes: side tables of a view together, in memory.
        idle_commit_s: positions are committed at least that often when they moved.
        joined_compression, batch_compression: of the messages. ``none`` is the fastest where the log is a local disk.

    Memory of a join, beside its side tables: what one poll read, decoded; rows that W does not make final yet, which the
    planner bounds (``ahead``, ``disorder``): the join cannot pause its only input, which also carries W; and of each partition
    one unfinished message.
    """

    poll_bytes: int = 16 * 1024 * 1024
    transaction_bytes: int = 32 * 1024 * 1024
    transaction_messages: int = 1024
    settle_rows: int = 65_536
    side_table_bytes: int = 256 * 1024 * 1024
    idle_commit_s: float = 1.0
    joined_compression: Compression = "none"
    batch_compression: Compression = "none"


def joined_schema(view: View) -> pa.Schema:
    """Arrow schema of ``joined.<view>``: the sample's columns, ``alias.column`` of each look-up, ``label.<name>`` (float32,
    never null), ``__time`` int64, ``__file`` string, ``__row`` int64."""
    fields = [pa.field(name, arrow_type(column.type)) for name, column in view.sample.columns.items()]
    for lookup in view.lookups:
        fields += [
            pa.field(f"{lookup.alias}.{name}", arrow_type(column.type)) for name, column in lookup.feed.columns.items()
        ]
    fields += [pa.field(f"label.{name}", pa.float32()) for name, _ in view.labels]
    fields += [
        pa.field(TIME_COLUMN, pa.int64()),
        pa.field(FILE_COLUMN, pa.string()),
        pa.field(ROW_COLUMN, pa.int64()),
    ]
    return pa.schema(fields)


@dataclass(frozen=True, slots=True)
class IdFeature:
    """A feature that yields ids: which logical table, and how its embeddings become one vector a row."""

    name: str
    logical: int
    pool: Literal["mean", "sum"]


@dataclass(frozen=True, slots=True)
class PhysicalTable:
    """Logical tables of one dimension, optimizer and initial range.

    ``logical`` are their names, sorted; a key's first half is the index into it. ``features`` in sorted name order.
    """

    name: str
    dim: int
    init: float
    optimizer: RowwiseAdagrad
    logical: tuple[str, ...]
    features: tuple[IdFeature, ...]


@dataclass(frozen=True, slots=True)
class BatchLayout:
    """How an experiment's batches are laid out. A pure function of the experiment (``layout_of``)."""

    tables: tuple[PhysicalTable, ...]
    dense: tuple[str, ...]
    label: str
    fingerprint: str = field(init=False, repr=False, compare=False, default="")
    """16 hex digits over everything else."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "fingerprint", hashlib.sha256(repr(self).encode()).hexdigest()[:16])


def layout_of(experiment: Experiment) -> BatchLayout:
    """Group the logical tables into physical ones and order everything by name."""
    groups: dict[str, list[str]] = {}
    used = {experiment.table_of(name) for name, feature in experiment.features.items() if feature.kind != "dense"}
    for table in sorted(used):
        spec = experiment.table_spec(table)
        key = json.dumps([spec.dim, spec.init, canonical(spec.optimizer)], sort_keys=True)
        groups.setdefault(key, []).append(table)
    tables = []
    for logical in sorted(groups.values()):
        spec = experiment.table_spec(logical[0])
        features = tuple(
            IdFeature(name, logical.index(experiment.table_of(name)), feature.pool)
            for name, feature in sorted(experiment.features.items())
            if feature.kind != "dense" and experiment.table_of(name) in logical
        )
        tables.append(
            PhysicalTable(logical[0], spec.dim, spec.init, spec.optimizer.rowwise_adagrad, tuple(logical), features)
        )
    dense = tuple(name for name, feature in sorted(experiment.features.items()) if feature.kind == "dense")
    return BatchLayout(tuple(tables), dense, next(iter(experiment.labels)))


@dataclass(frozen=True, slots=True)
class TableIds:
    """Ids of one local batch for one physical table.

    Args:
        logical_U: uint16, index of the logical table. ids_U: int64, any value. Pairs are unique, in order of first
            appearance.
        inverse_N: uint32, for each id of the batch its place in ``ids_U``.
        offsets: int32 [F·B + 1]: ids of feature f, row b are ``inverse_N[offsets[f·B + b] : offsets[f·B + b + 1]]``;
            ``None`` when every feature has exactly one id in every row (then N = F·B).
    """

    logical_U: UInt16
    ids_U: Int64
    inverse_N: UInt32
    offsets: Int32 | None


@dataclass(frozen=True, slots=True)
class LocalBatch:
    """One partition's part of a step. Arrays are read-only views where decoding allows.

    Args:
        bucket: of event time (0 when ``cuts.every`` is off). number: j, from 0 inside the bucket.
        labels_B, weights_B: float32. times_B: int64 µs. dense_BX: float32, finite.
        tables: by physical table's name.
        files: names; file_B: int32 into it; row_B: int64. Identity of each row.
    """

    bucket: int
    number: int
    labels_B: Float32
    weights_B: Float32
    times_B: Int64
    dense_BX: Float32
    tables: Mapping[str, TableIds]
    files: tuple[str, ...]
    file_B: Int32
    row_B: Int64

    @property
    def rows(self) -> int:
        """B."""
        return len(self.labels_B)


def encode_batch(
    batch: LocalBatch, layout: BatchLayout, *, lineage: Mapping[str, object], compression: Compression
) -> Packed:
    """One message: a record batch of one row whose columns are lists, so that arrays of any length travel without a copy.

    The number of local-batch rows is added to the lineage as ``rows`` (the header ``hr.rows`` says 1), see ``rows_of``.
    """
    columns: list[tuple[str, npt.NDArray[np.generic]]] = [
        ("labels", batch.labels_B),
        ("weights", batch.weights_B),
        ("times", batch.times_B),
        ("dense", batch.dense_BX.reshape(-1)),
        ("file", batch.file_B),
        ("row", batch.row_B),
    ]
    for table in layout.tables:
        ids = batch.tables[table.name]
        columns += [
            (f"logical.{table.name}", ids.logical_U),
            (f"ids.{table.name}", ids.ids_U),
            (f"inverse.{table.name}", _narrow(ids.inverse_N, len(ids.ids_U))),
            (f"offsets.{table.name}", ids.offsets if ids.offsets is not None else _NO_OFFSETS),
        ]
    schema = _schema(tuple((name, values.dtype.str) for name, values in columns))
    body = {
        "bucket": batch.bucket,
        "number": batch.number,
        "files": list(batch.files),
        "layout": layout.fingerprint,
    }
    record_batch = pa.RecordBatch.from_arrays(
        [_one_list(list_type, values) for list_type, (_, values) in zip(schema.types, columns, strict=True)],
        schema=schema.with_metadata({"headrace": json.dumps(body, sort_keys=True, separators=(",", ":"))}),
    )
    times = (int(batch.times_B.min()), int(batch.times_B.max())) if batch.rows else None
    lineage = {**lineage, "rows": batch.rows}
    return pack(record_batch, kind=BATCH, times=times, lineage=lineage, compression=compression)


def rows_of(record: Record) -> int:
    """Rows of a local batch as its headers say, without decoding it; 0 for other messages and unreadable headers."""
    try:
        rows = lineage_of(record).get("rows")
    except Broken:
        return 0
    return rows if kind_of(record) == BATCH and isinstance(rows, int) and rows > 0 else 0


def decode_batch(record: Record, layout: BatchLayout, limits: Limits) -> LocalBatch:
    """Check and decode a message of ``exp``. Raises ``Broken`` when anything does not fit, before any kernel sees it."""
    packed = unpack(record, kind=BATCH, schema=None, limits=limits)
    try:
        body = json.loads((packed.schema.metadata or {})[b"headrace"])
        if body["layout"] != layout.fingerprint:
            raise ValueError(f"layout {body['layout']} instead of {layout.fingerprint}")
        labels = _values(packed, "labels", np.float32)
        rows = len(labels)
        batch = LocalBatch(
            bucket=int(body["bucket"]),
            number=int(body["number"]),
            labels_B=labels,
            weights_B=_values(packed, "weights", np.float32, rows),
            times_B=_values(packed, "times", np.int64, rows),
            dense_BX=_values(packed, "dense", np.float32, rows * len(layout.dense)).reshape(rows, len(layout.dense)),
            tables={table.name: _table_ids(packed, table, rows) for table in layout.tables},
            files=tuple(body["files"]),
            file_B=_values(packed, "file", np.int32, rows),
            row_B=_values(packed, "row", np.int64, rows),
        )
        if not np.isfinite(batch.dense_BX).all():
            raise ValueError("a dense value is not finite")
        if rows and not (batch.file_B.min() >= 0 and batch.file_B.max() < len(batch.files)):
            raise ValueError("file index out of range")
        return batch
    except (KeyError, ValueError, TypeError) as error:
        raise Broken(
            expected="a local batch of this experiment version",
            got=f"{type(error).__name__}: {error}",
            where=place(record),
            do="The batch is kept out of training and counted; see `headrace status`.",
        ) from error


def _table_ids(packed: pa.RecordBatch, table: PhysicalTable, rows: int) -> TableIds:
    ids = _values(packed, f"ids.{table.name}", np.int64)
    logical = _values(packed, f"logical.{table.name}", np.uint16, len(ids))
    inverse = _values(packed, f"inverse.{table.name}", np.uint16 if len(ids) <= _NARROW else np.uint32)
    offsets = _values(packed, f"offsets.{table.name}", np.int32)
    if len(logical) and int(logical.max()) >= len(table.logical):
        raise ValueError(f"logical table {int(logical.max())} of {len(table.logical)} in {table.name}")
    if len(inverse) and int(inverse.max()) >= len(ids):
        raise ValueError(f"inverse {int(inverse.max())} of {len(ids)} ids in {table.name}")
    cells = len(table.features) * rows
    if len(offsets) == 0:
        if len(inverse) != cells:
            raise ValueError(f"{len(inverse)} ids for {cells} cells in {table.name}")
        return TableIds(logical, ids, inverse.astype(np.uint32, copy=False), None)
    if (
        len(offsets) != cells + 1
        or offsets[0] != 0
        or offsets[-1] != len(inverse)
        or (offsets[1:] < offsets[:-1]).any()
    ):
        raise ValueError(f"offsets of {table.name} do not start at 0, rise, and end at {len(inverse)}")
    return TableIds(logical, ids, inverse.astype(np.uint32, copy=False), offsets)


_NARROW = 65_536
"""Up to so many unique ids the inverse travels as uint16."""


def _narrow(inverse: npt.NDArray[np.generic], unique: int) -> npt.NDArray[np.generic]:
    return inverse.astype(np.uint16) if unique <= _NARROW else inverse.astype(np.uint32, copy=False)


_NO_OFFSETS = np.empty(0, np.int32)


@lru_cache(maxsize=256)
def _schema(columns: tuple[tuple[str, str], ...]) -> pa.Schema:
    """One list column for each (name, dtype); kept, because making it costs more than filling it."""
    return pa.schema([(name, pa.list_(pa.from_numpy_dtype(np.dtype(dtype)))) for name, dtype in columns])


def _one_list(list_type: pa.ListType, values: npt.NDArray[np.generic]) -> pa.Array:
    items = pa.Array.from_buffers(
        list_type.value_type, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))], 0
    )
    ends = pa.py_buffer(struct.pack("<ii", 0, len(values)))
    return pa.Array.from_buffers(list_type, 1, [None, ends], 0, 0, [items])


def _values(packed: pa.RecordBatch, name: str, dtype: type[np.generic], length: int | None = None) -> npt.NDArray:  # type: ignore[type-arg]
    column = packed.column(name)
    items = column.values
    if len(column) != 1 or column.null_count or items.null_count:
        raise ValueError(f"column {name} is not one list without nulls")
    start, end = struct.unpack_from("<ii", column.buffers()[1], 4 * column.offset)
    values = items.to_numpy(zero_copy_only=True)[start:end]  # flatten() does the same, 20 times slower
    if values.dtype != dtype:
        raise ValueError(f"column {name} is {values.dtype}, not {np.dtype(dtype)}")
    if length is not None and len(values) != length:
        raise ValueError(f"column {name} has {len(values)} values, not {length}")
    return values
