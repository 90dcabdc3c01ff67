"""Groups: members, assignment, fences. Part of the conformance suite: see ``log_conformance``."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from streams.contracts import Position, TopicPartition, TopicSpec
from streams.errors import Rebalanced
from streams.tail import read_to_end
from tests.contracts.log_helpers import (
    MIB,
    Listener,
    MakeLog,
    poll_all,
    poll_until,
    put,
    values,
)


class GroupConformance:
    """Members, assignment, fences."""

    def test_one_partition_of_all_topics_goes_to_one_member(self, make_log: MakeLog) -> None:
        log, other = make_log(), make_log()
        log.create_topic(TopicSpec("a", 5))
        log.create_topic(TopicSpec("b", 5))
        members = [(log.consumer("g"), Listener()), (other.consumer("g"), Listener())]
        every = {TopicPartition(topic, p) for topic in ("a", "b") for p in range(5)}
        members[0][0].subscribe(["a", "b"], members[0][1])
        poll_all([members[0][0]], lambda: members[0][1].owned == every)
        members[1][0].subscribe(["b", "a"], members[1][1])
        consumers = [consumer for consumer, _ in members]
        poll_all(consumers, lambda: sorted(len(listener.owned) for _, listener in members) == [4, 6])
        owned = [listener.owned for _, listener in members]
        assert owned[0] | owned[1] == every
        for mine in owned:
            assert {tp.partition for tp in mine if tp.topic == "a"} == {tp.partition for tp in mine if tp.topic == "b"}
        assert [set(consumer.assignment()) for consumer in consumers] == owned
        assert log.group("g").members == 2
        members[0][0].close()
        poll_all([members[1][0]], lambda: members[1][1].owned == every)

    def test_reading_goes_on_at_the_committed_offset(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        producer = log.producer("p")
        for i in range(4):
            put(producer, "t", 0, b"%d" % i)
        first = log.consumer("g")
        first.subscribe(["t"], Listener())
        records = poll_until(first, lambda got: len(got) == 4)
        producer.begin()
        producer.send_offsets(first.membership(), {records[2].tp: Position(records[2].offset, "here")})
        producer.commit()
        first.close()
        second = log.consumer("g")
        second.subscribe(["t"], Listener())
        assert values(poll_until(second, lambda got: len(got) == 2)) == [b"2", b"3"]
        assert second.committed([records[0].tp]) == {records[0].tp: Position(records[2].offset, "here")}

    def test_a_seek_in_on_assigned_is_where_reading_starts(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        producer = log.producer("p")
        for i in range(3):
            put(producer, "t", 0, b"%d" % i)
        offsets = [record.offset for record in read_to_end(log, "t", 0)]
        consumer = log.consumer("g")

        class Seeks(Listener):
            def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
                for tp in partitions:
                    assert consumer.committed([tp]) == {tp: None}
                    consumer.seek(tp, offsets[1])

        consumer.subscribe(["t"], Seeks())
        assert values(poll_until(consumer, lambda got: len(got) == 2)) == [b"1", b"2"]

    def test_a_member_that_lost_a_partition_cannot_commit_for_it(self, make_log: MakeLog) -> None:
        log, other = make_log(), make_log()
        log.create_topic(TopicSpec("t", 2))
        log.create_topic(TopicSpec("out", 1))
        old, old_listener, new, new_listener = log.consumer("g"), Listener(), other.consumer("g"), Listener()
        old.subscribe(["t"], old_listener)
        poll_all([old], lambda: len(old_listener.owned) == 2)
        producer = log.producer("p")
        stale = old.membership()
        new.subscribe(["t"], new_listener)
        poll_all([old, new], lambda: len(old_listener.owned) == len(new_listener.owned) == 1)
        (kept,), (lost,) = old_listener.owned, new_listener.owned
        producer.begin()
        producer.send("out", 0, b"zombie")
        producer.send_offsets(stale, {lost: Position(1)})
        with pytest.raises(Rebalanced):
            producer.commit()
        assert new.committed([lost]) == {lost: None}
        # The producer stays usable, also for what was kept all the time.
        producer.begin()
        producer.send("out", 0, b"mine")
        producer.send_offsets(old.membership(), {kept: Position(1)})
        producer.commit()
        assert values(read_to_end(log, "out", 0)) == [b"mine"]
        assert old.committed([kept]) == {kept: Position(1)}

    def test_a_partition_lost_and_regained_does_not_revive_the_old_membership(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        first, first_listener = log.consumer("g"), Listener()
        first.subscribe(["t"], first_listener)
        poll_all([first], lambda: first_listener.owned == {tp})
        stale = first.membership()
        first.close()
        again, again_listener = log.consumer("g"), Listener()
        again.subscribe(["t"], again_listener)
        poll_all([again], lambda: again_listener.owned == {tp})
        producer = log.producer("p")
        producer.begin()
        producer.send_offsets(stale, {tp: Position(1)})
        with pytest.raises(Rebalanced):
            producer.commit()

    def test_the_same_member_cannot_use_a_membership_from_before_it_lost_the_partition(self, make_log: MakeLog) -> None:
        log, other = make_log(), make_log()
        log.create_topic(TopicSpec("t", 2))
        first, first_listener, second, second_listener = log.consumer("g"), Listener(), other.consumer("g"), Listener()
        first.subscribe(["t"], first_listener)
        poll_all([first], lambda: len(first_listener.owned) == 2)
        stale = first.membership()
        second.subscribe(["t"], second_listener)
        poll_all([first, second], lambda: len(second_listener.owned) == len(first_listener.owned) == 1)
        (moved,) = second_listener.owned
        second.close()
        poll_all([first], lambda: len(first_listener.owned) == 2)
        producer = log.producer("p")
        for membership, allowed in ((stale, False), (first.membership(), True)):
            producer.begin()
            producer.send_offsets(membership, {moved: Position(1)})
            if allowed:
                producer.commit()
            else:
                with pytest.raises(Rebalanced):
                    producer.commit()

    def test_a_membership_of_a_deleted_group_is_worth_nothing_in_the_next_of_that_name(self, make_log: MakeLog) -> None:
        log, other = make_log(), make_log()
        log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        old, old_listener, new, new_listener = log.consumer("g"), Listener(), other.consumer("g"), Listener()
        old.subscribe(["t"], old_listener)
        poll_all([old], lambda: old_listener.owned == {tp})
        stale = old.membership()
        log.delete_group("g")
        new.subscribe(["t"], new_listener)
        poll_all([new], lambda: new_listener.owned == {tp})
        producer = log.producer("p")
        producer.begin()
        producer.send_offsets(stale, {tp: Position(1)})
        with pytest.raises(Rebalanced):
            producer.commit()

    def test_offsets_of_topics_outside_the_subscription_are_stored_unchecked(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 1))
        log.create_topic(TopicSpec("side", 1))
        side = TopicPartition("side", 0)
        member, listener = log.consumer("g"), Listener()
        member.subscribe(["t"], listener)
        poll_all([member], lambda: bool(listener.owned))
        producer = log.producer("p")
        producer.begin()
        producer.send_offsets(member.membership(), {side: Position(4, "s"), TopicPartition("t", 0): Position(0)})
        producer.commit()
        assert member.committed([side]) == {side: Position(4, "s")}

    def test_paused_partitions_keep_the_member_alive_and_other_members_get_the_rest(self, make_log: MakeLog) -> None:
        log = make_log()
        log.create_topic(TopicSpec("t", 2))
        put(log.producer("p"), "t", 0, b"0")
        member, listener = log.consumer("g"), Listener()
        member.subscribe(["t"], listener)
        poll_all([member], lambda: len(listener.owned) == 2)
        member.seek(TopicPartition("t", 0), 0)
        member.pause(list(listener.owned))
        assert member.poll(MIB, 0.05) == []
        member.resume(list(listener.owned))
        assert values(poll_until(member, lambda got: len(got) == 1)) == [b"0"]

    def test_a_member_of_a_deleted_group_is_thrown_out(self, make_log: MakeLog) -> None:
        log, other = make_log(), make_log()
        log.create_topic(TopicSpec("t", 1))
        tp = TopicPartition("t", 0)
        member, listener = log.consumer("g"), Listener()
        member.subscribe(["t"], listener)
        poll_all([member], lambda: listener.owned == {tp})
        stale = member.membership()
        producer = log.producer("p")
        other.delete_group("g")
        producer.begin()
        producer.send_offsets(stale, {tp: Position(1)})
        with pytest.raises(Rebalanced):
            producer.commit()
        poll_all([member], lambda: ("revoked", (tp,)) in listener.events)
