"""The result object of a run: from the log and the checkpoints alone, so that ``status`` shows the same without a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments.fields import format_time
from experiments.view import Version
from headrace.look import Look
from headrace.project import Project
from ingest.contracts import T_END, T_MIN
from ingest.status import FeedReport
from preprocess.status import PartitionReport, featurize_report, join_report
from trainer.status import train_report

FEED_FIELDS = ("files", "rows", "used", "rejected", "late", "late_files", "closed", "reasons")
EXPERIMENT_FIELDS = (
    "version", "rows_trained", "rows_rejected", "rows_waiting", "waiting", "steps", "resumes",
    "auc", "auc_second_half", "log_loss", "log_loss_second_half", "base_log_loss", "normalized_entropy", "calibration",
    "skew_over_1h", "checkpoint", "model_digest", "bit_identical",
)  # fmt: skip
PARTS = {"ingest": ("feeds",), "preprocess": (), "train": ("experiments",), "all": ("feeds", "experiments")}


def compose(look: Look, project: Project) -> dict[str, Any]:
    """``feeds`` and ``experiments`` of all live versions. JSON types; what is undefined is ``None``."""
    reports = look.feeds()
    return {
        "feeds": {name: _feed(report) for name, report in reports.items()},
        "experiments": {version.name: _experiment(look, project, version, reports) for version in look.registry.live()},
    }


def part_of(result: dict[str, Any], role: str) -> dict[str, Any]:
    """What one role prints of it."""
    return {name: result[name] for name in (*PARTS[role], "seconds") if name in result}


def text_of(result: dict[str, Any]) -> str:
    """For people, some lines."""
    lines = []
    for name, feed in result.get("feeds", {}).items():
        text = f"{name}: {feed['files']} files, {feed['rows']:,} rows, {feed['used']:,} used"
        text += f", {feed['rejected']:,} rejected" if feed["rejected"] else ""
        text += f", {feed['late']:,} late" if feed["late"] else ""
        lines.append(text + (", closed" if feed["closed"] else ""))
    for name, item in result.get("experiments", {}).items():
        lines.append(
            f"{name} v{item['version']}: {item['rows_trained']:,} rows in {item['steps']:,} steps; {quality(item)}"
        )
        lines += [
            f"  waiting: {entry['rows']:,} rows in {entry['stage']}, for {entry['for']}" for entry in item["waiting"]
        ]
    if "seconds" in result:
        lines.append(f"{result['seconds']:.1f} s")
    return "\n".join(lines)


def quality(item: dict[str, Any]) -> str:
    """``AUC 0.7501 (second half 0.7552), log loss 0.58 (base rate 0.69)``."""
    if item["auc"] is None and item["log_loss"] is None:
        return "no metric yet"
    auc, half = (f"{item[name]:.4f}" if item[name] is not None else "undefined" for name in ("auc", "auc_second_half"))
    loss, base = (
        f"{item[name]:.4f}" if item[name] is not None else "undefined" for name in ("log_loss", "base_log_loss")
    )
    return f"AUC {auc} (second half {half}), log loss {loss} (base rate {base})"


def _feed(report: FeedReport | None) -> dict[str, Any]:
    if report is None:
        return {
            "files": 0,
            "rows": 0,
            "used": 0,
            "rejected": 0,
            "late": 0,
            "late_files": 0,
            "closed": False,
            "reasons": {},
        }
    found = {name: getattr(report, name) for name in FEED_FIELDS}
    return found | {"reasons": dict(report.reasons)}


def _experiment(look: Look, project: Project, version: Version, feeds: dict[str, FeedReport | None]) -> dict[str, Any]:
    trained = train_report(project.checkpoints, version.name, version.number)
    joins, parts = join_report(look.log, version.view), featurize_report(look.log, version)
    sample = feeds.get(version.view.sample.feed)
    flow = Flow(
        used=sample.used if sample else 0,
        joined=_sum(joins, "rows"),
        join_rejected=_sum(joins, "rejected"),
        featurized=_sum(parts, "rows"),
        featurize_rejected=_sum(parts, "rejected") + _sum(parts, "skipped"),
        trained=int(trained["rows_trained"]),
        train_rejected=int(trained.get("rows_rejected") or 0),
    )
    waiting = _waiting(look, version, feeds, flow, joins, parts)
    found = trained | {
        "rows_rejected": flow.join_rejected + _sum(parts, "rejected") + flow.train_rejected,
        "waiting": waiting,
        "rows_waiting": sum(entry["rows"] for entry in waiting),
    }
    return {name: found.get(name) for name in EXPERIMENT_FIELDS}


@dataclass(frozen=True, slots=True)
class Flow:
    """Rows of the sample feed at each border, for one version."""

    used: int
    joined: int
    join_rejected: int
    featurized: int
    featurize_rejected: int
    trained: int
    train_rejected: int

    def waiting(self) -> dict[str, int]:
        """Rows that wait before each stage."""
        return {
            "join": self.used - self.joined - self.join_rejected,
            "featurize": self.joined - self.featurized - self.featurize_rejected,
            "train": self.featurized - self.trained - self.train_rejected,
        }


def _waiting(
    look: Look,
    version: Version,
    feeds: dict[str, FeedReport | None],
    flow: Flow,
    joins: Sequence[PartitionReport],
    parts: Sequence[PartitionReport],
) -> list[dict[str, Any]]:
    sample = version.view.sample.feed
    end = f"or the end of the feed {sample} (--until-end)"
    held = look.held(version.view, feeds)
    bound = min((part.W for part in joins), default=T_MIN)
    behind = any(part.lag_bytes for part in joins)
    reasons = {
        "join": f"the side tables {', '.join(held)}, which are not complete"
        if held
        else "the join, which is behind"
        if behind
        else f"rows of {sample} newer than {_time(bound)}, {end}",
        "featurize": "the featurizer, which is behind"
        if any(part.lag_bytes for part in parts)
        else f"full batches of every partition, {end}",
        "train": f"rows of every partition, {end}; or for the trainer's next checkpoint",
    }
    return [{"stage": stage, "rows": rows, "for": reasons[stage]} for stage, rows in flow.waiting().items() if rows]


def _time(bound: int) -> str:
    return format_time(bound) if T_MIN < bound < T_END else "the first file"


def _sum(parts: Sequence[PartitionReport], name: str) -> int:
    return sum(getattr(part, name) for part in parts)
