"""The loop of a stage on the real log: a copying stage that is disturbed writes each record once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from streams.clock import SystemClock
from streams.contracts import Consumer, Position, Producer, TopicPartition, TopicSpec
from streams.embedded.log import EmbeddedLog, Patience, open_log
from streams.errors import Broken
from streams.exactly_once import ExactlyOnce
from tests.contracts.log_helpers import poll_until, put, values

IN, OUT = TopicSpec("in", 2), TopicSpec("out", 1)
POLL_TIMEOUT_S = 3.0


class Copier:
    """Copies ``in`` to ``out``, a record a transaction; holds what it read and did not write yet."""

    def __init__(self, log: EmbeddedLog) -> None:
        self.loop = ExactlyOnce(log, "copy", [IN.name], self, clock=SystemClock())
        self.held: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        self.trouble: Exception | None = None

    def place(self, consumer: Consumer, committed: Mapping[TopicPartition, Position | None]) -> None:
        for tp, position in committed.items():
            self.held[tp] = []
            consumer.seek(tp, position.offset if position else 0)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self.held.pop(tp, None)

    def forget(self) -> None:
        self.held.clear()

    def step(self) -> bool:
        return self.loop.turn(self._turn)

    def _turn(self, consumer: Consumer, producer: Producer) -> bool:
        if any(self.held.values()):
            self.loop.attend()
        else:
            for record in self.loop.read(1 << 20)[0]:
                assert record.value is not None
                self.held[record.tp].append((record.offset, bytes(record.value)))
        for tp, held in self.held.items():
            if held:
                producer.begin()
                producer.send(OUT.name, 0, held[0][1])
                producer.send_offsets(consumer.membership(), {tp: Position(held[0][0] + 1)})
                if self.trouble:
                    raise self.trouble
                producer.commit()
                held.pop(0)
                return True
        return False


@pytest.fixture
def log(tmp_path: Path) -> Iterable[EmbeddedLog]:
    log = open_log(tmp_path, session_timeout_s=1.5, patience=Patience(poll_timeout_s=POLL_TIMEOUT_S))
    for spec in (IN, OUT):
        log.create_topic(spec)
    yield log
    log.close()


def fill(log: EmbeddedLog, count: int) -> list[bytes]:
    written = [f"{number}".encode() for number in range(count)]
    producer = log.producer("fill")
    put(producer, IN.name, 0, *written[::2])
    put(producer, IN.name, 1, *written[1::2])
    producer.close()
    return written


def copied(log: EmbeddedLog) -> list[bytes]:
    consumer = log.consumer()
    consumer.assign([TopicPartition(OUT.name, 0)])
    return values(poll_until(consumer, lambda _: consumer.position(TopicPartition(OUT.name, 0)) >= end_of(log)))


def end_of(log: EmbeddedLog) -> int:
    tp = TopicPartition(OUT.name, 0)
    return log.end_offsets([tp])[tp]


def drain(*copiers: Copier) -> None:
    idle = 0
    while idle < 5:
        idle = 0 if any([copier.step() for copier in copiers]) else idle + 1


def test_an_error_of_a_turn_is_the_callers_and_the_next_turn_begins_again(log: EmbeddedLog) -> None:
    written, copier = fill(log, 6), Copier(log)
    while not any(copier.held.values()):
        copier.step()
    copier.trouble = Broken(expected="a", got="b", where="c", do="d")
    for _ in range(2):
        with pytest.raises(Broken):
            drain(copier)
        assert copier.loop.settled is None
    copier.trouble = None
    drain(copier)
    assert sorted(copied(log)) == sorted(written)
    assert copier.loop.settled is not None
    copier.loop.close()


def test_a_fence_is_a_transaction_of_ours_that_was_given_up(log: EmbeddedLog) -> None:
    written, copier = fill(log, 4), Copier(log)
    while not copier.step():
        pass
    log.producer(copier.loop._transactional_id).close()
    drain(copier)
    assert sorted(copied(log)) == sorted(written)
    copier.loop.close()


def test_partitions_that_move_are_written_once(log: EmbeddedLog) -> None:
    written, first = fill(log, 40), Copier(log)
    for _ in range(6):
        first.step()
    second = Copier(log)
    for _ in range(6):
        second.step()
        first.step()
    assert second.held, "the second one got a share"
    first.loop.close()
    drain(second)
    assert sorted(copied(log)) == sorted(written)
    second.loop.close()


def test_who_only_writes_for_long_stays_a_member(log: EmbeddedLog) -> None:
    written, busy, other = fill(log, 400), Copier(log), Copier(log)
    while not any(busy.held.values()):
        busy.step()
    held = set(busy.held)
    begin, joined = time.monotonic(), False
    while any(busy.held.values()):
        busy.step()
        time.sleep(0.05)
        if not joined and time.monotonic() - begin > 2 * POLL_TIMEOUT_S:
            assert (set(busy.held), log.group("copy").members) == (held, 1), "it polled, so nothing was taken away"
            joined = True
            while not any(other.held.values()):  # and a new member gets its share before the first one reads again
                busy.step()
                other.step()
    assert joined
    drain(busy, other)
    assert sorted(copied(log)) == sorted(written)
    for copier in (busy, other):
        copier.loop.close()
