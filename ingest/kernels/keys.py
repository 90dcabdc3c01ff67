"""Hash of key columns, for partitioning. Version 1: changing it would move keys between partitions."""

from __future__ import annotations

import numba as nb
import numpy as np

VERSION = 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_A, _B = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_FNV_OFFSET, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


@nb.njit(cache=True, nogil=True, inline="always")
def _mix(x):  # type: ignore[no-untyped-def]
    x = (x ^ (x >> _S30)) * _A
    x = (x ^ (x >> _S27)) * _B
    return x ^ (x >> _S31)


@nb.njit(cache=True, nogil=True)
def fold_integers(values_N, hashes_N):  # type: ignore[no-untyped-def]
    """hash := mix(hash + golden ratio + value), in place; ``values_N`` uint64."""
    for i in range(len(values_N)):
        hashes_N[i] = _mix(hashes_N[i] + _GOLDEN + values_N[i])


@nb.njit(cache=True, nogil=True)
def fold_bytes(data, offsets_N1, hashes_N):  # type: ignore[no-untyped-def]
    """hash := mix(hash + golden ratio + FNV-1a of the bytes), in place."""
    for i in range(len(hashes_N)):
        h = _FNV_OFFSET
        for at in range(offsets_N1[i], offsets_N1[i + 1]):
            h = (h ^ np.uint64(data[at])) * _FNV_PRIME
        hashes_N[i] = _mix(hashes_N[i] + _GOLDEN + h)


@nb.njit(cache=True, nogil=True)
def order_by_partition(hashes_N, partitions, order_N, ends_P):  # type: ignore[no-untyped-def]
    """Stable counting sort by ``hash mod partitions``: places into ``order_N``, ends of the partitions into ``ends_P``."""
    count = np.zeros(partitions + 1, dtype=np.int64)
    for i in range(len(hashes_N)):
        count[np.int64(hashes_N[i] % np.uint64(partitions)) + 1] += 1
    for p in range(partitions):
        count[p + 1] += count[p]
        ends_P[p] = count[p + 1]
    for i in range(len(hashes_N)):
        p = np.int64(hashes_N[i] % np.uint64(partitions))  # type: ignore[assignment]
        order_N[count[p]] = i
        count[p] += 1
