"""Hot loops of featurize, in numba. Each has a plain twin in ``preprocess.featurize.ops`` / ``plain``.

Kernels take arrays of addresses instead of one argument a column: one call does all columns of a block of rows, and no
number of features needs a compilation of its own. Shapes: ``C`` columns, ``F`` features, ``J`` local batches, ``N`` ids,
``X`` dense features.
"""

from __future__ import annotations

import math

import numpy as np
from numba import float32, float64, int32, int64, njit, uint8, uint64

from preprocess.kernels.memory import bits_of, carray, load_u8, load_u32, load_u64, number_of, pointer

I64, U64, BOOL, F32, F64, BYTES = range(6)
"""Kinds of a column's values; timestamps are I64."""

LOG1P, SQRT, CLIP, SCALE = range(4)
"""Codes of dense ops."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_NULL_HASH = np.uint64(0x6E756C6C6E756C6C)
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(0x9E3779B185EBCA87),
    np.uint64(0xC2B2AE3D27D4EB4F),
    np.uint64(0x165667B19E3779F9),
    np.uint64(0x85EBCA77C2B2AE63),
    np.uint64(0x27D4EB2F165667C5),
)
_FLOAT32_MAX = float(np.finfo(np.float32).max)
_FLOAT64_MAX = float(np.finfo(np.float64).max)

kernel = njit(cache=True, nogil=True, boundscheck=False, fastmath=False, error_model="numpy")
inline = njit(cache=True, nogil=True, boundscheck=False, fastmath=False, error_model="numpy", inline="always")


@inline
def _mix64(value):
    value = (value ^ (value >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> uint64(27))) * uint64(0x94D049BB133111EB)
    return value ^ (value >> uint64(31))


@inline
def _rotate(value, bits):
    return (value << uint64(bits)) | (value >> uint64(64 - bits))


@inline
def _round(state, word):
    return _rotate(state + word * _P2, 31) * _P1


@inline
def _merge(state, lane):
    return (state ^ _round(uint64(0), lane)) * _P1 + _P4


@kernel
def xxh64(address, length, seed):
    """XXH64 of ``length`` bytes at ``address`` (Collet, xxHash specification 0.1.1), uint64."""
    at = address
    end = address + length
    if length >= 32:
        lane1, lane2, lane3, lane4 = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while at + 32 <= end:
            lane1 = _round(lane1, load_u64(at))
            lane2 = _round(lane2, load_u64(at + 8))
            lane3 = _round(lane3, load_u64(at + 16))
            lane4 = _round(lane4, load_u64(at + 24))
            at += 32
        state = _rotate(lane1, 1) + _rotate(lane2, 7) + _rotate(lane3, 12) + _rotate(lane4, 18)
        state = _merge(_merge(_merge(_merge(state, lane1), lane2), lane3), lane4)
    else:
        state = seed + _P5
    state += uint64(length)
    while at + 8 <= end:
        state = _rotate(state ^ _round(uint64(0), load_u64(at)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        state = _rotate(state ^ (load_u32(at) * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        state = _rotate(state ^ (load_u8(at) * _P5), 11) * _P1
        at += 1
    state = (state ^ (state >> uint64(33))) * _P2
    state = (state ^ (state >> uint64(29))) * _P3
    return state ^ (state >> uint64(32))


@inline
def _is_set(bits_address, place):
    return (load_u8(bits_address + (place >> 3)) >> uint64(place & 7)) & uint64(1) != uint64(0)


@kernel
def _hash_numbers(kind, data, start, seed, out):
    """Integers, bools: all hashed. Floats: NaN becomes the hash of null."""
    n = len(out)
    if kind in (I64, U64):
        words = carray(pointer(data + 8 * start), n, uint64)
        for i in range(n):
            out[i] = int64(_mix64(words[i] ^ seed))
    elif kind == BOOL:
        for i in range(n):
            out[i] = int64(_mix64(uint64(_is_set(data, start + i)) ^ seed))
    elif kind == F64:
        _hash_doubles(carray(pointer(data + 8 * start), n, uint64), seed, out)
    else:
        _hash_doubles(carray(pointer(data + 4 * start), n, float32).astype(np.float64).view(np.uint64), seed, out)


@kernel
def _hash_doubles(bits_B, seed, out):
    for i in range(len(out)):
        bits = bits_B[i]
        if bits == uint64(1) << uint64(63):
            bits = uint64(0)
        nan = (bits & uint64(0x7FFFFFFFFFFFFFFF)) > uint64(0x7FF0000000000000)
        out[i] = int64(_NULL_HASH if nan else _mix64(bits ^ seed))


@kernel
def _hash_bytes(data, ends, start, seed, out):
    places = carray(pointer(ends + 4 * start), len(out) + 1, int32)
    for i in range(len(out)):
        out[i] = int64(xxh64(data + int64(places[i]), int64(places[i + 1]) - int64(places[i]), seed))


@kernel
def _mark_valid(kind, data, validity, start, valid):
    """uint8 1 where the value is neither null nor NaN; returns how many are not."""
    missing = 0
    for i in range(len(valid)):
        good = validity == 0 or _is_set(validity, start + i)
        if good and kind == F64:
            good = not math.isnan(carray(pointer(data + 8 * (start + i)), 1, float64)[0])
        elif good and kind == F32:
            good = not math.isnan(carray(pointer(data + 4 * (start + i)), 1, float32)[0])
        valid[i] = uint8(good)
        missing += not good
    return missing


@kernel
def hash_columns(columns_C7, seeds_C, missing_C):
    """Hash all values of several columns; null and NaN become ``NULL_HASH`` and are marked.

    Args:
        columns_C7: int64 [C, 7]: kind; address of the values (bytes: of the data); address of the int32 offsets (bytes
            only); address of the validity bits or 0; first value; number of values; address of the output int64. The
            uint8 marks lie right behind the output, one a value, 1 = there; they are written only if ``missing_C`` is −1.
        seeds_C: uint64.
        missing_C: int64, in and out: −1 = count; on return the number of values without a hash.
    """
    for c in range(len(columns_C7)):
        kind, data, ends, validity, start, n, out = columns_C7[c]
        values = carray(pointer(out), n, int64)
        if kind == BYTES:
            _hash_bytes(data, ends, start, seeds_C[c], values)
        else:
            _hash_numbers(kind, data, start, seeds_C[c], values)
        if missing_C[c] < 0:
            valid = carray(pointer(out + 8 * n), n, uint8)
            missing_C[c] = _mark_valid(kind, data, validity, start, valid)
            if missing_C[c] > 0:
                for i in range(n):
                    if valid[i] == 0:
                        values[i] = int64(_NULL_HASH)


@kernel
def mix_into(state_B, part_B):
    """One column of a cross: ``state = mix64(state + golden + part)``, in place. int64 in and out."""
    for i in range(len(state_B)):
        state_B[i] = int64(_mix64(uint64(state_B[i]) + _GOLDEN + uint64(part_B[i])))


@kernel
def valid_marks(validity, start, valid):
    """Unpack validity bits into uint8 marks, in place; returns how many are null."""
    return _mark_valid(I64, 0, validity, start, valid)


@kernel
def jagged(values_N, valid_N, starts_B1, list_valid_B, last, out_N, offsets_B1):
    """Ids of each row: nulls dropped, then the last n of what is left.

    Args:
        valid_N: uint8, or empty when all are there. starts_B1: int64, row b holds values [starts[b], starts[b+1]); empty:
            one value a row. list_valid_B: uint8, or empty. last: n, or a number too big to matter.
        out_N: int64, filled from the front. offsets_B1: int32, filled.

    Returns the number of ids.
    """
    filled = 0
    offsets_B1[0] = 0
    for row in range(len(offsets_B1) - 1):
        first, stop = row, row + 1
        if len(starts_B1):
            first, stop = starts_B1[row], starts_B1[row + 1]
        if len(list_valid_B) and list_valid_B[row] == 0:
            stop = first
        at, kept = stop, 0
        while at > first and kept < last:
            at -= 1
            kept += len(valid_N) == 0 or valid_N[at] != 0
        while at < stop:
            if len(valid_N) == 0 or valid_N[at] != 0:
                out_N[filled] = values_N[at]
                filled += 1
            at += 1
        offsets_B1[row + 1] = filled
    return filled


@kernel
def dense_columns(columns_X4, defaults_X, program_X1, codes, numbers_2, out_BX):
    """Numbers of several columns: finite float32, whatever comes (``ops.dense_value``). Returns how many were replaced.

    Args:
        columns_X4: int64 [X, 4]: kind; address of the values; address of the validity bits or 0; first value.
        program_X1: ops of feature x are [program[x], program[x+1]) of ``codes`` and ``numbers_2`` (float64 [ops, 2]).
    """
    replaced = 0
    scratch = np.empty(len(out_BX), np.float64)
    for x in range(len(columns_X4)):
        kind, data, validity, start = columns_X4[x]
        replaced += _load_numbers(kind, data, validity, start, defaults_X[x], scratch)
        for step in range(program_X1[x], program_X1[x + 1]):
            _apply(codes[step], numbers_2[step, 0], numbers_2[step, 1], scratch)
        for i in range(len(scratch)):
            out_BX[i, x] = float32(_limit(scratch[i], _FLOAT32_MAX))
    return replaced


@kernel
def _load_numbers(kind, data, validity, start, default, out):
    replaced = 0
    n = len(out)
    if kind == I64:
        signed = carray(pointer(data + 8 * start), n, int64)
        for i in range(n):
            out[i] = float64(signed[i])
    elif kind == U64:
        unsigned = carray(pointer(data + 8 * start), n, uint64)
        for i in range(n):
            out[i] = float64(unsigned[i])
    elif kind == BOOL:
        for i in range(n):
            out[i] = float64(_is_set(data, start + i))
    elif kind == F32:
        singles = carray(pointer(data + 4 * start), n, float32)
        for i in range(n):
            out[i] = float64(singles[i])
    else:
        doubles = carray(pointer(data + 8 * start), n, float64)
        for i in range(n):
            out[i] = doubles[i]
    for i in range(n):
        if not math.isfinite(out[i]) or (validity != 0 and not _is_set(validity, start + i)):
            out[i] = default
            replaced += 1
    return replaced


@inline
def _limit(number, most):
    if math.isnan(number):
        return 0.0
    return min(max(number, -most), most)


@inline
def _log1p(x):
    """log(1 + x) of a finite x ≥ 0, within 2 ulp; without a branch, so that it runs on whole vectors.

    1 + x = m · 2^e with m in [√½, √2); log m = 2 atanh((m − 1)/(m + 1)) by the polynomial of fdlibm's ``e_log.c`` (Sun
    Microsystems 1993), and a first-order term for what 1 + x lost by rounding.
    """
    u = 1.0 + x
    lost = (x - (u - 1.0)) if u < 9007199254740992.0 else 0.0
    bits = bits_of(u) - int64(0x3FE6A09E667F3BCD)
    exponent = float64(int32(bits >> int64(52)))
    m = number_of((bits & int64(0xFFFFFFFFFFFFF)) + int64(0x3FE6A09E667F3BCD))
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (0.3999999999940941908 + w * (0.2222219843214978396 + w * 0.1531383769920937332))
    odd = z * (
        0.6666666666666735130 + w * (0.2857142874366239149 + w * (0.1818357216161805012 + w * 0.1479819860511658591))
    )
    half = 0.5 * f * f
    low = exponent * 1.90821492927058770002e-10 + lost / u
    return exponent * 6.93147180369123816490e-01 - ((half - (s * (half + even + odd) + low)) - f)


@kernel
def _apply(code, first, second, values):
    if code == LOG1P:
        for i in range(len(values)):
            values[i] = _log1p(values[i] if values[i] > 0.0 else 0.0)
    elif code == SQRT:
        for i in range(len(values)):
            values[i] = math.sqrt(values[i] if values[i] > 0.0 else 0.0)
    elif code == CLIP:
        for i in range(len(values)):
            values[i] = min(max(values[i], first), second)
    else:
        for i in range(len(values)):
            values[i] = _limit((values[i] - second) * first, _FLOAT64_MAX)


@kernel
def unique_ids(ids_F, bounds_FJ1, logical_F, regions_L2, slots_S2, stamp, out):
    """Unique (logical table, id) pairs of each of J local batches, in order of first appearance, and the inverse.

    Open addressing. A slot holds the id, and mark · 2³² + place, with one mark for each batch and logical table: a slot of
    another mark counts as free, so nothing is ever cleared. Logical tables whose features follow each other may use the same
    slots; only then do all ids of a batch stay in the nearest cache.

    Args:
        ids_F: addresses of the int64 ids of each feature. bounds_FJ1: int64 [F, J+1]: those of batch j are [b[j], b[j+1]).
        logical_F: int64. regions_L2: int64 [L, 2]: first slot, and 64 − log2 of the number of slots, which is above the number
            of ids of the table in any of the batches. slots_S2: int64 [S, 2]. stamp: above all marks used before; J · L marks
            are used.
        out: logical uint16 [N + 1], ids int64 [N + 1] (the last is scratch), inverse uint32 [N], and int64 [J+1] where each batch
            begins in the first two, and in the inverse.
    """
    logical_U, ids_U, inverse_N, unique_J1, start_J1 = out
    unique = uint64(0)  # unsigned places: numba need not look for negative ones
    filled = uint64(0)
    for j in range(len(unique_J1) - 1):
        base = unique
        unique_J1[j], start_J1[j] = int64(base), int64(filled)
        for f in range(len(ids_F)):
            logical = logical_F[f]
            shift = uint64(regions_L2[logical, 1])
            mask = (uint64(1) << (uint64(64) - shift)) - uint64(1)
            slots = slots_S2[regions_L2[logical, 0] :].reshape(-1)
            mark = int64(stamp + j * len(regions_L2) + logical)
            ids = carray(pointer(ids_F[f]), bounds_FJ1[f, j + 1], int64)
            for i in range(bounds_FJ1[f, j], bounds_FJ1[f, j + 1]):
                key = ids[i]
                at = (uint64(key) * _GOLDEN) >> shift
                tag = slots[uint64(2) * at + uint64(1)]
                while (tag >> 32 == mark) & (slots[uint64(2) * at] != key):
                    at = (at + uint64(1)) & mask
                    tag = slots[uint64(2) * at + uint64(1)]
                # Known or new: the same writes, so that no branch has to be guessed.
                new = tag >> 32 != mark
                place = int64(unique - base) if new else tag & 0xFFFFFFFF
                slots[uint64(2) * at] = key
                slots[uint64(2) * at + uint64(1)] = (mark << 32) | place
                logical_U[unique] = logical
                ids_U[unique] = key
                unique += uint64(new)
                inverse_N[filled] = place
                filled += uint64(1)
    unique_J1[-1], start_J1[-1] = int64(unique), int64(filled)


@kernel
def batch_offsets(offsets_F, rows_J1, out_N, starts_J1, plain_J):
    """Offsets [F·B + 1] of each local batch, from those of each feature.

    Args:
        offsets_F: addresses of the int32 [B+1] of each feature, 0 where each row has one id. rows_J1: int64, rows of batch j are
            [r[j], r[j+1]). out_N: int32 [F·B + J], filled; starts_J1: int64, where the batches' parts begin.
        plain_J: uint8, 1 where every cell of the batch has exactly one id.
    """
    filled = 0
    for j in range(len(rows_J1) - 1):
        starts_J1[j] = filled
        out_N[filled] = 0
        count, plain = int32(0), True
        for f in range(len(offsets_F)):
            for row in range(rows_J1[j], rows_J1[j + 1]):
                length = int32(1)
                if offsets_F[f] != 0:
                    places = carray(pointer(offsets_F[f] + 4 * row), 2, int32)
                    length = places[1] - places[0]
                plain = plain and length == 1
                count += length
                filled += 1
                out_N[filled] = count
        filled += 1
        plain_J[j] = uint8(plain)
    starts_J1[-1] = filled
