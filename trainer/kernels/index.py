"""The index of a dynamic table: extendible hashing (Fagin et al. 1979) over segments with linear probing.

A directory of 2^depth entries, addressed by the low bits of the key's hash, points to segments of ``SEGMENT`` entries. A
segment that is full is split in two; the directory doubles when a split needs one bit more. So growth never moves more
than one segment at a time. An entry is two int64: the id, and ``logical << 48 | slot + 1`` (0: free), so that every 64-bit id
is legal.

State: ``directory`` int32 (reserved to its largest size), ``segments`` int64 [S, SEGMENT, 2], ``depths`` and ``fill`` int32 [S],
``shape`` int64 [3] = (directory's depth, segments in use, rows in use).
"""

from __future__ import annotations

import numba as nb
import numpy as np

from trainer.kernels.hashing import initial_weight, key_hash

SEGMENT = 4096
FULL = 2867  # 70 %
MAX_DEPTH = 22
_MASK48 = np.int64((1 << 48) - 1)


@nb.njit(cache=True, nogil=True, inline="always")
def _start(hashed):  # type: ignore[no-untyped-def]
    """Where probing begins inside a segment: bits above those of the directory."""
    return np.int64((hashed >> np.uint64(32)) & np.uint64(SEGMENT - 1))


@nb.njit(cache=True, nogil=True)
def _put(segment, key, packed, hashed):  # type: ignore[no-untyped-def]
    at = _start(hashed)
    while segment[at, 1] != 0:
        at = (at + 1) & (SEGMENT - 1)
    segment[at, 0] = key
    segment[at, 1] = packed


@nb.njit(cache=True, nogil=True)
def _split(directory, segments, depths, fill, shape, old):  # type: ignore[no-untyped-def]
    """Split segment ``old`` by the next bit of the hash."""
    depth = depths[old]
    if depth == shape[0]:
        size = np.int64(1) << shape[0]
        for i in range(size):
            directory[size + i] = directory[i]
        shape[0] += 1
    new = shape[1]
    shape[1] += 1
    bit = np.uint64(1) << np.uint64(depth)
    entries = segments[old].copy()
    segments[old, :, :] = 0
    depths[old] = depth + 1
    depths[new] = depth + 1
    fill[old] = 0
    fill[new] = 0
    low = np.uint64(0)
    for i in range(SEGMENT):
        packed = entries[i, 1]
        if packed != 0:
            key = entries[i, 0]
            hashed = key_hash(packed >> 48, key)
            low = hashed & (bit - np.uint64(1))
            target = new if hashed & bit else old
            _put(segments[target], key, packed, hashed)
            fill[target] += 1
    step = np.int64(bit << np.uint64(1))
    size = np.int64(1) << shape[0]
    at = np.int64(low | bit)
    while at < size:
        directory[at] = new
        at += step


@nb.njit(cache=True, nogil=True, inline="always")
def _probe(segment, logical, key, hashed):  # type: ignore[no-untyped-def]
    """Slot of a key, or −1."""
    at = _start(hashed)
    while True:
        packed = segment[at, 1]
        if packed == 0:
            return np.int64(-1)
        if segment[at, 0] == key and (packed >> 48) == logical:
            return (packed & _MASK48) - 1
        at = (at + 1) & (SEGMENT - 1)


@nb.njit(cache=True, nogil=True)
def find(directory, segments, shape, logical_U, ids_U, slots_U):  # type: ignore[no-untyped-def]
    """Slots of keys into ``slots_U``, −1 where unknown; returns how many are unknown."""
    mask = (np.uint64(1) << np.uint64(shape[0])) - np.uint64(1)
    missing = 0
    for u in range(len(ids_U)):
        logical = np.int64(logical_U[u])
        hashed = key_hash(logical, ids_U[u])
        slots_U[u] = _probe(segments[directory[np.int64(hashed & mask)]], logical, ids_U[u], hashed)
        missing += slots_U[u] < 0
    return missing


@nb.njit(cache=True, nogil=True)
def insert(directory, segments, depths, fill, shape, logical_U, ids_U, slots_U):  # type: ignore[no-untyped-def]
    """Give the keys with slot −1 (distinct, not in the index) the next slots. False if the directory is at its end."""
    for u in range(len(ids_U)):
        if slots_U[u] >= 0:
            continue
        logical = np.int64(logical_U[u])
        hashed = key_hash(logical, ids_U[u])
        segment = directory[np.int64(hashed & ((np.uint64(1) << np.uint64(shape[0])) - np.uint64(1)))]
        while fill[segment] >= FULL:
            if shape[1] >= len(depths) or (depths[segment] == shape[0] and shape[0] >= MAX_DEPTH):
                return False
            _split(directory, segments, depths, fill, shape, segment)
            segment = directory[np.int64(hashed & ((np.uint64(1) << np.uint64(shape[0])) - np.uint64(1)))]
        slot = shape[2]
        shape[2] += 1
        _put(segments[segment], ids_U[u], (logical << 48) | (slot + 1), hashed)
        fill[segment] += 1
        slots_U[u] = slot
    return True


@nb.njit(cache=True, nogil=True)
def start_rows(first, logical_U, ids_U, slots_U, keys, weights, salts, dim, init):  # type: ignore[no-untyped-def]
    """Key and initial weights of the rows at slots ≥ ``first``; columns from ``dim`` on stay 0."""
    key_logical, key_ids = keys
    for u in range(len(slots_U)):
        slot = slots_U[u]
        if slot < first:
            continue
        logical = np.int64(logical_U[u])
        key_logical[slot] = logical_U[u]
        key_ids[slot] = ids_U[u]
        for d in range(dim):
            weights[slot, d] = initial_weight(salts[logical], ids_U[u], d, init)


@nb.njit(cache=True, nogil=True)
def touch(slots_U, now_us, count, last_seen):  # type: ignore[no-untyped-def]
    """Add 1 to the count of each row and mark it as seen."""
    for u in range(len(slots_U)):
        count[slots_U[u]] += np.uint32(1)
        last_seen[slots_U[u]] = now_us
