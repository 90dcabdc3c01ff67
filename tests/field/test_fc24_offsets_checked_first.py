"""Field case 24: an index out of range is logged and quietly becomes row 0, or reads past the buffer. Offsets and indices are
checked when a batch is decoded, before any kernel sees them; the message says which array and why."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from preprocess.contracts import BatchLayout, LocalBatch, TableIds, decode_batch, encode_batch, layout_of
from streams.contracts import Record
from streams.errors import Broken
from streams.packed import Limits, Packed, pack
from tests.preprocess.featurize.samples import experiment

LAYOUT: BatchLayout = layout_of(experiment({"a": {"id": "x"}, "d": {"dense": "x"}}))


def _batch(inverse: list[int], offsets: list[int] | None, **changes: Any) -> LocalBatch:
    ids = TableIds(
        np.zeros(3, np.uint16),
        np.array([4, 5, 6], np.int64),
        np.array(inverse, np.uint32),
        None if offsets is None else np.array(offsets, np.int32),
    )
    rows = 2
    batch = LocalBatch(
        bucket=0,
        number=0,
        labels_B=np.zeros(rows, np.float32),
        weights_B=np.ones(rows, np.float32),
        times_B=np.zeros(rows, np.int64),
        dense_BX=np.zeros((rows, 1), np.float32),
        tables={"a": ids},
        files=("f",),
        file_B=np.zeros(rows, np.int32),
        row_B=np.arange(rows, dtype=np.int64),
    )
    return dataclasses.replace(batch, **changes)


def _decode(packed: Packed) -> LocalBatch:
    return decode_batch(Record("exp.e.v1", 0, 7, None, packed.value, packed.headers), LAYOUT, Limits())


def _through(batch: LocalBatch) -> LocalBatch:
    return _decode(encode_batch(batch, LAYOUT, lineage={}, compression="none"))


def test_what_is_right_passes() -> None:
    assert _through(_batch([0, 1, 2], [0, 1, 3])).tables["a"].offsets is not None
    assert _through(_batch([0, 2], None)).tables["a"].offsets is None


@pytest.mark.parametrize(
    ("inverse", "offsets"),
    [
        ([0, 1, 3], [0, 1, 3]),
        ([0, 1, 2**16 - 1], [0, 1, 3]),
        ([0, 1, 2], [0, 5, 3]),
        ([0, 1, 2], [-1, 2, 3]),
        ([0, 1, 2], [0, 1, 4]),
        ([0, 1, 2], [0, 1, 2]),
        ([0, 1, 2], [1, 1, 3]),
        ([0, 1, 2], [0, 3]),
        ([0, 1, 2], [0, 2**31 - 1, 3]),
        ([0, 1, 2], [0, -(2**31), 3]),
        ([0, 1, 2], None),
        ([], None),
    ],
)
def test_indices_and_offsets_out_of_range(inverse: list[int], offsets: list[int] | None) -> None:
    with pytest.raises(Broken) as caught:
        _through(_batch(inverse, offsets))
    assert caught.value.where == "exp.e.v1/0@7"


@pytest.mark.parametrize(
    "changes",
    [
        {"file_B": np.array([0, 1], np.int32)},
        {"file_B": np.array([0, -1], np.int32)},
        {"weights_B": np.ones(3, np.float32)},
        {"times_B": np.zeros(2, np.int32)},
        {"labels_B": np.zeros(2, np.float64)},
        {"row_B": np.zeros(1, np.int64)},
        {"dense_BX": np.array([[0.0], [np.nan]], np.float32)},
        {"dense_BX": np.array([[0.0], [np.inf]], np.float32)},
        {"dense_BX": np.zeros((2, 2), np.float32)},
        {"tables": {"a": TableIds(np.ones(3, np.uint16), np.arange(3), np.array([0, 1], np.uint32), None)}},
        {"tables": {"a": TableIds(np.zeros(2, np.uint16), np.arange(3), np.array([0, 1], np.uint32), None)}},
    ],
)
def test_other_arrays_that_do_not_fit(changes: dict[str, Any]) -> None:
    with pytest.raises(Broken):
        _through(_batch([0, 1, 2], [0, 1, 3], **changes))


def test_signed_indices_are_refused() -> None:
    """Written by something else: an int32 inverse with −1 must not wrap to a big unsigned one."""
    packed = encode_batch(_batch([0, 1], None), LAYOUT, lineage={}, compression="none")
    with pa.ipc.open_stream(pa.py_buffer(packed.value)) as reader:
        batch = reader.read_next_batch()
    place = batch.schema.get_field_index("inverse.a")
    column = pa.array([[0, -1]], pa.list_(pa.int32()))
    schema = batch.schema.set(place, pa.field("inverse.a", column.type))
    columns = [column if i == place else batch.column(i) for i in range(batch.num_columns)]
    forged = pack(
        pa.RecordBatch.from_arrays(columns, schema=schema), kind="batch", times=None, lineage={}, compression="none"
    )
    with pytest.raises(Broken, match="inverse"):
        _decode(forged)


def test_another_layout_is_refused() -> None:
    packed = encode_batch(_batch([0, 1], None), LAYOUT, lineage={}, compression="none")
    other = layout_of(experiment({"b": {"id": "x"}, "d": {"dense": "x"}}))
    with pytest.raises(Broken, match="layout"):
        decode_batch(Record("exp.e.v1", 0, 7, None, packed.value, packed.headers), other, Limits())
