"""What the tests of the cache share: topics to read, tiers that do harm, readers that read to the end."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence

from cache.contracts import Counters, Key
from cache.memory import MemoryTier
from cache.prefetch import Prefetcher
from cache.tiers import TieredCache
from streams.contracts import Headers, Log, Record, TopicInfo, TopicPartition, TopicSpec
from trainer.reading import DirectReader, Reader

PATIENCE_S = 30.0
Plain = tuple[int, bytes | None, bytes | None, Headers]


def make_topic(log: Log, name: str = "exp", partitions: int = 3) -> TopicInfo:
    return log.create_topic(TopicSpec(name, partitions))


def fill(log: Log, topic: TopicInfo, messages: int, seed: int = 0, size: int = 300) -> None:
    """That many records of odd sizes, keys and headers in each partition, in transactions of several; some are aborted."""
    draw = random.Random(seed)
    producer = log.producer(f"fill-{seed}")
    left = {partition: messages for partition in range(topic.spec.partitions)}
    while any(left.values()):
        producer.begin()
        sent = dict.fromkeys(left, 0)
        for partition in left:
            for _ in range(min(left[partition], draw.randint(0, 7))):
                _send(producer, topic, partition, draw, size)
                sent[partition] += 1
        if draw.random() < 0.2:
            producer.abort()
            continue
        producer.commit()
        left = {partition: left[partition] - sent[partition] for partition in left}
    producer.close()


def _send(producer, topic: TopicInfo, partition: int, draw: random.Random, size: int) -> None:  # type: ignore[no-untyped-def]
    value = draw.randbytes(draw.choice([0, 1, size, 3 * size]))
    key = draw.choice([None, b"", b"\x00\xff key", draw.randbytes(8)])
    headers = tuple((name, draw.randbytes(5)) for name in draw.choice([(), ("d",), ("d", "d", "größe")]))
    producer.send(topic.spec.name, partition, value, key=key, headers=headers)


def plain(record: Record) -> Plain:
    return record.offset, record.key, None if record.value is None else bytes(record.value), record.headers


def starts(log: Log, topic: TopicInfo) -> dict[int, int]:
    return {tp.partition: offset for tp, offset in log.begin_offsets(tps(topic)).items()}


def tps(topic: TopicInfo) -> list[TopicPartition]:
    return [TopicPartition(topic.spec.name, partition) for partition in range(topic.spec.partitions)]


def ahead(log: Log, topic: TopicInfo, cache: TieredCache, max_bytes: int = 4096, poll_bytes: int = 2048) -> Prefetcher:
    return Prefetcher(log, topic, cache, max_bytes=max_bytes, poll_bytes=poll_bytes)


def read(reader: Reader, offsets: Mapping[int, int]) -> dict[int, list[Plain]]:
    """Start, take all partitions in turn until the end of each, close."""
    try:
        reader.start(offsets)
        return take_all(reader, list(offsets))
    finally:
        reader.close()


def take_all(reader: Reader, partitions: Sequence[int]) -> dict[int, list[Plain]]:
    taken: dict[int, list[Plain]] = {partition: [] for partition in partitions}
    open_, deadline = set(partitions), time.monotonic() + PATIENCE_S
    while open_:
        assert time.monotonic() < deadline, f"partitions {open_} do not end; took {[*map(len, taken.values())]}"
        for partition in sorted(open_):
            record = reader.take(partition, 0.05)
            if record is not None:
                assert record.partition == partition
                taken[partition].append(plain(record))
            elif reader.at_end(partition):
                open_.discard(partition)
    return taken


def directly(log: Log, topic: TopicInfo, offsets: Mapping[int, int]) -> dict[int, list[Plain]]:
    """The same without a cache and without a thread."""
    return read(DirectReader(log, topic, 4096), offsets)


class Harmful:
    """A tier around another: ``harm(value)`` changes what is read (``None``: as if missing), or raises."""

    name = "harmful"

    def __init__(self, harm, max_bytes: int = 1 << 22) -> None:  # type: ignore[no-untyped-def]
        self.inner = MemoryTier(max_bytes)
        self.harmed = 0
        self._harm = harm

    @property
    def counters(self) -> Counters:
        return self.inner.counters

    def get(self, key: Key) -> bytes | memoryview | None:
        value = self.inner.get(key)
        if value is None:
            return None
        self.harmed += 1
        return self._harm(bytes(value))

    def put(self, key: Key, value: bytes | memoryview) -> None:
        self.inner.put(key, value)

    def clear(self) -> None:
        self.inner.clear()

    def close(self) -> None:
        self.inner.close()


class Raising:
    """A tier that breaks its promise: everything raises."""

    name = "raising"

    def __init__(self) -> None:
        self.counters = Counters()

    def get(self, key: Key) -> bytes | memoryview | None:
        raise ConnectionError("get")

    def put(self, key: Key, value: bytes | memoryview) -> None:
        raise ConnectionError("put")

    def clear(self) -> None:
        raise ConnectionError("clear")

    def close(self) -> None:
        pass
