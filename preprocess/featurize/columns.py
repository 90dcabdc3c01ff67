"""Arrow columns as addresses for the kernels: no copy, whatever slice they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from preprocess.contracts import Int64
from preprocess.kernels.featurize import BOOL, BYTES, F32, F64, I64, U64, valid_marks

UInt8 = npt.NDArray[np.uint8]
NONE_MARKED: UInt8 = np.empty(0, np.uint8)
ONE_EACH: Int64 = np.empty(0, np.int64)

_KINDS = {
    pa.lib.Type_INT64: I64,
    pa.lib.Type_UINT64: U64,
    pa.lib.Type_BOOL: BOOL,
    pa.lib.Type_FLOAT: F32,
    pa.lib.Type_DOUBLE: F64,
    pa.lib.Type_STRING: BYTES,
    pa.lib.Type_BINARY: BYTES,
    pa.lib.Type_TIMESTAMP: I64,
}


@dataclass(frozen=True, slots=True)
class Values:
    """A column's values, of a list column those of all lists.

    Args:
        array: keeps the memory alive; without lists.
        kind, data, ends, validity, start: as the kernels take them; an address is 0 where there is no such buffer.
        nulls: whether there are any.
        starts_B1: int64, row b holds values [starts[b], starts[b+1]); empty when every row has one value.
        list_valid_B: uint8, 0 where the list is null; empty when none is.
    """

    array: pa.Array
    kind: int
    data: int
    ends: int
    validity: int
    start: int
    nulls: bool
    starts_B1: Int64
    list_valid_B: UInt8

    def __len__(self) -> int:
        """Number of values."""
        return len(self.array)

    def marks(self) -> UInt8:
        """uint8 1 where a value is not null; empty when none is null. New memory."""
        return _marks(self.validity, self.start, len(self.array)) if self.nulls else NONE_MARKED


def values_of(array: pa.Array) -> Values:
    """Raises ``KeyError`` for a type that no column can have."""
    if array.type.id != pa.lib.Type_LIST:
        return _values(array, ONE_EACH, NONE_MARKED)
    buffers = array.buffers()
    if len(array) == 0:
        return _values(array.values.slice(0, 0), np.zeros(1, np.int64), NONE_MARKED)
    places = np.frombuffer(buffers[1], np.int32, len(array) + 1, 4 * array.offset)
    items = array.values.slice(int(places[0]), int(places[-1] - places[0]))
    valid = _marks(buffers[0].address, array.offset, len(array)) if array.null_count else NONE_MARKED
    return _values(items, places.astype(np.int64) - int(places[0]), valid)


def _values(array: pa.Array, starts_B1: Int64, list_valid_B: UInt8) -> Values:
    buffers = array.buffers()
    kind = _KINDS[array.type.id]
    nulls = array.null_count > 0
    return Values(
        array=array,
        kind=kind,
        data=_address(buffers[-1]),
        ends=_address(buffers[1]) if kind == BYTES else 0,
        validity=_address(buffers[0]) if nulls else 0,
        start=array.offset,
        nulls=nulls,
        starts_B1=starts_B1,
        list_valid_B=list_valid_B,
    )


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else buffer.address


def _marks(validity: int, start: int, n: int) -> UInt8:
    marks = np.empty(n, np.uint8)
    valid_marks(validity, start, marks)
    return marks
