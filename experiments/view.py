"""A view: one distinct join, shared by all experiments that need it; and the version of an experiment that uses it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from experiments.experiment import ColumnLabel, Experiment
from experiments.feed import Feed, Spec


def canonical(spec: Spec) -> dict[str, object]:
    """The content of a spec as JSON types: defaults left out, so that a new optional field changes no hash."""
    return spec.model_dump(mode="json", exclude_defaults=True, by_alias=True)


OPERATIONAL = ("settle",)
"""Fields of a published feed that may change: they do not touch what its topics hold."""


def feed_content(feed: Feed) -> dict[str, object]:
    """A feed without its operational fields."""
    return {key: value for key, value in canonical(feed).items() if key not in OPERATIONAL}


def content_hash(content: object) -> str:
    """32 hex digits: sha256 over canonical JSON (sorted keys, no spaces)."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class LookupTable:
    """A snapshot feed that is looked up: ``alias.column`` of the row whose key equals the sample's ``on``."""

    alias: str
    feed: Feed
    on: str


@dataclass(frozen=True, slots=True)
class View:
    """The sample feed with its look-ups and labels.

    ``inputs`` names the feeds whose ``raw`` topics are read in co-partition (today the sample alone).
    """

    sample: Feed
    lookups: tuple[LookupTable, ...]
    labels: tuple[tuple[str, ColumnLabel], ...]

    @property
    def name(self) -> str:
        """``<sample>-<8 hex digits of the content>``."""
        return f"{self.sample.feed}-{content_hash(self.content())[:8]}"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Feeds read in co-partition."""
        return (self.sample.feed,)

    @property
    def feeds(self) -> tuple[Feed, ...]:
        """All feeds the view needs: the sample, then the tables."""
        return (self.sample, *(lookup.feed for lookup in self.lookups))

    @property
    def partitions(self) -> int:
        """Of the view and of its experiments: those of the sample feed."""
        return self.sample.partitions

    def content(self) -> dict[str, object]:
        """What identifies the view: the feeds without their operational fields."""
        tables = {lookup.alias: {"feed": feed_content(lookup.feed), "on": lookup.on} for lookup in self.lookups}
        return {
            "sample": feed_content(self.sample),
            "lookups": tables,
            "labels": {name: canonical(label) for name, label in self.labels},
        }

    def column_types(self) -> dict[str, str]:
        """Declared type of each column an experiment may name: ``column``, ``alias.column``, ``event_time``."""
        types: dict[str, str] = {name: column.type for name, column in self.sample.columns.items()}
        types.setdefault("event_time", "timestamp")
        for lookup in self.lookups:
            types |= {f"{lookup.alias}.{name}": column.type for name, column in lookup.feed.columns.items()}
        return types


def view_of(experiment: Experiment, feeds: Mapping[str, Feed]) -> View:
    """The view an experiment needs. Raises ``KeyError`` for a feed that is not there (``loading`` checks before)."""
    lookups = tuple(
        LookupTable(alias, feeds[lookup.feed], lookup.on) for alias, lookup in sorted(experiment.lookups.items())
    )
    return View(feeds[experiment.sample], lookups, tuple(sorted(experiment.labels.items())))


@dataclass(frozen=True, slots=True)
class Version:
    """A published version of an experiment, as the registry holds it.

    Args:
        number: 1, 2, … of this name.
        state: ``live`` or ``retired``.
        hash: content hash of the experiment together with its view.
        start: first joined offset to read, per partition of the view; ``start_time_us``: rows before are skipped.
        published_us: wall clock of the publisher.
    """

    experiment: Experiment
    view: View
    number: int
    state: str
    hash: str
    start: tuple[int, ...]
    start_time_us: int | None
    published_us: int

    @property
    def name(self) -> str:
        """Name of the experiment."""
        return self.experiment.experiment

    @property
    def label(self) -> str:
        """``name v1``, for people."""
        return f"{self.name} v{self.number}"
