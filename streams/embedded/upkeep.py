"""Retention, compaction, removal of files: bounded pieces of work, each under one hold of the write lock.

A commit can come back from the dead (see ``index.settle``): so the removal of files commits a change first and keeps the
lock until the last file is gone.
"""

from __future__ import annotations

import sqlite3
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from streams.embedded import groups
from streams.embedded.index import OFFSET_BITS, OFFSET_MASK, Index, msg_id, settle, translated
from streams.embedded.locks import boottime_s, flock_is_free

ROWS_A_TRANSACTION = 2000
FILES_A_HOLD = 2
BUDGET_S = 0.25
TOMBSTONES_S = 24 * 3600
"""A reader of a compacted topic that lags by less than this sees every deletion."""


class Upkeep:
    """The work behind ``Log.maintain``.

    Args:
        group_ttl_s: a group without sign of life for longer holds up no retention.
    """

    def __init__(self, directory: Path, index: Index, *, group_ttl_s: float) -> None:
        self._segments = directory / "seg"
        self._members = directory / "members"
        self._index = index
        self._group_ttl_s = group_ttl_s

    def run(self) -> None:
        """Do what is due, for about a quarter of a second at most."""
        deadline = time.monotonic() + BUDGET_S
        self._drop_dead_members()
        for piece in (self._purge_dropped, self._expire, self._compact, self._remove_files):
            while piece() and time.monotonic() < deadline:
                pass

    def _drop_dead_members(self) -> None:
        with self._index.read() as db:
            names = [name for (name,) in db.execute("SELECT DISTINCT grp FROM member").fetchall()]
        for name in names:
            with self._index.read() as db:
                rows = db.execute("SELECT id, beat, timeout_s FROM member WHERE grp = ?", (name,)).fetchall()
            now = boottime_s()
            if any(now - beat > timeout or flock_is_free(self._members / member) for member, beat, timeout in rows):
                with self._index.write() as db:
                    groups.drop_dead(db, name, self._members)
                    groups.rebalance(db, name)

    def _purge_dropped(self) -> bool:
        """Messages of deleted topics."""
        with self._index.read() as db:
            part = db.execute("SELECT part FROM dropped").fetchone()
        if part is None:
            return False
        with self._index.write() as db:
            ids = _oldest(db, part[0], ROWS_A_TRANSACTION)
            if ids:
                _delete(db, ids)
            else:
                db.execute("DELETE FROM dropped WHERE part = ?", part)
        return True

    def _expire(self) -> bool:
        """The oldest messages of partitions above their size that every live group has read."""
        with self._index.read() as db:
            parts = db.execute(
                "SELECT part.id, topic.name, part.total, topic.retention_bytes FROM part "
                "JOIN topic ON topic.id = part.topic WHERE topic.retention_bytes IS NOT NULL AND NOT topic.compacted"
            ).fetchall()
            large = [part for part in parts if _stored(db, part[0], part[2]) > part[3]]
        return any([self._expire_one(*part) for part in large])

    def _expire_one(self, part: int, topic: str, total: int, keep_bytes: int) -> bool:
        with self._index.write() as db:
            limit = self._needed(db, part, topic)
            rows = db.execute(
                "SELECT id, cum FROM msg WHERE id >= ? AND id <= ? ORDER BY id LIMIT ?",
                (msg_id(part, 0), msg_id(part, OFFSET_MASK), ROWS_A_TRANSACTION + 1),
            ).fetchall()
            # After the last one a row remains, so that ``cum`` of the first row says what is stored.
            ids = [
                row
                for (row, _), (_, after) in pairwise(rows)
                if (row & OFFSET_MASK) < limit and total - after >= keep_bytes
            ]
            _delete(db, ids)
        return len(ids) == ROWS_A_TRANSACTION

    def _needed(self, db: sqlite3.Connection, part: int, topic: str) -> int:
        """The lowest offset that a live group still needs; of a group that reads the topic but has no offset here: 0."""
        wall, boot = time.time(), boottime_s()
        members = db.execute(
            "SELECT DISTINCT member.grp FROM member, json_each(member.topics) AS t WHERE t.value = ?", (topic,)
        ).fetchall()
        readers = db.execute(
            "SELECT DISTINCT grp.name, grp.seen_wall, grp.seen_boot FROM offs JOIN grp ON grp.name = offs.grp "
            "JOIN part ON part.id = offs.part JOIN topic ON topic.id = part.topic WHERE topic.name = ?",
            (topic,),
        ).fetchall()
        live = {name for (name,) in members}
        live |= {name for name, *seen in readers if not self._expired(wall, boot, *seen)}
        needed = OFFSET_MASK
        for name in live:
            row = db.execute("SELECT off FROM offs WHERE grp = ? AND part = ?", (name, part)).fetchone()
            needed = min(needed, row[0] if row else 0)
        return needed

    def _expired(self, wall: float, boot: float, seen_wall: float, seen_boot: float) -> bool:
        # Both clocks must say so, unless the machine was started since: a jump of the wall clock expires nothing.
        old_by_boot = boot < seen_boot or boot - seen_boot > self._group_ttl_s
        return wall - seen_wall > self._group_ttl_s and old_by_boot

    def _compact(self) -> bool:
        """Older messages of a key, and deletions that are old enough."""
        with self._index.read() as db:
            parts = db.execute(
                "SELECT part.id, part.clean, part.next FROM part JOIN topic ON topic.id = part.topic "
                "WHERE topic.compacted AND part.clean < part.next"
            ).fetchall()
        busy = any([self._compact_one(*part) for part in parts])
        return self._bury() or busy

    def _compact_one(self, part: int, clean: int, end: int) -> bool:
        old: set[int] = set()
        upto = end
        with self._index.write() as db:
            fresh = db.execute(
                "SELECT id, key FROM msg WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
                (msg_id(part, clean), msg_id(part, end), ROWS_A_TRANSACTION),
            ).fetchall()
            if len(fresh) == ROWS_A_TRANSACTION:
                upto = (fresh[-1][0] & OFFSET_MASK) + 1
            for row, key in fresh:
                if len(old) >= ROWS_A_TRANSACTION:
                    upto = row & OFFSET_MASK
                    break
                found = db.execute("SELECT id FROM msg WHERE compact = ? AND key = ? AND id < ?", (part, key, row))
                older = [one for (one,) in found.fetchmany(ROWS_A_TRANSACTION)]
                found.close()
                old.update(older)
                if len(older) == ROWS_A_TRANSACTION:
                    upto = row & OFFSET_MASK  # perhaps more of this key: begin with it again
                    break
            _delete(db, sorted(old))
            db.execute("UPDATE part SET clean = ? WHERE id = ?", (upto, part))
        return upto < end

    def _bury(self) -> bool:
        """Deletions of keys (tombstones) that everybody has had time to see and that hide nothing any more."""
        before = int(time.time() - TOMBSTONES_S)
        query = (
            "SELECT msg.id FROM msg JOIN part ON part.id = msg.compact "
            "WHERE died < ? AND (msg.id & ?) < part.clean LIMIT ?"
        )
        with self._index.read() as db:
            ids = db.execute(query, (before, OFFSET_MASK, ROWS_A_TRANSACTION)).fetchall()
        if not ids:
            return False
        with self._index.write() as db:
            _delete(db, [row for (row,) in ids])
        return len(ids) == ROWS_A_TRANSACTION

    def _remove_files(self) -> bool:
        """Segments that nothing points into and whose owner is gone; files that no row knows."""
        with self._index.read() as db:
            if not self._unused(db):
                return False
        # That was only a hint, which may be wrong. Now write, commit, and keep the lock until the last file is gone.
        with self._index.lock:
            with self._index.write() as db:
                settle(db)
                rows, orphans = self._unused(db)
                db.executemany("DELETE FROM seg WHERE id = ?", [(row,) for row, _ in rows[:FILES_A_HOLD]])
            paths = [path for _, path in rows[:FILES_A_HOLD]] + orphans[:FILES_A_HOLD]
            with translated(str(self._segments)):
                for path in paths:
                    path.unlink(missing_ok=True)
        return bool(paths)

    def _unused(self, db: sqlite3.Connection) -> _Unused:
        rows = db.execute("SELECT id, name, live FROM seg ORDER BY id").fetchall()
        free = [(row, self._segments / name) for row, name, live in rows if live == 0]
        members = {name for (name,) in db.execute("SELECT id FROM member").fetchall()}
        orphans = _orphans(self._segments, {name for _, name, _ in rows}) + _orphans(self._members, members)
        return _Unused([(row, path) for row, path in free if flock_is_free(path)], orphans)


class _Unused(NamedTuple):
    """Segments (row and file) and files without a row."""

    segments: list[tuple[int, Path]]
    orphans: list[Path]

    def __bool__(self) -> bool:
        return bool(self.segments or self.orphans)


def _orphans(folder: Path, known: set[str]) -> list[Path]:
    return [path for path in folder.iterdir() if path.name not in known and flock_is_free(path)]


def _stored(db: sqlite3.Connection, part: int, total: int) -> int:
    row = db.execute("SELECT cum FROM msg WHERE id >= ? ORDER BY id LIMIT 1", (msg_id(part, 0),)).fetchone()
    return total - row[0] if row else 0


def _oldest(db: sqlite3.Connection, part: int, limit: int) -> list[int]:
    rows = db.execute(
        "SELECT id FROM msg WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
        (part << OFFSET_BITS, (part + 1) << OFFSET_BITS, limit),
    ).fetchall()
    return [row for (row,) in rows]


def _delete(db: sqlite3.Connection, ids: list[int]) -> None:
    """Remove messages and count down their segments."""
    counts: dict[int, int] = {}
    for row in ids:
        for (segment,) in db.execute("DELETE FROM msg WHERE id = ? RETURNING seg", (row,)).fetchall():
            if segment is not None:
                counts[segment] = counts.get(segment, 0) + 1
    db.executemany("UPDATE seg SET live = live - ? WHERE id = ?", [(n, segment) for segment, n in counts.items()])
