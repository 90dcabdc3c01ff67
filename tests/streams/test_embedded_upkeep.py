"""Retention, compaction, files: what may go goes, what somebody needs stays."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.contracts import Position, TopicPartition, TopicSpec
from streams.embedded import upkeep
from streams.embedded.log import EmbeddedLog, Patience, open_log
from streams.tail import read_to_end
from tests.contracts.log_helpers import Listener, poll_all

TP = TopicPartition("t", 0)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    opened = open_log(tmp_path / "log", patience=Patience(group_ttl_s=1000.0))
    yield opened
    opened.close()


def fill(log: EmbeddedLog, count: int, size: int, partitions: int = 1) -> None:
    producer = log.producer("p")
    producer.begin()
    for i in range(count):
        for p in range(partitions):
            producer.send("t", p, b"%06d" % i + b"x" * (size - 6))
    producer.commit()
    producer.close()


def maintain(log: EmbeddedLog) -> None:
    """Until there is nothing to do."""
    for _ in range(20):
        log.maintain()


def first(log: EmbeddedLog, tp: TopicPartition = TP) -> int:
    return log.begin_offsets([tp])[tp]


@pytest.mark.parametrize("size", [1000, 10_000])
def test_a_partition_keeps_its_newest_bytes(log: EmbeddedLog, size: int) -> None:
    log.create_topic(TopicSpec("t", 1, retention_bytes=20 * size))
    fill(log, 100, size)
    maintain(log)
    assert first(log) == 80
    assert [bytes(r.value or b"")[:6] for r in read_to_end(log, "t", 0)] == [b"%06d" % i for i in range(80, 100)]
    assert log.bytes_after(TP, 0) == 20 * size


def test_without_a_limit_nothing_goes(log: EmbeddedLog) -> None:
    log.create_topic(TopicSpec("t", 1))
    fill(log, 100, 10_000)
    maintain(log)
    assert first(log) == 0


def test_more_rows_than_one_transaction_takes(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "ROWS_A_TRANSACTION", 7)
    log.create_topic(TopicSpec("t", 1, retention_bytes=5000))
    fill(log, 100, 1000)
    maintain(log)
    assert first(log) == 95


def test_nothing_a_member_has_not_committed_goes(log: EmbeddedLog) -> None:
    log.create_topic(TopicSpec("t", 1, retention_bytes=1))
    fill(log, 50, 1000)
    member, listener = log.consumer("g"), Listener()
    member.subscribe(["t"], listener)
    maintain(log)
    assert first(log) == 0, "a member without offsets needs all"
    member.close()
    maintain(log)
    assert first(log) == 0, "also after it left"
    member = log.consumer("g")
    member.subscribe(["t"], listener)
    poll_all([member], lambda: bool(listener.owned))
    member.commit({TP: Position(30)})
    maintain(log)
    assert first(log) == 30
    member.close()
    maintain(log)
    assert first(log) == 30, "a group without members keeps what it needs"


def test_a_group_with_an_offset_in_one_partition_needs_all_of_the_others(log: EmbeddedLog) -> None:
    log.create_topic(TopicSpec("t", 2, retention_bytes=1))
    fill(log, 10, 1000, partitions=2)
    reader = log.consumer("g")
    reader.commit({TP: Position(9)})
    maintain(log)
    assert first(log) == 9
    assert first(log, TopicPartition("t", 1)) == 0


def test_a_reader_that_is_no_member_is_safe_before_its_first_commit(log: EmbeddedLog) -> None:
    log.create_topic(TopicSpec("t", 1, retention_bytes=1))
    fill(log, 10, 1000)
    reader = log.consumer("train")
    reader.assign([TP])
    maintain(log)
    assert first(log) == 0
    assert reader.committed([TP]) == {TP: None}
    assert dict(log.group("train").positions) == {}
    reader.commit({TP: Position(4)})
    maintain(log)
    assert first(log) == 4
    log.delete_group("train")
    maintain(log)
    assert first(log) == 9


def test_the_slowest_group_counts_until_it_has_been_silent_for_its_time(
    log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.create_topic(TopicSpec("t", 1, retention_bytes=1))
    fill(log, 10, 1000)
    fast, slow = log.consumer("fast"), log.consumer("slow")
    fast.commit({TP: Position(8)})
    slow.commit({TP: Position(2)})
    maintain(log)
    assert first(log) == 2
    real_wall, real_boot = time.time, upkeep.boottime_s
    monkeypatch.setattr(time, "time", lambda: real_wall() + 2000)
    maintain(log)
    assert first(log) == 2, "the wall clock alone jumped"
    monkeypatch.setattr(upkeep, "boottime_s", lambda: real_boot() + 2000)
    maintain(log)
    assert first(log) == 9


def test_views_stay_valid_when_their_segment_is_removed(log: EmbeddedLog) -> None:
    log.create_topic(TopicSpec("t", 1))
    fill(log, 10, 50_000)
    records = list(read_to_end(log, "t", 0))
    log.delete_topic("t")
    maintain(log)
    assert list((log.directory / "seg").iterdir()) == []
    for i, record in enumerate(records):
        assert record.value == b"%06d" % i + b"x" * (50_000 - 6)


def test_a_segment_in_use_stays(log: EmbeddedLog, tmp_path: Path) -> None:
    other = open_log(tmp_path / "log")
    log.create_topic(TopicSpec("t", 1))
    producer = log.producer("open")
    producer.begin()
    producer.send("t", 0, b"y" * 10_000)
    for _ in range(5):
        other.maintain()
    producer.commit()
    assert [len(r.value or b"") for r in read_to_end(other, "t", 0)] == [10_000]
    other.close()


def test_all_segments_of_an_open_transaction_stay(
    log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.embedded.segments.SEGMENT_BYTES", 64 * 1024)
    other = open_log(tmp_path / "log")
    log.create_topic(TopicSpec("t", 1))
    producer = log.producer("open")
    producer.begin()
    for i in range(10):
        producer.send("t", 0, bytes([i]) * 30_000)
        maintain(other)
    producer.commit()
    assert [bytes(r.value or b"") for r in read_to_end(other, "t", 0)] == [bytes([i]) * 30_000 for i in range(10)]
    other.close()


def test_aborted_bytes_are_written_over(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.embedded.segments.SEGMENT_BYTES", 64 * 1024)
    log.create_topic(TopicSpec("t", 1))
    producer = log.producer("p")
    for _ in range(20):
        producer.begin()
        producer.send("t", 0, b"x" * 30_000)
        producer.abort()
    assert len(list((log.directory / "seg").iterdir())) == 1


def test_orphans_go(log: EmbeddedLog) -> None:
    for folder in ("seg", "members"):
        (log.directory / folder / "left-behind").write_bytes(b"x")
    maintain(log)
    assert [path.name for folder in ("seg", "members") for path in (log.directory / folder).iterdir()] == []


def test_values_across_many_segments(log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.embedded.segments.SEGMENT_BYTES", 64 * 1024)
    monkeypatch.setattr("streams.embedded.segments.MAX_MAPS", 3)
    log.create_topic(TopicSpec("t", 1, retention_bytes=200_000))
    producer = log.producer("p")
    sizes = [4097, 30_000, 64 * 1024, 64 * 1024 + 1, 200_000, 5000] * 5
    for at in range(0, len(sizes), 3):
        producer.begin()
        for i in range(at, at + 3):
            producer.send("t", 0, bytes([i]) * sizes[i])
        if at % 2:
            producer.abort()
            producer.begin()
            for i in range(at, at + 3):
                producer.send("t", 0, bytes([i]) * sizes[i])
        producer.commit()
    records = list(read_to_end(log, "t", 0))
    assert [bytes(r.value or b"") for r in records] == [bytes([i]) * size for i, size in enumerate(sizes)]
    files = len(list((log.directory / "seg").iterdir()))
    maintain(log)
    assert len(list((log.directory / "seg").iterdir())) < files / 2
    assert [bytes(r.value or b"") for r in records] == [bytes([i]) * size for i, size in enumerate(sizes)]


class TestCompaction:
    def write(self, log: EmbeddedLog, *pairs: tuple[bytes, bytes | None]) -> None:
        producer = log.producer("c")
        producer.begin()
        for key, value in pairs:
            producer.send("t", 0, value, key=key)
        producer.commit()

    def rows(self, log: EmbeddedLog) -> list[tuple[bytes | None, bytes | None]]:
        return [(r.key, None if r.value is None else bytes(r.value)) for r in read_to_end(log, "t", 0)]

    @pytest.mark.parametrize("limit", [1, 2, 3, 2000])
    def test_only_the_newest_of_a_key_stays(
        self, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch, limit: int
    ) -> None:
        monkeypatch.setattr(upkeep, "ROWS_A_TRANSACTION", limit)
        log.create_topic(TopicSpec("t", 1, compacted=True))
        for i in range(10):
            self.write(log, (b"a", b"%d" % i), (b"b", b"x" * 5000 + b"%d" % i), (b"only%d" % i, b""))
        for _ in range(30):
            log.maintain()
        kept = [(b"only%d" % i, b"") for i in range(9)] + [(b"a", b"9"), (b"b", b"x" * 5000 + b"9"), (b"only9", b"")]
        assert self.rows(log) == kept

    def test_deletions_go_after_a_day(self, log: EmbeddedLog, monkeypatch: pytest.MonkeyPatch) -> None:
        log.create_topic(TopicSpec("t", 1, compacted=True))
        self.write(log, (b"a", b"1"), (b"b", b"2"))
        self.write(log, (b"a", None))
        maintain(log)
        assert self.rows(log) == [(b"b", b"2"), (b"a", None)]
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + upkeep.TOMBSTONES_S + 10)
        maintain(log)
        assert self.rows(log) == [(b"b", b"2")]
        self.write(log, (b"a", b"3"))
        maintain(log)
        assert self.rows(log) == [(b"b", b"2"), (b"a", b"3")]
