"""An experiment over a view, compiled into column operations. Each distinct operation is computed once.

```
joined columns ──► Hash / AsIs / TimePart / Cross ──► Pick (last n, nulls out) ──► physical tables
               └─► Number (ops) ──► dense
```
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from experiments.experiment import DenseOp, Experiment, Feature
from experiments.fields import is_list, item_type
from experiments.view import View
from preprocess.contracts import FILE_COLUMN, ROW_COLUMN, TIME_COLUMN, BatchLayout, layout_of
from preprocess.featurize.ops import seed_of
from streams.errors import Usage

EVENT_TIME = "event_time"
NO_LIMIT = 2**31 - 1
"""``last`` of a feature without one: more than any message has rows."""


@dataclass(frozen=True, slots=True)
class Hash:
    """Hash of each value (of each item of a list) under a table's seed."""

    column: str
    seed: int


@dataclass(frozen=True, slots=True)
class AsIs:
    """The integers of a column; uint64 as the int64 of the same bits."""

    column: str


@dataclass(frozen=True, slots=True)
class TimePart:
    """``hour`` or ``day`` on the clock of a zone."""

    column: str
    part: str
    zone: str


@dataclass(frozen=True, slots=True)
class Cross:
    """Hashes of several columns mixed in order."""

    parts: tuple[Hash, ...]
    seed: int


Source = Hash | AsIs | TimePart | Cross


@dataclass(frozen=True, slots=True)
class Pick:
    """The ids of a feature: those of the source, of a list the last n."""

    source: Source
    last: int


@dataclass(frozen=True, slots=True)
class Number:
    """A dense feature."""

    column: str
    default: float
    ops: tuple[DenseOp, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is computed of a block of joined rows.

    Args:
        columns: of ``joined`` that are read, without the identity and the label.
        hashes: distinct, those of crosses too. picks: distinct.
        tables: for each physical table, for each of its features, the place in ``picks``.
        numbers: in the order of ``layout.dense``.
        label: column of ``joined``.
    """

    layout: BatchLayout
    columns: tuple[str, ...]
    hashes: tuple[Hash, ...]
    picks: tuple[Pick, ...]
    tables: tuple[tuple[int, ...], ...]
    numbers: tuple[Number, ...]
    label: str

    @property
    def needed(self) -> tuple[str, ...]:
        """All columns of ``joined`` that are read."""
        return (*self.columns, self.label, *(name for name in _IDENTITY if name not in self.columns))


_IDENTITY = (TIME_COLUMN, FILE_COLUMN, ROW_COLUMN)

_ALLOWED = {
    "id": ({"int64", "uint64"}, True),
    "hash": ({"int64", "uint64", "bool", "float32", "float64", "timestamp", "string", "bytes"}, True),
    "cross": ({"int64", "uint64", "bool", "float32", "float64", "timestamp", "string", "bytes"}, False),
    "dense": ({"int64", "uint64", "bool", "float32", "float64"}, False),
    "hour_of": ({"timestamp"}, False),
    "day_of_week": ({"timestamp"}, False),
}
"""For each kind of feature: types of columns it takes, and whether lists of them too."""


def compile_plan(experiment: Experiment, view: View) -> Plan:
    """Raises ``Usage`` for a feature that names no column or one of a type it cannot take (publishing checks before)."""
    types = view.column_types()
    layout = layout_of(experiment)
    picks: dict[Pick, int] = {}
    for name, feature in sorted(experiment.features.items()):
        _check(experiment, name, feature, types)
    for table in layout.tables:
        for spec in table.features:
            feature = experiment.features[spec.name]
            pick = Pick(_source(feature, table.logical[spec.logical], view), feature.last or NO_LIMIT)
            picks.setdefault(pick, len(picks))
    numbers = tuple(_number(experiment.features[name], view) for name in layout.dense)
    hashes = dict.fromkeys(part for pick in picks for part in _hashes_of(pick.source))
    tables = tuple(
        tuple(
            picks[Pick(_source(feature, table.logical[spec.logical], view), feature.last or NO_LIMIT)]
            for spec in table.features
            for feature in (experiment.features[spec.name],)
        )
        for table in layout.tables
    )
    columns = sorted(
        {number.column for number in numbers} | {name for pick in picks for name in _columns_of(pick.source)}
    )
    return Plan(layout, tuple(columns), tuple(hashes), tuple(picks), tables, numbers, f"label.{layout.label}")


def _source(feature: Feature, table: str, view: View) -> Source:
    columns = [_column(name, view) for name in feature.columns]
    if feature.kind == "id":
        return AsIs(columns[0])
    if feature.kind == "hash":
        return Hash(columns[0], seed_of(table))
    if feature.kind == "cross":
        return Cross(tuple(Hash(column, seed_of(table)) for column in columns), seed_of(table))
    return TimePart(columns[0], "hour" if feature.kind == "hour_of" else "day", feature.zone)


def _number(feature: Feature, view: View) -> Number:
    return Number(_column(feature.columns[0], view), feature.default, feature.ops)


def _column(name: str, view: View) -> str:
    """``event_time`` is the time of the row, unless the sample has a column of that name."""
    return TIME_COLUMN if name == EVENT_TIME and name not in view.sample.columns else name


def _hashes_of(source: Source) -> tuple[Hash, ...]:
    if isinstance(source, Hash):
        return (source,)
    return source.parts if isinstance(source, Cross) else ()


def _columns_of(source: Source) -> tuple[str, ...]:
    if isinstance(source, Cross):
        return tuple(part.column for part in source.parts)
    return (source.column,)


def _check(experiment: Experiment, name: str, feature: Feature, types: dict[str, str]) -> None:
    if feature.kind in ("hour_of", "day_of_week"):
        _check_zone(experiment, name, feature.zone)
    allowed, lists = _ALLOWED[feature.kind]
    for column in feature.columns:
        kind = types.get(column)
        if kind is not None and item_type(kind) in allowed and (lists or not is_list(kind)):
            continue
        raise Usage(
            expected=f"a column of type {', '.join(sorted(allowed))}{', or a list of them' if lists else ''}",
            got=f"{column}: {kind}" if kind else f"no column {column}",
            where=f"experiment {experiment.experiment}, features.{name}.{feature.kind}",
            do=f"Columns here are {', '.join(sorted(types))}.",
        )


def _check_zone(experiment: Experiment, name: str, zone: str) -> None:
    try:
        pc.hour(pa.array([0], pa.timestamp("us", tz=zone)))
    except pa.ArrowException as error:
        raise Usage(
            expected="a time zone that this machine knows",
            got=zone,
            where=f"experiment {experiment.experiment}, features.{name}.zone",
            do="Write an IANA name such as Asia/Shanghai; if it is one, install the system's tzdata package.",
        ) from error
