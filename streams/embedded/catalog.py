"""Topics of a log: made, described, deleted."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterable

from streams.checks import check_same, check_spec, unknown_topic
from streams.contracts import TopicInfo, TopicPartition, TopicSpec
from streams.embedded import groups
from streams.embedded.index import OFFSET_BITS, Index, next_tick
from streams.errors import Usage

_COLUMNS = "name, uid, partitions, compacted, retention_bytes, max_message_bytes"
MAX_PARTS = 1 << (62 - OFFSET_BITS)


class Catalog:
    """The tables ``topic`` and ``part``."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def create(self, spec: TopicSpec) -> TopicInfo:
        """Create, or return what exists; see ``Log.create_topic``."""
        check_spec(spec)
        existing = self.find(spec.name)
        if existing is None:
            with self._index.write() as db:
                existing = _find(db, spec.name)
                if existing is None:
                    return _insert(db, spec)
        check_same(existing.spec, spec)
        return existing

    def find(self, name: str) -> TopicInfo | None:
        """Describe a topic."""
        with self._index.read() as db:
            return _find(db, name)

    def all(self) -> list[TopicInfo]:
        """All topics, by name."""
        with self._index.read() as db:
            return [_info(row) for row in db.execute(f"SELECT {_COLUMNS} FROM topic ORDER BY name").fetchall()]

    def delete(self, name: str) -> None:
        """Delete a topic. Its messages are removed by later upkeep; nobody sees them from now on."""
        with self._index.write() as db:
            row = db.execute("SELECT id FROM topic WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise unknown_topic(name)
            parts = db.execute("SELECT id FROM part WHERE topic = ?", row).fetchall()
            db.executemany("INSERT INTO dropped (part) VALUES (?)", parts)
            db.executemany("DELETE FROM offs WHERE part = ?", parts)
            db.execute("DELETE FROM part WHERE topic = ?", row)
            db.execute("DELETE FROM topic WHERE id = ?", row)
            groups.rebalance_readers(db, name)
            next_tick(db)

    def parts(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Row ids of partitions. Raises ``Usage`` for one that does not exist."""
        with self._index.read() as db:
            return {tp: part_of(db, tp) for tp in partitions}


def part_of(db: sqlite3.Connection, tp: TopicPartition) -> int:
    """Row id of a partition. Raises ``Usage`` if it does not exist."""
    row = db.execute(
        "SELECT part.id FROM part JOIN topic ON topic.id = part.topic WHERE topic.name = ? AND part.p = ?", tp
    ).fetchone()
    if row is None:
        raise unknown_topic(f"{tp.topic}/{tp.partition}")
    return row[0]


def _find(db: sqlite3.Connection, name: str) -> TopicInfo | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM topic WHERE name = ?", (name,)).fetchone()
    return _info(row) if row else None


def _info(row: tuple[str, str, int, int, int | None, int]) -> TopicInfo:
    name, uid, partitions, compacted, retention_bytes, max_message_bytes = row
    return TopicInfo(TopicSpec(name, partitions, bool(compacted), retention_bytes, max_message_bytes), uid)


def _insert(db: sqlite3.Connection, spec: TopicSpec) -> TopicInfo:
    uid = secrets.token_hex(8)
    values = (
        spec.name, uid, spec.partitions, int(spec.compacted), spec.retention_bytes, spec.max_message_bytes,
    )  # fmt: skip
    row = db.execute(f"INSERT INTO topic ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) RETURNING id", values).fetchall()[0]
    db.executemany("INSERT INTO part (topic, p) VALUES (?, ?)", [(row[0], p) for p in range(spec.partitions)])
    if db.execute("SELECT max(id) FROM part").fetchone()[0] >= MAX_PARTS:
        raise Usage(
            expected=f"at most {MAX_PARTS} partitions in the life of a log",
            got=f"{spec.partitions} more",
            where=f"topic {spec.name}",
            do="Start a new log.",
        )
    groups.rebalance_readers(db, spec.name)
    next_tick(db)
    return TopicInfo(spec, uid)
