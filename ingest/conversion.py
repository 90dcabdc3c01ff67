"""Columns as they lie in a file → declared types. What does not fit is told row by row, never bent.

What becomes of a value depends on the value alone, not on its neighbours: a column that does not convert as a whole is halved
until the values that do not fit stand alone.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments.fields import arrow_type, is_list, item_type

Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
UTC_US = pa.timestamp("us", "UTC")
NO_ZONE = "a time without a zone: write the zone into it, or set event_time.zone in the feed"
_PATTERNS = {
    "int64": r"^[ \t]*[+-]?(0[xX][0-9a-fA-F]+|\d+)[ \t]*$",
    "uint64": r"^[ \t]*[+-]?(0[xX][0-9a-fA-F]+|\d+)[ \t]*$",
    "float32": r"^[ \t]*[+-]?(\d|\.\d|[nNiI])",
    "float64": r"^[ \t]*[+-]?(\d|\.\d|[nNiI])",
    "timestamp": r"^\s*\d\d\d\d",
}
"""What every text of a type matches (and some others do)."""
_ERRORS = (pa.ArrowException, ValueError, OverflowError, UnicodeDecodeError)


@dataclass(frozen=True, slots=True)
class Converted:
    """A column of its declared type. Where ``bad_N`` is set the value did not fit and is null; ``why`` says so by place."""

    column: pa.Array
    bad_N: Bools
    why: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """What a column shall become.

    Args:
        declared: type of the feed. zone: in which naive times were written; ``None``: they are refused.
        list_sep: separator of list cells in text files; ``None`` where lists are lists.
    """

    declared: str
    zone: str | None
    list_sep: str | None = None

    @property
    def arrow(self) -> pa.DataType:
        """Arrow's type of it."""
        return arrow_type(self.declared)

    @property
    def item(self) -> Target:
        """Of the items of a list."""
        return Target(item_type(self.declared), self.zone)


def convert(column: pa.Array | pa.ChunkedArray, target: Target) -> Converted:
    """Give a column its declared type, exactly: integers keep every bit, fractions do not become integers, numbers do not become
    text. Rounding happens only where a float type is declared."""
    column = _plain(column)
    try:
        return Converted(_whole(column, target), np.zeros(len(column), np.bool_))
    except _ERRORS:
        return _by_halves(column, target)


def _by_halves(column: pa.Array, target: Target) -> Converted:
    bad = _hopeless(column, target)
    why = {at: f"expected {target.declared}, got {_shown(column.slice(at, 1))}" for at in np.flatnonzero(bad).tolist()}
    if why:
        column = pc.if_else(pa.array(bad), pa.scalar(None, column.type), column)
    parts, todo = [], [(0, len(column))]
    while todo:
        begin, size = todo.pop()
        piece = column.slice(begin, size)
        try:
            parts.append(_whole(piece, target))
        except _ERRORS as error:
            if size > 1:
                todo += [(begin + size // 2, size - size // 2), (begin, size // 2)]
                continue
            if (moment := _iso(piece, target)) is not None:
                parts.append(moment)
                continue
            bad[begin] = True
            why[begin] = f"expected {target.declared}, got {_shown(piece)} ({_reason(error)})"
            parts.append(pa.nulls(1, target.arrow))
    return Converted(parts[0] if len(parts) == 1 else pa.concat_arrays(parts), bad, why)


def _hopeless(column: pa.Array, target: Target) -> Bools:
    """Texts that for certain are no value of the type, found at once: a whole column may be like that."""
    if target.declared == "string" and pa.types.is_binary(column.type):
        return np.array([value is not None and not _is_utf8(value) for value in column.to_pylist()], np.bool_)
    pattern = _PATTERNS.get(target.declared)
    if pattern is None or not _is_text(column.type):
        return np.zeros(len(column), np.bool_)
    return pc.invert(pc.fill_null(pc.match_substring_regex(column, pattern), True)).to_numpy(zero_copy_only=False)


def refusal(kind: pa.DataType, target: Target) -> str:
    """Why no value of a file's column type can become the declared type; empty if some can."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind):
        return ""
    if is_list(target.declared):
        if _is_list(kind):
            return refusal(kind.value_type, target.item)
        return "" if target.list_sep is not None and _is_text(kind) else f"{kind} is not {target.declared}"
    if target.declared == "timestamp":
        if target.zone is None and (pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None)):
            return NO_ZONE
        fits: Callable[[pa.DataType], bool] = lambda k: pa.types.is_timestamp(k) or pa.types.is_date(k) or _is_text(k)  # noqa: E731
    elif target.declared in ("string", "bytes"):
        fits = _is_text
    elif target.declared == "bool":
        fits = lambda k: pa.types.is_boolean(k) or pa.types.is_integer(k) or _is_text(k)  # noqa: E731
    else:
        fits = lambda k: pa.types.is_integer(k) or pa.types.is_floating(k) or pa.types.is_decimal(k) or _is_text(k)  # noqa: E731
    return "" if fits(kind) else f"{kind} is not {target.declared}"


def _plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = pa.concat_arrays(column.chunks)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    if pa.types.is_fixed_size_list(column.type) or pa.types.is_large_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    return column


def _whole(column: pa.Array, target: Target) -> pa.Array:
    """All values at once; raises if any does not fit."""
    kind, declared = column.type, target.declared
    if text := refusal(kind, target):
        raise ValueError(text)
    if is_list(declared) and not pa.types.is_null(kind):
        return _items(column, target) if _is_text(kind) else _lists(column, target)
    if declared == "timestamp":
        return _times(column, target.zone)
    if kind == target.arrow:
        if declared == "string":
            column.validate(full=True)
        return column
    if (
        declared == "bool"
        and pa.types.is_integer(kind)
        and pc.any(pc.not_equal(pc.cast(column, pa.bool_()).cast(kind), column)).as_py()
    ):
        raise ValueError("not 0 or 1")
    if _is_text(kind) and declared not in ("string", "bytes"):
        return pc.ascii_trim(column.cast(pa.string()), " \t").cast(target.arrow)
    if pa.types.is_floating(target.arrow) and pa.types.is_integer(kind):
        return column.cast(target.arrow, safe=False)
    return column.cast(target.arrow)


def _items(column: pa.Array, target: Target) -> pa.Array:
    """Lists from text cells; empty items are left out."""
    lists = pc.split_pattern(column.cast(pa.string()), target.list_sep)
    items, parents = lists.flatten(), pc.list_parent_indices(lists).to_numpy()
    there = pc.not_equal(items, "")
    lengths = np.bincount(parents[there.to_numpy(zero_copy_only=False)], minlength=len(column))
    return _listed(column, lengths, _fitting(items.filter(there), target.item))


def _lists(column: pa.Array, target: Target) -> pa.Array:
    if column.type == target.arrow and target.declared != "list<string>":
        return column
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return _listed(column, lengths, _fitting(_plain(column.flatten()), target.item))


def _fitting(values: pa.Array, target: Target) -> pa.Array:
    try:
        return _whole(values, target)
    except _ERRORS:
        done = convert(values, target)
        if done.bad_N.any():
            raise ValueError(next(iter(done.why.values()))) from None
        return done.column


def _listed(like: pa.Array, lengths: np.ndarray, values: pa.Array) -> pa.Array:
    """Lists over ``values``, null where ``like`` is."""
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values, mask=like.is_null() if like.null_count else None)


def _times(column: pa.Array, zone: str | None) -> pa.Array:
    kind = column.type
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            if zone is None:
                raise ValueError(NO_ZONE)
            column = pc.assume_timezone(column, zone, ambiguous="earliest", nonexistent="earliest")
        return column.cast(UTC_US, safe=False)
    if pa.types.is_date(kind):
        return _times(column.cast(pa.timestamp("us")), zone)
    if not _is_text(kind):
        return column.cast(UTC_US)
    text = pc.ascii_trim(column.cast(pa.string()), " \t")
    try:
        return text.cast(UTC_US)
    except pa.ArrowInvalid:
        return _times(text.cast(pa.timestamp("us")), zone)


def _iso(one: pa.Array, target: Target) -> pa.Array | None:
    """A time in an ISO form that Arrow does not read; ``None`` if it is none."""
    if target.declared != "timestamp" or not _is_text(one.type):
        return None
    try:
        moment = datetime.datetime.fromisoformat(one.cast(pa.string())[0].as_py().strip())
        return _times(pa.array([moment], pa.timestamp("us", "UTC" if moment.tzinfo else None)), target.zone)
    except _ERRORS:
        return None


def _reason(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:160]


def _shown(one: pa.Array) -> str:
    try:
        value = one[0].as_py()
        text = repr(value.decode() if isinstance(value, bytes) else value)
    except (UnicodeDecodeError, ValueError, OverflowError):
        text = "bytes that are not UTF-8"
    return text if len(text) <= 80 else text[:77] + "…"


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind)
        or pa.types.is_large_binary(kind) or pa.types.is_string_view(kind) or pa.types.is_binary_view(kind)
        or pa.types.is_fixed_size_binary(kind)
    )  # fmt: skip
