"""Arrays that grow without a copy: address space is reserved at once, memory is used as it is touched."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from streams.errors import Exhausted
from trainer.kernels.index import MAX_DEPTH, SEGMENT, SPARSEST

RECORD = np.dtype([("state", np.float32), ("count", np.uint32), ("last_seen", np.int64)])
"""What a row has besides its key and weights: 16 bytes, in one cache line."""

_MAP_NORESERVE = 0x4000
_HUGE_FROM_BYTES = 4 * 1024 * 1024
"""Random access to pages of 2 MiB costs a half to a third; a smaller table would only waste them."""
_FEWEST_ROWS = 65_536

Array = npt.NDArray[Any]


class Index(NamedTuple):
    """State of ``trainer.kernels.index``."""

    directory: Array
    segments: Array
    depths: Array
    fill: Array
    shape: Array


@dataclass(frozen=True, slots=True)
class Memory:
    """Arrays of a table; the row at a slot is the entry there in ``weights``, ``records``, ``logical`` and ``ids``."""

    index: Index
    weights: Array
    records: Array
    logical: Array
    ids: Array


def reserve_rows(rows: int, width: int) -> Memory:
    """Memory for so many rows, or for a part of them where the system refuses: half as often as needed, and once more, so
    that others find address space too.

    Raises:
        Exhausted: not even 65,536 rows fit (or ``rows``, if that is less).
    """
    try:
        return _reserve_all(rows, width)
    except Exhausted:
        if rows <= _FEWEST_ROWS:
            raise
    while True:
        rows = max(_FEWEST_ROWS, rows // 2)
        try:
            _reserve_all(rows, width)
        except Exhausted:
            if rows == _FEWEST_ROWS:
                raise
        else:
            return _reserve_all(max(_FEWEST_ROWS, rows // 2), width)


def _reserve_all(rows: int, width: int) -> Memory:
    segments = rows // SPARSEST + 8
    index = Index(
        reserve((1 << MAX_DEPTH,), np.int32),
        reserve((segments, SEGMENT, 2), np.int64),
        reserve((segments,), np.int32),
        reserve((segments,), np.int32),
        np.array([0, 1, 0], np.int64),
    )
    return Memory(
        index,
        reserve((rows, width), np.float32),
        reserve((rows,), RECORD),
        reserve((rows,), np.uint16),
        reserve((rows,), np.int64),
    )


def reserve(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """A zeroed array whose pages cost nothing until they are written; freed with the array.

    Raises:
        Exhausted: the system refuses the address space (``ulimit -v``, strict overcommit).
    """
    kind = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    size = max(1, count) * kind.itemsize
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    except (OSError, OverflowError, ValueError) as error:
        raise Exhausted(
            expected=f"{size >> 20} MiB of address space for a table",
            got=str(error),
            where="trainer, memory of the embedding tables",
            do="Raise the limit on address space (ulimit -v, vm.overcommit_memory).",
        ) from error
    if size >= _HUGE_FROM_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=kind)[:count].reshape(shape)
