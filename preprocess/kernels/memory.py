"""Reading Arrow buffers from numba by their addresses, without a copy and without one compilation per number of columns.

A kernel gets arrays of addresses (int64). Whoever calls it keeps the buffers alive and has checked their lengths.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _pointer(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


def _bits_of(typing_context: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), generate


def _number_of(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


def _unaligned_load(bits: int, result: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
        return builder.zext(builder.load(place, align=1), ir.IntType(64)) if bits < 64 else builder.load(place, align=1)

    return result(types.int64), generate


def _load_u64(typing_context: Any, address: Any) -> Any:
    return _unaligned_load(64, types.uint64)


def _load_u32(typing_context: Any, address: Any) -> Any:
    return _unaligned_load(32, types.uint64)


def _load_u8(typing_context: Any, address: Any) -> Any:
    return _unaligned_load(8, types.uint64)


carray: Any = numba.carray
"""An array over memory at a pointer (``numba.carray``)."""

pointer: Any = intrinsic(_pointer)
"""int64 address → ``void*``, to be given to ``numba.carray``."""

load_u64: Any = intrinsic(_load_u64)
load_u32: Any = intrinsic(_load_u32)
load_u8: Any = intrinsic(_load_u8)
"""8, 4 or 1 bytes at an int64 address of any alignment, as uint64, in this machine's byte order."""

bits_of: Any = intrinsic(_bits_of)
number_of: Any = intrinsic(_number_of)
"""A float64 as the int64 of the same bits, and back."""
