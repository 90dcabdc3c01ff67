"""Consumer groups: who is a member, who reads which partition, and the fence that follows from it.

All functions take the connection of a running write transaction. The assignment is cooperative and without a barrier:
members keep what they have; a loser's running transaction fails at its commit, because the partition's *epoch* is
another one by then.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from streams.contracts import Position, TopicPartition
from streams.embedded.index import next_tick
from streams.embedded.locks import boottime_s, flock_is_free
from streams.errors import Rebalanced

SEEN_EVERY_S = 60.0
NOTHING = -1
"""In place of an offset: the group reads this partition and has not committed yet."""


@dataclass(frozen=True, slots=True)
class Membership:
    """What a member owned at one moment: part → epoch it got it with. ``member=None``: a reader that is no member."""

    group: str
    member: str | None
    topics: frozenset[str]
    epochs: Mapping[int, int]


def divide(units: Sequence[int], members: Sequence[str], held: Mapping[int, str]) -> dict[int, str]:
    """Give each unit to a member, ⌊n/m⌋ or ⌈n/m⌉ each, moving as few as possible. The same result for the same input.

    Args:
        units: what is divided (partition numbers).
        members: at least one.
        held: who has which unit now; others than ``members`` have left.
    """
    kept: dict[str, list[int]] = {member: [] for member in sorted(members)}
    for unit in sorted(units):
        if held.get(unit) in kept:
            kept[held[unit]].append(unit)
    floor, more = divmod(len(units), len(kept))
    # Those who hold most get the larger quota, so that less moves.
    by_load = sorted(kept, key=lambda member: (-len(kept[member]), member))
    quota = {member: floor + (rank < more) for rank, member in enumerate(by_load)}
    result = {unit: member for member in kept for unit in kept[member][: quota[member]]}
    room = {member: quota[member] - min(quota[member], len(kept[member])) for member in kept}
    for unit in sorted(set(units) - set(result)):
        member = max(room, key=lambda name: (room[name], -by_load.index(name)))
        result[unit] = member
        room[member] -= 1
    return result


def touch(db: sqlite3.Connection, group: str) -> None:
    """A sign of life; makes the group if there is none. Both clocks, so that a jump of the wall clock kills no group."""
    db.execute(
        "INSERT INTO grp (name, seen_wall, seen_boot) VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE SET "
        "seen_wall = ?2, seen_boot = ?3 WHERE abs(?2 - seen_wall) > ?4",
        (group, time.time(), boottime_s(), SEEN_EVERY_S),
    )


def join(db: sqlite3.Connection, group: str, member: str, topics: Sequence[str], timeout_s: float) -> None:
    """Add a member. Call ``rebalance`` afterwards."""
    # Not only while it lives: if it dies before its first commit, nothing may be gone when it comes again.
    announce(db, group, [part for parts in _parts_by_number(db, topics).values() for part in parts])
    values = (member, group, boottime_s(), timeout_s, json.dumps(sorted(topics)))
    db.execute("INSERT INTO member (id, grp, beat, timeout_s, topics) VALUES (?, ?, ?, ?, ?)", values)


def drop_dead(db: sqlite3.Connection, group: str, folder: Path) -> bool:
    """Remove members that died (flock free) or stand still (heartbeat too old); whether there were any."""
    now = boottime_s()
    rows = db.execute("SELECT id, beat, timeout_s FROM member WHERE grp = ?", (group,)).fetchall()
    dead = [name for name, beat, timeout in rows if now - beat > timeout or flock_is_free(folder / name)]
    db.executemany("DELETE FROM member WHERE id = ?", [(name,) for name in dead])
    return bool(dead)


def rebalance(db: sqlite3.Connection, group: str) -> bool:
    """Divide the partitions over the members that are there; whether anything moved.

    Partition ``p`` of all topics goes to one member. Topics that different members subscribed to are divided apart.
    """
    members = {
        name: frozenset(json.loads(topics))
        for name, topics in db.execute("SELECT id, topics FROM member WHERE grp = ?", (group,)).fetchall()
    }
    held = {
        part: (member, epoch)
        for part, member, epoch in db.execute(
            "SELECT part, member, epoch FROM assign WHERE grp = ?", (group,)
        ).fetchall()
    }
    wanted = _wanted(db, members, {part: member for part, (member, _) in held.items()})
    if wanted == {part: member for part, (member, _) in held.items()}:
        return False
    generation = db.execute("UPDATE grp SET gen = gen + 1 WHERE name = ? RETURNING gen", (group,)).fetchall()[0][0]
    gone = [(group, part) for part in held if part not in wanted]
    db.executemany("DELETE FROM assign WHERE grp = ? AND part = ?", gone)
    moved = [
        (group, part, member, generation)
        for part, member in wanted.items()
        if part not in held or held[part][0] != member
    ]
    db.executemany("INSERT OR REPLACE INTO assign (grp, part, member, epoch) VALUES (?, ?, ?, ?)", moved)
    next_tick(db)
    return True


def _wanted(db: sqlite3.Connection, members: Mapping[str, frozenset[str]], held: Mapping[int, str]) -> dict[int, str]:
    subscribers: dict[str, set[str]] = defaultdict(set)
    for member, topics in members.items():
        for topic in topics:
            subscribers[topic].add(member)
    classes: dict[frozenset[str], list[str]] = defaultdict(list)
    for topic, names in sorted(subscribers.items()):
        classes[frozenset(names)].append(topic)
    wanted: dict[int, str] = {}
    for subscribed, topics_of_class in classes.items():
        parts = _parts_by_number(db, topics_of_class)
        holders = {p: _holder(ids, held) for p, ids in parts.items()}
        owners = divide(list(parts), list(subscribed), {p: m for p, m in holders.items() if m is not None})
        wanted.update({part: owners[p] for p, ids in parts.items() for part in ids})
    return wanted


def _holder(ids: Sequence[int], held: Mapping[int, str]) -> str | None:
    return next((held[part] for part in ids if part in held), None)


def _parts_by_number(db: sqlite3.Connection, topics: Sequence[str]) -> dict[int, list[int]]:
    parts: dict[int, list[int]] = defaultdict(list)
    for topic in topics:
        rows = db.execute(
            "SELECT part.p, part.id FROM part JOIN topic ON topic.id = part.topic WHERE topic.name = ?", (topic,)
        ).fetchall()
        for p, part in rows:
            parts[p].append(part)
    return parts


def rebalance_readers(db: sqlite3.Connection, topic: str) -> None:
    """Divide anew what belongs to groups whose members subscribed to this topic."""
    names = db.execute(
        "SELECT DISTINCT member.grp FROM member, json_each(member.topics) AS t WHERE t.value = ?", (topic,)
    ).fetchall()
    for (name,) in names:
        rebalance(db, name)


def leave(db: sqlite3.Connection, group: str, member: str) -> None:
    """Remove a member and give its partitions to the others."""
    db.execute("DELETE FROM member WHERE id = ?", (member,))
    rebalance(db, group)


def delete(db: sqlite3.Connection, group: str) -> None:
    """Remove everything of the group."""
    db.execute("DELETE FROM member WHERE grp = ?", (group,))
    for table in ("assign", "offs"):
        db.execute(f"DELETE FROM {table} WHERE grp = ?", (group,))
    db.execute("DELETE FROM grp WHERE name = ?", (group,))
    next_tick(db)


def check_fence(
    db: sqlite3.Connection, membership: Membership, parts: Mapping[TopicPartition, int], where: str
) -> None:
    """Raise ``Rebalanced`` unless every partition of the group's topics is the member's, with the epoch it knows."""
    if membership.member is None:
        _check_no_members(db, membership.group, where)
        return
    for tp, part in parts.items():
        if tp.topic not in membership.topics:
            continue
        row = db.execute(
            "SELECT member, epoch FROM assign WHERE grp = ? AND part = ?", (membership.group, part)
        ).fetchone()
        if row is None or row[0] != membership.member or row[1] != membership.epochs.get(part):
            raise Rebalanced(
                expected=f"{tp.topic}/{tp.partition} to belong to this member of {membership.group}",
                got="another owner" if row else "no owner",
                where=where,
                do="Drop the work of the lost partitions and go on polling.",
            )


def _check_no_members(db: sqlite3.Connection, group: str, where: str) -> None:
    count = db.execute("SELECT count(*) FROM member WHERE grp = ?", (group,)).fetchone()[0]
    if count:
        raise Rebalanced(
            expected=f"group {group} without members",
            got=f"{count} members",
            where=where,
            do="Stop the other readers of this group, or subscribe.",
        )


def announce(db: sqlite3.Connection, group: str, parts: Iterable[int]) -> None:
    """A group begins to read: until it commits, retention keeps everything from the beginning."""
    touch(db, group)
    db.executemany(
        "INSERT OR IGNORE INTO offs (grp, part, off, meta) VALUES (?, ?, ?, '')", [(group, p, NOTHING) for p in parts]
    )


def stored_position(db: sqlite3.Connection, group: str, part: int) -> Position | None:
    """What the group committed."""
    row = db.execute("SELECT off, meta FROM offs WHERE grp = ? AND part = ?", (group, part)).fetchone()
    return None if row is None or row[0] == NOTHING else Position(*row)


def store_offsets(db: sqlite3.Connection, group: str, positions: Collection[tuple[int, Position]]) -> None:
    """Write committed positions; a sign of life of the group."""
    touch(db, group)
    db.executemany(
        "INSERT OR REPLACE INTO offs (grp, part, off, meta) VALUES (?, ?, ?, ?)",
        [(group, part, position.offset, position.metadata) for part, position in positions],
    )
