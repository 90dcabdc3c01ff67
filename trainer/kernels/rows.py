"""Pooling, gradients and the optimizer over rows of a table. Sums run in order of occurrence, so bits never depend on slots.

Ids of feature f, row b are ``inverse_N[offsets[f·B + b] : offsets[f·B + b + 1]]``; an empty ``offsets`` means exactly one each.
[F, B, D] arrays may be views whose last axis is contiguous: they are read flat, with two strides.
"""

from __future__ import annotations

import numba as nb
import numpy as np
from numba import types

from trainer.kernels.memory import AHEAD, array, given, kernel, pointer, prefetch

_WEIGHTS, _STATE = array(types.float32, 2), array(types.float32, 1, "A")
_SLOTS, _INVERSE, _OFFSETS = given(types.int64), given(types.uint32), given(types.int32)
_MEAN = given(types.boolean)


@nb.njit(cache=True, nogil=True, inline="always")
def _flat(values_FBD):  # type: ignore[no-untyped-def]
    """The memory of a view from its first value to its last, and the strides of its two outer axes, in values."""
    features, rows, width = values_FBD.shape
    by_feature, by_row = values_FBD.strides[0] // 4, values_FBD.strides[1] // 4
    span = (features - 1) * by_feature + (rows - 1) * by_row + width if features * rows > 0 else 0
    return nb.carray(pointer(np.int64(values_FBD.ctypes.data)), (span,), np.float32), by_feature, by_row


@kernel(_WEIGHTS, _SLOTS, _INVERSE, _OFFSETS, _MEAN, array(types.float32, 3, "A"))
def pool(weights, slots_U, inverse_N, offsets, mean_F, out_FBD):  # type: ignore[no-untyped-def]
    """Sum or mean of the rows of each cell into ``out_FBD``; zeros where there are none."""
    features, rows, width = out_FBD.shape
    out, by_feature, by_row = _flat(out_FBD)
    base, last = weights.ctypes.data, len(inverse_N) - 1
    single = len(offsets) == 0
    for f in range(features):
        for b in range(rows):
            cell = f * rows + b
            at = f * by_feature + b * by_row
            begin, end = (cell, cell + 1) if single else (np.int64(offsets[cell]), np.int64(offsets[cell + 1]))
            if begin == end:
                for d in range(width):
                    out[at + d] = np.float32(0.0)
                continue
            prefetch(base + slots_U[inverse_N[min(begin + AHEAD, last)]] * width * 4)
            slot = slots_U[inverse_N[begin]]
            for d in range(width):
                out[at + d] = weights[slot, d]
            for n in range(begin + 1, end):
                prefetch(base + slots_U[inverse_N[min(n + AHEAD, last)]] * width * 4)
                slot = slots_U[inverse_N[n]]
                for d in range(width):
                    out[at + d] += weights[slot, d]
            if mean_F[f] and end - begin > 1:
                scale = np.float32(1.0) / np.float32(end - begin)
                for d in range(width):
                    out[at + d] *= scale


@kernel(_INVERSE, _OFFSETS, _MEAN, given(types.float32, 3, "A"), given(types.int32), _WEIGHTS)
def accumulate(inverse_N, offsets, mean_F, grad_FBD, into_U, grads_VD):  # type: ignore[no-untyped-def]
    """Add each cell's gradient to the rows it was pooled from."""
    features, rows, width = grad_FBD.shape
    grad, by_feature, by_row = _flat(grad_FBD)
    single = len(offsets) == 0
    for f in range(features):
        for b in range(rows):
            cell = f * rows + b
            at = f * by_feature + b * by_row
            if single:
                v = into_U[inverse_N[cell]]
                for d in range(width):
                    grads_VD[v, d] += grad[at + d]
                continue
            begin, end = np.int64(offsets[cell]), np.int64(offsets[cell + 1])
            scale = np.float32(1.0) / np.float32(end - begin) if mean_F[f] and end - begin > 1 else np.float32(1.0)
            for n in range(begin, end):
                v = into_U[inverse_N[n]]
                for d in range(width):
                    grads_VD[v, d] += grad[at + d] * scale


@kernel(_WEIGHTS, _STATE, _SLOTS, given(types.float32, 2), types.float32, types.float32)
def rowwise_adagrad(weights, state, slots_V, grads_VD, lr, eps):  # type: ignore[no-untyped-def]
    """One step of row-wise Adagrad: state += mean(g²); w −= lr / (√state + eps) · g."""
    rows, width = grads_VD.shape
    weights_base, state_base, stride = weights.ctypes.data, state.ctypes.data, state.strides[0]
    for v in range(rows):
        slot, coming = slots_V[v], slots_V[min(v + AHEAD, rows - 1)]
        prefetch(weights_base + coming * width * 4)
        prefetch(state_base + coming * stride)
        total = np.float32(0.0)
        for d in range(width):
            total += grads_VD[v, d] * grads_VD[v, d]
        state[slot] += total / np.float32(width)
        scale = lr / (np.sqrt(state[slot]) + eps)
        for d in range(width):
            weights[slot, d] -= scale * grads_VD[v, d]


@kernel(_SLOTS, array(types.int32), array(types.int64), array(types.int32))
def merge(slots_M, table, distinct_V, into_M):  # type: ignore[no-untyped-def]
    """Distinct slots in order of first appearance, and for each slot its place among them; returns how many.

    ``table`` is int32 scratch of a power of two ≥ 2·M, filled with −1.
    """
    mask = len(table) - 1
    distinct = 0
    for m in range(len(slots_M)):
        slot = slots_M[m]
        at = (slot * np.int64(-7046029254386353131) >> np.int64(20)) & mask
        while table[at] >= 0 and distinct_V[table[at]] != slot:
            at = (at + 1) & mask
        if table[at] < 0:
            table[at] = distinct
            distinct_V[distinct] = slot
            distinct += 1
        into_M[m] = table[at]
    return distinct
