"""Reports of roles → Prometheus metrics. Every metric is in ``FAMILIES``, with its meaning; ``docs/operations.md`` lists them.

Counts of feeds, joins and featurizers are those of the log, over all processes and restarts: each process that reports
them reports the same number. So ask for ``max by (feed)``, not for a sum.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ingest.contracts import BEHIND


class Family(NamedTuple):
    """A metric. ``labels``: their names. ``meaning``: also in the documentation."""

    kind: type[CounterMetricFamily] | type[GaugeMetricFamily]
    labels: tuple[str, ...]
    meaning: str


_C, _G = CounterMetricFamily, GaugeMetricFamily
FAMILIES: dict[str, Family] = {
    "headrace_feed_files": Family(_C, ("feed",), "Files planned."),
    "headrace_feed_rows": Family(_C, ("feed", "verdict"), "Rows read, by verdict: used, rejected or late."),
    "headrace_feed_rejected": Family(
        _C, ("feed", "reason"), "Rows and files rejected, by reason; they lie in dlq.<feed>."
    ),
    "headrace_feed_late_files": Family(_C, ("feed",), "Files that came too late."),
    "headrace_feed_open_splits": Family(_G, ("feed",), "Splits planned and not read to their end."),
    "headrace_feed_backpressure": Family(_G, ("feed",), "1 while planning waits for consumers that are behind."),
    "headrace_feed_blocked": Family(
        _G, ("feed",), "1 while planning waits for something else, as a folder that is not there."
    ),
    "headrace_feed_closed": Family(_G, ("feed",), "1 once no more files are read."),
    "headrace_feed_watermark_timestamp_seconds": Family(
        _G, ("feed",), "Event time below which no row can come any more."
    ),
    "headrace_read_rows": Family(_C, ("feed",), "Rows read by this process."),
    "headrace_read_bytes": Family(_C, ("feed",), "Bytes of raw rows written by this process."),
    "headrace_stage_rows": Family(_C, ("stage", "name"), "Rows put out by a join or featurizer."),
    "headrace_stage_rejected": Family(_C, ("stage", "name"), "Rows that a join or featurizer rejected."),
    "headrace_lag_bytes": Family(_G, ("group",), "Bytes that lie before a consumer group."),
    "headrace_lag_messages": Family(_G, ("group",), "Messages that lie before a consumer group."),
    "headrace_lag_event_time_seconds": Family(
        _G, ("group",), "Event time between what a group could have reached and what it has; its worst partition."
    ),
    "headrace_frontier_timestamp_seconds": Family(
        _G, ("group",), "Event time up to which a group has done everything."
    ),
    "headrace_train_rows": Family(
        _C, ("version",), "Rows trained, as of the surviving state: goes back to a checkpoint."
    ),
    "headrace_train_rejected_rows": Family(_C, ("version",), "Rows kept out of training."),
    "headrace_train_steps": Family(_C, ("version",), "Steps trained, as of the surviving state."),
    "headrace_train_state": Family(_G, ("version", "state"), "1 for the state the trainer is in."),
    "headrace_train_auc": Family(_G, ("version",), "Progressive AUC, as of the last checkpoint."),
    "headrace_train_log_loss": Family(_G, ("version",), "Progressive log loss, as of the last checkpoint."),
    "headrace_table_rows": Family(_G, ("version", "table"), "Rows of an embedding table."),
    "headrace_tables_bytes": Family(_G, ("version",), "Memory of all embedding tables and the index."),
    "headrace_checkpoint_step": Family(_G, ("version",), "Step of the newest checkpoint."),
    "headrace_checkpoint_timestamp_seconds": Family(_G, ("version",), "When the newest checkpoint was written."),
    "headrace_checkpoint_age_seconds": Family(_G, ("version",), "Time since the newest checkpoint was written."),
    "headrace_cache_hits": Family(_C, ("version", "tier"), "Look-ups that a tier answered."),
    "headrace_cache_misses": Family(_C, ("version", "tier"), "Look-ups that a tier did not have."),
    "headrace_cache_evictions": Family(_C, ("version", "tier"), "Entries dropped for space."),
    "headrace_cache_errors": Family(_C, ("version", "tier"), "Calls of a tier that failed; they count as misses too."),
    "headrace_cache_entries": Family(_G, ("version", "tier"), "Entries in a tier."),
    "headrace_cache_bytes": Family(_G, ("version", "tier"), "Bytes in a tier."),
    "headrace_role_reports": Family(_G, ("role",), "1 for each role that reports to this process."),
}

Sample = tuple[str, tuple[str, ...], float | int | None]


class Reports(Collector):
    """Makes metrics of the newest reports whenever it is asked.

    Args:
        reports: newest report by role.
        wall_s: seconds since 1970.
    """

    def __init__(
        self, reports: Callable[[], Mapping[str, dict[str, Any]]], wall_s: Callable[[], float] = time.time
    ) -> None:
        self._reports, self._wall_s = reports, wall_s

    def collect(self) -> Iterator[Metric]:
        """Metrics that have a value."""
        made: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for role, report in self._reports().items():
            for name, labels, value in samples(role, report, self._wall_s()):
                if value is None:
                    continue
                family = FAMILIES[name]
                metric = made.get(name)
                if metric is None:
                    metric = made[name] = family.kind(name, family.meaning, labels=family.labels)
                metric.add_metric(labels, value)
        yield from made.values()


def samples(role: str, report: Mapping[str, Any], now_s: float) -> Iterator[Sample]:
    """All values in one report: family, labels, value."""
    yield "headrace_role_reports", (role,), 1
    for name, feed in report.get("feeds", {}).items():
        yield from _feed(name, feed)
    for name, counts in report.get("read", {}).items():
        yield "headrace_read_rows", (name,), counts["rows"]
        yield "headrace_read_bytes", (name,), counts["bytes"]
    for stage in report.get("stages", ()):
        labels = (stage["stage"], _joined(stage["name"]))
        yield "headrace_stage_rows", labels, stage["rows"]
        yield "headrace_stage_rejected", labels, stage["rejected"]
        yield from _lag(stage)
    if report.get("role") == "train":
        yield from _lag(report.get("lag") or {})
        yield from _train(report, now_s)


def _feed(name: str, feed: Mapping[str, Any]) -> Iterator[Sample]:
    yield "headrace_feed_files", (name,), feed["files"]
    for verdict in ("used", "rejected", "late"):
        yield "headrace_feed_rows", (name, verdict), feed[verdict]
    for reason, count in feed["reasons"].items():
        yield "headrace_feed_rejected", (name, reason), count
    waiting = feed["waiting"]
    yield "headrace_feed_late_files", (name,), feed["late_files"]
    yield "headrace_feed_open_splits", (name,), feed["open_splits"]
    yield "headrace_feed_backpressure", (name,), int(waiting.startswith(BEHIND))
    yield "headrace_feed_blocked", (name,), int(bool(waiting) and not waiting.startswith(BEHIND))
    yield "headrace_feed_closed", (name,), int(feed["closed"])
    yield "headrace_feed_watermark_timestamp_seconds", (name,), _seconds(feed["W_us"])


def _lag(lag: Mapping[str, Any]) -> Iterator[Sample]:
    if lag:
        group = (lag["group"],)
        yield "headrace_lag_bytes", group, lag["lag_bytes"]
        yield "headrace_lag_messages", group, lag["lag_messages"]
        yield "headrace_lag_event_time_seconds", group, lag["lag_event_s"]
        yield "headrace_frontier_timestamp_seconds", group, _seconds(lag["frontier_us"])


def _train(report: Mapping[str, Any], now_s: float) -> Iterator[Sample]:
    version = _joined(report["version"])
    only = (version,)
    yield "headrace_train_rows", only, report.get("rows_trained")
    yield "headrace_train_rejected_rows", only, report.get("rows_rejected")
    yield "headrace_train_steps", only, report.get("steps")
    yield "headrace_train_state", (version, str(report.get("state"))), 1
    yield "headrace_train_auc", only, report.get("auc")
    yield "headrace_train_log_loss", only, report.get("log_loss")
    for table, rows in (report.get("tables") or {}).items():
        yield "headrace_table_rows", (version, table), rows
    yield "headrace_tables_bytes", only, report.get("table_bytes")
    yield "headrace_checkpoint_step", only, report.get("checkpoint_step")
    if (written_s := report.get("checkpoint_s")) is not None:
        yield "headrace_checkpoint_timestamp_seconds", only, written_s
        yield "headrace_checkpoint_age_seconds", only, max(0.0, now_s - written_s)
    for tier, counters in (report.get("cache") or {}).items():
        for name in ("hits", "misses", "evictions", "errors", "entries", "bytes"):
            yield f"headrace_cache_{name}", (version, tier), counters[name]


def _joined(label: str) -> str:
    """``ctr v1`` as it stands in names of topics and folders: ``ctr.v1``."""
    return label.replace(" ", ".")


def _seconds(time_us: int | None) -> float | None:
    return None if time_us is None else time_us / 1e6


def page(reports: Callable[[], Mapping[str, dict[str, Any]]]) -> Callable[[], bytes]:
    """What ``/metrics`` answers: the roles' reports, and CPU, memory and files of this process."""
    registry = CollectorRegistry()
    ProcessCollector(pid=os.getpid, registry=registry)
    registry.register(Reports(reports))
    return lambda: generate_latest(registry)
