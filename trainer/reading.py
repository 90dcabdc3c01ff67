"""Records of ``exp`` straight from the log: the plain way beside ``cache.prefetch``, and the contract of both."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Protocol

from streams.contracts import Consumer, Log, Record, TopicInfo, TopicPartition


class Reader(Protocol):
    """Gives the records of each partition in order. ``cache.prefetch.Prefetcher`` is one that works ahead."""

    def start(self, offsets: Mapping[int, int]) -> None:
        """Begin at these offsets by partition; once."""

    def take(self, partition: int, timeout_s: float) -> Record | None:
        """The next record of a partition, or ``None`` if none came in time."""

    def at_end(self, partition: int) -> bool:
        """Whether all that the log holds now of a partition was taken."""

    def wait(self, timeout_s: float) -> None:
        """Block until there may be something new to take, or the time is over."""

    def close(self) -> None:
        """Release. May be called twice."""


class DirectReader:
    """``Reader`` without a thread: reads when asked. One partition that is far ahead never keeps others from being read."""

    def __init__(self, log: Log, topic: TopicInfo, poll_bytes: int) -> None:
        self._log = log
        self._topic = topic
        self._poll_bytes = poll_bytes
        self._consumers: dict[int, Consumer] = {}
        self._taken: dict[int, deque[Record]] = {}

    def start(self, offsets: Mapping[int, int]) -> None:
        """Begin at these offsets."""
        for partition, offset in offsets.items():
            tp = TopicPartition(self._topic.spec.name, partition)
            consumer = self._log.consumer()
            consumer.assign([tp])
            consumer.seek(tp, offset)
            self._consumers[partition] = consumer
            self._taken[partition] = deque()

    def take(self, partition: int, timeout_s: float) -> Record | None:
        """The next record."""
        records = self._taken[partition]
        if not records:
            records.extend(self._consumers[partition].poll(self._poll_bytes, timeout_s))
        return records.popleft() if records else None

    def at_end(self, partition: int) -> bool:
        """Whether all was taken."""
        tp = TopicPartition(self._topic.spec.name, partition)
        return not self._taken[partition] and self._consumers[partition].position(tp) >= self._log.end_offsets([tp])[tp]

    def wait(self, timeout_s: float) -> None:
        """Wait for the log."""
        self._log.wait(timeout_s)

    def close(self) -> None:
        """Close the consumers."""
        for consumer in self._consumers.values():
            consumer.close()
        self._consumers.clear()
