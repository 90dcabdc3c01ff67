"""Reading Arrow buffers from numba by their addresses, without a copy and without one compilation per number of columns.

A kernel gets arrays of addresses (int64). Whoever calls it keeps the buffers alive and has checked their lengths.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


@intrinsic
def pointer(typing_context: Any, address: Any) -> Any:
    """int64 → ``void*``, to be given to ``numba.carray``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


def _unaligned_load(bits: int, result: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
        return builder.zext(builder.load(place, align=1), ir.IntType(64)) if bits < 64 else builder.load(place, align=1)

    return result(types.int64), generate


@intrinsic
def load_u64(typing_context: Any, address: Any) -> Any:
    """The 8 bytes at an address, any alignment, as uint64 (of this machine's byte order)."""
    return _unaligned_load(64, types.uint64)


@intrinsic
def load_u32(typing_context: Any, address: Any) -> Any:
    """The 4 bytes at an address, any alignment, as uint64."""
    return _unaligned_load(32, types.uint64)


@intrinsic
def load_u8(typing_context: Any, address: Any) -> Any:
    """The byte at an address as uint64."""
    return _unaligned_load(8, types.uint64)
