"""Columns as they lie in a file → declared types. What does not fit is told row by row, never bent."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments.fields import arrow_type, is_list, item_type

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
UTC_US = pa.timestamp("us", "UTC")


@dataclass(frozen=True, slots=True)
class Converted:
    """A column of its declared type. Where ``bad_N`` is set the value did not fit and is null; ``why`` says so for the first."""

    column: pa.Array
    bad_N: Bools
    why: str = ""


def convert(column: pa.Array, declared: str, *, zone: str | None, list_sep: str | None = None) -> Converted:
    """Give a column its declared type, exactly.

    Args:
        column: as read. declared: type of the feed. zone: in which naive times were written; ``None``: they are refused.
        list_sep: separator of list cells in text files; ``None`` where lists are lists.
    """
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        return Converted(_whole(column, declared, zone, list_sep), np.zeros(len(column), np.bool_))
    except (pa.ArrowException, ValueError, OverflowError):
        return _by_value(column, declared, zone, list_sep)


def _whole(column: pa.Array, declared: str, zone: str | None, list_sep: str | None) -> pa.Array:
    """All values at once; raises if any does not fit."""
    target = arrow_type(declared)
    if is_list(declared) and list_sep is not None and _is_text(column.type):
        lists = pc.split_pattern(column.cast(pa.string()), list_sep)
        if pc.any(pc.equal(lists.flatten(), "")).as_py():
            raise ValueError("an empty item")
        return _relist(lists, _whole(lists.flatten(), item_type(declared), zone, None))
    if is_list(declared) and (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        if column.type == target:
            return column
        return _relist(column, _whole(column.flatten(), item_type(declared), zone, None))
    if declared == "timestamp":
        return _times(column, zone)
    if column.type == target:
        if declared == "string":
            column.validate(full=True)
        return column
    if declared == "bool" and not (_is_text(column.type) or pa.types.is_integer(column.type)):
        raise ValueError(f"{column.type} is not bool")
    if pa.types.is_boolean(column.type) or pa.types.is_temporal(column.type):
        raise ValueError(f"{column.type} is not {declared}")
    if declared in ("string", "bytes") and not _is_text(column.type):
        raise ValueError(f"{column.type} is not {declared}")
    return column.cast(target)


def _relist(lists: pa.Array, values: pa.Array) -> pa.Array:
    """Lists like ``lists`` (compacted) over other values."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    mask = lists.is_null() if lists.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=mask)


def _times(column: pa.Array, zone: str | None) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            if zone is None:
                raise ValueError("naive time without a zone")
            column = pc.assume_timezone(column, zone)
        return column.cast(UTC_US, safe=False)
    if pa.types.is_date(kind):
        return _times(column.cast(pa.timestamp("us")), zone)
    if not _is_text(kind):
        raise ValueError(f"{kind} is not a time")
    text = column.cast(pa.string())
    try:
        return text.cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid:
        return _times(text.cast(pa.timestamp("us")), zone)


def _by_value(column: pa.Array, declared: str, zone: str | None, list_sep: str | None) -> Converted:
    """Value by value, so that the good ones stay: the slow way, only for columns in which something does not fit."""
    parts, bad, why = [], np.zeros(len(column), np.bool_), ""
    null = pa.nulls(1, arrow_type(declared))
    for at in range(len(column)):
        one = column.slice(at, 1)
        try:
            parts.append(_single(one, declared, zone, list_sep))
        except (pa.ArrowException, ValueError, OverflowError, UnicodeDecodeError) as error:
            parts.append(null)
            bad[at] = True
            why = why or f"expected {declared}, got {_shown(one)} ({_reason(error, declared)})"
    return Converted(pa.concat_arrays(parts) if parts else pa.array([], arrow_type(declared)), bad, why)


def _single(one: pa.Array, declared: str, zone: str | None, list_sep: str | None) -> pa.Array:
    if not one.is_valid()[0].as_py():
        return pa.nulls(1, arrow_type(declared))
    if is_list(declared) and list_sep is not None and _is_text(one.type):
        items = [item for item in one.cast(pa.string())[0].as_py().split(list_sep) if item]
        values = _whole(pa.array(items, pa.string()), item_type(declared), zone, None)
        return pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), values)
    if declared == "timestamp" and _is_text(one.type):
        moment = datetime.datetime.fromisoformat(one.cast(pa.string())[0].as_py().strip())
        if moment.tzinfo is None:
            if zone is None:
                raise ValueError("naive time without a zone")
            moment = moment.replace(tzinfo=ZoneInfo(zone))
        return pa.array([moment], UTC_US)
    return _whole(one, declared, zone, list_sep)


def _reason(error: Exception, declared: str) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "naive" in text and declared == "timestamp":
        return "no zone: write one into the time, or set event_time.zone in the feed"
    return text[:160]


def _shown(one: pa.Array) -> str:
    try:
        text = repr(one[0].as_py())
    except (UnicodeDecodeError, ValueError, OverflowError):
        text = "bytes that are not UTF-8"
    return text if len(text) <= 80 else text[:77] + "…"


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind) or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
    )  # fmt: skip
