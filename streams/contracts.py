"""The log between the stages: one contract, several implementations, one conformance suite (``tests/contracts``).

A *topic* has partitions; a partition is an ordered sequence of records with rising offsets. **Offsets may have gaps**
(Kafka's transaction markers, compaction): never compute ``offset + 1`` to find the next record, never count records
by subtracting offsets. Only committed records are ever seen (read-committed).

A *transaction* carries records for any topics and the offsets of a consumer group with their metadata; all of it
becomes visible at once or not at all.

A *group* divides the partitions of its topics over its live members. Partition ``p`` of all subscribed topics goes to
the same member, so co-partitioned topics can be joined.

Thread safety: a ``Log`` may be used from several threads; a ``Producer`` or ``Consumer`` belongs to one thread at a
time. Nothing here survives a fork: start processes by spawn, or open the log only after the fork.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

Headers = tuple[tuple[str, bytes], ...]

MAX_METADATA_BYTES = 4096
"""Cap of a ``Position``'s metadata (Kafka's ``offset.metadata.max.bytes``)."""


class TopicPartition(NamedTuple):
    """A partition of a topic. Sorts by (topic, partition)."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """What a topic shall be.

    Args:
        name: letters, digits, ``.``, ``_``, ``-``; at most 200 characters.
        partitions: ≥ 1, fixed for the life of the topic.
        compacted: keep at least the newest record of each key; a record with ``value=None`` deletes its key.
        retention_bytes: a partition above it may lose its oldest records, but never what a live group has not
            read. ``None``: keep all.
        max_message_bytes: cap on the value of one record.
    """

    name: str
    partitions: int
    compacted: bool = False
    retention_bytes: int | None = None
    max_message_bytes: int = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic that exists. ``id`` differs when a topic is deleted and made again under the same name."""

    spec: TopicSpec
    id: str


@dataclass(frozen=True, slots=True)
class Record:
    """One committed record.

    ``value`` is a read-only view which stays valid as long as it is referenced, also after retention removed the
    record (zero copy where the implementation can); ``None`` is a tombstone of a compacted topic.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: memoryview | None
    headers: Headers

    @property
    def tp(self) -> TopicPartition:
        """The partition this record lies in."""
        return TopicPartition(self.topic, self.partition)

    def header(self, name: str) -> bytes | None:
        """The first header of that name."""
        return next((value for key, value in self.headers if key == name), None)


@dataclass(frozen=True, slots=True)
class Position:
    """A committed offset: the next record to read, and free text of at most ``MAX_METADATA_BYTES``."""

    offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class GroupInfo:
    """A consumer group as others see it (display and back-pressure only)."""

    name: str
    members: int
    positions: Mapping[TopicPartition, Position]


@runtime_checkable
class Membership(Protocol):
    """Proof of membership at one moment. Opaque: take it fresh for every transaction (``Consumer.membership``)."""

    @property
    def group(self) -> str:
        """Name of the group."""
        ...


class Producer(Protocol):
    """A transactional producer. At most one transaction at a time.

    Making one (``Log.producer``) fences every older producer of the same transactional id and settles its last
    transaction; only afterwards read committed offsets.
    """

    def begin(self) -> None:
        """Start a transaction."""

    def send(
        self,
        topic: str,
        partition: int,
        value: bytes | memoryview | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> None:
        """Add a record. May block (bytes in flight are limited) and may write, but nothing becomes visible.

        The value's bytes are taken during the call. Raises ``Exhausted`` above the topic's ``max_message_bytes``
        or when the disk is full (the transaction can then only be aborted), ``Usage`` for an unknown topic.
        """

    def send_offsets(self, membership: Membership, positions: Mapping[TopicPartition, Position]) -> None:
        """Add offsets of the group. They are checked at commit: each partition of a topic that the group is
        subscribed to must belong to the member, continuously since it was assigned. Offsets of other topics are
        stored unchecked."""

    def commit(self) -> None:
        """Make it visible; when this returns the transaction is durable as the log's setting promises.

        Raises ``Fenced`` (stop), ``Rebalanced`` (aborted; go on with this producer), ``UnknownOutcome`` (throw this
        producer away).
        """

    def abort(self) -> None:
        """Forget the transaction. Without one: nothing happens."""

    def close(self) -> None:
        """Abort and release. May be called twice."""


class AssignmentListener(Protocol):
    """Called from within ``Consumer.poll``."""

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """These are gone (perhaps long since): drop their state; nothing can be committed for them."""

    def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """These are new. Read ``Consumer.committed`` and ``seek``; without a seek reading starts at the committed
        offset, or at the beginning where there is none."""


class Consumer(Protocol):
    """Reads committed records, as a member of a group (``subscribe``) or by itself (``assign``)."""

    def subscribe(self, topics: Sequence[str], listener: AssignmentListener) -> None:
        """Join the group with these topics (which exist). Partitions arrive in a later ``poll``."""

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these partitions, without being a member. Starts at the beginning unless ``seek`` follows."""

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this consumer reads now, as of the last ``poll``."""

    def poll(self, max_bytes: int, timeout_s: float) -> list[Record]:
        """Records in order within each partition: at least one if there is one, then up to ``max_bytes`` of values,
        fairly over the partitions that are not paused. Blocks up to ``timeout_s`` when there is none.

        Also does the group's work: heartbeats (they go on in a thread between polls), callbacks of the listener. Members
        that stop polling for the poll timeout, or whose process stands still for the session timeout, lose their
        partitions.
        """

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """The next poll reads from the first record at or after ``offset``. Before the first stored record: from the
        first stored one."""

    def position(self, tp: TopicPartition) -> int:
        """The offset after the last record that ``poll`` returned, moved past markers when nothing lies behind
        them. **At the end of the partition exactly when it is ≥ ``Log.end_offsets``.**"""

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Polls leave these out until ``resume``."""

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo ``pause``."""

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The group's committed positions, *stable*: waits for (or settles) open transactions that carry some.
        Raises ``Busy`` if that takes too long."""

    def membership(self) -> Membership:
        """Proof for ``Producer.send_offsets``; of the moment of the last poll."""

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Commit outside a transaction, for a consumer with a group's name that uses ``assign`` while the group has no
        members. Counts as a sign of life of the group."""

    def close(self) -> None:
        """Leave the group and release. May be called twice."""


class Log(Protocol):
    """The log. ``id`` is made once, with the log, and never changes."""

    @property
    def id(self) -> str:
        """Never changes; another log has another."""
        ...

    def create_topic(self, spec: TopicSpec) -> TopicInfo:
        """Create it, or return the one that exists. Raises ``SchemaMismatch`` with both numbers if the existing one has
        other partitions or another compaction."""

    def topic(self, name: str) -> TopicInfo | None:
        """Describe, or ``None``."""

    def topics(self) -> list[TopicInfo]:
        """All, by name."""

    def delete_topic(self, name: str) -> None:
        """Delete it with its records and the committed offsets that point into it."""

    def producer(self, transactional_id: str) -> Producer:
        """Make a producer and fence the older ones of this id. Blocks until their last transaction is settled."""

    def consumer(self, group: str | None = None) -> Consumer:
        """Make a consumer. ``group=None``: it can only ``assign``, and has no committed offsets."""

    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first stored record, or the end offset."""

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One past the last offset given to a record, committed or in an open transaction (never the last stable
        offset: see ``join-protocol`` on *idle*)."""

    def bytes_after(self, tp: TopicPartition, offset: int) -> int:
        """Bytes of values stored at or after ``offset`` (an estimate is allowed)."""

    def group(self, name: str) -> GroupInfo:
        """The group as seen now, without waiting for open transactions: for display and back-pressure only."""

    def groups(self) -> list[str]:
        """Names of all groups with members or offsets."""

    def delete_group(self, name: str) -> None:
        """Delete its offsets; members are thrown out."""

    def wait(self, timeout_s: float) -> bool:
        """Block until anything was committed since this handle's last ``wait`` began to look, or the time is over.
        Cheap: no spinning."""

    def sync(self) -> None:
        """All that is committed now survives a loss of power when this returns."""

    def maintain(self) -> None:
        """Retention, compaction, removal of unreferenced files; bounded work, call about once a second."""

    def size_bytes(self) -> int:
        """Bytes on disk."""

    def close(self) -> None:
        """Release all. May be called twice."""


class Worker(Protocol):
    """A piece of a role: does bounded work when called. Roles (``headrace``) loop over their workers."""

    def step(self) -> bool:
        """Do some work (at most about a second); ``False`` if there was nothing to do. Never blocks for input."""

    def report(self) -> dict[str, object]:
        """Counters and states for ``status`` and progress lines; JSON types only."""

    def close(self) -> None:
        """Release; work that is not committed is dropped. May be called twice."""


class Clock(Protocol):
    """Time that tests can set."""

    def wall_us(self) -> int:
        """Microseconds since 1970 UTC."""

    def monotonic_s(self) -> float:
        """Seconds of a clock that never goes back."""
