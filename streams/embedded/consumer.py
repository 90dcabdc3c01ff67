"""The consumer: reads by itself (``assign``) or as a member of a group (``subscribe``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from streams.checks import check_position, unknown_topic
from streams.contracts import AssignmentListener, Position, Record, TopicPartition
from streams.embedded import groups
from streams.embedded.catalog import part_of
from streams.embedded.groups import Membership
from streams.embedded.index import next_tick, settle
from streams.embedded.locks import boottime_s
from streams.embedded.members import Member
from streams.embedded.reading import Fetcher, Wanted
from streams.errors import Closed, Usage

if TYPE_CHECKING:
    from streams.embedded.log import EmbeddedLog


class _Owned(NamedTuple):
    part: int
    epoch: int


class _Subscription:
    """Membership of one consumer, and what it owns as of its last poll."""

    def __init__(self, log: EmbeddedLog, group: str, topics: Sequence[str], listener: AssignmentListener) -> None:
        self._log = log
        self.group = group
        self.topics = tuple(topics)
        self.listener = listener
        self.owned: dict[TopicPartition, _Owned] = {}
        self._generation = -1
        self._member: Member = log.members.join(group, self.topics)

    def membership(self) -> Membership:
        epochs = {owned.part: owned.epoch for owned in self.owned.values()}
        return Membership(self.group, self._member.id, frozenset(self.topics), epochs)

    def look(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """(lost, new) since the last look; joins again if the group has thrown this member out."""
        self._member.polled_s = boottime_s()
        with self._log.index.read() as db:
            row = db.execute(
                "SELECT gen FROM grp JOIN member ON member.grp = grp.name WHERE member.id = ?", (self._member.id,)
            ).fetchone()
            if row is not None and row[0] == self._generation:
                return [], []
            found = db.execute(
                "SELECT topic.name, part.p, part.id, assign.epoch FROM assign JOIN part ON part.id = assign.part "
                "JOIN topic ON topic.id = part.topic WHERE assign.grp = ? AND assign.member = ?",
                (self.group, self._member.id),
            ).fetchall()
        if row is None:
            return self._rejoin()
        self._generation = row[0]
        owned = {TopicPartition(topic, p): _Owned(part, epoch) for topic, p, part, epoch in found}
        lost = sorted(tp for tp, had in self.owned.items() if owned.get(tp) != had)
        new = sorted(tp for tp, has in owned.items() if self.owned.get(tp) != has)
        self.owned = owned
        return lost, new

    def _rejoin(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        lost = sorted(self.owned)
        self.owned = {}
        self._log.members.forget(self._member)
        self._member = self._log.members.join(self.group, self.topics)
        self._generation = -1
        return lost, []

    def close(self) -> None:
        self._log.members.leave(self._member)


class EmbeddedConsumer:
    """See ``streams.contracts.Consumer``; made by ``EmbeddedLog.consumer``."""

    def __init__(self, log: EmbeddedLog, group: str | None) -> None:
        self._log = log
        self._group = group
        self._fetcher = Fetcher(log.index, log.segments)
        self._subscription: _Subscription | None = None
        self._parts: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._closed = False

    def subscribe(self, topics: Sequence[str], listener: AssignmentListener) -> None:
        """Join the group."""
        self._check_usable()
        if self._subscription is not None or self._parts:
            raise self._usage("a fresh consumer", "one that is in use", "Make another consumer.")
        if self._group is None:
            raise self._usage("a group", "none", "Name a group when making the consumer.")
        for topic in topics:
            if self._log.topic(topic) is None:
                raise unknown_topic(topic)
        self._subscription = _Subscription(self._log, self._group, topics, listener)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions from their beginning."""
        self._check_usable()
        if self._subscription is not None:
            raise self._usage("a consumer that is no member", "one that subscribed", "Make another consumer.")
        self._parts = self._log.catalog.parts(partitions)
        self._positions = dict.fromkeys(self._parts, 0)
        self._paused &= set(self._parts)
        if self._group is not None:
            with self._log.index.write() as db:
                groups.announce(db, self._group, self._parts.values())

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions read now."""
        return frozenset(self._parts)

    def poll(self, max_bytes: int, timeout_s: float) -> list[Record]:
        """Records, or an empty list after the time."""
        self._check_usable()
        deadline = boottime_s() + timeout_s
        while True:
            ticket = self._log.bell.ticket()
            version = self._log.index.version()
            self._follow_group()
            records = self._look(max_bytes)
            if records or boottime_s() >= deadline:
                return records
            while self._log.index.version() == version and boottime_s() < deadline:
                self._log.bell.wait(ticket, deadline - boottime_s())
                ticket = self._log.bell.ticket()
                self._check_usable()

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Read on from ``offset``."""
        self._check_usable()
        self._check_assigned(tp)
        if offset < 0:
            raise self._usage("an offset ≥ 0", str(offset), "Seek to 0 for the beginning.")
        self._positions[tp] = offset

    def position(self, tp: TopicPartition) -> int:
        """Where the next poll reads from."""
        self._check_assigned(tp)
        return self._positions[tp]

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Leave these out."""
        for tp in partitions:
            self._check_assigned(tp)
            self._paused.add(tp)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo ``pause``."""
        self._paused.difference_update(partitions)

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The group's committed positions."""
        self._check_usable()
        group = self._named_group()
        with self._log.index.write() as db:
            settle(db)
            return {tp: groups.stored_position(db, group, part_of(db, tp)) for tp in partitions}

    def membership(self) -> Membership:
        """Proof of what this consumer owned at its last poll."""
        if self._subscription is not None:
            return self._subscription.membership()
        return Membership(self._named_group(), None, frozenset(), {})

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Commit outside a transaction."""
        self._check_usable()
        for tp, position in positions.items():
            check_position(tp, position)
        membership = self.membership()
        with self._log.index.write() as db:
            parts = {tp: part_of(db, tp) for tp in positions}
            if groups.drop_dead(db, membership.group, self._log.members.folder):
                groups.rebalance(db, membership.group)
            groups.check_fence(db, membership, parts, f"group {membership.group}")
            groups.store_offsets(db, membership.group, [(parts[tp], where) for tp, where in positions.items()])
            next_tick(db)
        self._log.bell.ring()

    def close(self) -> None:
        """Leave and release."""
        if self._closed:
            return
        self._closed = True
        self._parts = {}
        self._log.forget(self)
        if self._subscription is not None:
            self._subscription.close()

    def _follow_group(self) -> None:
        subscription = self._subscription
        if subscription is None:
            return
        lost, new = subscription.look()
        if not lost and not new:
            return
        for tp in lost:
            self._parts.pop(tp, None)
            self._positions.pop(tp, None)
            self._paused.discard(tp)
        if lost:
            subscription.listener.on_revoked(lost)
        if new:
            starts = self.committed(new)
            for tp in new:
                start = starts[tp]
                self._parts[tp] = subscription.owned[tp].part
                self._positions[tp] = start.offset if start else 0
            subscription.listener.on_assigned(new)

    def _look(self, max_bytes: int) -> list[Record]:
        wanted = [Wanted(tp, part, self._positions[tp]) for tp, part in self._parts.items() if tp not in self._paused]
        if not wanted:
            return []
        fetched = self._fetcher.fetch(wanted, max_bytes)
        if fetched.gone and self._subscription is None:
            raise unknown_topic(", ".join(f"{tp.topic}/{tp.partition}" for tp in fetched.gone))
        self._positions.update(fetched.positions)
        return fetched.records

    def _named_group(self) -> str:
        if self._group is None:
            raise self._usage("a group", "none", "Name a group when making the consumer.")
        return self._group

    def _check_assigned(self, tp: TopicPartition) -> None:
        if tp not in self._parts:
            raise self._usage(
                "a partition assigned to this consumer", f"{tp.topic}/{tp.partition}", "See assignment()."
            )

    def _check_usable(self) -> None:
        self._log.check_usable()
        if self._closed:
            raise Closed(
                expected="an open consumer", got="one that was closed", where=self._where, do="Make a new one."
            )

    @property
    def _where(self) -> str:
        return f"consumer of {self._group or 'no group'}"

    def _usage(self, expected: str, got: str, do: str) -> Usage:
        return Usage(expected=expected, got=got, where=self._where, do=do)
