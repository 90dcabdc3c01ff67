"""Topics, producers, visibility. Part of the conformance suite: see ``log_conformance``."""

from __future__ import annotations

import pytest

from streams.contracts import Position, TopicPartition, TopicSpec
from streams.errors import Closed, Exhausted, Fenced, HeadraceError, SchemaMismatch, Usage
from streams.tail import read_to_end
from tests.contracts.log_helpers import (
    MIB,
    Listener,
    MakeLog,
    poll_until,
    put,
    values,
)


class TopicConformance:
    """Topics."""

    def test_a_topic_is_created_once_and_described_by_all_handles(self, make_log: MakeLog) -> None:
        log, other = make_log(), make_log()
        spec = TopicSpec("a.b_c-1", 3, retention_bytes=None, max_message_bytes=1000)
        info = log.create_topic(spec)
        assert other.topic("a.b_c-1") == info == other.create_topic(spec)
        assert info.spec == spec
        assert log.topic("none") is None
        other.create_topic(TopicSpec("a", 1))
        assert [topic.spec.name for topic in log.topics()] == ["a", "a.b_c-1"]
        assert log.id == other.id

    @pytest.mark.parametrize("spec", [TopicSpec("t", 3), TopicSpec("t", 2, compacted=True)])
    def test_another_shape_of_an_existing_topic_is_refused_with_the_numbers(
        self, make_log: MakeLog, spec: TopicSpec
    ) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 2))
        with pytest.raises(SchemaMismatch) as caught:
            log.create_topic(spec)
        assert "2" in caught.value.got
        assert str(spec.partitions) in caught.value.expected

    @pytest.mark.parametrize("name", ["", "a/b", "x" * 201, "ü", "a b"])
    def test_names_that_no_backend_takes_are_refused(self, make_log: MakeLog, name: str) -> None:
        with pytest.raises(Usage):
            make_log().create_topic(TopicSpec(name, 1))

    def test_a_topic_made_again_has_another_id_and_nothing_of_the_old(self, make_log: MakeLog) -> None:
        log = make_log()
        old = log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        with_offsets = log.consumer("g")
        with_offsets.assign([tp])
        put(log.producer("p"), "t", 0, b"old", b"x" * 5000)
        with_offsets.commit({tp: Position(1, "m")})
        log.delete_topic("t")
        assert log.topic("t") is None
        new = make_log().create_topic(TopicSpec("t", 1))
        assert new.id != old.id
        assert list(read_to_end(log, "t", 0)) == []
        fresh = log.consumer("g")
        fresh.assign([tp])
        assert fresh.committed([tp]) == {tp: None}
        put(log.producer("p"), "t", 0, b"new")
        assert values(read_to_end(log, "t", 0)) == [b"new"]

    def test_unknown_topics_and_partitions_are_refused(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        producer = log.producer("p")
        producer.begin()
        with pytest.raises(Usage):
            producer.send("none", 0, b"")
        with pytest.raises(Usage):
            producer.send("t", 1, b"")
        with pytest.raises(Usage):
            log.end_offsets([TopicPartition("t", 7)])
        with pytest.raises(Usage):
            log.delete_topic("none")
        with pytest.raises(Usage):
            log.consumer("g").subscribe(["none"], Listener())


class TransactionConformance:
    """Producers and visibility."""

    def test_what_is_sent_comes_back_as_it_was(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 2))
        sent = [
            (b"", None, ()),
            (b"small", b"key", (("h", b"1"), ("h", b"2"), ("empty", b""))),
            (b"\0" * 4096, b"", (("ü", bytes(range(256))),)),
            (bytes(range(256)) * 17, None, ()),
            (b"z" * 300_000, b"k" * 500, (("big", b"y" * 70_000),)),
        ]
        producer = log.producer("p")
        producer.begin()
        for value, key, headers in sent:
            producer.send("t", 1, memoryview(value), key=key, headers=headers)
        producer.commit()
        records = list(read_to_end(make_log(), "t", 1))
        assert [(bytes(r.value or b""), r.key, r.headers) for r in records] == sent
        assert all(r.value is not None and r.value.readonly for r in records)
        assert records[1].header("h") == b"1"
        assert [r.offset for r in records] == sorted({r.offset for r in records})

    def test_nothing_is_visible_before_the_commit_and_all_of_it_after(self, make_log: MakeLog) -> None:
        log, other = make_log(), make_log()
        tps = [TopicPartition(topic, p) for topic in ("a", "b") for p in (0, 1)]
        for topic in ("a", "b"):
            log.create_topic(TopicSpec(topic, 2))
        reader = other.consumer()
        reader.assign(tps)
        producer = log.producer("p")
        producer.begin()
        for tp in tps:
            producer.send(*tp, b"v" * 10_000)
        assert reader.poll(MIB, 0) == []
        producer.commit()
        assert {r.tp for r in poll_until(reader, lambda got: len(got) == 4)} == set(tps)

    def test_an_aborted_transaction_leaves_nothing(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        member = log.consumer("g")
        member.assign([tp])
        producer = log.producer("p")
        producer.abort()
        for size in (1, 10_000):
            producer.begin()
            producer.send("t", 0, b"a" * size)
            producer.send_offsets(member.membership(), {tp: Position(5)})
            producer.abort()
            put(producer, "t", 0, b"b" * size)
        assert values(read_to_end(log, "t", 0)) == [b"b", b"b" * 10_000]
        assert member.committed([tp]) == {tp: None}

    def test_order_of_transactions_and_of_records_within(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        first, second = log.producer("p1"), log.producer("p2")
        first.begin()
        second.begin()
        for i in range(3):
            first.send("t", 0, b"first%d" % i)
            second.send("t", 0, b"second%d" % i)
        second.commit()
        first.commit()
        got = values(read_to_end(log, "t", 0))
        assert [v for v in got if v.startswith(b"f")] == [b"first0", b"first1", b"first2"]
        assert [v for v in got if v.startswith(b"s")] == [b"second0", b"second1", b"second2"]

    def test_a_newer_producer_fences_the_older_in_any_state(self, make_log: MakeLog) -> None:
        log, other = make_log(), make_log()
        log.create_topic(TopicSpec("t", 1))
        old = log.producer("p")
        old.begin()
        old.send("t", 0, b"old")
        new = other.producer("p")
        with pytest.raises(Fenced):
            old.commit()
        put(new, "t", 0, b"new")
        with pytest.raises(HeadraceError):
            old.begin()
        old.close()
        assert values(read_to_end(log, "t", 0)) == [b"new"]

    def test_a_fenced_transaction_with_only_offsets_is_refused_too(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        reader = log.consumer("g")
        reader.assign([tp])
        old = log.producer("p")
        log.producer("p")
        old.begin()
        old.send_offsets(reader.membership(), {tp: Position(1)})
        with pytest.raises(Fenced):
            old.commit()
        assert reader.committed([tp]) == {tp: None}

    def test_too_large_a_message_is_refused_and_the_producer_goes_on(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1, max_message_bytes=100))
        producer = log.producer("p")
        producer.begin()
        with pytest.raises(Exhausted) as caught:
            producer.send("t", 0, b"x" * 101)
        assert "100" in caught.value.expected
        assert "101" in caught.value.got
        producer.abort()
        put(producer, "t", 0, b"x" * 100)
        assert len(values(read_to_end(log, "t", 0))) == 1

    def test_states_are_checked(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        producer = log.producer("p")
        for act in (lambda: producer.send("t", 0, b""), producer.commit):
            with pytest.raises(Usage):
                act()
        producer.begin()
        with pytest.raises(Usage):
            producer.begin()
        with pytest.raises(Usage):
            producer.send("t", 0, None)
        producer.commit()
        producer.close()
        producer.close()
        with pytest.raises(Closed):
            producer.begin()

    def test_values_may_be_overwritten_by_the_caller_after_send(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        producer = log.producer("p")
        producer.begin()
        for size in (100, 100_000):
            value = bytearray(b"a" * size)
            producer.send("t", 0, memoryview(value))
            value[:] = b"b" * size
        producer.commit()
        assert values(read_to_end(log, "t", 0)) == [b"a" * 100, b"a" * 100_000]

    def test_values_stay_valid_after_the_log_is_closed(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        put(log.producer("p"), "t", 0, b"q" * 100_000)
        (record,) = read_to_end(log, "t", 0)
        log.close()
        assert record.value == b"q" * 100_000
