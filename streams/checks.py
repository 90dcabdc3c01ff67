"""What every implementation of the log refuses, in the same words."""

from __future__ import annotations

import re

from streams.contracts import MAX_METADATA_BYTES, Position, TopicPartition, TopicSpec
from streams.errors import Exhausted, SchemaMismatch, Usage

_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


def check_spec(spec: TopicSpec) -> None:
    """Raise ``Usage`` for a topic that no log would make."""
    problem = None
    if not _NAME.fullmatch(spec.name):
        problem = ("a name of 1 to 200 letters, digits, '.', '_', '-'", repr(spec.name))
    elif spec.partitions < 1:
        problem = ("at least 1 partition", str(spec.partitions))
    elif spec.max_message_bytes < 1:
        problem = ("max_message_bytes ≥ 1", str(spec.max_message_bytes))
    if problem:
        raise Usage(
            expected=problem[0], got=problem[1], where=f"topic {spec.name!r}", do="Correct the topic's specification."
        )


def check_same(existing: TopicSpec, asked: TopicSpec) -> None:
    """Raise ``SchemaMismatch`` with both numbers if an existing topic has another shape."""
    if (existing.partitions, existing.compacted) != (asked.partitions, asked.compacted):
        raise SchemaMismatch(
            expected=f"{asked.partitions} partitions, compacted: {asked.compacted}",
            got=f"{existing.partitions} partitions, compacted: {existing.compacted}",
            where=f"topic {asked.name}",
            do="Use the topic as it is, or delete it first (its records are lost then).",
        )


def check_record(spec: TopicSpec, partition: int, key: bytes | None, size: int | None, where: str) -> None:
    """Raise ``Usage`` or ``Exhausted`` for a record that does not fit its topic. ``size``: of its value, ``None`` without one."""
    if not 0 <= partition < spec.partitions:
        raise unknown_topic(f"{spec.name}/{partition}")
    if key is None and spec.compacted:
        raise Usage(expected="a key", got="none", where=where, do="Records of a compacted topic need one.")
    if size is None and not spec.compacted:
        raise Usage(
            expected="a value", got="none", where=where, do="Only a compacted topic takes records without value."
        )
    if size is not None and size > spec.max_message_bytes:
        raise Exhausted(
            expected=f"at most {spec.max_message_bytes} bytes",
            got=f"{size} bytes",
            where=f"topic {spec.name}",
            do="Write smaller messages, or make the topic with a larger max_message_bytes.",
        )


def check_position(tp: TopicPartition, position: Position) -> None:
    """Raise ``Usage`` for a position that no log would store."""
    size = len(position.metadata.encode())
    if size > MAX_METADATA_BYTES or position.offset < 0:
        raise Usage(
            expected=f"an offset ≥ 0 and at most {MAX_METADATA_BYTES} bytes of metadata",
            got=f"offset {position.offset} and {size} bytes",
            where=f"{tp.topic}/{tp.partition}",
            do="Keep less in the metadata.",
        )


def unknown_topic(name: str) -> Usage:
    """The error for a topic or partition that is not there."""
    return Usage(
        expected="a topic and partition that exist",
        got=repr(name),
        where="log",
        do="Create the topic first (publish the experiment), or correct the name.",
    )
