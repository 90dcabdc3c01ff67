"""Mixing of keys, and the initial weights that follow from a key alone."""

from __future__ import annotations

import numba as nb
import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_A = np.uint64(0xBF58476D1CE4E5B9)
_B = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S40 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(40)
_UNIT = np.float32(2.0**-23)


@nb.njit(cache=True, nogil=True, inline="always")
def mix64(x):  # type: ignore[no-untyped-def]
    """The finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection of uint64."""
    x = (x ^ (x >> _S30)) * _A
    x = (x ^ (x >> _S27)) * _B
    return x ^ (x >> _S31)


@nb.njit(cache=True, nogil=True, inline="always")
def key_hash(logical, key):  # type: ignore[no-untyped-def]
    """Place of a key in the index: uint64 from (logical, id)."""
    return mix64(np.uint64(key) + (np.uint64(logical) + np.uint64(1)) * GOLDEN)


@nb.njit(cache=True, nogil=True, inline="always")
def initial_weight(salt, key, column, init):  # type: ignore[no-untyped-def]
    """Uniform in [−init, init): 24 high bits of mix64(mix64(id ^ salt) + (column + 1) · golden ratio)."""
    bits = mix64(mix64(np.uint64(key) ^ salt) + (np.uint64(column) + np.uint64(1)) * GOLDEN) >> _S40
    return (np.float32(bits) * _UNIT - np.float32(1.0)) * init
