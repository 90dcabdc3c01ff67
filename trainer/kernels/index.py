"""The index of a dynamic table: extendible hashing (Fagin et al. 1979) over segments with linear probing.

A directory of 2^depth entries, addressed by the low bits of the key's hash, points to segments of ``SEGMENT`` entries. A
segment that is full is split in two; the directory doubles when a split needs one bit more. So growth never moves more
than one segment at a time. Hashes fill all segments alike, so with one limit for all they would split within few steps; each
has its own, between ``LEAST`` and ``MOST`` entries, and splits come at an even pace.

An entry is two int64: the id, and ``logical << 48 | slot + 1`` (0: free), so that every 64-bit id is legal.

State: ``directory`` int32 (reserved to its largest size), ``segments`` int64 [S, SEGMENT, 2], ``depths`` and ``fill`` int32 [S],
``shape`` int64 [3] = (directory's depth, segments in use, rows in use).
"""

from __future__ import annotations

import numba as nb
import numpy as np
from numba import types

from trainer.kernels.hashing import initial_weight, key_hash
from trainer.kernels.memory import AHEAD, array, given, kernel, prefetch

SEGMENT = 4096
LEAST, MOST = 2048, 3277  # 50 %, 80 %
SPARSEST = 512
"""Fewer entries than in any segment, on average: halves of ``LEAST`` are above 800 unless keys were crafted."""
MAX_DEPTH = 22
_MASK48 = np.int64((1 << 48) - 1)
_ENTRY_BYTES = 16

_DIRECTORY, _SEGMENTS, _DEPTHS = array(types.int32), array(types.int64, 3), array(types.int32)
_SHAPE, _SLOTS = array(types.int64), array(types.int64)
_LOGICAL, _IDS = given(types.uint16), given(types.int64)


@nb.njit(cache=True, nogil=True, inline="always")
def _start(hashed):  # type: ignore[no-untyped-def]
    """Where probing begins inside a segment: bits above those of the directory."""
    return np.int64((hashed >> np.uint64(32)) & np.uint64(SEGMENT - 1))


@nb.njit(cache=True, nogil=True, inline="always")
def _segment(directory, shape, hashed):  # type: ignore[no-untyped-def]
    """Number of the segment of a key."""
    return np.int64(directory[np.int64(hashed & ((np.uint64(1) << np.uint64(shape[0])) - np.uint64(1)))])


@nb.njit(cache=True, nogil=True, inline="always")
def _limit(number):  # type: ignore[no-untyped-def]
    """Entries at which a segment is split: its number times the golden ratio, modulo 1, spread over the range."""
    return LEAST + (((number * 40503) & 0xFFFF) * (MOST - LEAST) >> 16)


@nb.njit(cache=True, nogil=True)
def _seek(segment, logical, key, hashed):  # type: ignore[no-untyped-def]
    """Place of a key in its segment, or of the free entry where it belongs. One entry is always free."""
    at = _start(hashed)
    while segment[at, 1] != 0 and (segment[at, 0] != key or (segment[at, 1] >> 48) != logical):
        at = (at + 1) & (SEGMENT - 1)
    return at


@nb.njit(cache=True, nogil=True)
def _split(directory, segments, depths, fill, shape, old):  # type: ignore[no-untyped-def]
    """Split segment ``old`` by the next bit of the hash. It is not empty."""
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
            at = _seek(segments[target], packed >> 48, key, hashed)
            segments[target, at, 0] = key
            segments[target, at, 1] = packed
            fill[target] += 1
    step = np.int64(bit << np.uint64(1))
    size = np.int64(1) << shape[0]
    at = np.int64(low | bit)
    while at < size:
        directory[at] = new
        at += step


@nb.njit(cache=True, nogil=True)
def _remove(directory, segments, fill, shape, logical, key):  # type: ignore[no-untyped-def]
    """Take a key out, if it is there, by moving back those that probed past it (Knuth, TAOCP 3, 6.4 R)."""
    hashed = key_hash(logical, key)
    number = _segment(directory, shape, hashed)
    segment = segments[number]
    hole = _seek(segment, logical, key, hashed)
    if segment[hole, 1] == 0:
        return
    at = hole
    while True:
        at = (at + 1) & (SEGMENT - 1)
        if segment[at, 1] == 0:
            break
        home = _start(key_hash(segment[at, 1] >> 48, segment[at, 0]))
        if ((at - home) & (SEGMENT - 1)) >= ((at - hole) & (SEGMENT - 1)):
            segment[hole, 0] = segment[at, 0]
            segment[hole, 1] = segment[at, 1]
            hole = at
    segment[hole, 0] = 0
    segment[hole, 1] = 0
    fill[number] -= 1


@kernel(_DIRECTORY, _SEGMENTS, _SHAPE, _LOGICAL, _IDS, _SLOTS)
def find(directory, segments, shape, logical_U, ids_U, slots_U):  # type: ignore[no-untyped-def]
    """Slots of keys into ``slots_U``, −1 where unknown; returns how many are unknown."""
    count = len(ids_U)
    base = segments.ctypes.data
    ahead = np.empty(AHEAD, np.uint64)  # hashes of the next keys, whose lines are on their way
    missing = 0
    for n in range(count + AHEAD):
        ring = n & (AHEAD - 1)
        hashed = ahead[ring]
        if n < count:
            coming = key_hash(np.int64(logical_U[n]), ids_U[n])
            ahead[ring] = coming
            prefetch(base + (_segment(directory, shape, coming) * SEGMENT + _start(coming)) * _ENTRY_BYTES)
        u = n - AHEAD
        if u < 0:
            continue
        number = _segment(directory, shape, hashed)
        at = _seek(segments[number], np.int64(logical_U[u]), ids_U[u], hashed)
        slots_U[u] = (segments[number, at, 1] & _MASK48) - 1
        missing += slots_U[u] < 0
    return missing


@kernel(_DIRECTORY, _SEGMENTS, _DEPTHS, _DEPTHS, _SHAPE, _LOGICAL, _IDS, _SLOTS)
def insert(directory, segments, depths, fill, shape, logical_U, ids_U, slots_U):  # type: ignore[no-untyped-def]
    """Give the keys with slot −1 the next slots. False, with no key added, if there is no room for one of them."""
    first = shape[2]
    for u in range(len(ids_U)):
        if slots_U[u] >= 0:
            continue
        logical = np.int64(logical_U[u])
        hashed = key_hash(logical, ids_U[u])
        number = _segment(directory, shape, hashed)
        while fill[number] >= _limit(number) and shape[1] < len(depths) and depths[number] < MAX_DEPTH:
            _split(directory, segments, depths, fill, shape, number)
            number = _segment(directory, shape, hashed)
        if (
            fill[number] >= SEGMENT - 1
        ):  # only if thousands of hashes share their low bits, which someone would have to craft
            for other in range(u):
                if slots_U[other] >= first:
                    _remove(directory, segments, fill, shape, np.int64(logical_U[other]), ids_U[other])
            shape[2] = first
            return False
        at = _seek(segments[number], logical, ids_U[u], hashed)
        if segments[number, at, 1] == 0:
            segments[number, at, 0] = ids_U[u]
            segments[number, at, 1] = (logical << 48) | (shape[2] + 1)
            shape[2] += 1
            fill[number] += 1
        slots_U[u] = (segments[number, at, 1] & _MASK48) - 1
    return True


@kernel(
    types.int64, _LOGICAL, _IDS, _SLOTS, types.Tuple((array(types.uint16), array(types.int64))),
    types.Tuple((array(types.float32, 2), array(types.float32, 1, "A"))), given(types.uint64), types.int64,
    types.UniTuple(types.float32, 2),
)  # fmt: skip
def start_rows(first, logical_U, ids_U, slots_U, keys, values, salts, dim, initial):  # type: ignore[no-untyped-def]
    """Key, first weights and accumulator of the rows at slots ≥ ``first``; columns from ``dim`` on stay 0. ``initial`` is
    (range of weights, accumulator)."""
    key_logical, key_ids = keys
    weights, state = values
    for u in range(len(slots_U)):
        slot = slots_U[u]
        if slot < first:
            continue
        logical = np.int64(logical_U[u])
        key_logical[slot] = logical_U[u]
        key_ids[slot] = ids_U[u]
        state[slot] = initial[1]
        for d in range(dim):
            weights[slot, d] = initial_weight(salts[logical], ids_U[u], d, initial[0])


@kernel(given(types.int64), types.int64, array(types.uint32, 1, "A"), array(types.int64, 1, "A"))
def touch(slots_U, now_us, count, last_seen):  # type: ignore[no-untyped-def]
    """Add 1 to the count of each row and mark it as seen."""
    rows = len(slots_U)
    base, stride = last_seen.ctypes.data, last_seen.strides[0]
    for u in range(rows):
        prefetch(base + slots_U[min(u + AHEAD, rows - 1)] * stride)
        count[slots_U[u]] += np.uint32(1)
        last_seen[slots_U[u]] = now_us
