"""Readers that are no members; compacted topics. Part of the conformance suite: see ``log_conformance``."""

from __future__ import annotations

import threading
import time

import pytest

from streams.contracts import Position, TopicPartition, TopicSpec
from streams.errors import Closed, HeadraceError, Rebalanced, Usage
from streams.tail import Follower, read_to_end
from tests.contracts.log_helpers import (
    MIB,
    PATIENCE_S,
    Listener,
    MakeLog,
    poll_all,
    poll_until,
    put,
    values,
)


class ReadingConformance:
    """Consumers that are no members."""

    def test_seek_and_positions_over_gaps(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        producer = log.producer("p")
        for i in range(5):
            put(producer, "t", 0, b"%d" % i)
        reader = log.consumer()
        reader.assign([tp])
        records = poll_until(reader, lambda got: len(got) == 5)
        end = log.end_offsets([tp])[tp]
        assert reader.position(tp) >= end
        for i, record in enumerate(records):
            reader.seek(tp, record.offset)
            assert reader.position(tp) == record.offset
            assert values(poll_until(reader, lambda got, n=5 - i: len(got) == n)) == [b"%d" % j for j in range(i, 5)]
            reader.seek(tp, record.offset + 1)
            assert values(poll_until(reader, lambda got, n=4 - i: len(got) == n)) == [
                b"%d" % j for j in range(i + 1, 5)
            ]

    def test_at_the_end_exactly_when_the_position_reaches_the_end_offset(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        reader = log.consumer()
        reader.assign([tp])
        producer = log.producer("p")
        assert reader.position(tp) >= log.end_offsets([tp])[tp]
        for i in range(4):
            put(producer, "t", 0, b"x" * 100, b"y" * 100)
            assert reader.position(tp) < log.end_offsets([tp])[tp]
            assert len(poll_until(reader, lambda got: len(got) >= 1, max_bytes=1)) == 1
            assert reader.position(tp) < log.end_offsets([tp])[tp], f"one of two records of transaction {i} is unread"
            assert len(poll_until(reader, lambda got: len(got) >= 1, max_bytes=1)) == 1
            deadline = time.monotonic() + PATIENCE_S
            while reader.position(tp) < log.end_offsets([tp])[tp]:
                assert reader.poll(1, 0.05) == []
                assert time.monotonic() < deadline

    def test_a_reader_can_start_at_the_end(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        producer = log.producer("p")
        put(producer, "t", 0, b"before")
        reader = log.consumer()
        reader.assign([tp])
        reader.seek(tp, log.end_offsets([tp])[tp])
        assert reader.poll(MIB, 0.05) == []
        put(producer, "t", 0, b"after")
        assert values(poll_until(reader, lambda got: len(got) == 1)) == [b"after"]

    @pytest.mark.parametrize("size", [10, 10_000])
    def test_polls_keep_to_their_bytes_and_are_fair(self, make_log: MakeLog, size: int) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 4))
        tps = [TopicPartition("t", p) for p in range(4)]
        producer = log.producer("p")
        producer.begin()
        for i in range(40):
            for p in range(4):
                producer.send("t", p, b"%04d" % i + b"x" * size)
        producer.commit()
        reader = log.consumer()
        reader.assign(tps)
        seen: dict[int, list[bytes]] = {p: [] for p in range(4)}
        budget = 10 * (size + 4)
        while sum(map(len, seen.values())) < 160:
            records = poll_until(reader, lambda got: len(got) > 0, max_bytes=budget)
            assert sum(len(r.value or b"") for r in records) <= budget
            for record in records:
                seen[record.partition].append(bytes(record.value or b"")[:4])
            counts = [len(of_partition) for of_partition in seen.values()]
            assert max(counts) - min(counts) <= 20, "a partition was left behind"
        assert all(of_partition == [b"%04d" % i for i in range(40)] for of_partition in seen.values())

    def test_one_record_larger_than_the_poll_comes_alone(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 2))
        put(log.producer("p"), "t", 0, b"x" * 50_000, b"y" * 50_000)
        reader = log.consumer()
        reader.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
        for expected in (b"x", b"y"):
            (value,) = values(poll_until(reader, lambda got: len(got) > 0, max_bytes=10))
            assert value == expected * 50_000

    def test_paused_partitions_are_left_out(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 2))
        tps = [TopicPartition("t", 0), TopicPartition("t", 1)]
        producer = log.producer("p")
        reader = log.consumer()
        reader.assign(tps)
        reader.pause(tps[:1])
        for p in (0, 1):
            put(producer, "t", p, b"%d" % p)
        assert values(poll_until(reader, lambda got: len(got) == 1)) == [b"1"]
        assert reader.poll(MIB, 0.05) == []
        reader.resume(tps[:1])
        assert values(poll_until(reader, lambda got: len(got) == 1)) == [b"0"]

    def test_tail_reads_to_the_end_and_follows(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 2))
        producer = log.producer("p")
        follower = Follower(log, "t")
        assert follower.new() == []
        for i in range(3):
            put(producer, "t", i % 2, b"%d" % i)
            assert values(follower.new()) == [b"%d" % i]
            assert follower.new() == []
        first, second = read_to_end(log, "t", 0)
        assert values(read_to_end(log, "t", 0, start=second.offset)) == [b"2"]
        assert values(read_to_end(log, "t", 0, start=first.offset + 1)) == [b"2"]
        with pytest.raises(Usage):
            Follower(log, "none")

    def test_begin_end_and_bytes(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 2))
        full, empty = TopicPartition("t", 0), TopicPartition("t", 1)
        put(log.producer("p"), "t", 0, b"x" * 1000, b"y" * 9000)
        records = list(read_to_end(log, "t", 0))
        assert log.begin_offsets([full])[full] <= records[0].offset
        assert log.end_offsets([full])[full] > records[1].offset
        assert log.begin_offsets([empty]) == log.end_offsets([empty])
        assert 9_000 <= log.bytes_after(full, 0) <= 40_000
        assert log.bytes_after(full, log.end_offsets([full])[full]) == 0
        assert log.bytes_after(empty, 0) == 0
        assert log.size_bytes() >= 9000

    def test_wait_returns_when_something_is_committed(self, make_log: MakeLog) -> None:
        log, other = make_log(), make_log()
        log.create_topic(TopicSpec("t", 1))
        producer = other.producer("p")
        while log.wait(0):
            pass
        assert not log.wait(0.02)
        timer = threading.Timer(0.1, put, (producer, "t", 0, b"x"))
        timer.start()
        assert log.wait(PATIENCE_S)
        timer.join()
        while log.wait(0):
            pass
        put(producer, "t", 0, b"y")  # between two waits: not lost
        assert log.wait(PATIENCE_S)

    def test_a_closed_consumer_is_refused(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        consumer = log.consumer()
        consumer.assign([TopicPartition("t", 0)])
        with pytest.raises(Usage):
            consumer.membership()
        with pytest.raises(Usage):
            consumer.position(TopicPartition("t", 5))
        consumer.close()
        consumer.close()
        with pytest.raises(Closed):
            consumer.poll(1, 0)
        log.close()
        log.close()
        with pytest.raises(Closed):
            log.topics()


class OffsetConformance:
    """Committed positions of readers that are no members."""

    def test_offsets_and_records_are_one_transaction(self, make_log: MakeLog) -> None:
        log, other = make_log(), make_log()
        log.create_topic(TopicSpec("t", 2))
        tps = [TopicPartition("t", 0), TopicPartition("t", 1)]
        reader = log.consumer("g")
        reader.assign(tps)
        assert reader.committed(tps) == {tp: None for tp in tps}
        producer = log.producer("p")
        producer.begin()
        producer.send("t", 0, b"x")
        producer.send_offsets(reader.membership(), {tps[0]: Position(7, "ü" * 2048)})
        producer.send_offsets(reader.membership(), {tps[1]: Position(8)})
        assert dict(other.group("g").positions) == {}
        producer.commit()
        expected = {tps[0]: Position(7, "ü" * 2048), tps[1]: Position(8)}
        assert reader.committed(tps) == expected
        assert dict(other.group("g").positions) == expected
        assert other.group("g").members == 0
        assert "g" in other.groups()

    def test_commit_outside_a_transaction(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        reader = log.consumer("g")
        reader.assign([tp])
        for position in (Position(3, "a"), Position(2, "b")):
            reader.commit({tp: position})
            assert reader.committed([tp]) == {tp: position}
        nameless = log.consumer()
        nameless.assign([tp])
        with pytest.raises(Usage):
            nameless.commit({tp: Position(1)})

    def test_too_much_metadata_is_refused(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        reader = log.consumer("g")
        reader.assign([tp])
        producer = log.producer("p")
        producer.begin()
        with pytest.raises(Usage) as caught:
            producer.send_offsets(reader.membership(), {tp: Position(1, "ü" * 2049)})
        assert "4096" in caught.value.expected
        with pytest.raises(Usage):
            reader.commit({tp: Position(-1)})

    def test_a_deleted_group_has_nothing(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        reader = log.consumer("g")
        reader.assign([tp])
        reader.commit({tp: Position(3)})
        log.delete_group("g")
        assert "g" not in log.groups()
        assert dict(log.group("g").positions) == {}

    def test_a_reader_cannot_commit_for_a_group_with_members(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        member, reader = log.consumer("g"), log.consumer("g")
        member.subscribe(["t"], Listener())
        poll_all([member], lambda: bool(member.assignment()))
        reader.assign([tp])
        with pytest.raises(Rebalanced):
            reader.commit({tp: Position(3)})


class CompactionConformance:
    """Compacted topics."""

    def test_the_newest_of_each_key_is_kept(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1, compacted=True))
        producer = log.producer("p")
        for i in range(6):
            producer.begin()
            producer.send("t", 0, b"%d" % i, key=b"k%d" % (i % 2))
            producer.commit()
        producer.begin()
        producer.send("t", 0, None, key=b"k1")
        producer.commit()
        log.maintain()
        table: dict[bytes, bytes] = {}
        for record in read_to_end(make_log(), "t", 0):
            assert record.key is not None
            if record.value is None:
                table.pop(record.key, None)
            else:
                table[record.key] = bytes(record.value)
        assert table == {b"k0": b"4"}

    def test_records_without_key_are_refused(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1, compacted=True))
        producer = log.producer("p")
        producer.begin()
        with pytest.raises(HeadraceError):
            producer.send("t", 0, b"x")
