"""What the log says about how far every stage is. Endings, ``status`` and the result object look here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments import names
from experiments.feed import Feed
from experiments.registry import Registry
from experiments.view import View
from ingest.status import FeedReport, FeedStatus
from preprocess.status import PartitionReport, featurize_report, join_report
from streams.contracts import Log, TopicPartition


class Look:
    """Reads the log; keeps what it has read of the feeds, so that looking again is cheap. One thread."""

    def __init__(self, log: Log, registry: Registry) -> None:
        self.log, self.registry = log, registry
        self._status: dict[str, FeedStatus] = {}

    def live_feeds(self) -> dict[str, Feed]:
        """Feeds that live versions need, by name."""
        return {feed.feed: feed for view in self.registry.views() for feed in view.feeds}

    def feed(self, name: str) -> FeedReport | None:
        """How far a feed is; ``None`` before its topics exist."""
        if name not in self._status:
            if self.log.topic(names.floor(name)) is None:
                return None
            self._status[name] = FeedStatus(self.log, name)
        return self._status[name].refresh()

    def feeds(self) -> dict[str, FeedReport | None]:
        """All feeds of live versions, by name."""
        return {name: self.feed(name) for name in sorted(self.live_feeds())}

    def joins(self) -> dict[str, list[PartitionReport]]:
        """By view of live versions."""
        return {view.name: join_report(self.log, view) for view in self.registry.views()}

    def featurizers(self) -> dict[str, list[PartitionReport]]:
        """By label of live versions."""
        return {version.label: featurize_report(self.log, version) for version in self.registry.live()}

    def held(self, view: View, feeds: Mapping[str, FeedReport | None]) -> list[str]:
        """Snapshot feeds of a view that are not closed: until they are, its join decides nothing."""
        reports = {lookup.feed.feed: feeds.get(lookup.feed.feed) for lookup in view.lookups}
        return sorted(name for name, report in reports.items() if report is None or not report.closed)

    def floor_ends(self) -> dict[str, int]:
        """End offsets of the planners' topics, by feed: a record behind them is newer than now."""
        found = {}
        for feed in self.live_feeds():
            tp = TopicPartition(names.floor(feed), 0)
            found[feed] = self.log.end_offsets([tp])[tp] if self.log.topic(tp.topic) else 0
        return found


Still = tuple[object, ...]


class Quiet:
    """Whether nothing moved between two looks in a row."""

    def __init__(self, state: Callable[[], Still | None]) -> None:
        self._state = state
        self._before: Still | None = None

    def __call__(self) -> bool:
        """Look; ``state`` gives ``None`` where something can still move."""
        now = self._state()
        same = now is not None and now == self._before
        self._before = now
        return same
