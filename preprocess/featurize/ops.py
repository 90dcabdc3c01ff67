"""What features mean, in plain Python: the reference of the kernels, and of everybody who computes ids elsewhere.

``docs/feature-hash.md`` says the same in words, with test vectors. Nothing here is fast; nothing here imports numba.

Mixing: the finalizer of splitmix64 (Steele, Lea, Flood 2014; constants of Stafford's variant 13), a bijection of 64 bits.
Bytes: XXH64 (Collet).
"""

from __future__ import annotations

import datetime
import math
import struct
import zoneinfo
from collections.abc import Hashable, Sequence
from typing import TypeVar

import numpy as np
import xxhash

from experiments.experiment import Clip, DenseOp, Scale

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
NULL_HASH = 0x6E756C6C6E756C6C
"""What a null counts as in a cross: the bytes ``null`` twice. A null alone has no id at all."""

FLOAT32_MAX = float(np.finfo(np.float32).max)
FLOAT64_MAX = float(np.finfo(np.float64).max)

_Key = TypeVar("_Key", bound=Hashable)

Value = int | bool | float | str | bytes | datetime.datetime | None
"""One cell. Timestamps of columns are converted to integers (µs since 1970 UTC) before they come here."""


def mix64(value: int) -> int:
    """uint64 → uint64, bijective."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def seed_of(table: str) -> int:
    """uint64 seed of a logical table: XXH64 of its name in UTF-8, seed 0."""
    return xxhash.xxh64_intdigest(table.encode(), 0)


def signed(value: int) -> int:
    """uint64 → int64 of the same bits."""
    return value - 2**64 if value >= 2**63 else value


def hash_value(value: Value, seed: int) -> int | None:
    """uint64 hash of one value; ``None`` for null and NaN.

    int, bool: of the 64 bits (two's complement). float: of the bits of the IEEE double, −0 taken as 0. str, bytes: XXH64
    of the (UTF-8) bytes.
    """
    if value is None:
        return None
    if isinstance(value, str | bytes):
        return xxhash.xxh64_intdigest(value.encode() if isinstance(value, str) else value, seed)
    if isinstance(value, float):
        if math.isnan(value):
            return None
        bits = struct.unpack("<Q", struct.pack("<d", value + 0.0))[0]
        return mix64(bits ^ seed)
    assert not isinstance(value, datetime.datetime)
    return mix64((int(value) & MASK) ^ seed)


def cross_values(values: Sequence[Value], seed: int) -> int:
    """uint64 hash of several values in order. Always a hash, also when all are null."""
    mixed = seed
    for value in values:
        part = hash_value(value, seed)
        mixed = mix64((mixed + GOLDEN + (NULL_HASH if part is None else part)) & MASK)
    return mixed


def last_items(items: Sequence[int | None], last: int | None) -> list[int]:
    """Nulls dropped, then the last n of what is left."""
    kept = [item for item in items if item is not None]
    return kept if last is None else kept[-last:]


def hour_of(time_us: int, zone: str) -> int:
    """0..23 on the clock of the zone. Years 1 to 9999 only (the fast twin has no such limit)."""
    return _local(time_us, zone).hour


def day_of_week(time_us: int, zone: str) -> int:
    """0..6, Monday = 0, on the calendar of the zone. Years 1 to 9999 only."""
    return _local(time_us, zone).weekday()


def _local(time_us: int, zone: str) -> datetime.datetime:
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=time_us)
    return moment.astimezone(zoneinfo.ZoneInfo(zone))


def dense_value(value: float | int | bool | None, default: float, ops: Sequence[DenseOp]) -> tuple[np.float32, bool]:
    """A finite float32 for any value, and whether it had to be replaced.

    null, NaN and ±inf become ``default`` (and count as replaced); then the ops in order in float64; then the result is
    limited to the range of float32. An op never yields NaN: log1p and sqrt take max(x, 0), clip and scale are of finite
    numbers, and an overflow in scale is limited at once.
    """
    number = math.nan if value is None else float(value)
    replaced = not math.isfinite(number)
    if replaced:
        number = _limit(default, FLOAT64_MAX)
    for op in ops:
        number = _apply(op, number)
    return np.float32(_limit(number, FLOAT32_MAX)), replaced


def _apply(op: DenseOp, number: float) -> float:
    if op == "log1p":
        return math.log1p(number if number > 0.0 else 0.0)
    if op == "sqrt":
        return math.sqrt(number if number > 0.0 else 0.0)
    if isinstance(op, Clip):
        return min(max(number, op.clip[0]), op.clip[1])
    assert isinstance(op, Scale)
    return _limit((number - op.offset) * op.scale, FLOAT64_MAX)


def _limit(number: float, most: float) -> float:
    if math.isnan(number):
        return 0.0
    return min(max(number, -most), most)


def first_seen(keys: Sequence[_Key]) -> tuple[list[_Key], list[int]]:
    """Distinct keys in order of first appearance, and for each key its place among them."""
    places: dict[_Key, int] = {}
    inverse = [places.setdefault(key, len(places)) for key in keys]
    return list(places), inverse
