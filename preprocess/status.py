"""How far a view's join and a version's featurizer have come, read from the groups' offsets alone: no worker is asked."""

from __future__ import annotations

import json
from dataclasses import dataclass

from experiments import names
from experiments.view import Version, View
from ingest.contracts import T_MIN
from streams.contracts import GroupInfo, Log, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition of a stage.

    Args:
        partition: number.
        pos: offset up to which the input was read. end: end offset of the input.
        W: of the input (join only, else ``T_MIN``). V: frontier put out.
        rows: put out. rejected: kept out, in the dead letters. skipped: before the version's start.
        more: a cap stopped the last transaction: it is not idle.
        lag_bytes: of the input, behind ``pos``.
    """

    partition: int
    pos: int
    end: int
    W: int
    V: int
    rows: int
    rejected: int
    skipped: int
    more: bool
    lag_bytes: int

    @property
    def at_end(self) -> bool:
        """Everything that is in the input was read, and all that follows from it is out."""
        return self.pos >= self.end and not self.more


def join_report(log: Log, view: View) -> list[PartitionReport]:
    """By partition of the view; empty before its topics exist."""
    return _report(log, names.raw(view.sample.feed), names.join_group(view.name), view.partitions)


def featurize_report(log: Log, version: Version) -> list[PartitionReport]:
    """By partition of the version; empty before its topics exist."""
    group = names.featurize_group(version.name, version.number)
    return _report(log, names.joined(version.view.name), group, version.view.partitions, version.start)


def _report(
    log: Log, topic: str, group: str, partitions: int, start: tuple[int, ...] | None = None
) -> list[PartitionReport]:
    if log.topic(topic) is None:
        return []
    tps = [TopicPartition(topic, p) for p in range(partitions)]
    ends, info = log.end_offsets(tps), log.group(group)
    return [_partition(log, info, tp, ends[tp], start[tp.partition] if start else 0) for tp in tps]


def _partition(log: Log, info: GroupInfo, tp: TopicPartition, end: int, start: int) -> PartitionReport:
    position = info.positions.get(tp)
    body = json.loads(position.metadata) if position and position.metadata else {}
    pos = int(body.get("pos", position.offset if position else start))
    return PartitionReport(
        partition=tp.partition,
        pos=pos,
        end=end,
        W=int(body.get("W", T_MIN)),
        V=int(body.get("V", T_MIN)),
        rows=int(body.get("rows", 0)),
        rejected=int(body.get("rejected", 0)),
        skipped=int(body.get("skipped", 0)),
        more=bool(body.get("more", False)),
        lag_bytes=log.bytes_after(tp, pos),
    )
