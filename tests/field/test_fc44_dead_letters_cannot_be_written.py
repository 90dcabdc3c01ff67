"""Field case 44: the dead-letter topic cannot be written. The stage stops and says so; nothing is lost, no position moves."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from experiments import names
from experiments.publishing import view_topics
from preprocess.contracts import Config
from preprocess.join.worker import JoinWorker
from preprocess.status import join_report
from streams.clock import SettableClock
from streams.contracts import Log, Position, Record, TopicPartition, TopicSpec
from streams.errors import Exhausted, HeadraceError, Usage
from streams.tail import read_to_end
from tests.preprocess.join.test_worker import check
from tests.preprocess.join.world import World, joined_of

SMALL = Config(transaction_messages=2, poll_bytes=700, settle_rows=3)


def worker_of(log: Log, world: World) -> JoinWorker:
    return JoinWorker(log, world.view, SMALL, clock=SettableClock())


def prepared(log: Log) -> World:
    world = World.random(5, files=20)
    world.items = [("a", number, number // 5, float(number)) for number in range(15)]
    world.create(log)
    world.write_items(log)
    world.write(log, 0, len(world.messages))
    return world


def state(log: Log, world: World) -> tuple[dict[TopicPartition, Position], int]:
    """Committed positions, and messages that can be seen."""
    positions = dict(log.group(names.join_group(world.view.name)).positions)
    return positions, sum(len(joined_of(log, world.view, p)[0]) for p in world.rows)


def fail(log: Log, world: World, worker: JoinWorker, kind: type[HeadraceError], topic: str) -> None:
    """It fails, and fails again; a step that fails moves nothing, and no row is counted as kept aside."""
    for _ in range(3):
        while (error := failure(log, world, worker)) is None:
            pass
        assert type(error) is kind
        assert topic in str(error)
        assert error.do
        assert sum(part.rejected for part in join_report(log, world.view)) == 0
    assert not all(part.at_end for part in join_report(log, world.view)), "it looks healthy"


def failure(log: Log, world: World, worker: JoinWorker) -> HeadraceError | None:
    """What a step raised; asserts that it then changed nothing."""
    before = state(log, world)
    try:
        worker.step()
    except HeadraceError as error:
        assert state(log, world) == before
        return error
    return None


def finish(worker: JoinWorker) -> None:
    while worker.step():
        pass
    worker.close()


def create_again(log: Log, world: World, topic: str) -> None:
    log.create_topic(next(spec for spec in view_topics(world.view) if spec.name == topic))


@pytest.mark.parametrize("successor", ["the same worker", "another"])
@pytest.mark.parametrize("which", ["dlq", "side"])
def test_deleted_while_running(log: Log, which: str, successor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preprocess.join.worker.LETTERS", 3)  # so that side rows take several transactions
    world = prepared(log)
    topic = (names.dead_letters if which == "dlq" else names.side)(world.view.name)
    worker = worker_of(log, world)
    while not worker.report()["partitions"]:
        worker.step()
    kept = list(read_to_end(log, topic, 0))
    log.delete_topic(topic)
    fail(log, world, worker, Usage, topic)
    create_again(log, world, topic)
    restore(log, topic, kept)
    if successor == "another":
        worker.close()
        worker = worker_of(log, world)
    finish(worker)
    check(log, world)


def restore(log: Log, topic: str, kept: Sequence[Record]) -> None:
    """What was there when it was deleted."""
    producer = log.producer("test-restore")
    producer.begin()
    for record in kept:
        producer.send(topic, record.partition, record.value, headers=record.headers)
    producer.commit()
    producer.close()


def test_it_takes_no_message_of_that_size(log: Log) -> None:
    """The sibling: it is there and refuses. A larger one lets everything through."""
    world = prepared(log)
    topic = names.dead_letters(world.view.name)
    log.delete_topic(topic)
    log.create_topic(TopicSpec(topic, 1, max_message_bytes=100))
    worker = worker_of(log, world)
    fail(log, world, worker, Exhausted, topic)
    worker.close()
    log.delete_topic(topic)
    create_again(log, world, topic)
    finish(worker_of(log, world))
    check(log, world)


def test_missing_from_the_start(log: Log) -> None:
    world = prepared(log)
    topic = names.dead_letters(world.view.name)
    log.delete_topic(topic)
    worker = worker_of(log, world)
    assert not any(worker.step() for _ in range(5))
    assert worker.report()["waiting"] == f"for topics: {topic}"
    assert state(log, world) == ({}, 0)
    assert not any(part.at_end for part in join_report(log, world.view))
    create_again(log, world, topic)
    finish(worker)
    check(log, world)
