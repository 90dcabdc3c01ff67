"""``Prefetcher``: in order, within its budget, never held up by a full partition, ends at once, tells its errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from cache.contracts import Key
from cache.memory import MemoryTier
from cache.prefetch import Prefetcher
from cache.tiers import TieredCache
from streams.contracts import Log, TopicInfo
from streams.errors import HeadraceError
from tests.cache.stream import PATIENCE_S, ahead, directly, fill, make_topic, plain, starts, take_all, tps


@pytest.fixture
def topic(log: Log) -> TopicInfo:
    return make_topic(log)


@pytest.fixture
def cache() -> TieredCache:
    return TieredCache([MemoryTier(1 << 20)])


@pytest.fixture
def reader(log: Log, topic: TopicInfo, cache: TieredCache) -> Iterator[Prefetcher]:
    made = ahead(log, topic, cache)
    yield made
    made.close()


def until(true, what: str) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


def test_an_empty_topic_is_at_its_end(log: Log, topic: TopicInfo, reader: Prefetcher) -> None:
    reader.start(starts(log, topic))
    assert reader.take(0, 0.0) is None
    assert not reader._lanes[0].records
    until(lambda: all(reader.at_end(p) for p in range(3)), "no end")


def test_an_empty_chunk_is_never_kept(log: Log, topic: TopicInfo, cache: TieredCache, reader: Prefetcher) -> None:
    reader.start(starts(log, topic))
    until(lambda: reader.at_end(0), "no end")
    time.sleep(0.05)
    assert cache.counters()["memory"].entries == 0
    fill(log, topic, 5)
    assert len(take_all(reader, [0, 1, 2])[0]) == 5


def test_position_is_a_place_to_go_on_from(log: Log, topic: TopicInfo, cache: TieredCache) -> None:
    fill(log, topic, 30)
    expected = directly(log, topic, starts(log, topic))[2]
    for number in range(31):
        reader = ahead(log, topic, cache)
        reader.start(starts(log, topic))
        for _ in range(number):
            assert reader.take(2, PATIENCE_S) is not None
        position = reader.position(2)
        reader.close()
        assert directly(log, topic, {2: position})[2] == expected[number:]


def test_position_moves_past_gaps_at_the_end(log: Log, topic: TopicInfo, reader: Prefetcher) -> None:
    fill(log, topic, 30)
    reader.start(starts(log, topic))
    take_all(reader, [0, 1, 2])
    ends = log.end_offsets(tps(topic))
    assert all(reader.position(tp.partition) >= ends[tp] for tp in tps(topic))


def test_the_end_is_not_reached_before_the_last_record_was_given(
    log: Log, topic: TopicInfo, reader: Prefetcher
) -> None:
    fill(log, topic, 40)
    reader.start(starts(log, topic))
    for _ in range(40):
        assert not reader.at_end(0)
        assert reader.take(0, PATIENCE_S) is not None
    until(lambda: reader.at_end(0), "no end")
    fill(log, topic, 1, seed=1)
    assert not reader.at_end(0)
    assert reader.take(0, PATIENCE_S) is not None
    until(lambda: reader.at_end(0), "no end")


def test_an_open_transaction_is_no_end_and_gives_nothing(log: Log, topic: TopicInfo, reader: Prefetcher) -> None:
    producer = log.producer("open")
    producer.begin()
    producer.send("exp", 0, b"x" * 10_000)
    reader.start(starts(log, topic))
    assert reader.take(0, 0.2) is None
    producer.commit()
    record = reader.take(0, PATIENCE_S)
    assert record is not None
    assert record.value == b"x" * 10_000
    producer.close()


@pytest.mark.parametrize("budget", [0, 1, 4096])
def test_full_partitions_hold_up_none(log: Log, topic: TopicInfo, cache: TieredCache, budget: int) -> None:
    fill(log, topic, 100)
    reader = ahead(log, topic, cache, max_bytes=budget)
    reader.start(starts(log, topic))
    expected = directly(log, topic, starts(log, topic))
    until(lambda: reader._lanes[0].records and reader._lanes[1].records, "nothing was read")
    for partition in (2, 0, 1):
        for right in expected[partition]:
            record = reader.take(partition, PATIENCE_S)
            assert record is not None
            assert plain(record) == right
    reader.close()


def test_a_record_comes_to_an_empty_partition_while_others_are_full(
    log: Log, topic: TopicInfo, cache: TieredCache
) -> None:
    producer = log.producer("skew")
    producer.begin()
    for _ in range(50):
        for partition in (0, 1):
            producer.send("exp", partition, b"x" * 1000)
    producer.commit()
    reader = ahead(log, topic, cache)
    reader.start(starts(log, topic))
    until(lambda: reader._lanes[0].records and reader._lanes[1].records, "nothing was read")
    assert reader.take(2, 0.0) is None
    producer.begin()
    producer.send("exp", 2, b"at last")
    producer.commit()
    producer.close()
    record = reader.take(2, PATIENCE_S)
    assert record is not None
    assert record.value == b"at last"
    reader.close()


def test_it_holds_no_more_than_its_budget_and_a_chunk_a_partition(
    log: Log, topic: TopicInfo, cache: TieredCache
) -> None:
    fill(log, topic, 200, size=1000)
    reader = ahead(log, topic, cache, max_bytes=30_000, poll_bytes=5_000)
    reader.start(starts(log, topic))
    until(lambda: reader._all_full(), "not full")
    time.sleep(0.3)
    for lane in reader._lanes.values():
        assert sum(len(r.value or b"") for r in lane.records) <= 30_000 / 3 + 5_000 + 3_000
    reader.close()


def test_a_record_above_the_budget_comes_through(log: Log, topic: TopicInfo, reader: Prefetcher) -> None:
    producer = log.producer("large")
    producer.begin()
    for partition in range(3):
        producer.send("exp", partition, bytes([partition]) * 3_000_000)
        producer.send("exp", partition, b"small")
    producer.commit()
    producer.close()
    reader.start(starts(log, topic))
    taken = take_all(reader, [0, 1, 2])
    assert [[len(r[2] or b"") for r in records] for records in taken.values()] == [[3_000_000, 5]] * 3


def test_values_in_the_cache_stay_below_a_mebibyte(log: Log, topic: TopicInfo) -> None:
    tier = MemoryTier(1 << 26)
    fill(log, topic, 400, size=10_000)
    reader = ahead(log, topic, TieredCache([tier]), max_bytes=1 << 26, poll_bytes=1 << 23)
    reader.start(starts(log, topic))
    take_all(reader, [0, 1, 2])
    reader.close()
    sizes = [len(value) for value in tier._values.values()]
    assert len(sizes) >= 12
    assert max(sizes) <= 1 << 20


def test_records_stay_whole_after_all_is_closed(log: Log, topic: TopicInfo, cache: TieredCache) -> None:
    fill(log, topic, 30)
    expected = directly(log, topic, starts(log, topic))[0]
    reader = ahead(log, topic, cache)
    reader.start({0: 0})
    records = [reader.take(0, PATIENCE_S) for _ in range(30)]
    reader.close()
    cache.close()
    assert [plain(record) for record in records if record] == expected


def test_an_error_of_the_thread_comes_out_of_take(log: Log, topic: TopicInfo, reader: Prefetcher) -> None:
    reader.start(starts(log, topic))
    log.delete_topic(topic.spec.name)
    for _ in range(2):
        with pytest.raises(HeadraceError) as met:
            reader.take(0, PATIENCE_S)
        assert "exp" in str(met.value)


def test_records_that_were_read_come_before_the_error(log: Log, topic: TopicInfo, cache: TieredCache) -> None:
    fill(log, topic, 30)
    reader = ahead(log, topic, cache, max_bytes=1 << 20)
    reader.start({0: 0})
    until(lambda: len(reader._lanes[0].records) == 30, "not all was read")
    log.delete_topic(topic.spec.name)
    assert [reader.take(0, 0.0) is not None for _ in range(30)] == [True] * 30
    with pytest.raises(HeadraceError):
        reader.take(0, PATIENCE_S)
    reader.close()


def test_a_take_that_waits_ends_when_something_comes(log: Log, topic: TopicInfo, reader: Prefetcher) -> None:
    reader.start(starts(log, topic))
    got: list[object] = []
    thread = threading.Thread(target=lambda: got.append(reader.take(0, PATIENCE_S)))
    thread.start()
    fill(log, topic, 1)
    thread.join(PATIENCE_S)
    assert got
    assert got[0] is not None


def test_close_ends_the_thread_soon_whatever_it_waits_for(log: Log, topic: TopicInfo, cache: TieredCache) -> None:
    for messages in (0, 200):  # waits for the log; waits for room
        fill(log, topic, messages, seed=messages)
        reader = ahead(log, topic, cache)
        reader.start(starts(log, topic))
        until(lambda done=reader, full=messages: done._all_full() or not full, "not full")
        thread, began_s = reader._thread, time.monotonic()
        reader.close()
        assert time.monotonic() - began_s < 5.0
        assert thread is not None
        assert not thread.is_alive()
        reader.close()


def test_close_without_start(reader: Prefetcher) -> None:
    reader.close()
    reader.close()


def test_it_waits_without_spinning(log: Log, topic: TopicInfo, cache: TieredCache) -> None:
    fill(log, topic, 200)
    for offsets in (starts(log, topic), {tp.partition: end for tp, end in log.end_offsets(tps(topic)).items()}):
        reader = ahead(log, topic, cache)
        reader.start(offsets)
        time.sleep(0.3)  # it has settled: full, or at the end
        began_s = time.process_time()
        time.sleep(1.0)
        assert time.process_time() - began_s < 0.2
        reader.close()


def test_two_readers_of_one_cache_get_the_same(log: Log, topic: TopicInfo, cache: TieredCache) -> None:
    fill(log, topic, 100)
    expected = directly(log, topic, starts(log, topic))
    got: list[object] = []

    def work() -> None:
        reader = ahead(log, topic, cache)
        try:
            reader.start(starts(log, topic))
            got.append(take_all(reader, [0, 1, 2]))
        finally:
            reader.close()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert got == [expected] * 3


def test_a_partition_not_started_is_not_read(log: Log, topic: TopicInfo, cache: TieredCache) -> None:
    tier = MemoryTier(1 << 20)
    fill(log, topic, 20)
    reader = ahead(log, topic, TieredCache([tier]))
    reader.start({1: 0})
    take_all(reader, [1])
    reader.close()
    assert {key.partition for key in tier._values} == {1}
    assert all(isinstance(key, Key) for key in tier._values)
