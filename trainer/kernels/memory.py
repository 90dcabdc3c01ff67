"""What numba does not offer by itself: prefetching, and flat access to views; and the argument types of the kernels.

Types are fixed so that a kernel is compiled once, whether an array is read-only, a view or a whole array.
"""

from __future__ import annotations

from typing import Any, Literal

import numba as nb
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

AHEAD = 16
"""Keys or rows between a prefetch and the use: about as many lines as a core can wait for at once."""


Layout = Literal["C", "A"]
"""Contiguous, or any."""


def array(kind: Any, dimensions: int = 1, layout: Layout = "C") -> Any:
    """Type of an array that the kernel writes."""
    return types.Array(kind, dimensions, layout)


def given(kind: Any, dimensions: int = 1, layout: Layout = "C") -> Any:
    """Type of an array that the kernel only reads; it may be read-only."""
    return types.Array(kind, dimensions, layout, readonly=True)


def kernel(*arguments: Any) -> Any:
    """Compile (or take from the cache) for these argument types when the module is imported."""
    return nb.njit([tuple(arguments)], cache=True, nogil=True, fastmath=False, error_model="numpy")


def _prefetch(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = builder.inttoptr(args[0], cgutils.voidptr_t)
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, word, word, word])
        call = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        builder.call(call, [place, word(0), word(3), word(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _pointer(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


prefetch: Any = intrinsic(_prefetch)
"""Ask for the cache line at an int64 address. Any address is allowed: nothing is read."""

pointer: Any = intrinsic(_pointer)
"""int64 address → ``void*``, to be given to ``numba.carray``."""
