"""The page of ``headrace status``: what is live, how far everything is, who waits for what."""

from __future__ import annotations

import itertools
import json
from typing import Any

from experiments import names
from experiments.fields import format_time
from headrace.answering import answering
from headrace.look import Look
from headrace.project import Project
from headrace.quantities import format_size
from headrace.result import compose, quality
from ingest.contracts import T_END, T_MIN
from preprocess.status import PartitionReport
from streams.contracts import TopicPartition
from streams.tail import read_to_end

DAY_S = 86_400.0
LAST_MESSAGES = 16


def status_object(look: Look, project: Project) -> dict[str, Any]:
    """The result object, and what only ``status`` knows: bounds, lag, the size of the log."""
    result = compose(look, project)
    for name, report in look.feeds().items():
        result.setdefault("bounds", {})[name] = {
            "W": bound(report.W) if report else None,
            "waiting": report.waiting if report else "",
            "open_splits": report.open_splits if report else 0,
        }
    result["lag"] = lag_object(look)["groups"]
    result["log"] = log_object(look)
    result["http"] = answering(project.answering)
    return result


def log_object(look: Look) -> dict[str, Any]:
    """Bytes on disk, and days of event time that are stored."""
    snapshots = {name for name, feed in look.registry.feeds.items() if feed.snapshot}
    times: list[tuple[int, int]] = []
    for topic in look.log.topics():
        if topic.spec.name.startswith("raw.") and topic.spec.name.removeprefix("raw.") not in snapshots:
            for p in range(topic.spec.partitions):
                times += _times(look, TopicPartition(topic.spec.name, p))
    span_us = max((high for _, high in times), default=0) - min((low for low, _ in times), default=0)
    days = round(span_us / 1e6 / DAY_S, 3) if times else None
    return {"id": look.log.id, "bytes": look.log.size_bytes(), "event_days": days}


def lag_object(look: Look) -> dict[str, Any]:
    """By group: bytes behind, by partition; read from positions, not from committed offsets."""
    groups: dict[str, Any] = {}
    for view in look.registry.views():
        groups[names.join_group(view.name)] = _lag(look, names.join_group(view.name), look.joins()[view.name])
    featurizers = look.featurizers()
    for version in look.registry.live():
        group = names.featurize_group(version.name, version.number)
        groups[group] = _lag(look, group, featurizers[version.label])
        train = names.train_group(version.name, version.number)
        groups[train] = _train_lag(look, train, names.exp(version.name, version.number), version.view.partitions)
    return {"groups": groups}


def lag_text(lag: dict[str, Any]) -> str:
    """One line a group."""
    lines = []
    for name, group in lag["groups"].items():
        parts = " ".join(f"{p}:{format_size(part['bytes'])}" for p, part in group["partitions"].items())
        lines.append(f"{name:<28} {group['members']} members  {format_size(group['bytes']):>9} behind   {parts}")
    return "\n".join(lines) or "No groups yet."


def status_text(status: dict[str, Any], project: Project) -> str:
    """For people: one screen."""
    lines = [f"project {project.root}"]
    for name, feed in status["feeds"].items():
        bounds = status["bounds"][name]
        state = "closed" if feed["closed"] else f"W {bounds['W'] or 'none yet'}"
        counts = f"{feed['files']} files, {feed['rows']:,} rows, {feed['used']:,} used"
        lines.append(f"feed {name}: {counts}, {state}")
        if feed["rejected"]:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(feed["reasons"].items()))
            lines.append(f"  rejected {feed['rejected']:,}: {reasons} (in dlq.{name})")
        if feed["late"] or feed["late_files"]:
            lines.append(f"  late {feed['late']:,} rows, {feed['late_files']} files (in late.{name})")
        if bounds["waiting"]:
            lines.append(f"  waits {bounds['waiting']}")
    for name, item in status["experiments"].items():
        lines.append(f"experiment {name} v{item['version']}: {item['rows_trained']:,} rows in {item['steps']:,} steps")
        lines.append(f"  {quality(item)}")
        if item["skew_over_1h"] is not None:
            lines.append(f"  {item['skew_over_1h']:.1%} of rows were scored after a row more than 1 h newer")
        lines += [f"  {entry['rows']:,} rows wait in {entry['stage']} for {entry['for']}" for entry in item["waiting"]]
        if item["rows_rejected"]:
            lines.append(f"  {item['rows_rejected']:,} rows rejected after ingest (in dlq.*)")
        lines.append(f"  checkpoint {item['checkpoint'] or 'none yet'}")
    behind = sum(group["bytes"] for group in status["lag"].values())
    days = status["log"]["event_days"]
    span = f", {days:.1f} days of event time" if days is not None else ""
    lines.append(f"log {format_size(status['log']['bytes'])}{span}; consumers are {format_size(behind)} behind")
    lines += [f"run {item['role']} (pid {item['pid']}) answers at {item['url']}" for item in status["http"]]
    if not status["experiments"]:
        lines.append("Nothing is live: headrace publish experiments/NAME.yaml")
    return "\n".join(lines)


def bound(value: int) -> str | None:
    """W or V for people: a time, ``end``, or ``None`` where there is none yet."""
    if value >= T_END:
        return "end"
    return None if value <= T_MIN or value < -(2**55) else format_time(value)


def _lag(look: Look, group: str, parts: list[PartitionReport]) -> dict[str, Any]:
    partitions = {
        str(part.partition): {"bytes": part.lag_bytes, "position": part.pos, "end": part.end, "V": bound(part.V)}
        for part in parts
    }
    return _group(look, group, partitions)


def _train_lag(look: Look, group: str, topic: str, count: int) -> dict[str, Any]:
    partitions = train_positions(look, group, topic, count)
    for part in partitions.values():
        part["V"] = bound(part.pop("V_us"))
    return _group(look, group, partitions)


def train_positions(look: Look, group: str, topic: str, count: int) -> dict[str, dict[str, Any]]:
    """By partition: ``bytes`` behind, ``position``, ``end`` and ``V_us`` of what a trainer has committed."""
    if look.log.topic(topic) is None:
        return {}
    positions = look.log.group(group).positions
    partitions = {}
    for p in range(count):
        tp = TopicPartition(topic, p)
        position = positions.get(tp)
        body = json.loads(position.metadata) if position and position.metadata else {}
        pos = int(body.get("pos", position.offset if position else 0))
        partitions[str(p)] = {
            "bytes": look.log.bytes_after(tp, pos),
            "position": pos,
            "end": look.log.end_offsets([tp])[tp],
            "V_us": int(body.get("V", T_MIN)),
        }
    return partitions


def _group(look: Look, name: str, partitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
    total = sum(part["bytes"] for part in partitions.values())
    return {"members": look.log.group(name).members, "bytes": total, "partitions": partitions}


def _times(look: Look, tp: TopicPartition) -> list[tuple[int, int]]:
    """Event times of the first and the last messages with rows that are stored in a partition."""
    end = look.log.end_offsets([tp])[tp]
    found = []
    for start in (0, max(0, end - LAST_MESSAGES)):
        records = itertools.islice(read_to_end(look.log, *tp, start=start), LAST_MESSAGES)
        found += [_header_times(record.header("hr.times")) for record in records]
    return [times for times in found if times is not None]


def _header_times(value: bytes | None) -> tuple[int, int] | None:
    if not value or b":" not in value:
        return None
    low, _, high = value.decode().partition(":")
    return int(low), int(high)
