"""``open_log``: the log on a Kafka cluster, under one prefix."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from kafka import errors
from kafka.admin import KafkaAdminClient, MemberToRemove, OffsetSpec
from kafka.structs import TopicPartition as Outer

from streams.checks import unknown_topic
from streams.contracts import Consumer, GroupInfo, Position, Producer, TopicInfo, TopicPartition, TopicSpec
from streams.errors import Closed, HeadraceError, Unreachable
from streams.kafka.calls import patiently
from streams.kafka.config import KafkaConfig
from streams.kafka.consumer import KafkaReader
from streams.kafka.producer import KafkaTransactions
from streams.kafka.topics import Topics

ROOT = TopicSpec("headrace", 1, compacted=True)
"""Made with the log; its id is the log's."""

logging.getLogger("kafka").setLevel(logging.WARNING)  # below, it writes keys and values of records
logging.getLogger("kafka.net.selector").setLevel(logging.ERROR)  # it warns where a machine is slow

SIZES_S = 2.0
MAINTAIN_S = 10.0
WAIT_S = 0.05
PASSING_NAMES = ("CoordinatorNotAvailableError", "CoordinatorLoadInProgressError", "NotCoordinatorError")


def open_log(config: KafkaConfig) -> KafkaLog:
    """Open the log of a prefix; what it needs is made if it is not there. Raises ``Unreachable``, ``Usage``."""
    return KafkaLog(config)


class KafkaLog:
    """See ``streams.contracts.Log``."""

    def __init__(self, config: KafkaConfig) -> None:
        self.config = config
        self._lock = threading.RLock()
        self._open: set[KafkaReader | KafkaTransactions] = set()
        self._closed = False
        self._sizes: tuple[float, dict[Outer, int]] = (0.0, {})
        self._maintained_s = 0.0
        self._seen = threading.local()
        try:
            self._admin = KafkaAdminClient(**config.common())
        except (errors.KafkaError, OSError, ValueError) as error:
            raise Unreachable(
                expected="a Kafka broker that answers",
                got=f"{type(error).__name__}: {error}",
                where=f"log.kafka.bootstrap: {config.bootstrap}",
                do="Check the address and that the broker is up.",
            ) from error
        self._topics = Topics(self._admin, config)
        self._id = self.create_topic(ROOT).id

    @property
    def id(self) -> str:
        """Id of the root topic."""
        return self._id

    def create_topic(self, spec: TopicSpec) -> TopicInfo:
        """Create, or return what exists."""
        with self._lock:
            self.check_usable()
            return self._topics.create(spec)

    def topic(self, name: str) -> TopicInfo | None:
        """Describe; may be two seconds old."""
        with self._lock:
            self.check_usable()
            return self._topics.find(name)

    def existing(self, name: str) -> TopicInfo:
        """Describe one that has to be there. Raises ``Usage``."""
        with self._lock:
            return self._topics.existing(name)

    def topics(self) -> list[TopicInfo]:
        """All, by name."""
        with self._lock:
            self.check_usable()
            return [info for info in self._topics.all() if info.spec.name != ROOT.name]

    def delete_topic(self, name: str) -> None:
        """Delete it, and the offsets that point into it."""
        with self._lock:
            self.check_usable()
            partitions = [Outer(self.config.outer(name), p) for p in range(self._topics.existing(name).spec.partitions)]
            for group in self.groups():
                with contextlib.suppress(Unreachable):  # a group with members of this topic: it loses them with it
                    outer = self.config.outer(group)
                    self._ask("offsets", partial(self._admin.delete_group_offsets, outer, partitions), None)
            self._topics.delete(name)

    def producer(self, transactional_id: str) -> Producer:
        """Make one and fence older ones."""
        self.check_usable()
        made = KafkaTransactions(self, transactional_id)
        self._open.add(made)
        return made

    def consumer(self, group: str | None = None) -> Consumer:
        """Make one."""
        self.check_usable()
        made = KafkaReader(self, group)
        self._open.add(made)
        return made

    def begin_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """First stored, or the end."""
        return self._offsets(partitions, OffsetSpec.EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One past the last, of open transactions too."""
        return self._offsets(partitions, OffsetSpec.LATEST)

    def bytes_after(self, tp: TopicPartition, offset: int) -> int:
        """Estimated from the partition's size and offsets."""
        begin, end = self.begin_offsets([tp])[tp], self.end_offsets([tp])[tp]
        if end <= max(begin, offset):
            return 0
        size = self._partition_sizes().get(self._outer(tp), 0)
        return round(size * (end - max(begin, offset)) / (end - begin))

    def group(self, name: str) -> GroupInfo:
        """The group as seen now."""
        outer = self.config.outer(name)
        described = self._ask(f"group {name}", lambda: self._admin.describe_groups([outer]), {})
        found = self._ask(f"group {name}", lambda: self._admin.list_group_offsets({outer: None}), {})
        positions = {}
        for at, position in sorted(found.get(outer, {}).items()):
            topic = self.config.inner(at.topic)
            if topic is not None and position.offset >= 0:
                positions[TopicPartition(topic, at.partition)] = Position(position.offset, position.metadata or "")
        return GroupInfo(name, len(described.get(outer, {}).get("members", [])), positions)

    def groups(self) -> list[str]:
        """Names of all groups of the prefix."""
        found = [self.config.inner(group["group_id"]) for group in self._ask("groups", self._admin.list_groups, [])]
        return sorted(name for name in found if name)

    def delete_group(self, name: str) -> None:
        """Throw its members out, delete its offsets."""
        outer = self.config.outer(name)
        until_s = time.monotonic() + self.config.deadline_s
        while True:
            described = self._ask(f"group {name}", lambda: self._admin.describe_groups([outer]), {})
            members = [MemberToRemove(member_id=m["member_id"]) for m in described.get(outer, {}).get("members", [])]
            if members:
                self._ask(f"group {name}", partial(self._admin.remove_group_members, outer, members), None)
            said = self._ask(f"group {name}", lambda: self._admin.delete_groups([outer]), {}).get(outer, "OK")
            if said in ("OK", "GroupIdNotFoundError"):
                return
            if said not in ("NonEmptyGroupError", *PASSING_NAMES) or time.monotonic() > until_s:
                raise Unreachable(
                    expected="to delete a group",
                    got=said,
                    where=f"group {name}",
                    do="Stop its members, then try again.",
                )
            time.sleep(0.05)

    def wait(self, timeout_s: float) -> bool:
        """Wait for something to read of the consumers of this thread; without such a consumer, for any topic to grow."""
        self.check_usable()
        me = threading.get_ident()
        mine = [
            one for one in list(self._open) if isinstance(one, KafkaReader) and one.thread == me and one.assignment()
        ]
        until_s = time.monotonic() + timeout_s
        if not mine:
            return self._wait_for_growth(until_s)
        while True:
            for one in mine:
                left_s = until_s - time.monotonic()
                if one.look(max(0.0, min(left_s, WAIT_S) / len(mine))):
                    return True
            if time.monotonic() >= until_s:
                return False

    def sync(self) -> None:
        """What is committed was acknowledged by the replicas in sync (``acks=all``); nothing is left to do."""

    def maintain(self) -> None:
        """Retention of topics with ``retention_bytes``; Kafka compacts by itself."""
        if time.monotonic() < self._maintained_s + MAINTAIN_S:
            return
        self._maintained_s = time.monotonic()
        kept = {info.spec.name: info for info in self.topics() if info.spec.retention_bytes is not None}
        if not kept:
            return
        self._sizes = (0.0, {})
        needed = self._needed(set(kept))
        sizes = self._partition_sizes()
        for info in kept.values():
            self._trim(info, sizes, needed)

    def size_bytes(self) -> int:
        """Bytes on the brokers' disks, one replica of each partition."""
        return sum(self._partition_sizes().values())

    def close(self) -> None:
        """Release all."""
        if self._closed:
            return
        for one in list(self._open):
            one.close()
        self._closed = True
        with contextlib.suppress(errors.KafkaError):
            self._admin.close()

    # -- for producers and consumers

    def check_usable(self) -> None:
        """Raises ``Closed``."""
        if self._closed:
            raise Closed(expected="an open log", got="a closed one", where=self.config.bootstrap, do="Open it again.")

    def forget(self, one: KafkaReader | KafkaTransactions) -> None:
        """It was closed."""
        self._open.discard(one)

    # -- inside

    def _ask(self, where: str, call: Callable[[], Any], absent: Any) -> Any:
        """One call of the admin client, again while it passes; ``absent`` if it is about a group that is not there."""
        with self._lock:
            self.check_usable()
            try:
                return patiently(where, self.config.deadline_s, call)
            except HeadraceError as error:
                if isinstance(error.__cause__, errors.GroupIdNotFoundError):
                    return absent
                raise

    def _outer(self, tp: TopicPartition) -> Outer:
        return Outer(self.config.outer(tp.topic), tp.partition)

    def _offsets(self, partitions: Iterable[TopicPartition], spec: Any) -> dict[TopicPartition, int]:
        wanted = {self._outer(tp): tp for tp in partitions}
        if not wanted:
            return {}
        with self._lock:
            for tp in wanted.values():
                if not 0 <= tp.partition < self._topics.existing(tp.topic).spec.partitions:
                    raise unknown_topic(f"{tp.topic}/{tp.partition}")
        found = self._ask("offsets", lambda: self._admin.list_partition_offsets(dict.fromkeys(wanted, spec)), {})
        return {tp: int(found[outer].offset) for outer, tp in wanted.items()}

    def _wait_for_growth(self, until_s: float) -> bool:
        before = getattr(self._seen, "ends", None)
        while True:
            with self._lock:
                tps = [TopicPartition(i.spec.name, p) for i in self._topics.all() for p in range(i.spec.partitions)]
            ends = self._seen.ends = self.end_offsets(tps)
            if ends != before:
                return True
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(WAIT_S, left_s))

    def _partition_sizes(self) -> dict[Outer, int]:
        at_s, sizes = self._sizes
        if at_s > time.monotonic() - SIZES_S:
            return sizes
        sizes = {}
        brokers = self._ask("sizes", self._admin.describe_log_dirs, [])
        folders = [folder for broker in brokers for folder in broker.get("results", broker.get("log_dirs", []))]
        topics = [
            topic for folder in folders for topic in folder["topics"] if self.config.inner(topic["name"]) is not None
        ]
        for name, part in ((topic["name"], part) for topic in topics for part in topic["partitions"]):
            outer = Outer(name, part["partition_index"])
            sizes[outer] = max(sizes.get(outer, 0), int(part["partition_size"]))
        self._sizes = (time.monotonic(), sizes)
        return sizes

    def _needed(self, topics: set[str]) -> dict[TopicPartition, int]:
        """The lowest offset that a group still wants; a member's partition without a position: its beginning."""
        needed: dict[TopicPartition, int] = {}
        for name in self.groups():
            positions = self.group(name).positions
            for tp in set(positions) | self._subscribed(name):
                if tp.topic in topics:
                    at = positions[tp].offset if tp in positions else 0
                    needed[tp] = min(needed.get(tp, at), at)
        return needed

    def _subscribed(self, group: str) -> set[TopicPartition]:
        """All partitions of the topics that living members have subscribed to."""
        outer = self.config.outer(group)
        described = self._ask(f"group {group}", lambda: self._admin.describe_groups([outer]), {}).get(outer, {})
        metadata = [member["member_metadata"] for member in described.get("members", [])]
        if any(
            not isinstance(one, dict) for one in metadata
        ):  # while it rebalances: nothing is known, so all is wanted
            return {TopicPartition(i.spec.name, p) for i in self.topics() for p in range(i.spec.partitions)}
        inner = {name for one in metadata for topic in one["topics"] if (name := self.config.inner(topic))}
        found = [info for name in inner if (info := self.topic(name))]
        return {TopicPartition(info.spec.name, p) for info in found for p in range(info.spec.partitions)}

    def _trim(self, info: TopicInfo, sizes: dict[Outer, int], needed: dict[TopicPartition, int]) -> None:
        assert info.spec.retention_bytes is not None
        tps = [TopicPartition(info.spec.name, p) for p in range(info.spec.partitions)]
        begins, ends = self.begin_offsets(tps), self.end_offsets(tps)
        for tp in tps:
            size, count = sizes.get(self._outer(tp), 0), ends[tp] - begins[tp]
            if tp not in needed or size <= info.spec.retention_bytes or not count:
                continue
            surplus = int(count * (1 - info.spec.retention_bytes / size))
            before = min(begins[tp] + surplus, needed[tp])
            if before > begins[tp]:
                self._ask("retention", partial(self._admin.delete_records, {self._outer(tp): before}), None)
