"""How far a consumer is behind, for reports: bytes, messages, and event time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments import names
from experiments.view import Version
from headrace.look import Look
from headrace.status import train_positions
from ingest.contracts import T_END, T_MIN
from preprocess.status import PartitionReport

NOT_YET = -(2**55)


def preprocess_stages(look: Look) -> list[dict[str, Any]]:
    """Joins and featurizers of live versions: what came out and what lies before them, over all their processes."""
    joins, featurizers = look.joins(), look.featurizers()
    found = []
    for view in look.registry.views():
        parts = joins[view.name]
        found.append(_stage("join", view.name, names.join_group(view.name), parts, [part.W for part in parts]))
    for version in look.registry.live():
        group = names.featurize_group(version.name, version.number)
        above = [part.V for part in joins[version.view.name]]
        found.append(_stage("featurize", version.label, group, featurizers[version.label], above))
    return found


def train_stage(look: Look, version: Version) -> dict[str, Any]:
    """The lag of a version's trainer, behind what it committed."""
    group = names.train_group(version.name, version.number)
    topic = names.exp(version.name, version.number)
    parts = train_positions(look, group, topic, version.view.partitions)
    above = {part.partition: part.V for part in look.featurizers().get(version.label, [])}
    pairs = [(above.get(int(p), T_MIN), part["V_us"]) for p, part in parts.items()]
    return {
        "group": group,
        "lag_bytes": sum(part["bytes"] for part in parts.values()),
        "lag_messages": sum(part["end"] - part["position"] for part in parts.values()),
        "lag_event_s": _event_lag_s(pairs),
        "frontier_us": _frontier_us([V for _, V in pairs]),
    }


def _stage(kind: str, name: str, group: str, parts: Sequence[PartitionReport], above: Sequence[int]) -> dict[str, Any]:
    return {
        "stage": kind,
        "name": name,
        "group": group,
        "rows": sum(part.rows for part in parts),
        "rejected": sum(part.rejected for part in parts),
        "lag_bytes": sum(part.lag_bytes for part in parts),
        "lag_messages": sum(part.end - part.pos for part in parts),
        "messages": {str(part.partition): part.end - part.pos for part in parts},
        "lag_event_s": _event_lag_s(list(zip(above, (part.V for part in parts), strict=True))),
        "frontier_us": _frontier_us([part.V for part in parts]),
    }


def _event_lag_s(pairs: Sequence[tuple[int, int]]) -> float | None:
    """The largest distance over partitions; ``None`` where none is known, as before the first row and at the end."""
    known = [max(0, above - own) / 1e6 for above, own in pairs if _known(above) and _known(own)]
    if not known and pairs and all(own >= T_END for _, own in pairs):
        return 0.0
    return max(known, default=None)


def _frontier_us(values: Sequence[int]) -> int | None:
    """The lowest, if it is a time."""
    lowest = min(values, default=T_MIN)
    return lowest if _known(lowest) else None


def _known(value: int) -> bool:
    return NOT_YET < value < T_END
