"""Who reads what: the division, and members that die, stand still or stop polling."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.contracts import Position, TopicPartition, TopicSpec
from streams.embedded.groups import divide
from streams.embedded.log import EmbeddedLog, Patience, open_log
from streams.errors import Rebalanced
from tests.contracts.log_helpers import PATIENCE_S, Listener, poll_all, put, values
from tests.streams.log_programs import IN, PARTITIONS, start_log
from tests.streams.processes import Program, running

NAMES = st.sets(st.sampled_from("abcdefgh"), min_size=1)


@given(st.sets(st.integers(0, 40)), NAMES, st.dictionaries(st.integers(0, 40), st.sampled_from("abcdefgh")))
def test_division_is_even_and_keeps_what_it_can(units: set[int], members: set[str], held: dict[int, str]) -> None:
    result = divide(list(units), list(members), held)
    assert set(result) == units
    counts = Counter({member: 0 for member in members})
    counts.update(result.values())
    assert set(counts) == members
    assert max(counts.values()) - min(counts.values()) <= 1
    # No even division moves less: each member keeps min(what it has, a quota), the larger quotas where they help most.
    floor, more = divmod(len(units), len(members))
    have = sorted((sum(held.get(u) == m for u in units) for m in members), reverse=True)
    best = sum(min(n, floor + (rank < more)) for rank, n in enumerate(have))
    assert sum(held.get(unit) == member for unit, member in result.items()) == best


@given(st.integers(1, 30), NAMES)
def test_division_does_not_depend_on_order(count: int, members: set[str]) -> None:
    units = list(range(count))
    assert divide(units, sorted(members), {}) == divide(units[::-1], sorted(members, reverse=True), {})


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_partitions_of_a_killed_member_move_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path, session_timeout_s=60.0)
    log.create_topic(IN)
    victim = Program("work", tmp_path, "victim")
    with running(victim):
        victim.expect("working")
        member, listener = log.consumer("workers"), Listener()
        member.subscribe(["in"], listener)
        poll_all([member], lambda: len(listener.owned) == PARTITIONS // 2)
        assert log.group("workers").members == 2
        victim.signal(signal.SIGKILL)
        began = time.monotonic()
        poll_all([member], lambda: len(listener.owned) == PARTITIONS)
        assert time.monotonic() - began < 10.0, "its lock is free long before the session is over"
        wait_until(lambda: log.group("workers").members == 1)
    log.close()


def test_a_member_that_stands_still_loses_its_partitions_and_comes_back(tmp_path: Path) -> None:
    log = start_log(tmp_path)
    sleeper = Program("work", tmp_path, "sleeper")
    with running(sleeper):
        sleeper.expect("working")
        member, listener = log.consumer("workers"), Listener()
        member.subscribe(["in"], listener)
        poll_all([member], lambda: len(listener.owned) == PARTITIONS // 2)
        sleeper.signal(signal.SIGSTOP)
        poll_all([member], lambda: len(listener.owned) == PARTITIONS)
        sleeper.signal(signal.SIGCONT)
        poll_all([member], lambda: len(listener.owned) == PARTITIONS // 2)
    log.close()


def test_a_member_that_stops_polling_loses_its_partitions(tmp_path: Path) -> None:
    log = open_log(tmp_path, session_timeout_s=0.3, patience=Patience(poll_timeout_s=0.4))
    log.create_topic(TopicSpec("t", 2))
    busy, busy_listener, idle, idle_listener = log.consumer("g"), Listener(), log.consumer("g"), Listener()
    busy.subscribe(["t"], busy_listener)
    idle.subscribe(["t"], idle_listener)
    poll_all([busy, idle], lambda: len(busy_listener.owned) == len(idle_listener.owned) == 1)
    stale = idle.membership()
    (lost,) = idle_listener.owned
    poll_all([busy], lambda: len(busy_listener.owned) == 2)
    producer = log.producer("p")
    producer.begin()
    producer.send_offsets(stale, {lost: Position(1)})
    with pytest.raises(Rebalanced):
        producer.commit()
    poll_all([busy, idle], lambda: ("revoked", (lost,)) in idle_listener.events)
    poll_all([busy, idle], lambda: len(idle_listener.owned) == 1)
    log.close()


def test_beats_go_on_between_polls(tmp_path: Path) -> None:
    log = open_log(tmp_path, session_timeout_s=0.3)
    log.create_topic(TopicSpec("t", 1))
    member, listener = log.consumer("g"), Listener()
    member.subscribe(["t"], listener)
    poll_all([member], lambda: bool(listener.owned))
    time.sleep(1.0)
    log.maintain()
    member.commit({TopicPartition("t", 0): Position(1)})
    assert listener.events == [("assigned", (TopicPartition("t", 0),))]
    log.close()


def test_a_transaction_of_kept_partitions_survives_a_rebalance(log: EmbeddedLog) -> None:
    log.create_topic(TopicSpec("t", 2))
    old, old_listener = log.consumer("g"), Listener()
    old.subscribe(["t"], old_listener)
    poll_all([old], lambda: len(old_listener.owned) == 2)
    producer = log.producer("p")
    membership = old.membership()
    new, new_listener = log.consumer("g"), Listener()
    new.subscribe(["t"], new_listener)
    poll_all([new], lambda: len(new_listener.owned) == 1)
    (kept,) = {TopicPartition("t", 0), TopicPartition("t", 1)} - new_listener.owned
    producer.begin()
    producer.send_offsets(membership, {kept: Position(1)})
    producer.commit()
    assert old.committed([kept]) == {kept: Position(1)}


def test_members_with_different_topics(log: EmbeddedLog) -> None:
    for name in ("both", "left", "right"):
        log.create_topic(TopicSpec(name, 2))
    left, left_listener, right, right_listener = log.consumer("g"), Listener(), log.consumer("g"), Listener()
    left.subscribe(["both", "left"], left_listener)
    right.subscribe(["both", "right"], right_listener)
    poll_all([left, right], lambda: len(left_listener.owned) == len(right_listener.owned) == 3)
    assert {tp.topic for tp in left_listener.owned} == {"both", "left"}
    assert {tp.topic for tp in right_listener.owned} == {"both", "right"}


def test_a_topic_made_again_is_divided_again(log: EmbeddedLog) -> None:
    log.create_topic(TopicSpec("t", 1))
    member, listener = log.consumer("g"), Listener()
    member.subscribe(["t"], listener)
    poll_all([member], lambda: len(listener.owned) == 1)
    log.delete_topic("t")
    poll_all([member], lambda: not listener.owned)
    log.create_topic(TopicSpec("t", 3))
    poll_all([member], lambda: len(listener.owned) == 3)
    put(log.producer("p"), "t", 2, b"x")
    assert values(member.poll(10, 5.0)) == [b"x"]


def test_handles_are_safe_between_threads(log: EmbeddedLog) -> None:
    log.create_topic(TopicSpec("t", 4))
    failures: list[BaseException] = []

    def write(number: int) -> None:
        try:
            producer = log.producer(f"p{number}")
            for i in range(30):
                put(producer, "t", number, b"%d" % i, b"x" * 5000)
                log.end_offsets([TopicPartition("t", p) for p in range(4)])
        except BaseException as error:
            failures.append(error)

    def read(number: int) -> None:
        try:
            consumer = log.consumer()
            consumer.assign([TopicPartition("t", number)])
            count = 0
            while count < 60:
                log.wait(0.05)
                count += len(consumer.poll(100_000, 0.5))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=act, args=(n,)) for n in range(4) for act in (write, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert failures == []
