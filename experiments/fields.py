"""Types of single fields in feeds and experiments: names, durations, times, column types."""

from __future__ import annotations

import datetime
import re
import zoneinfo
from collections.abc import Iterable
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import BeforeValidator, PlainSerializer, Strict, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

_UNITS_US = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_DURATION = re.compile(r"^(\d+(?:\.\d+)?)(us|ms|s|m|h|d)$")
_DATE = re.compile(r"^\d{4}-?\d{2}-?\d{2}$|^\d{4}-?W\d{2}(-?\d)?$")
MAX_DURATION_DAYS = 36_500

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
"""A feed, experiment, feature or table."""

ColumnName = Annotated[str, StringConstraints(pattern=r"^[^._\s][^.\s]{0,199}$|^_[^._\s][^.\s]{0,198}$")]
"""A column of a feed. No dot (``item.price`` is a looked-up column), no two underscores in front (ours)."""

Whole = Annotated[int, Strict()]
"""A whole number; neither ``true`` nor ``"3"`` nor ``3.0``."""

Number = Annotated[float, Strict()]
"""A number; neither ``true`` nor a text. ``documents`` lets only finite ones in; code may say infinite."""

Flag = Annotated[bool, Strict()]
"""``true`` or ``false``; not ``yes``, ``on`` or 1."""


def misfit(expected: str, got: str, *at: str, words: Iterable[str] = ()) -> PydanticCustomError:
    """What a validator raises: an error whose message can place itself and name the nearest right word.

    Args:
        at: path from the object that is validated. words: those that ``got`` may have been meant for.
    """
    context = {"expected": expected, "got": got, "at": list(at), "words": list(words)}
    return PydanticCustomError("misfit", "expected {expected}, got {got}", context)


def parse_duration_us(value: object) -> int:
    """``"60s"`` → 60_000_000. Raises ``ValueError`` with what would be right."""
    if isinstance(value, str) and (match := _DURATION.match(value.strip())):
        us = float(match[1]) * _UNITS_US[match[2]]
        if us > MAX_DURATION_DAYS * _UNITS_US["d"]:
            raise ValueError(f"expected at most {MAX_DURATION_DAYS}d, got {value!r}")
        return round(us)
    raise ValueError(f"expected a number with a unit (us ms s m h d), for example 60s, got {value!r}")


def format_duration(us: int) -> str:
    """60_000_000 → ``"1m"``: the largest unit that divides it."""
    for unit in ("d", "h", "m", "s", "ms"):
        if us and us % _UNITS_US[unit] == 0:
            return f"{us // _UNITS_US[unit]}{unit}"
    return "0s" if us == 0 else f"{us}us"


def parse_moment_us(value: object) -> int:
    """A date (midnight UTC) or an ISO time with its zone → µs since 1970 UTC. Raises ``ValueError`` with what would be right."""
    try:
        if not isinstance(value, str):
            raise ValueError("not a text")
        text = value.strip()
        stamp = datetime.datetime.fromisoformat(text)
    except ValueError:
        expected = "expected a date like 1990-01-01 or a time like 2024-05-01T12:00:00+00:00"
        raise ValueError(f"{expected}, got {value!r}") from None
    if stamp.tzinfo is None:
        if not _DATE.match(text):
            naive = stamp.isoformat()
            raise ValueError(f"expected a time with its zone, for example {naive}Z or {naive}+08:00, got {value!r}")
        stamp = stamp.replace(tzinfo=datetime.UTC)
    delta = stamp - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def format_time(us: int) -> str:
    """Microseconds since 1970 as ISO 8601 in UTC."""
    moment = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(microseconds=us)
    return moment.isoformat().replace("+00:00", "Z")


Duration = Annotated[
    int,
    BeforeValidator(parse_duration_us),
    PlainSerializer(format_duration),
    WithJsonSchema({"type": "string", "pattern": _DURATION.pattern, "examples": ["2s", "30m"]}),
]
"""Microseconds; in YAML ``60s``, ``30m``, ``2h``."""

Moment = Annotated[
    int,
    BeforeValidator(parse_moment_us),
    PlainSerializer(format_time),
    WithJsonSchema({"type": "string", "examples": ["1990-01-01", "2024-05-01T12:00:00+00:00"]}),
]
"""Microseconds since 1970 UTC; in YAML a date (midnight UTC) or an ISO time with its zone."""


def is_zone(name: str) -> bool:
    """Whether this machine knows the time zone. UTC needs no data base."""
    if name == "UTC":
        return True
    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


_SCALARS = {
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}

ColumnType = Literal[
    "int64", "uint64", "float32", "float64", "bool", "string", "bytes", "timestamp",
    "list<int64>", "list<uint64>", "list<float32>", "list<float64>", "list<bool>", "list<string>", "list<bytes>",
    "list<timestamp>",
]  # fmt: skip


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a declared column type."""
    if name.startswith("list<"):
        return pa.list_(_SCALARS[name[5:-1]])
    return _SCALARS[name]


def is_list(name: str) -> bool:
    """Whether a declared column type is a list."""
    return name.startswith("list<")


def item_type(name: str) -> str:
    """``list<int64>`` → ``int64``; a scalar is itself."""
    return name[5:-1] if is_list(name) else name
