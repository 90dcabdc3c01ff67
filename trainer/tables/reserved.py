"""Arrays that grow without a copy: address space is reserved at once, memory is used as it is touched."""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt

from streams.errors import Exhausted

_MAP_NORESERVE = 0x4000
_HUGE_FROM_BYTES = 64 * 1024 * 1024


def reserve(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[np.generic]:
    """A zeroed array whose pages cost nothing until they are written; freed with the array.

    Raises:
        Exhausted: the system refuses the address space (``ulimit -v``, strict overcommit).
    """
    kind = np.dtype(dtype)
    size = max(1, int(np.prod(shape, dtype=np.int64))) * kind.itemsize
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    except (OSError, OverflowError, ValueError) as error:
        raise Exhausted(
            expected=f"{size >> 20} MiB of address space for a table",
            got=str(error),
            where="trainer, memory of the embedding tables",
            do="Lower trainer.max_rows, or raise the limit on address space (ulimit -v, vm.overcommit_memory).",
        ) from error
    if size >= _HUGE_FROM_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=kind)[: int(np.prod(shape, dtype=np.int64))].reshape(shape)
