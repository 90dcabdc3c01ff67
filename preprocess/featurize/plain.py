"""Joined rows → local batches, value by value: the twin of ``preprocess.featurize.batch``, for tests and for reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from preprocess.contracts import FILE_COLUMN, ROW_COLUMN, TIME_COLUMN, LocalBatch, PhysicalTable, TableIds
from preprocess.featurize import ops
from preprocess.featurize.cutting import Cut
from preprocess.featurize.graph import AsIs, Cross, Hash, Pick, Plan


def batches_plain(plan: Plan, rows: pa.RecordBatch, cuts: Sequence[Cut]) -> list[LocalBatch]:
    """Same arguments and results as ``Featurizer.batches``."""
    columns = {name: _cells(rows.column(name)) for name in plan.columns}
    return [_batch(plan, rows.slice(cut.start, cut.stop - cut.start), columns, cut) for cut in cuts]


def _cells(array: pa.Array) -> list[Any]:
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    elif pa.types.is_list(array.type) and pa.types.is_timestamp(array.type.value_type):
        array = array.cast(pa.list_(pa.int64()))
    return array.to_pylist()


def _batch(plan: Plan, rows: pa.RecordBatch, columns: dict[str, list[Any]], cut: Cut) -> LocalBatch:
    span = range(cut.start, cut.stop)
    files, file_B = ops.first_seen(rows.column(FILE_COLUMN).to_pylist())
    dense = [[ops.dense_value(columns[n.column][b], n.default, n.ops)[0] for n in plan.numbers] for b in span]
    return LocalBatch(
        bucket=cut.bucket,
        number=cut.number,
        labels_B=rows.column(plan.label).to_numpy(),
        weights_B=np.ones(len(rows), np.float32),
        times_B=rows.column(TIME_COLUMN).to_numpy(),
        dense_BX=np.array(dense, np.float32).reshape(len(rows), len(plan.numbers)),
        tables={
            table.name: _table(table, [plan.picks[place] for place in places], columns, span)
            for table, places in zip(plan.layout.tables, plan.tables, strict=True)
        },
        files=tuple(str(name) for name in files),
        file_B=np.array(file_B, np.int32),
        row_B=rows.column(ROW_COLUMN).to_numpy(),
    )


def _table(table: PhysicalTable, picks: list[Pick], columns: dict[str, list[Any]], span: range) -> TableIds:
    keys: list[tuple[int, int]] = []
    lengths: list[int] = []
    for feature, pick in zip(table.features, picks, strict=True):
        for b in span:
            ids = ids_of(pick, columns, b)
            keys += [(feature.logical, id) for id in ids]
            lengths.append(len(ids))
    unique, inverse = ops.first_seen(keys)
    offsets = np.cumsum([0, *lengths]).astype(np.int32)
    return TableIds(
        np.array([logical for logical, _ in unique], np.uint16),
        np.array([id for _, id in unique], np.int64),
        np.array(inverse, np.uint32),
        None if all(length == 1 for length in lengths) else offsets,
    )


def ids_of(pick: Pick, columns: dict[str, list[Any]], row: int) -> list[int]:
    """Signed ids of one feature in one row."""
    source = pick.source
    if isinstance(source, Cross):
        values = [columns[part.column][row] for part in source.parts]
        return [ops.signed(ops.cross_values(values, source.seed))]
    cell = columns[source.column][row]
    items = [None] if cell is None else cell if isinstance(cell, list) else [cell]
    found: list[int | None] = []
    for item in items:
        if item is None:
            id = None
        elif isinstance(source, Hash):
            id = ops.hash_value(item, source.seed)
        elif isinstance(source, AsIs):
            id = item & ops.MASK
        else:
            id = (ops.hour_of if source.part == "hour" else ops.day_of_week)(item, source.zone)
        found.append(None if id is None else ops.signed(id))
    return ops.last_items(found, pick.last)
