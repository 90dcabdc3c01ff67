"""Reading ahead: whatever the cache does, the same records come out, in order, each once."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cache.chunks import decode_chunk, encode_chunk
from cache.contracts import Key
from cache.memory import MemoryTier
from cache.prefetch import Prefetcher
from cache.tiers import TieredCache
from streams.contracts import Log, Record, TopicPartition, TopicSpec
from streams.embedded.log import open_log
from streams.errors import Broken
from trainer.reading import DirectReader

P = 3


def write(log: Log, count: int, seed: int, *, partitions: int = P) -> None:
    rng = random.Random(seed)
    producer = log.producer("w")
    for n in range(count):
        producer.begin()
        for _ in range(rng.randint(1, 3)):
            value = rng.randbytes(rng.choice([0, 10, 300, 9000]))
            producer.send(
                "x", rng.randrange(partitions), value, key=None, headers=(("h", bytes([n % 256])), ("h", b"\xff"))
            )
        producer.commit()
    producer.close()


def key_of(record: Record) -> tuple[int, int, bytes, object]:
    return record.partition, record.offset, bytes(record.value or b""), record.headers


def drain(reader: Prefetcher | DirectReader, rng: random.Random, count: int) -> list[tuple[int, int, bytes, object]]:
    out = []
    end = time.monotonic() + 20
    while len(out) < count:
        assert time.monotonic() < end, f"only {len(out)} of {count}"
        record = reader.take(rng.randrange(P), 0.05)
        if record is not None:
            out.append(key_of(record))
    return sorted(out, key=lambda item: item[:2])


class Corrupting(MemoryTier):
    """A tier that gives back bytes other than those that were put."""

    def get(self, key: Key) -> bytes | memoryview | None:
        value = super().get(key)
        if value is None:
            return None
        damaged = bytearray(value)
        damaged[key.offset % len(damaged)] ^= 1
        return bytes(damaged)


class Forgetting(MemoryTier):
    """A tier that is flushed all the time."""

    def put(self, key: Key, value: bytes | memoryview) -> None:
        super().put(key, value)
        if key.offset % 2:
            self.clear()


TIERS = {
    "off": list,
    "no budget": lambda: [MemoryTier(0)],
    "on": lambda: [MemoryTier(10**8)],
    "evicting": lambda: [MemoryTier(20_000)],
    "flushed": lambda: [Forgetting(10**8)],
    "corrupted": lambda: [Corrupting(10**8)],
}


@pytest.mark.parametrize("name", TIERS)
@pytest.mark.parametrize("gaps", [0, 1])
def test_the_cache_never_changes_what_comes_out(tmp_path: Path, name: str, gaps: int) -> None:
    log = open_log(tmp_path / "log", skipped_offsets=gaps)
    topic = log.create_topic(TopicSpec("x", P))
    write(log, 150, 1)
    direct = DirectReader(log, topic, 1 << 20)
    direct.start(dict.fromkeys(range(P), 0))
    want = []
    for p in range(P):
        while (record := direct.take(p, 0.0)) is not None:
            want.append(key_of(record))
    direct.close()
    cache = TieredCache(TIERS[name]())
    for turn in range(3):  # the second and third time the tiers are full
        reader = Prefetcher(log, topic, cache, max_bytes=[30_000, 10**7, 1][turn], poll_bytes=5000)
        reader.start(dict.fromkeys(range(P), 0))
        assert drain(reader, random.Random(turn), len(want)) == want
        assert all(reader.at_end(p) for p in range(P))
        assert all(reader.take(p, 0.0) is None for p in range(P))
        reader.close()
    if name == "on":
        assert cache.counters()["memory"].hits > 0
    log.close()


def test_a_full_partition_never_starves_another(tmp_path: Path) -> None:
    """One partition holds far more than the budget; what the trainer needs lies in another, and comes later."""
    log = open_log(tmp_path / "log")
    topic = log.create_topic(TopicSpec("x", P))
    write(log, 200, 2, partitions=1)
    reader = Prefetcher(log, topic, TieredCache([]), max_bytes=10_000, poll_bytes=4000)
    reader.start(dict.fromkeys(range(P), 0))
    assert reader.take(2, 0.2) is None
    assert reader._lanes[0].records
    assert not reader.at_end(0)
    producer = log.producer("w2")
    producer.begin()
    producer.send("x", 2, b"here")
    producer.commit()
    record = reader.take(2, 10)
    assert record is not None
    assert bytes(record.value or b"") == b"here"
    assert reader.position(2) == log.end_offsets([TopicPartition("x", 2)])[TopicPartition("x", 2)]
    reader.close()
    reader.close()
    producer.close()
    log.close()


def test_starts_in_the_middle_and_sees_what_comes_later(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    topic = log.create_topic(TopicSpec("x", 1))
    write(log, 10, 3, partitions=1)
    end = log.end_offsets([TopicPartition("x", 0)])[TopicPartition("x", 0)]
    reader = Prefetcher(log, topic, TieredCache([MemoryTier(10**6)]), max_bytes=10**6, poll_bytes=10**6)
    reader.start({0: end - 2})
    offsets = [record.offset for record in (reader.take(0, 5), reader.take(0, 5)) if record]
    assert offsets == [end - 2, end - 1]
    assert reader.take(0, 0.05) is None
    write(log, 1, 4, partitions=1)
    later = reader.take(0, 10)
    assert later is not None
    assert later.offset == end
    reader.close()
    log.close()


def test_an_error_of_the_thread_surfaces(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log")
    topic = log.create_topic(TopicSpec("x", 1))
    producer = log.producer("w")
    producer.begin()
    producer.send("x", 0, bytes(100_000))
    producer.commit()
    producer.close()
    for segment in (tmp_path / "log" / "seg").iterdir():
        segment.unlink()
    reader = Prefetcher(log, topic, TieredCache([]), max_bytes=10**6, poll_bytes=10**6)
    reader.start({0: 0})
    with pytest.raises(Broken):
        reader.take(0, 10)
    reader.close()
    log.close()


records = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=5),
        st.none() | st.binary(max_size=50),
        st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=3),
    ),
    max_size=5,
)


@given(records, st.integers(0, 10**6), st.data())
def test_chunks_come_back_whole_or_not_at_all(drawn, start: int, data: st.DataObject) -> None:  # type: ignore[no-untyped-def]
    tp, place = TopicPartition("x", 1), Key("id", 1, start)
    made = [
        Record("x", 1, start + 2 * n, key, None if value is None else memoryview(value), tuple(headers))
        for n, (key, value, headers) in enumerate(drawn)
    ]
    encoded = encode_chunk(place, made, start + 100)
    chunk = decode_chunk(place, encoded, tp)
    assert chunk is not None
    assert chunk.next_offset == start + 100
    assert [(r.offset, r.key, None if r.value is None else bytes(r.value), r.headers) for r in chunk.records] == [
        (r.offset, r.key, None if r.value is None else bytes(r.value), r.headers) for r in made
    ]
    at = data.draw(st.integers(0, len(encoded) - 1))
    damaged = bytearray(encoded)
    damaged[at] ^= data.draw(st.integers(1, 255))
    assert decode_chunk(place, bytes(damaged), tp) is None
    assert decode_chunk(place, encoded[: data.draw(st.integers(0, len(encoded) - 1))], tp) is None
