"""Whatever the cache does, the same records come out: off, on, evicting, flushed, damaged, failing."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from cache.contracts import Key, Tier
from cache.memory import MemoryTier
from cache.tiers import TieredCache
from streams.contracts import Log
from streams.embedded.log import open_log
from tests.cache.stream import Harmful, Raising, ahead, directly, fill, make_topic, read, starts

ROOM = 1 << 22
MESSAGES = 30


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """With gaps between its offsets."""
    opened = open_log(tmp_path / "log", skipped_offsets=1)
    yield opened
    opened.close()


class Flushed(MemoryTier):
    """Forgets everything after every third value it gave."""

    flushes = 0

    def get(self, key):  # type: ignore[no-untyped-def]
        value = super().get(key)
        if value is not None and self.counters.hits % 3 == 2:
            self.clear()
            self.flushes += 1
        return value


def _flip(draw: random.Random) -> Callable[[bytes], bytes]:
    def flip(value: bytes) -> bytes:
        bit, copy = draw.randrange(len(value) * 8), bytearray(value)
        copy[bit // 8] ^= 1 << bit % 8
        return bytes(copy)

    return flip


class Swapping(MemoryTier):
    """Answers with what it was asked for before, as a connection does that is one answer behind."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(max_bytes)
        self._late: bytes | memoryview | None = None

    def get(self, key: Key) -> bytes | memoryview | None:
        late, self._late = self._late, super().get(key)
        return late


def _now_and_then(draw: random.Random, harm: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    return lambda value: harm(value) if draw.random() < 0.5 else value


TIERS: dict[str, Callable[[], Sequence[Tier]]] = {
    "off": list,
    "on": lambda: [MemoryTier(ROOM)],
    "two tiers": lambda: [MemoryTier(5000), MemoryTier(ROOM)],
    "without a budget": lambda: [MemoryTier(0)],
    "evicting": lambda: [MemoryTier(6000)],
    "flushed": lambda: [Flushed(ROOM)],
    "one bit flipped": lambda: [Harmful(_flip(random.Random(3)))],
    "some bits flipped": lambda: [Harmful(_now_and_then(random.Random(4), _flip(random.Random(5))))],
    "cut": lambda: [Harmful(lambda value: value[: len(value) // 2])],
    "longer": lambda: [Harmful(lambda value: value + b"\x00")],
    "answers with another's": lambda: [Swapping(ROOM)],
    "emptied": lambda: [Harmful(lambda value: b"")],
    "junk": lambda: [Harmful(lambda value: random.Random(len(value)).randbytes(len(value)))],
    "damage behind a good tier": lambda: [MemoryTier(8000), Harmful(_flip(random.Random(6)))],
    "raising": lambda: [Raising()],
    "raising before a good one": lambda: [Raising(), MemoryTier(ROOM)],
}


@pytest.mark.parametrize("budget", [0, 1 << 20])
@pytest.mark.parametrize("tiers", TIERS.values(), ids=TIERS)
def test_the_same_records(log: Log, tiers: Callable[[], Sequence[Tier]], budget: int) -> None:
    topic = make_topic(log)
    fill(log, topic, MESSAGES)
    first = starts(log, topic)
    expected = directly(log, topic, first)
    assert [len(records) for records in expected.values()] == [MESSAGES] * 3
    middle = {partition: records[len(records) // 3][0] for partition, records in expected.items()}
    rest = {partition: [r for r in records if r[0] >= middle[partition]] for partition, records in expected.items()}
    cache = TieredCache(tiers())
    for offsets, right in [(first, expected), (middle, rest), (first, expected)]:
        assert read(ahead(log, topic, cache, max_bytes=budget), offsets) == right
    cache.close()


@pytest.mark.parametrize("tiers", TIERS.values(), ids=TIERS)
def test_the_same_records_when_more_come_between(log: Log, tiers: Callable[[], Sequence[Tier]]) -> None:
    topic = make_topic(log)
    cache = TieredCache(tiers())
    for round_ in range(2):
        fill(log, topic, 15, seed=round_)
        first = starts(log, topic)
        for poll_bytes in (2048, 700):
            assert read(ahead(log, topic, cache, poll_bytes=poll_bytes), first) == directly(log, topic, first)
    cache.close()


def test_the_harm_was_done(log: Log) -> None:
    """Else the tests above would hold for nothing."""
    topic = make_topic(log)
    fill(log, topic, MESSAGES)
    for name, seen in {
        "on": lambda tier: tier.counters.hits,
        "evicting": lambda tier: tier.counters.evictions,
        "flushed": lambda tier: tier.flushes,
        "one bit flipped": lambda tier: tier.harmed,
        "raising": lambda tier: tier.counters.errors,
    }.items():
        (tier,) = TIERS[name]()
        for _ in range(2):
            read(ahead(log, topic, TieredCache([tier])), starts(log, topic))
        assert seen(tier) > 0, name


def test_a_topic_made_again_has_other_records(log: Log) -> None:
    cache = TieredCache([MemoryTier(ROOM)])
    for seed in (1, 2):
        topic = make_topic(log)
        fill(log, topic, 20, seed)
        assert read(ahead(log, topic, cache), starts(log, topic)) == directly(log, topic, starts(log, topic))
        log.delete_topic(topic.spec.name)


def test_two_topics_do_not_mix(log: Log) -> None:
    cache = TieredCache([MemoryTier(ROOM)])
    topics = [make_topic(log, name) for name in ("a", "b")]
    for seed, topic in enumerate(topics):
        fill(log, topic, 20, seed)
    for topic in topics * 2:
        assert read(ahead(log, topic, cache), starts(log, topic)) == directly(log, topic, starts(log, topic))


def test_damage_is_mended_in_the_tier(log: Log) -> None:
    topic = make_topic(log)
    fill(log, topic, MESSAGES)
    tier, first = MemoryTier(ROOM), starts(log, topic)
    cache = TieredCache([tier])
    read(ahead(log, topic, cache), first)
    for key in list(tier._values):
        tier.put(key, _flip(random.Random(key.offset))(tier._values[key]))
    assert read(ahead(log, topic, cache), first) == directly(log, topic, first)
    whole = dict(tier._values)
    assert read(ahead(log, topic, cache), first) == directly(log, topic, first)
    assert dict(tier._values) == whole
