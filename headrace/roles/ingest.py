"""The role ingest: a planner and a reader for each feed of a live view; upkeep of the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from experiments import names
from experiments.feed import Feed
from headrace import logs
from headrace.endings import Ending, closed_feeds
from headrace.look import Look
from headrace.roles.loop import Made, Parts, Workers
from ingest.contracts import BEHIND, T_END, T_MIN, Downstream
from ingest.planner import Planner
from ingest.reader import Reader
from ingest.status import FeedReport

logger = logs.get("ingest")


class IngestRole:
    """See the module."""

    name = "ingest"

    def __init__(self, parts: Parts, look: Look, ending: Ending, workers: Workers) -> None:
        self._parts, self._look, self._ending, self._workers = parts, look, ending, workers
        self._totals: dict[str, Counter[str]] = {}
        self._before: dict[str, Counter[str]] = {}
        self._config = parts.settings.ingest_config()
        self._reports: dict[str, FeedReport | None] = {}
        self._planners: dict[str, Planner] = {}
        self._closed = {name for name, report in look.feeds().items() if report and report.closed}

    def wanted(self) -> Mapping[tuple[str, str], Made]:
        """A planner and a reader for each feed."""
        made: dict[tuple[str, str], Made] = {}
        for name, feed in self._look.live_feeds().items():
            made["planner", name] = Made(feed, lambda feed=feed: self._planner(feed))  # type: ignore[misc]
            made["reader", name] = Made(feed, lambda feed=feed: self._reader(feed))  # type: ignore[misc]
        return made

    def upkeep(self) -> None:
        """Retention and compaction of the log; counts of the feeds."""
        self._parts.log.maintain()
        self._reports = self._look.feeds()
        fresh = {name for name, report in self._reports.items() if report and report.closed} - self._closed
        if fresh:
            closed = closed_feeds({name: self._reports[name] for name in sorted(fresh)})
            logger.info(f"closed feeds: {closed}. Files added later will be counted as late.")
            self._closed |= fresh

    def over(self) -> bool:
        """As the ending says; and this process has looked at the folders itself, also of feeds that were closed before."""
        return self._ending.ingest_over() and all(planner.quiet for planner in self._planners.values())

    def wait(self, timeout_s: float) -> None:
        """For the log."""
        self._parts.log.wait(timeout_s)

    def waiting(self) -> str:
        """Nothing published, or what the planners say."""
        if not self._reports:
            return "for an experiment to be published: headrace publish experiments/NAME.yaml"
        reasons = {name: report.waiting for name, report in self._reports.items() if report and report.waiting}
        return "; ".join(f"{name}: {reason}" for name, reason in reasons.items())

    def drain(self) -> None:
        """Everything that counts is in the log."""
        self.upkeep()

    def report(self) -> dict[str, Any]:
        """Counts by feed; whether there is work, and what keeps it from being done."""
        reports = [report for report in self._reports.values() if report]
        held = [report.waiting for report in reports if report.waiting.startswith(BEHIND)]
        blocked = [report.waiting for report in reports if report.waiting and not report.waiting.startswith(BEHIND)]
        at = any(report.get("at") for report in self._workers.reports().values())
        blocked += [
            str(report["waiting"])
            for report in self._workers.reports().values()
            if report.get("at") and report["waiting"]
        ]
        return {
            "feeds": {
                name: {
                    "files": report.files,
                    "rows": report.rows,
                    "used": report.used,
                    "rejected": report.rejected,
                    "reasons": report.reasons,
                    "late": report.late,
                    "late_files": report.late_files,
                    "closed": report.closed,
                    "calm": report.calm,
                    "open_splits": report.open_splits,
                    "waiting": report.waiting,
                    "W_us": report.W if T_MIN < report.W < T_END else None,
                }
                for name, report in self._reports.items()
                if report
            },
            "read": self._read(),
            "work": at or any(blocked),
            "waits": any(held) and not any(blocked),
            "trouble": "; ".join(blocked),
        }

    def _read(self) -> dict[str, dict[str, int]]:
        """Rows and bytes of this process's readers, by feed; those of a reader that was made again go on counting."""
        for (kind, name), report in self._workers.reports().items():
            if kind != "reader":
                continue
            now = {field: int(report.get(field, 0)) for field in ("rows", "bytes")}  # type: ignore[call-overload]
            total, before = self._totals.setdefault(name, Counter()), self._before.get(name, Counter())
            total.update(
                {field: value - before[field] if value >= before[field] else value for field, value in now.items()}
            )
            self._before[name] = Counter(now)
        return {name: {"rows": total["rows"], "bytes": total["bytes"]} for name, total in self._totals.items()}

    def _planner(self, feed: Feed) -> Planner:
        planner = self._planners[feed.feed] = Planner(
            self._parts.log,
            feed,
            folder_of(self._parts, feed),
            self._config,
            clock=self._parts.clock,
            may_close=self._ending.may_close,
            lag_groups=lambda: self._lag_groups(feed),
        )
        return planner

    def _reader(self, feed: Feed) -> Reader:
        return Reader(self._parts.log, feed, folder_of(self._parts, feed), self._config, clock=self._parts.clock)

    def _lag_groups(self, feed: Feed) -> Sequence[Downstream]:
        """Joins, featurizers and trainers of live versions whose sample this feed is: nobody may fall too far behind."""
        found: dict[str, Downstream] = {}
        for version in self._parts.registry.live():
            view, name, number = version.view, version.name, version.number
            if view.sample.feed != feed.feed:
                continue
            for group, topic in (
                (names.join_group(view.name), names.raw(feed.feed)),
                (names.featurize_group(name, number), names.joined(view.name)),
                (names.train_group(name, number), names.exp(name, number)),
            ):
                found[group] = Downstream(group, topic, view.partitions)
        return list(found.values())


def folder_of(parts: Parts, feed: Feed) -> str:
    """The folder of a feed: a URL as it is, a path relative to the project."""
    url = feed.files.url
    return url if "://" in url else str(parts.project.root / url)
