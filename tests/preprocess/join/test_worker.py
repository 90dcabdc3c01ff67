"""The join worker on the real log against a plain join, over arrivals, restarts and rebalances."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import names
from ingest.contracts import T_END
from preprocess.contracts import JOINED, Config, joined_schema
from preprocess.join.worker import LETTERS, JoinWorker
from preprocess.status import join_report
from streams.clock import SettableClock
from streams.contracts import Log
from streams.dead_letters import unpack_letters
from streams.embedded.log import open_log
from streams.errors import Exhausted
from streams.packed import Limits, kind_of, unpack
from streams.tail import read_to_end
from tests.preprocess.join.world import World, at_end, joined_of

CASES = range(60)
SMALL = Config(transaction_messages=2, poll_bytes=700, settle_rows=3)


def check(log: Log, world: World) -> dict[tuple[int, int], bytes]:
    """Everything exactly once, in order, cut and looked up as the plain join says; (p, k) → bytes."""
    out, rejected, prices = {}, [], world.prices()
    for p in world.rows:
        values, rows, got_prices, numbers, _ = joined_of(log, world.view, p)
        messages, bad = world.oracle(p)
        assert rows == messages
        assert numbers == list(range(len(messages)))
        assert got_prices == [prices.get(row[3]) for message in messages for row in message]
        rejected += bad
        out |= {(p, k): value for k, value in enumerate(values)}
    letters = [x for r in read_to_end(log, names.dead_letters(world.view.name), 0) for x in unpack_letters(r)]
    assert sorted((x.source, x.position) for x in letters) == sorted(rejected)
    assert {x.reason for x in letters} <= {"bad-label"}
    report = join_report(log, world.view)
    assert [(part.rows, part.at_end) for part in report] == [
        (sum(map(len, world.oracle(p)[0])), True) for p in world.rows
    ]
    assert sum(part.rejected for part in report) == len(rejected)
    doubles = [x for r in read_to_end(log, names.side(world.view.name), 0) for x in unpack_letters(r)]
    assert len(doubles) == len(world.items) - len(prices)
    return out


def run(log: Log, world: World, seed: int, *, workers: int, restarts: bool) -> None:
    rng = random.Random(seed)
    clock = SettableClock()
    config = SMALL if rng.random() < 0.7 else Config()
    world.create(log)
    alive: list[JoinWorker] = []
    at, items = 0, False
    for turn in range(3000):
        clock.advance(0.3)
        while len(alive) < workers:
            alive.append(JoinWorker(log, world.view, config, clock=clock))
        if at < len(world.messages) and rng.random() < 0.4:
            stop = min(len(world.messages), at + rng.randint(1, 4))
            world.write(log, at, stop)
            at = stop
        if not items and (rng.random() < 0.3 or turn > 5):
            world.write_items(log)
            items = True
        rng.choice(alive).step()
        if restarts and rng.random() < 0.05 and turn < 200:
            alive.pop(rng.randrange(len(alive))).close()
        if at == len(world.messages) and turn % 20 == 0 and at_end(log, world.view):
            break
    for worker in alive:
        for _ in range(100):
            if not worker.step():
                break
        worker.close()
    assert at_end(log, world.view)


@pytest.mark.parametrize("seed", CASES)
def test_any_schedule_gives_the_same_bytes(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("preprocess.join.worker.LETTERS", 1 + seed % 4)  # so that letters take several transactions
    world = World.random(seed)
    results = []
    for number, (workers, restarts) in enumerate([(1, False), (1, True), (2, True)]):
        log = open_log(tmp_path / f"log{number}", skipped_offsets=number % 2)
        run(log, world, seed * 10 + number, workers=workers, restarts=restarts)
        results.append(check(log, world))
        log.close()
    assert results[0] == results[1] == results[2]


def test_nothing_is_decided_before_the_tables_are_complete(tmp_path: Path) -> None:
    log, world = open_log(tmp_path / "log"), World.random(3)
    world.create(log)
    world.write(log, 0, len(world.messages))
    worker = JoinWorker(log, world.view, Config(), clock=SettableClock())
    assert not any(worker.step() for _ in range(5))
    assert worker.report()["waiting"] == "for the side tables to be complete: items"
    assert joined_of(log, world.view, 0)[0] == []
    world.write_items(log)
    for _ in range(50):
        worker.step()
    check(log, world)
    worker.close()
    log.close()


def test_side_tables_above_the_cap_are_refused_with_the_numbers(tmp_path: Path) -> None:
    log, world = open_log(tmp_path / "log"), World.random(5)
    world.items = [("a", i, i, 1.0) for i in range(50)]
    world.create(log)
    world.write_items(log)
    worker = JoinWorker(log, world.view, Config(side_table_bytes=100), clock=SettableClock())
    with pytest.raises(Exhausted) as caught:
        worker.step()
    assert "side_table_bytes" in caught.value.do
    assert "items" in caught.value.got
    worker.close()
    log.close()


def test_a_table_under_two_aliases_is_one_table(log: Log) -> None:
    """Both find its rows; a duplicate is said once."""
    world = World.random(7, files=2)
    world.items = [("a", n, n // 3, float(n)) for n in range(9)]
    (item,) = world.view.lookups
    world.view = replace(world.view, lookups=(item, replace(item, alias="other")))
    world.create(log)
    world.write_items(log)
    world.write(log, 0, len(world.messages))
    worker = JoinWorker(log, world.view, Config(), clock=SettableClock())
    while worker.step():
        pass
    worker.close()
    found = check(log, world)
    assert found
    for p in world.rows:
        records = [r for r in read_to_end(log, names.joined(world.view.name), p) if kind_of(r) == JOINED]
        batches = [unpack(r, kind=JOINED, schema=joined_schema(world.view), limits=Limits()) for r in records]
        for row in [row for batch in batches for row in batch.to_pylist()]:
            assert (row["other.item_id"], row["other.price"]) == (row["item.item_id"], row["item.price"])


def test_a_column_of_the_wrong_scale_rejects_every_row(log: Log) -> None:
    """Any number at once: each has its letter, no transaction has more than its share, and nothing is idle before all are out."""
    world, rows = World.random(0), 3 * LETTERS + 7
    world.rows = {p: [] for p in world.rows}
    world.rows[0] = [(row // 3, "f", row, 1, 5.0 if row == LETTERS else 100.0) for row in range(rows)]
    world.messages = [(0, world.rows[0]), (-1, T_END)]
    world.create(log)
    world.write_items(log)
    world.write(log, 0, len(world.messages))
    worker = JoinWorker(log, world.view, Config(), clock=SettableClock())
    seen = set()
    while worker.step():
        seen |= {(part.rejected, part.at_end) for part in join_report(log, world.view) if part.partition == 0}
    assert {at_end for rejected, at_end in seen if 0 < rejected < rows - 1} == {False}
    check(log, world)
    sizes = [len(unpack_letters(r)) for r in read_to_end(log, names.dead_letters(world.view.name), 0)]
    assert sum(sizes) == rows - 1
    assert max(sizes) <= LETTERS
    worker.close()


def test_what_is_held_does_not_grow_with_the_topic(log: Log) -> None:
    """W follows the rows closely: what is in memory is what a poll brings and one unfinished message."""
    world, files, rows = World.random(0), 300, 50
    world.rows = {p: [] for p in world.rows}
    world.messages = []
    for file in range(files):
        part = [(file * 10 + row // 5, f"f{file:03}", row, 1, 4.0) for row in range(rows)]
        world.rows[0] += part
        world.messages += [(0, part), (-1, file * 10 + 5)]
    world.messages.append((-1, T_END))
    world.create(log)
    world.write_items(log)
    world.write(log, 0, len(world.messages))
    worker = JoinWorker(log, world.view, Config(poll_bytes=20_000), clock=SettableClock())
    most = 0
    while worker.step():
        most = max([most, *(part["held"] for part in worker.report()["partitions"].values())])  # type: ignore[attr-defined]
    check(log, world)
    assert rows / 2 <= most <= 20 * rows < files * rows / 10
    worker.close()
