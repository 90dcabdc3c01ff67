"""An experiment against the feeds it names: columns exist, types fit, tables can be looked up."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.documents import Path_
from experiments.experiment import ColumnLabel, Experiment, Feature
from experiments.feed import Feed
from experiments.fields import is_list, is_zone, item_type

Found = tuple[Path_, str, str, str]
"""Path, expected, got, what to do."""

INTEGERS = ("int64", "uint64")
NUMBERS = (*INTEGERS, "float32", "float64", "bool")


def problems_of(experiment: Experiment, feeds: Mapping[str, Feed]) -> list[Found]:
    """Everything that does not fit; empty if all does."""
    sample = feeds.get(experiment.sample)
    if sample is None:
        return [(("sample",), "a feed", repr(experiment.sample), _hint(experiment.sample, feeds))]
    found: list[Found] = []
    if experiment.experiment in feeds:
        found.append((("experiment",), "a name that no feed has", repr(experiment.experiment), "Rename one of them."))
    if sample.snapshot:
        found.append((("sample",), "a feed with event_time", f"the snapshot {sample.feed!r}", "Look it up instead."))
    found += _lookups(experiment, sample, feeds)
    unknown = {alias for alias, lookup in experiment.lookups.items() if lookup.feed not in feeds}
    types = _column_types(experiment, sample, feeds)
    for name, label in experiment.labels.items():
        found += _label(("labels", name), label, sample)
    for name, feature in experiment.features.items():
        if not unknown.intersection(column.partition(".")[0] for column in feature.columns):
            found += _feature(("features", name), feature, types)
    rows, partitions = experiment.train.batch_rows, sample.partitions
    if rows % partitions:
        near = max(partitions, rows // partitions * partitions)
        expected = f"a multiple of the {partitions} partitions of feed {sample.feed!r}"
        found.append((("train", "batch_rows"), expected, str(rows), f"For example {near}."))
    return found


def _hint(word: str, words: Mapping[str, object]) -> str:
    from experiments.loading import nearest

    return nearest(word, words) or f"There are: {', '.join(sorted(words)) or 'none'}."


def _lookups(experiment: Experiment, sample: Feed, feeds: Mapping[str, Feed]) -> list[Found]:
    found: list[Found] = []
    for alias, lookup in experiment.lookups.items():
        path: Path_ = ("lookups", alias)
        table = feeds.get(lookup.feed)
        if table is None:
            found.append(((*path, "feed"), "a feed", repr(lookup.feed), _hint(lookup.feed, feeds)))
            continue
        if not table.snapshot:
            found.append(((*path, "feed"), "a feed with snapshot: true", f"{lookup.feed!r}, which has event_time", ""))
        if lookup.on not in sample.columns:
            got = f"{lookup.on!r}, which is no column of {sample.feed!r}"
            found.append(((*path, "on"), f"a column of {sample.feed!r}", got, _hint(lookup.on, sample.columns)))
            continue
        if len(table.key) != 1:
            got = f"{len(table.key)} ({', '.join(table.key)})"
            found.append(((*path, "feed"), "a table with one key column", got, ""))
            continue
        have, want = sample.columns[lookup.on].type, table.columns[table.key[0]].type
        if have != want:
            expected = f"{want}, as the key {table.key[0]!r} of {table.feed!r}"
            found.append(((*path, "on"), expected, f"{lookup.on!r} of type {have}", "Declare both with one type."))
    return found


def _column_types(experiment: Experiment, sample: Feed, feeds: Mapping[str, Feed]) -> dict[str, str]:
    types: dict[str, str] = {"event_time": "timestamp"}
    types |= {name: column.type for name, column in sample.columns.items()}
    for alias, lookup in experiment.lookups.items():
        if (table := feeds.get(lookup.feed)) is not None:
            types |= {f"{alias}.{name}": column.type for name, column in table.columns.items()}
    return types


def _label(path: Path_, label: ColumnLabel, sample: Feed) -> list[Found]:
    column = sample.columns.get(label.column)
    if column is None:
        got = f"{label.column!r}, which is none"
        return [((*path, "column"), f"a column of {sample.feed!r}", got, _hint(label.column, sample.columns))]
    numeric = column.type in NUMBERS
    if isinstance(label.equals, str):
        if column.type != "string":
            return [((*path, "equals"), f"a value of type {column.type}", repr(label.equals), "")]
        return [((*path, "range"), "no range for a text column", "one", "")] if label.range else []
    if not numeric:
        do = "Write equals: with a text in quotes." if column.type == "string" else ""
        return [((*path, "column"), "a number or bool column", f"{label.column!r} of type {column.type}", do)]
    return []


def _feature(path: Path_, feature: Feature, types: Mapping[str, str]) -> list[Found]:
    found: list[Found] = []
    for column in feature.columns:
        place = (*path, feature.kind)
        if column not in types:
            found.append(
                (place, "a column of the sample or a look-up", f"{column!r}, which is none", _hint(column, types))
            )
            continue
        if wrong := _unfit(feature, types[column]):
            found.append((place, wrong, f"{column!r} of type {types[column]}", _instead(feature, types[column])))
        elif feature.last is not None and not is_list(types[column]):
            found.append(((*path, "last"), "a list column", f"{column!r} of type {types[column]}", "Leave last out."))
    if feature.kind in ("hour_of", "day_of_week") and not is_zone(feature.zone):
        found.append(((*path, "zone"), "a time zone such as UTC or Asia/Shanghai", repr(feature.zone), ""))
    return found


def _unfit(feature: Feature, column_type: str) -> str:
    """What would be expected of the column, or an empty string if it fits."""
    if feature.kind == "id":
        return "" if item_type(column_type) in INTEGERS else "an integer column"
    if feature.kind == "dense":
        return "" if column_type in NUMBERS else "a number or bool column"
    if feature.kind in ("hour_of", "day_of_week"):
        return "" if column_type == "timestamp" else "event_time or a timestamp column"
    if feature.kind == "cross":
        return "a column that is no list" if is_list(column_type) else ""
    return ""


def _instead(feature: Feature, column_type: str) -> str:
    if feature.kind == "id":
        return f"Use hash: {feature.columns[0]}"
    if feature.kind == "dense" and item_type(column_type) in ("string", "bytes"):
        return f"Use hash: {feature.columns[0]}, or declare the column as a number in the feed."
    return ""
