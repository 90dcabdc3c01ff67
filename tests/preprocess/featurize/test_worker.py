from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments import names
from experiments.view import Version
from preprocess.contracts import FRONTIER, Config
from preprocess.featurize.cutting import END_OF_TIME, Cursor, Rule, cut
from preprocess.featurize.graph import compile_plan
from preprocess.featurize.plain import batches_plain
from preprocess.featurize.worker import FeaturizeWorker
from streams.clock import SettableClock
from streams.contracts import Log, Membership, Position, TopicPartition
from streams.dead_letters import unpack_letters
from streams.embedded.log import open_log
from streams.errors import Broken, UnknownOutcome, Usage
from streams.packed import Packed, control
from streams.tail import read_to_end
from tests.preprocess.featurize.samples import assert_same
from tests.preprocess.featurize.stream import (
    PARTITIONS,
    SMALL,
    Feeder,
    batches,
    check_bounds,
    create_topics,
    drain,
    exp_records,
    joined,
    rows_of,
    settable_worker,
    values,
    version_of,
)

VERSION = version_of()
ROWS = [rows_of(VERSION.view, 400, seed) for seed in range(PARTITIONS)]


def prepare(log: Log, version: Version = VERSION, sizes: tuple[int, ...] = (40,), *, close: bool = True) -> Feeder:
    create_topics(log, version)
    feeder = Feeder(log, version)
    for partition, rows in enumerate(ROWS):
        feeder.put_rows(partition, rows, sizes, close=close)
    return feeder


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> list[list[bytes]]:
    """Batches of an undisturbed run."""
    log = open_log(tmp_path_factory.mktemp("right"))
    prepare(log)
    worker = settable_worker(log, VERSION, Config())
    drain(worker)
    worker.close()
    found = [values(log, VERSION, p) for p in range(PARTITIONS)]
    log.close()
    return found


def assert_right(log: Log, right: list[list[bytes]]) -> None:
    assert [values(log, VERSION, p) for p in range(PARTITIONS)] == right
    for p in range(PARTITIONS):
        assert check_bounds(log, VERSION, p) == END_OF_TIME


def test_batches_are_what_the_plain_version_gives(log: Log) -> None:
    prepare(log)
    drain(settable_worker(log, VERSION))
    plan = compile_plan(VERSION.experiment, VERSION.view)
    for partition, rows in enumerate(ROWS):
        cuts, _ = cut(rows.column("__time").to_numpy(), Cursor(), Rule(5, 50), END_OF_TIME, 10**6)
        found = batches(log, VERSION, partition)
        expected = batches_plain(plan, rows, cuts)
        assert len(found) == len(expected) > 60
        for left, plain in zip(found, expected, strict=True):
            assert_same(left, plain, ulps=1)
        assert np.concatenate([b.row_B for b in found]).tolist() == list(range(400))


@pytest.mark.parametrize("sizes", [(1,), (3, 50), (400,), (7, 1, 90)])
def test_sizes_of_joined_messages_change_nothing(log: Log, right: list[list[bytes]], sizes: tuple[int, ...]) -> None:
    prepare(log, sizes=sizes)
    drain(settable_worker(log, VERSION))
    assert_right(log, right)


def test_rows_that_trickle_in_change_nothing(log: Log, right: list[list[bytes]]) -> None:
    create_topics(log, VERSION)
    feeder, worker = Feeder(log, VERSION), settable_worker(log, VERSION)
    for at in range(0, 400, 9):
        for partition, rows in enumerate(ROWS):
            part = rows.slice(at, 9)
            feeder.put(partition, joined(part), control(FRONTIER, part.column("__time")[-1].as_py()))
        drain(worker)
    for partition in range(PARTITIONS):
        feeder.put(partition, control(FRONTIER, END_OF_TIME))
    drain(worker)
    assert_right(log, right)


@pytest.mark.parametrize("seed", range(3))
def test_workers_that_come_and_go(tmp_path: Path, right: list[list[bytes]], seed: int) -> None:
    """Two members, replaced at random moments without a word: every resume begins in the middle."""
    log = open_log(tmp_path, skipped_offsets=seed % 2)
    prepare(log, sizes=(13, 40))
    rng = random.Random(seed)
    workers = [settable_worker(log, VERSION, Config(transaction_messages=3, poll_bytes=1)) for _ in range(2)]
    idle = 0
    while idle < 12:
        if rng.random() < 0.1:
            victim = rng.randrange(2)
            workers[victim].close()
            workers[victim] = settable_worker(log, VERSION, SMALL)
        idle = 0 if rng.choice(workers).step() else idle + 1
    for worker in workers:
        worker.close()
    drain(settable_worker(log, VERSION))
    assert_right(log, right)
    log.close()


@pytest.mark.parametrize("step", ["feat.F1", "feat.F2", "feat.F3", "feat.F4", "feat.F5"])
@pytest.mark.parametrize("times", [1, 5])
def test_killed_at_each_step(tmp_path: Path, right: list[list[bytes]], step: str, times: int) -> None:
    log = open_log(tmp_path)
    prepare(log)
    command = [sys.executable, "-m", "tests.preprocess.featurize.stream", str(tmp_path)]
    root = str(Path(__file__).parents[3])
    victim = {**os.environ, "HEADRACE_KILL_AT": f"{step}:{times}", "PYTHONPATH": root}
    done = subprocess.run(command, env=victim, cwd=root, capture_output=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    before = sum(len(values(log, VERSION, p)) for p in range(PARTITIONS))
    assert (before > 0) == (times > 1)  # the first transaction of a group only says where it begins
    assert before < sum(map(len, right))
    drain(settable_worker(log, VERSION))
    assert_right(log, right)
    log.close()


def test_a_poisoned_message_is_kept_aside_once(log: Log) -> None:
    version = version_of(batch_rows=40, every="off")  # all rows are held back, so every message is read again
    create_topics(log, version)
    feeder = Feeder(log, version)
    good = [joined(ROWS[0].slice(at, 3)) for at in (0, 3, 6, 9)]
    flipped = bytearray(good[1].value)
    flipped[len(flipped) // 2] ^= 1
    other = joined(ROWS[0].select(["__time", "__file"]))
    feeder.put(0, good[0], Packed(memoryview(bytes(flipped)), good[1].headers), other)
    feeder.put(0, Packed(memoryview(b"\xff"), ()), Packed(memoryview(b""), good[1].headers), good[2])
    worker = settable_worker(log, version)
    drain(worker)
    worker.close()
    again = settable_worker(log, version)
    feeder.put(0, good[3], control(FRONTIER, END_OF_TIME))
    drain(again)
    letters = [x for r in read_to_end(log, names.dead_letters("e"), 0) for x in unpack_letters(r)]
    topic = names.joined(version.view.name)
    assert [(x.source, x.partition, x.position) for x in letters] == [(topic, 0, offset) for offset in (1, 2, 3, 4)]
    assert {x.stage for x in letters} == {"featurize"}
    assert np.concatenate([b.row_B for b in batches(log, version, 0)]).tolist() == [0, 1, 2, 6, 7, 8, 9, 10, 11]
    report = again.report()["partitions"]["0"]  # type: ignore[index]
    assert report["rejected"] == 3 + 400 + 1 + 3
    assert report["rows"] == 9


def test_a_short_batch_waits_for_proof(log: Log) -> None:
    version = version_of(every="1000us")
    create_topics(log, version)
    feeder, worker = Feeder(log, version), settable_worker(log, version)
    rows = ROWS[0].slice(0, 8)
    feeder.put(0, joined(rows))
    drain(worker)
    assert [b.rows for b in batches(log, version, 0)] == [5]
    held = rows.column("__time")[5].as_py()
    feeder.put(0, control(FRONTIER, 999))
    drain(worker)
    assert [b.rows for b in batches(log, version, 0)] == [5]
    assert check_bounds(log, version, 0) == held
    feeder.put(0, control(FRONTIER, 1000))
    drain(worker)
    assert [b.rows for b in batches(log, version, 0)] == [5, 3]
    assert check_bounds(log, version, 0) == 1000


def test_v_that_was_known_before_a_restart_ends_no_bucket_too_early(log: Log) -> None:
    """The first transaction is capped while V says that all is there. Read again message by message, V must wait."""
    version = version_of(every="off")
    create_topics(log, version)
    Feeder(log, version).put(0, *[joined(ROWS[0].slice(at, 1)) for at in range(12)], control(FRONTIER, END_OF_TIME))
    first = settable_worker(log, version, Config(transaction_messages=1))
    while not batches(log, version, 0):
        first.step()
    first.close()
    assert [b.rows for b in batches(log, version, 0)] == [5]
    drain(settable_worker(log, version, SMALL))
    assert [b.rows for b in batches(log, version, 0)] == [5, 5, 2]
    assert check_bounds(log, version, 0) == END_OF_TIME


def test_start_offsets_and_start_time(log: Log) -> None:
    create_topics(log, VERSION)
    feeder = Feeder(log, VERSION)
    feeder.put_rows(0, ROWS[0], (50,))
    times = ROWS[0].column("__time").to_numpy()
    start = int(times[130] // 50 + 1) * 50
    version = version_of(start=(4, 0), start_time_us=start)  # offset 4: the third message of rows, from row 100
    worker = settable_worker(log, version)
    drain(worker)
    found = np.concatenate([b.row_B for b in batches(log, version, 0)]).tolist()
    first = int(np.searchsorted(times, start))
    assert found == list(range(first, 400))
    assert worker.report()["partitions"]["0"]["skipped"] == first - 100  # type: ignore[index]


def test_positions_are_committed_without_output(log: Log) -> None:
    create_topics(log, VERSION)
    feeder, clock = Feeder(log, VERSION), SettableClock()
    worker = FeaturizeWorker(log, VERSION, SMALL, clock=clock)
    feeder.put(0, joined(ROWS[0].slice(0, 1)))
    drain(worker)
    assert worker.report()["partitions"]["0"]["pos"] == 1  # type: ignore[index]
    group = names.featurize_group("e", 1)
    tp = TopicPartition(names.joined(VERSION.view.name), 0)
    feeder.put(0, joined(ROWS[0].slice(1, 1)))
    drain(worker)
    assert '"pos":0,' in log.group(group).positions[tp].metadata
    clock.advance(SMALL.idle_commit_s)
    drain(worker)
    position = log.group(group).positions[tp]
    assert position.offset == 0, "the row held back is still needed"
    assert '"pos":2,' in position.metadata
    assert not exp_records(log, VERSION, 0)


def test_waits_for_topics(log: Log) -> None:
    worker = settable_worker(log, VERSION)
    assert worker.step() is False
    assert worker.report()["waiting"] == "for its topics"
    create_topics(log, VERSION)
    assert worker.step() is True


def test_a_step_that_cannot_be_divided_is_refused(log: Log) -> None:
    with pytest.raises(Usage, match="batch_rows: 9"):
        settable_worker(log, version_of(batch_rows=9))


def test_rows_out_of_order_stop_it(log: Log) -> None:
    create_topics(log, VERSION)
    feeder = Feeder(log, VERSION)
    feeder.put(0, joined(ROWS[0].slice(100, 1)), joined(ROWS[0].slice(0, 1)))
    with pytest.raises(Broken, match="order of event time"):
        drain(settable_worker(log, VERSION))
    assert not exp_records(log, VERSION, 0)


class Forgetful:
    """A log whose producers lose the answer of some commits, after or before they happened."""

    def __init__(self, log: Log, rng: random.Random) -> None:
        self._log, self._rng = log, rng
        self.lost = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def producer(self, transactional_id: str) -> object:
        inner, outer = self._log.producer(transactional_id), self

        class Wrapped:
            def __getattr__(self, name: str) -> object:
                return getattr(inner, name)

            def send_offsets(self, membership: Membership, positions: dict[TopicPartition, Position]) -> None:
                inner.send_offsets(membership, positions)

            def commit(self) -> None:
                fate = outer._rng.random()
                if fate > 0.3:
                    inner.commit()
                if fate < 0.5:
                    outer.lost += 1
                    raise UnknownOutcome(expected="an answer", got="none", where="test", do="Ask again.")

        return Wrapped()


def test_commits_whose_outcome_is_unknown(log: Log, right: list[list[bytes]]) -> None:
    prepare(log)
    forgetful = Forgetful(log, random.Random(5))
    drain(settable_worker(forgetful, VERSION))  # type: ignore[arg-type]
    assert forgetful.lost > 5
    assert_right(log, right)
