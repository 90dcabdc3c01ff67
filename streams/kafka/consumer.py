"""The consumer on Kafka: what kafka-python fetches is kept by partition, and given out by bytes, in turn."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, errors
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import ConsumerGroupMetadata, OffsetAndMetadata
from kafka.structs import TopicPartition as Outer

from streams.checks import check_position
from streams.contracts import AssignmentListener, Membership, Position, Record, TopicPartition
from streams.errors import Broken, Closed, Usage
from streams.kafka.calls import of_kafka, patiently, translated

if TYPE_CHECKING:
    from streams.kafka.log import KafkaLog

HELD_BYTES = 32 * 1024 * 1024
"""Kept and not given out, of one consumer, beyond which no more is asked for."""

FETCH_BYTES, PARTITION_FETCH_BYTES = 32 * 1024 * 1024, 8 * 1024 * 1024
MOST_RECORDS = 100_000
LOOK_S = 0.005
"""A poll that shall not wait gives what was asked for so long to come."""


@dataclass(frozen=True, slots=True)
class KafkaMembership:
    """See ``streams.contracts.Membership``: the generation of one moment."""

    group: str
    metadata: ConsumerGroupMetadata


class KafkaReader:
    """See ``streams.contracts.Consumer``; made by ``KafkaLog.consumer``."""

    def __init__(self, log: KafkaLog, group: str | None) -> None:
        self._log, self._group = log, group
        config = log.config
        self._where = f"consumer of group {group}" if group else "consumer"
        grouped: dict[str, Any] = {}
        if group is not None:
            session_ms = round(config.session_timeout_s * 1000)
            grouped = {
                "group_id": config.outer(group),
                "session_timeout_ms": session_ms,
                "heartbeat_interval_ms": min(1000, session_ms // 3),
                "max_poll_interval_ms": round(config.poll_timeout_s * 1000),
                "partition_assignment_strategy": (RangePartitionAssignor,),
            }
        with translated(self._where):
            self._kafka = KafkaConsumer(
                **config.common(),
                **grouped,
                enable_auto_commit=False,
                isolation_level="read_committed",
                allow_auto_create_topics=False,
                metrics_enabled=False,
                auto_offset_reset="none",
                fetch_max_bytes=FETCH_BYTES,
                max_partition_fetch_bytes=PARTITION_FETCH_BYTES,
                fetch_max_wait_ms=100,
                max_poll_records=MOST_RECORDS,
            )
        self._held: dict[TopicPartition, deque[Record]] = {}
        self._held_bytes = 0
        self._turn: deque[TopicPartition] = deque()
        self._paused: set[TopicPartition] = set()
        self._sought: set[TopicPartition] = set()
        self._listener: AssignmentListener | None = None
        self._events: deque[tuple[str, list[TopicPartition]]] = deque()
        self._metadata: ConsumerGroupMetadata | None = None
        self._closed = False
        self.thread: int | None = None

    # -- what is read

    def subscribe(self, topics: Sequence[str], listener: AssignmentListener) -> None:
        """Join the group."""
        self._check_usable()
        for topic in topics:
            self._log.existing(topic)
        self._named_group()
        self._listener = listener
        self._know(topics)
        outer = sorted(self._log.config.outer(topic) for topic in topics)
        self._kafka.subscribe(topics=outer, listener=_Listener(self._heard))

    def _know(self, topics: Sequence[str]) -> None:
        """A member that does not know a topic's partitions yet divides none of it, and nobody would notice for minutes."""
        until_s = time.monotonic() + self._log.config.deadline_s
        for topic in topics:
            count = self._log.existing(topic).spec.partitions
            with translated(self._where):
                while len(self._kafka.partitions_for_topic(self._log.config.outer(topic)) or ()) != count:
                    if time.monotonic() > until_s:
                        raise errors.KafkaTimeoutError(f"no metadata of {topic}")
                    time.sleep(0.02)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Read these, from their beginnings."""
        self._check_usable()
        begins = self._log.begin_offsets(partitions)
        self._kafka.assign([self._outer(tp) for tp in partitions])
        self._take_over(partitions)
        for tp, offset in begins.items():
            self.seek(tp, offset)

    def assignment(self) -> frozenset[TopicPartition]:
        """What is read now."""
        return frozenset(self._held)

    def poll(self, max_bytes: int, timeout_s: float) -> list[Record]:
        """Records, or an empty list after the time."""
        self._check_usable()
        self.thread = threading.get_ident()
        deadline_s = time.monotonic() + timeout_s
        while True:
            self._fill(max(LOOK_S, min(deadline_s - time.monotonic(), 0.1)) if not self._ready() else 0.0)
            records = self._give(max_bytes)
            if records or time.monotonic() >= deadline_s:
                return records

    def look(self, timeout_s: float) -> bool:
        """Wait for something to give, as ``Log.wait`` does; whether there is something."""
        if not self._ready():
            self._fill(timeout_s)
        return self._ready()

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Go on at this offset, or at the first one that is stored."""
        self._check_assigned(tp)
        begin = self._log.begin_offsets([tp])[tp] if offset else 0
        with translated(self._where):
            self._kafka.seek(self._outer(tp), max(offset, begin))
        self._drop_held(tp)
        self._sought.add(tp)

    def position(self, tp: TopicPartition) -> int:
        """The offset after the last record that was given, past markers when nothing lies behind them."""
        self._check_assigned(tp)
        if self._held[tp]:
            return self._held[tp][0].offset
        with translated(self._where):
            found = self._kafka.position(self._outer(tp), timeout_ms=self._deadline_ms)
        assert found is not None
        return int(found)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Leave these out."""
        for tp in partitions:
            self._check_assigned(tp)
            self._paused.add(tp)
            self._kafka.pause(self._outer(tp))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Undo ``pause``."""
        for tp in partitions:
            if tp in self._paused:
                self._paused.discard(tp)
                if tp in self._held:
                    self._kafka.resume(self._outer(tp))

    # -- positions of the group

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Position | None]:
        """The group's committed positions; waits for open transactions that carry some."""
        self._check_usable()
        self._named_group()
        found: dict[TopicPartition, Position | None] = {}
        for tp in partitions:
            at = patiently(self._where, self._log.config.deadline_s, partial(self._stored, self._outer(tp)))
            found[tp] = Position(at.offset, at.metadata or "") if at is not None and at.offset >= 0 else None
        return found

    def membership(self) -> Membership:
        """Proof of this moment."""
        self._check_usable()
        group = self._named_group()
        if self._listener is None:
            return KafkaMembership(group, ConsumerGroupMetadata(self._log.config.outer(group)))
        known = self._metadata
        if known is None or known.generation_id < 0:  # without a generation the broker would check nothing
            known = ConsumerGroupMetadata(self._log.config.outer(group), 0, "no-member")
        return KafkaMembership(group, known)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        """Commit outside a transaction."""
        self._check_usable()
        self._named_group()
        outer = {}
        for tp, position in positions.items():
            check_position(tp, position)
            outer[self._outer(tp)] = OffsetAndMetadata(position.offset, position.metadata)
        with translated(self._where):
            self._kafka.commit(outer, timeout_ms=self._deadline_ms)

    def close(self) -> None:
        """Leave the group and release."""
        if not self._closed:
            self._closed = True
            with contextlib.suppress(errors.KafkaError):
                self._kafka.close(autocommit=False, timeout_ms=5000)
            self._held.clear()
            self._log.forget(self)

    # -- rebalances

    def _heard(self, what: str, partitions: Iterable[Outer]) -> None:
        """Called in a thread of kafka-python, which must not wait: it is dealt with when the poll returns."""
        self._events.append((what, [self._inner(outer) for outer in partitions]))

    def _follow_group(self) -> set[TopicPartition]:
        """Deal with what was heard; the partitions that are new.

        The generation is taken first: partitions are revoked before the next one begins, so a generation that is newer than what
        was dealt with is never shown to the broker.
        """
        if self._listener is None:
            return set()
        self._metadata = self._kafka.group_metadata()
        fresh: set[TopicPartition] = set()
        while self._events:
            what, partitions = self._events.popleft()
            if what == "assigned":
                fresh |= set(partitions)
                self._took_over(partitions, self._listener)
            else:
                fresh -= set(partitions)
                self._gave_up(partitions, self._listener)
        return fresh

    def _took_over(self, partitions: list[TopicPartition], listener: AssignmentListener) -> None:
        """New partitions: what the listener does not seek begins at the committed offset, or at the beginning."""
        self._take_over(partitions)
        listener.on_assigned(partitions)
        rest = [tp for tp in partitions if tp not in self._sought]
        if rest:
            begins = self._log.begin_offsets(rest)
            for tp, at in self.committed(rest).items():
                self.seek(tp, at.offset if at else begins[tp])

    def _gave_up(self, partitions: list[TopicPartition], listener: AssignmentListener) -> None:
        gone = [tp for tp in partitions if tp in self._held]
        for tp in gone:
            self._drop_held(tp)
            del self._held[tp]
            self._paused.discard(tp)
            self._sought.discard(tp)
        self._turn = deque(tp for tp in self._turn if tp in self._held)
        if gone:
            listener.on_revoked(gone)

    # -- inside

    def _stored(self, outer: Outer) -> OffsetAndMetadata | None:
        return self._kafka.committed(outer, metadata=True, timeout_ms=self._deadline_ms)

    def _take_over(self, partitions: Iterable[TopicPartition]) -> None:
        if self._listener is None:
            self._held.clear()
            self._turn.clear()
            self._held_bytes = 0
        for tp in partitions:
            if tp not in self._held:
                self._held[tp] = deque()
                self._turn.append(tp)
            self._sought.discard(tp)

    def _fill(self, timeout_s: float) -> None:
        """Ask for more, unless enough is kept; the group's work is done in any case."""
        full = self._held_bytes >= HELD_BYTES
        asked = [self._outer(tp) for tp in self._held if tp not in self._paused] if full else []
        if asked:
            self._kafka.pause(*asked)
        fetched: dict[Outer, list[Any]] = {}
        try:
            fetched = self._kafka.poll(timeout_ms=round(timeout_s * 1000), max_records=MOST_RECORDS)
        except errors.NoOffsetForPartitionError:
            pass  # new partitions, which are sought now
        except errors.OffsetOutOfRangeError as error:
            self._out_of_range(error)
        except errors.KafkaError as error:
            raise of_kafka(error, self._where) from error
        finally:
            for outer in asked:
                if self._inner(outer) in self._held:
                    with contextlib.suppress(errors.IllegalStateError):  # it was revoked meanwhile
                        self._kafka.resume(outer)
        fresh = self._follow_group()
        for outer, records in fetched.items():
            tp = self._inner(outer)
            if tp not in self._held or tp in fresh:
                continue
            for record in records:
                value = None if record.value is None else memoryview(record.value).toreadonly()
                headers = tuple((name, bytes(text or b"")) for name, text in record.headers)
                self._held[tp].append(Record(tp.topic, tp.partition, record.offset, record.key, value, headers))
                self._held_bytes += len(value or b"")

    def _out_of_range(self, error: errors.OffsetOutOfRangeError) -> None:
        """Retention has removed it: go on at the first one stored. Beyond the end: the log lost its tail."""
        places: Mapping[Outer, int] = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
        for outer, offset in places.items():
            tp = self._inner(outer)
            begin = self._log.begin_offsets([tp])[tp]
            if offset < begin:
                self._kafka.seek(outer, begin)
                continue
            raise Broken(
                expected=f"offset {offset}, which was there",
                got=f"an end at {self._log.end_offsets([tp])[tp]}",
                where=f"{tp.topic}/{tp.partition}",
                do="The topic lost its tail (an unclean election, or it was made again). Restore it, or read the files again.",
            )

    def _ready(self) -> bool:
        return any(records and tp not in self._paused for tp, records in self._held.items())

    def _give(self, max_bytes: int) -> list[Record]:
        given: list[Record] = []
        size = 0
        idle = 0
        while self._turn and idle < len(self._turn):
            tp = self._turn[0]
            self._turn.rotate(-1)
            records = self._held[tp]
            if not records or tp in self._paused:
                idle += 1
                continue
            length = len(records[0].value or b"")
            if given and size + length > max_bytes:
                break
            idle = 0
            given.append(records.popleft())
            size += length
            self._held_bytes -= length
            if size >= max_bytes:
                break
        return given

    def _drop_held(self, tp: TopicPartition) -> None:
        self._held_bytes -= sum(len(record.value or b"") for record in self._held[tp])
        self._held[tp].clear()

    def _outer(self, tp: TopicPartition) -> Outer:
        return Outer(self._log.config.outer(tp.topic), tp.partition)

    def _inner(self, outer: Outer) -> TopicPartition:
        name = self._log.config.inner(outer.topic)
        assert name is not None
        return TopicPartition(name, outer.partition)

    @property
    def _deadline_ms(self) -> int:
        return round(self._log.config.deadline_s * 1000)

    def _named_group(self) -> str:
        if self._group is None:
            raise Usage(
                expected="a consumer with a group", got="none", where=self._where, do="Name one: log.consumer(group)."
            )
        return self._group

    def _check_assigned(self, tp: TopicPartition) -> None:
        self._check_usable()
        if tp not in self._held:
            raise Usage(
                expected="a partition that this consumer reads",
                got=f"{tp.topic}/{tp.partition}",
                where=self._where,
                do="It may have moved: look at assignment().",
            )

    def _check_usable(self) -> None:
        self._log.check_usable()
        if self._closed:
            raise Closed(expected="an open consumer", got="a closed one", where=self._where, do="Make a new one.")


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Hands kafka-python's callbacks on."""

    def __init__(self, heard: Callable[[str, Iterable[Outer]], None]) -> None:
        self._heard = heard

    def on_partitions_revoked(self, revoked: Iterable[Outer]) -> None:
        """Before a rebalance."""
        self._heard("revoked", revoked)

    def on_partitions_lost(self, lost: Iterable[Outer]) -> None:
        """After the member was thrown out."""
        self._heard("revoked", lost)

    def on_partitions_assigned(self, assigned: Iterable[Outer]) -> None:
        """After a rebalance."""
        self._heard("assigned", assigned)
