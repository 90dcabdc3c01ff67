"""Read as a member of a group, and commit what was read together with what was written: the loop of every stage.

Everything a stage holds follows from the log and the group's committed positions. So whatever goes wrong in a turn, the next
one aborts, drops all state, and begins at the committed positions again; nothing is decided from memory.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from streams.contracts import Clock, Consumer, Log, Position, Producer, Record, TopicPartition
from streams.errors import Busy, Fenced, Rebalanced, UnknownOutcome

ATTEND_S = 1.0
"""So often the group's work is done while a stage writes and does not read."""


class Holder(Protocol):
    """Who keeps the state of the partitions."""

    def place(self, consumer: Consumer, committed: Mapping[TopicPartition, Position | None]) -> None:
        """These partitions are new, or begun again: make their state from the group's positions, and ``seek``."""

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These are gone, perhaps never placed: nothing can be committed for them."""

    def forget(self) -> None:
        """Drop the state of all partitions, and what waits to be written."""


class ExactlyOnce:
    """One member of a group with a transactional producer of its own. Belongs to one thread at a time.

    Args:
        topics: read; they exist before the first ``turn``.
    """

    def __init__(self, log: Log, group: str, topics: Sequence[str], holder: Holder, *, clock: Clock) -> None:
        self._log, self._group, self._topics, self._holder, self._clock = log, group, list(topics), holder, clock
        self._transactional_id = f"{group}.{secrets.token_hex(8)}"
        self._consumer: Consumer | None = None
        self._producer: Producer | None = None
        self._placed: set[TopicPartition] = set()
        self._unplaced: set[TopicPartition] = set()
        self._in_doubt = False
        self._attended_s = 0.0

    @property
    def begun(self) -> bool:
        """Whether it has joined the group."""
        return self._consumer is not None

    @property
    def settled(self) -> tuple[Consumer, Producer] | None:
        """The consumer and the producer, if the last turn ended well."""
        return (self._consumer, self._producer) if self._consumer and self._producer and not self._in_doubt else None

    def turn(self, work: Callable[[Consumer, Producer], bool]) -> bool:
        """Do ``work``, at most one transaction; what it gives, or ``True`` if it has to be done again.

        A transactional id is ours alone. So a fence means that the log gave up a transaction of ours that took too long: a new
        producer goes on, as after an outcome that nobody knows. Other errors are the caller's; the next turn begins again.
        """
        consumer, producer = self._open()
        try:
            if self._in_doubt:
                producer.abort()
                self._placed.clear()
                self._holder.forget()
                self._unplaced = set(consumer.assignment())
            self._in_doubt = True
            worked = work(consumer, producer)
            self._in_doubt = False
            return worked
        except (Rebalanced, Busy):
            return True
        except (Fenced, UnknownOutcome):
            producer.close()
            self._producer = None
            return True

    def read(self, max_bytes: int) -> tuple[list[Record], bool]:
        """Records of partitions that are placed, without waiting; and whether partitions were placed. Within a ``turn``."""
        assert self._consumer is not None
        records = self._poll(self._consumer, max_bytes)
        fresh = frozenset(self._unplaced)
        if fresh:
            self._holder.place(self._consumer, self._consumer.committed(sorted(fresh)))
            self._placed |= fresh
            self._unplaced.clear()
        return [record for record in records if record.tp in self._placed and record.tp not in fresh], bool(fresh)

    def attend(self) -> None:
        """The group's work without reading, for a turn that has enough to write. Within a ``turn``."""
        assert self._consumer is not None
        if self._clock.monotonic_s() < self._attended_s + ATTEND_S:
            return
        held = self._consumer.assignment()
        self._consumer.pause(held)
        try:
            self._poll(self._consumer, 1)  # only partitions that are new give records; they are sought when placed
        finally:
            self._consumer.resume(held & self._consumer.assignment())

    def close(self) -> None:
        """Leave the group. May be called twice."""
        if self._consumer:
            self._consumer.close()
        if self._producer:
            self._producer.close()
        self._consumer = self._producer = None
        self._placed.clear()

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Called by the consumer."""
        gone = list(partitions)
        self._placed.difference_update(gone)
        self._unplaced.difference_update(gone)
        self._holder.drop(gone)

    def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Called by the consumer."""
        self._unplaced.update(partitions)

    def _open(self) -> tuple[Consumer, Producer]:
        if self._producer is None:
            self._producer = self._log.producer(self._transactional_id)
        if self._consumer is None:
            self._consumer = self._log.consumer(self._group)
            self._consumer.subscribe(self._topics, self)
        return self._consumer, self._producer

    def _poll(self, consumer: Consumer, max_bytes: int) -> list[Record]:
        self._attended_s = self._clock.monotonic_s()
        return consumer.poll(max_bytes, 0.0)
