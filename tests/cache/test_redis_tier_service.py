"""The Redis tier on real servers: the suites of tiers, and servers that are killed, flushed, full, read-only, frozen, damaged."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from cache.contracts import Key, RedisConfig, Tier
from cache.memory import MemoryTier
from cache.redis_tier import PART_BYTES, Circuit, RedisTier, look_at, shown
from cache.tiers import TieredCache
from dev.daemon import dies_with_starter
from dev.redis_service import Redis
from streams.contracts import Log
from tests.cache.stream import ahead, directly, fill, make_topic, read, starts
from tests.contracts.tier_conformance import MakeTier, TierConformance
from tests.contracts.tier_failing import BreakTier, TierFailing, TierOrder
from tests.services import running

pytestmark = pytest.mark.service

KEY, OTHER = Key("topic", 0, 1), Key("topic", 0, 2)
ROOM = 1 << 26


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Redis]:
    """A server of this test."""
    with running(lambda: Redis(tmp_path / "redis", dies_with_starter)) as server:
        yield server


@pytest.fixture
def make_tier(redis_server: Redis, request: pytest.FixtureRequest) -> Iterator[MakeTier]:
    made: list[RedisTier] = []

    def make(max_bytes: int) -> RedisTier:
        made.append(RedisTier(RedisConfig(redis_server.url, max_bytes), f"{request.node.name}-{len(made)}"))
        return made[-1]

    yield make
    for tier in made:
        tier.close()


class TestRedisTier(TierConformance):
    pass


class TestRedisTierOrder(TierOrder):
    pass


class TestRedisTierFailing(TierFailing):
    @pytest.fixture
    def make_tier(self, own: Redis) -> MakeTier:
        return lambda max_bytes: RedisTier(RedisConfig(own.url, max_bytes), "n")

    @pytest.fixture
    def broken(self, own: Redis) -> BreakTier:
        return lambda tier: own.kill()


def tier_of(server: Redis, namespace: str = "shop.v1", max_bytes: int = ROOM, ttl_s: float = 60.0) -> RedisTier:
    return RedisTier(RedisConfig(server.url, max_bytes, ttl_s), namespace)


def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("size", [0, 1, PART_BYTES - 8, PART_BYTES - 7, 2 * PART_BYTES, 5 * PART_BYTES + 3])
def test_values_of_any_size_in_strings_of_at_most_a_mebibyte(own: Redis, size: int) -> None:
    tier, value = tier_of(own), random.Random(size).randbytes(size)
    tier.put(KEY, value)
    found = tier.get(KEY)
    assert (b"" if found is None else bytes(found)) == value
    plain = redis.Redis(port=own.port)
    names = [name for name in plain.scan_iter("headrace:shop.v1:topic:*")]
    assert all(plain.strlen(name) <= PART_BYTES for name in names)
    assert sum(plain.strlen(name) for name in names) == (size + 8 if size else 0)
    if size > 2 * PART_BYTES:
        plain.delete(next(name for name in names if b"#2" in name))
        assert tier.get(KEY) is None, "a part that is gone is the entry gone"
    tier.put(KEY, b"short")
    assert len(list(plain.scan_iter("headrace:shop.v1:topic:*#*"))) == 0
    plain.close()
    tier.close()


def test_trainers_and_restarts_share_entries_and_versions_share_none(own: Redis) -> None:
    first, second, other = tier_of(own), tier_of(own), tier_of(own, "shop.v2")
    first.put(KEY, b"x")
    first.close()
    assert second.get(KEY) is not None
    assert other.get(KEY) is None
    other.put(OTHER, b"y")
    second.clear()
    assert second.get(KEY) is None
    assert other.get(OTHER) is not None, "a namespace is cleared by itself"
    for tier in (second, other):
        tier.close()


def test_the_budget_holds_over_all_who_share_it(own: Redis) -> None:
    tiers = [tier_of(own, max_bytes=100_000) for _ in range(3)]
    for number in range(300):
        tiers[number % 3].put(Key("topic", 0, number), bytes(1000))
    plain = redis.Redis(port=own.port)
    stored = sum(plain.strlen(name) for name in plain.scan_iter("headrace:shop.v1:topic:*"))
    assert 90_000 < stored <= 101_000
    assert tiers[0].get(Key("topic", 0, 299)) is not None
    assert tiers[0].get(Key("topic", 0, 0)) is None
    assert sum(tier.counters.evictions for tier in tiers) >= 199
    plain.close()
    for tier in tiers:
        tier.close()


def test_entries_end_by_themselves(own: Redis) -> None:
    tier = tier_of(own, ttl_s=0.3)
    tier.put(KEY, b"x")
    assert tier.get(KEY) is not None
    until(lambda: tier.get(KEY) is None)
    tier.put(KEY, b"again")
    assert bytes(tier.get(KEY) or b"") == b"again"
    tier.close()


def test_killed_and_back(own: Redis, caplog: pytest.LogCaptureFixture) -> None:
    tier = tier_of(own)
    tier.put(KEY, b"x")
    own.kill()
    with caplog.at_level(logging.WARNING, "headrace.cache"):
        began = time.monotonic()
        assert [tier.get(KEY) for _ in range(1000)] == [None] * 1000
        assert time.monotonic() - began < 2, "the circuit is open: nobody waits for a server that is away"
        assert tier.away
        own.start()
        until(lambda: tier.get(OTHER) is None and not tier._reads.open, 40)
        tier.put(KEY, b"y")
        until(lambda: (tier.put(KEY, b"y"), bytes(tier.get(KEY) or b"") == b"y")[1], 40)
    said = [record.getMessage() for record in caplog.records]
    assert sum("going on without it" in line for line in said) <= 2, said
    assert any("works again" in line for line in said)
    assert tier.counters.errors >= 1
    tier.close()


def test_frozen(own: Redis) -> None:
    tier = tier_of(own)
    tier.put(KEY, b"x")
    own.stand_still()
    began = time.monotonic()
    assert tier.get(KEY) is None
    assert time.monotonic() - began < 1
    for _ in range(100):
        tier.get(KEY)
        tier.put(OTHER, b"y")
    assert time.monotonic() - began < 3
    own.go_on()
    until(lambda: bytes(tier.get(KEY) or b"") == b"x", 40)
    tier.close()


def test_read_only(own: Redis) -> None:
    tier, plain = tier_of(own), redis.Redis(port=own.port)
    tier.put(KEY, b"x")
    plain.config_set("min-replicas-to-write", "0")
    plain.replicaof("127.0.0.1", "1")
    assert bytes(tier.get(KEY) or b"") == b"x", "reading goes on"
    tier.put(OTHER, b"y")
    assert tier.get(OTHER) is None
    assert tier.away
    assert bytes(tier.get(KEY) or b"") == b"x"
    plain.replicaof("NO", "ONE")
    until(lambda: (tier.put(OTHER, b"y"), tier.get(OTHER) is not None)[1], 40)
    plain.close()
    tier.close()


def test_out_of_memory(tmp_path: Path) -> None:
    arguments = ["--maxmemory", "3mb", "--maxmemory-policy", "noeviction"]
    with running(lambda: Redis(tmp_path / "redis", dies_with_starter, arguments)) as server:
        tier = tier_of(server)
        for number in range(100):
            tier.put(Key("topic", 0, number), bytes(100_000))
        assert tier.counters.errors >= 1
        assert tier.get(Key("topic", 0, 0)) is not None, "reading goes on"
        assert look_at(RedisConfig(server.url))[0]
        tier.close()


def test_evicted_by_the_server(tmp_path: Path) -> None:
    arguments = ["--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru"]
    with running(lambda: Redis(tmp_path / "redis", dies_with_starter, arguments)) as server:
        tier, values = tier_of(server), random.Random(1)
        kept = {Key("topic", 0, n): values.randbytes(100_000 + n) for n in range(100)}
        for key, value in kept.items():
            tier.put(key, value)
        found = {key: tier.get(key) for key in kept}
        assert all(value is None or bytes(value) == kept[key] for key, value in found.items())
        assert 0 < sum(value is not None for value in found.values()) < 100
        assert look_at(RedisConfig(server.url)) == (False, look_at(RedisConfig(server.url))[1])
        tier.close()


@pytest.mark.parametrize(
    "how", ["on", "memory before it", "evicting", "flushed", "damaged", "another's", "killed", "frozen"]
)
def test_the_same_records_whatever_redis_does(log: Log, own: Redis, how: str) -> None:
    topic = make_topic(log)
    fill(log, topic, 60)
    first = starts(log, topic)
    expected = directly(log, topic, first)
    plain = redis.Redis(port=own.port)
    tiers: list[Tier] = [tier_of(own, max_bytes=6000 if how == "evicting" else ROOM)]
    if how == "memory before it":
        tiers.insert(0, MemoryTier(5000))
    for _ in range(3):
        cache = TieredCache(tiers)
        assert read(ahead(log, topic, cache), first) == expected
        names = [] if how in ("killed", "frozen") else sorted(plain.scan_iter("headrace:shop.v1:*:*"))
        if how == "flushed":
            plain.flushall()
        elif how == "damaged":
            for name in names:
                plain.setrange(name, 20 + len(name) % 50, b"\x7f\x01")
        elif how == "another's":
            values = [plain.get(name) for name in names]
            for name, value in zip(names, values[1:] + values[:1], strict=True):
                plain.set(name, value)  # type: ignore[arg-type]
        elif how == "killed":
            own.kill()
        elif how == "frozen":
            own.stand_still()
    if how in ("on", "memory before it"):
        assert tiers[-1].counters.hits > 0
        assert tiers[-1].counters.seconds > 0
    if how not in ("killed", "frozen"):
        plain.close()


def test_a_password_is_not_told(own: Redis, caplog: pytest.LogCaptureFixture) -> None:
    own.kill()
    url = f"redis://user:s3cret@127.0.0.1:{own.port}/0"
    with caplog.at_level(logging.WARNING, "headrace.cache"):
        assert RedisTier(RedisConfig(url), "n").get(KEY) is None
    assert "s3cret" not in caplog.text
    assert f"redis://127.0.0.1:{own.port}/0" in caplog.text
    assert shown(url) == f"redis://127.0.0.1:{own.port}/0"
    assert "s3cret" not in look_at(RedisConfig(url))[1]


def test_a_circuit_lets_one_through_after_each_pause() -> None:
    now = [0.0]
    circuit = Circuit("x", lambda: now[0])
    assert circuit.allows()
    circuit.failed("down")
    assert not circuit.allows()
    pauses = []
    for _ in range(10):
        begun = now[0]
        while not circuit.allows():
            now[0] += 0.25
        assert not circuit.allows(), "one at a time"
        pauses.append(now[0] - begun)
        circuit.failed("down")
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30, 30]
    now[0] += 30
    assert circuit.allows()
    circuit.worked()
    assert [circuit.allows() for _ in range(3)] == [True] * 3
