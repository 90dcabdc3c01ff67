"""What the tests of logs share."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from streams.contracts import Consumer, Log, Producer, Record, TopicPartition

MakeLog = Callable[[], Log]
PATIENCE_S = 30.0
MIB = 1 << 20


class Listener:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.owned: set[TopicPartition] = set()
        self.events: list[tuple[str, tuple[TopicPartition, ...]]] = []

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        gone = tuple(partitions)
        self.owned -= set(gone)
        self.events.append(("revoked", gone))

    def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        new = tuple(partitions)
        self.owned |= set(new)
        self.events.append(("assigned", new))


def put(producer: Producer, topic: str, partition: int, *values: bytes) -> None:
    """One transaction with these values."""
    producer.begin()
    for value in values:
        producer.send(topic, partition, value)
    producer.commit()


def values(records: Iterable[Record]) -> list[bytes]:
    return [bytes(record.value) for record in records if record.value is not None]


def poll_until(consumer: Consumer, done: Callable[[list[Record]], bool], max_bytes: int = MIB) -> list[Record]:
    """Poll until the records so far satisfy ``done``."""
    records: list[Record] = []
    deadline = time.monotonic() + PATIENCE_S
    while not done(records):
        assert time.monotonic() < deadline, f"still {len(records)} records after {PATIENCE_S} s"
        records += consumer.poll(max_bytes, 0.2)
    return records


def poll_all(consumers: Iterable[Consumer], done: Callable[[], bool]) -> None:
    """Poll several members in turn (nobody else does it for them) until ``done``."""
    consumers = list(consumers)
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "no agreement"
        for consumer in consumers:
            consumer.poll(MIB, 0.02)
