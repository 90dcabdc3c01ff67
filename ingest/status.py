"""How far a feed is, read from its own topics: no planner or reader is asked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from experiments import names
from ingest.contracts import T_MIN
from ingest.records import Floor, Progress, Split
from streams.contracts import Log
from streams.tail import Follower


@dataclass(frozen=True, slots=True)
class FeedReport:
    """State of a feed.

    Args:
        files: planned. rows: used + rejected + late, cumulative. reasons: of the rejected rows and files.
        late_files: planned below the floor, or found after the closing.
        open_splits: planned and not done. calm, closed, waiting: see ``ingest.contracts.FloorState``. W: µs.
        holds_W: file of the oldest open split; empty if none is open. changed_files: changed after they were planned.
        unused: names (the first few) of files found after a snapshot was closed.
    """

    feed: str
    files: int
    rows: int
    used: int
    rejected: int
    late: int
    late_files: int
    reasons: dict[str, int]
    open_splits: int
    calm: bool
    closed: bool
    waiting: str
    W: int
    holds_W: str
    changed_files: int = 0
    unused: tuple[str, ...] = ()


class FeedStatus:
    """Follows a feed's topics; belongs to one thread."""

    def __init__(self, log: Log, feed_name: str) -> None:
        self._log, self._name = log, feed_name
        self._followers: list[Follower] = []
        self._floor = Floor()
        self._open: dict[str, Split] = {}
        self._done: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()

    def refresh(self) -> FeedReport | None:
        """Read what is new; ``None`` before the feed was published."""
        if not self._followers:
            topics = (names.splits(self._name), names.floor(self._name), names.progress(self._name))
            if any(self._log.topic(topic) is None for topic in topics):
                return None
            self._followers = [Follower(self._log, topic) for topic in topics]
        splits, floors, progress = self._followers
        # Progress last: whoever sees a split done has seen it planned.
        for record in floors.new():
            self._floor = Floor.decode(record)
        for record in splits.new():
            split = Split.decode(record)
            if split.id not in self._done:
                self._open[split.id] = split
        for record in progress.new():
            self._add(Progress.decode(record))
        return self._report()

    def close(self) -> None:
        """Release."""
        for follower in self._followers:
            follower.close()
        self._followers = []

    def _add(self, progress: Progress) -> None:
        self._counts.update(rows=progress.rows, used=progress.used, rejected=progress.rejected, late=progress.late)
        self._reasons.update(progress.reasons)
        if progress.done:
            self._done.add(progress.split)
            self._open.pop(progress.split, None)

    def _report(self) -> FeedReport:
        floor, counts = self._floor, self._counts
        oldest = min(self._open.values(), key=lambda split: (split.L, split.seq), default=None)
        return FeedReport(
            feed=self._name,
            files=floor.files,
            rows=counts["rows"],
            used=counts["used"],
            rejected=counts["rejected"],
            late=counts["late"],
            late_files=floor.late_files,
            reasons=dict(sorted(self._reasons.items())),
            open_splits=len(self._open),
            calm=floor.calm and not self._open,
            closed=floor.closed,
            waiting=floor.waiting,
            W=max(floor.W, T_MIN),
            holds_W=oldest.file if oldest else "",
            changed_files=floor.changed_files,
            unused=tuple(floor.unused),
        )
