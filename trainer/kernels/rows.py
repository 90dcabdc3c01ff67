"""Pooling, gradients and the optimizer over rows of a table. Sums run in order of occurrence, so bits never depend on slots.

Ids of feature f, row b are ``inverse_N[offsets[f·B + b] : offsets[f·B + b + 1]]``; an empty ``offsets`` means exactly one each.
"""

from __future__ import annotations

import numba as nb
import numpy as np


@nb.njit(cache=True, nogil=True)
def pool(weights, slots_U, inverse_N, offsets, mean_F, out_FBD):  # type: ignore[no-untyped-def]
    """Sum or mean of the rows of each cell into ``out_FBD``; zeros where there are none."""
    features, rows, width = out_FBD.shape
    single = len(offsets) == 0
    for f in range(features):
        for b in range(rows):
            cell = f * rows + b
            if single:
                slot = slots_U[inverse_N[cell]]
                for d in range(width):
                    out_FBD[f, b, d] = weights[slot, d]
                continue
            begin, end = offsets[cell], offsets[cell + 1]
            for d in range(width):
                out_FBD[f, b, d] = np.float32(0.0)
            for n in range(begin, end):
                slot = slots_U[inverse_N[n]]
                for d in range(width):
                    out_FBD[f, b, d] += weights[slot, d]
            if mean_F[f] and end - begin > 1:
                scale = np.float32(1.0) / np.float32(end - begin)
                for d in range(width):
                    out_FBD[f, b, d] *= scale


@nb.njit(cache=True, nogil=True)
def accumulate(inverse_N, offsets, mean_F, grad_FBD, into_U, grads_VD):  # type: ignore[no-untyped-def]
    """Add each cell's gradient to the rows it was pooled from."""
    features, rows, width = grad_FBD.shape
    single = len(offsets) == 0
    for f in range(features):
        for b in range(rows):
            cell = f * rows + b
            begin, end = (cell, cell + 1) if single else (np.int64(offsets[cell]), np.int64(offsets[cell + 1]))
            scale = np.float32(1.0)
            if mean_F[f] and end - begin > 1:
                scale = np.float32(1.0) / np.float32(end - begin)
            for n in range(begin, end):
                v = into_U[inverse_N[n]]
                for d in range(width):
                    grads_VD[v, d] += grad_FBD[f, b, d] * scale


@nb.njit(cache=True, nogil=True)
def rowwise_adagrad(weights, state, slots_V, grads_VD, lr, eps):  # type: ignore[no-untyped-def]
    """One step of row-wise Adagrad: state += mean(g²); w −= lr · g / (√state + eps)."""
    rows, width = grads_VD.shape
    for v in range(rows):
        slot = slots_V[v]
        total = np.float32(0.0)
        for d in range(width):
            total += grads_VD[v, d] * grads_VD[v, d]
        state[slot, 0] += total / np.float32(width)
        scale = lr / (np.sqrt(state[slot, 0]) + eps)
        for d in range(width):
            weights[slot, d] -= scale * grads_VD[v, d]


@nb.njit(cache=True, nogil=True)
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
