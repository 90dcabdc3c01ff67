"""When a run is over: never, when nothing more can be done, or when everything was trained.

Decided from the log alone, so that roles in separate processes, started in any order, end by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headrace.look import Look, Quiet, Still
from ingest.contracts import T_END
from ingest.status import FeedReport
from streams.errors import Usage


class TrainerView(Protocol):
    """What an ending asks of a trainer."""

    @property
    def finished(self) -> bool:
        """Everything was trained and lies in a checkpoint."""
        ...

    @property
    def stuck(self) -> bool:
        """Nothing can be trained with what the log held at the last step."""
        ...

    def step(self) -> bool:
        """Train some."""


class Ending(Protocol):
    """When roles end. Each question is asked only when the role found nothing to do."""

    def may_close(self) -> bool:
        """Whether planners may close feeds with event time, once nothing is left to plan."""

    def ingest_over(self) -> bool:
        """Whether readers and planners have nothing left to do."""

    def preprocess_over(self) -> bool:
        """Whether join and featurize have nothing left to do."""

    def train_over(self, trainer: TrainerView) -> bool:
        """Whether this trainer has nothing left to do."""


class Forever:
    """Until a signal comes."""

    def may_close(self) -> bool:
        """Files may come at any time."""
        return False

    def ingest_over(self) -> bool:
        """Never."""
        return False

    def preprocess_over(self) -> bool:
        """Never."""
        return False

    def train_over(self, trainer: TrainerView) -> bool:
        """Never."""
        del trainer
        return False


class UntilIdle:
    """Until nothing more can be done with the files that are there. W is not raised for it: what waits, waits.

    Args:
        since: end offsets of the planners' topics when the run began, by feed: a feed counts as calm only once its
            planner said so after that. Empty: what the log says counts, however old.
    """

    def __init__(self, look: Look, since: Mapping[str, int]) -> None:
        self._look, self._since = look, since
        self._preprocess_quiet = Quiet(self._preprocess_state)

    def may_close(self) -> bool:
        """Files may come with the next run."""
        return False

    def ingest_over(self) -> bool:
        """All planners are calm and all splits are done."""
        return self._feeds_state() is not None

    def preprocess_over(self) -> bool:
        """Ingest is over, and join and featurize stand at the end of their inputs, in two looks."""
        return self._preprocess_quiet()

    def train_over(self, trainer: TrainerView) -> bool:
        """Preprocess is over, and after that a look at all batches found no step that is proven."""
        if not self._preprocess_quiet():
            return False
        return not trainer.step() and (trainer.stuck or trainer.finished)

    def _feeds_state(self) -> Still | None:
        look, ends = self._look, self._look.floor_ends()
        feeds = look.feeds()
        if not feeds:
            return None
        for name, report in feeds.items():
            if report is None or not (report.closed or report.calm) or report.open_splits:
                return None
            if not report.closed and ends[name] <= self._since.get(name, -1):
                return None
        return tuple(sorted(ends.items()))

    def _preprocess_state(self) -> Still | None:
        state = self._feeds_state()
        if state is None:
            return None
        look, feeds = self._look, self._look.feeds()
        joins, featurizers = look.joins(), look.featurizers()
        for view in look.registry.views():
            if not look.held(view, feeds) and not all(part.at_end for part in joins[view.name]):
                return None
        if not all(part.at_end for parts in featurizers.values() for part in parts):
            return None
        moved = {key: [(part.pos, part.end, part.V) for part in parts] for key, parts in (joins | featurizers).items()}
        return (*state, *((key, *parts) for key, parts in sorted(moved.items())))


class UntilEnd:
    """No more files will come: the feeds are closed, and everything is trained to the end."""

    def __init__(self, look: Look) -> None:
        self._look = look

    def may_close(self) -> bool:
        """Feeds with event time close after all snapshots, so that no row meets a side table that is not there yet."""
        feeds = self._look.live_feeds()
        reports = [self._look.feed(name) for name, feed in feeds.items() if feed.snapshot]
        return all(report is not None and report.closed for report in reports)

    def ingest_over(self) -> bool:
        """All feeds are closed. Raises ``Usage`` for a snapshot that has no files: it would never be."""
        reports = self._look.feeds()
        for name, feed in self._look.live_feeds().items():
            report = reports[name]
            if feed.snapshot and report and report.calm and not report.closed and not report.files:
                raise Usage(
                    expected=f"at least one file of the snapshot feed {name}",
                    got="none",
                    where=f"{feed.files.url} ({feed.files.match})",
                    do="Put its file there, or take the look-up out of the experiment and publish it again.",
                )
        return bool(reports) and all(report and report.closed and not report.open_splits for report in reports.values())

    def preprocess_over(self) -> bool:
        """All partitions of all live versions are past the end."""
        parts = self._look.featurizers()
        return bool(parts) and all(reports and _past_end(reports) for reports in parts.values())

    def train_over(self, trainer: TrainerView) -> bool:
        """Trained past the end, in a checkpoint."""
        return trainer.finished


def _past_end(reports: object) -> bool:
    assert isinstance(reports, list)
    return all(report.V >= T_END for report in reports)


def closed_feeds(reports: Mapping[str, FeedReport | None]) -> str:
    """``ratings (8 files)``, for people."""
    return ", ".join(f"{name} ({report.files} files)" for name, report in reports.items() if report and report.closed)
