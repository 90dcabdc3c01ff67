"""kill -9 at random moments and at each step of the commit; processes that stand still and come back.

``HEADRACE_KILL_SECONDS`` sets how long the random kills go on (default 25).
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from streams.contracts import Position, TopicPartition
from streams.embedded.log import EmbeddedLog
from streams.tail import read_to_end
from tests.contracts.log_helpers import Listener
from tests.streams.log_programs import IN, PARTITIONS, SESSION_S, partition_of, payload, start_log
from tests.streams.processes import PATIENCE_S, Program, check_index, check_sources, running

KILL_SECONDS = float(os.environ.get("HEADRACE_KILL_SECONDS", "25"))
SOURCES = 2
TPS = [TopicPartition("in", p) for p in range(PARTITIONS)]


def drain(log: EmbeddedLog, directory: Path) -> None:
    """Let one worker finish what is there."""
    ends = log.end_offsets(TPS)
    with running(Program("work", directory, "drain")):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            positions = log.group("workers").positions
            if all(tp in positions and positions[tp].offset >= end for tp, end in ends.items() if end):
                return
            assert time.monotonic() < deadline, f"committed {positions}, end {ends}"
            log.wait(0.2)


class Fleet:
    """Sources, workers, upkeep; whoever dies is started again, and what sources were told is kept."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.acked = dict.fromkeys(range(SOURCES), 0)
        self.kills = 0
        self.stops = 0
        self._stopped: dict[str, float] = {}
        self.programs = {
            **{f"source {i}": self._start("produce", i) for i in range(SOURCES)},
            **{f"worker {i}": self._start("work", i) for i in range(3)},
            "upkeep": self._start("keep"),
        }

    def _start(self, *args: str | int) -> Program:
        name, *rest = args
        return Program(str(name), self.directory, *map(str, rest))

    def kill(self, names: list[str], *, again: bool = True) -> None:
        for name in names:
            self._stopped.pop(name, None)
            self.programs[name].signal(signal.SIGKILL)
        for name in names:
            program = self.programs[name]
            assert program.wait() == -signal.SIGKILL, f"{name} died by itself"
            self.kills += 1
            if name.startswith("source"):
                source = int(name.split()[1])
                self.acked[source] = max(self.acked[source], program.acked)
            if again:
                self.programs[name] = Program(*program.args)

    def wait_for(self, name: str) -> None:
        """Random kills are timed from the first line: imports are not what is to be tested."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.programs[name].working:
            assert time.monotonic() < deadline
            self.resume_due()
            time.sleep(0.002)

    def stop(self, name: str) -> None:
        """Stand still for longer than the session."""
        self.programs[name].signal(signal.SIGSTOP)
        self._stopped[name] = time.monotonic() + SESSION_S * 1.5
        self.stops += 1

    def resume_due(self) -> None:
        """One that was stopped inside the write lock holds up all others: so this is called also while waiting."""
        for name, until in list(self._stopped.items()):
            if time.monotonic() > until:
                self.programs[name].signal(signal.SIGCONT)
                del self._stopped[name]


@pytest.mark.slow
@pytest.mark.timeout(240 + KILL_SECONDS * 2)
def test_random_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    log = start_log(tmp_path)
    log.consumer("workers").subscribe(["in"], Listener())  # from now on retention waits for this group
    log.close()
    chance = random.Random(5)
    fleet = Fleet(tmp_path)
    deadline = time.monotonic() + KILL_SECONDS
    try:
        while time.monotonic() < deadline:
            name = chance.choice(sorted(fleet.programs))
            fleet.wait_for(name)
            time.sleep(chance.expovariate(1 / 0.05))
            match chance.random():
                case x if x < 0.04:
                    fleet.kill(sorted(fleet.programs))
                case x if x < 0.14 and name.startswith("worker"):
                    fleet.stop(name)
                case _:
                    fleet.kill([name])
            fleet.resume_due()
    finally:
        fleet.kill(sorted(fleet.programs), again=False)
    log = start_log(tmp_path)
    drain(log, tmp_path)
    total = check_sources(log, "out", fleet.acked)
    assert all(fleet.acked.values()), f"no source got anywhere: {fleet.acked}"
    assert fleet.kills >= KILL_SECONDS
    assert any(log.begin_offsets(TPS).values()), "retention never did anything"
    for _ in range(100):
        log.maintain()
    log.close()
    check_index(tmp_path)
    print(f"{fleet.kills} kills, {fleet.stops} stops, {total} payloads, acknowledged {fleet.acked}")


@pytest.mark.parametrize("durability", ["process", "power"])
@pytest.mark.parametrize("step", range(1, 9))
def test_a_kill_at_each_step_of_the_commit(tmp_path: Path, step: int, durability: str) -> None:
    start_log(tmp_path, durability).close()
    source = Program("produce", tmp_path, "0", durability, "50", kill_at=f"log.{step}:7")
    assert source.wait() == -signal.SIGKILL
    log = start_log(tmp_path, durability)
    check_sources(log, "in", {0: source.acked})
    # The next writer is not held up, and goes on where the dead one got to.
    began = time.monotonic()
    log.producer("other").close()
    assert time.monotonic() - began < 5.0
    again = Program("produce", tmp_path, "0", durability, "20")
    assert again.wait() == 0
    total = check_sources(log, "in", {0: again.acked})
    assert total >= again.acked > source.acked
    for _ in range(5):
        log.maintain()
    log.close()
    check_index(tmp_path)


@pytest.mark.parametrize("step", range(1, 9))
def test_a_kill_at_each_step_of_a_copying_worker(tmp_path: Path, step: int) -> None:
    log = start_log(tmp_path)
    numbers = fill(log, 120)
    victim = Program("work", tmp_path, "victim", kill_at=f"log.{step}:3")
    assert victim.wait() == -signal.SIGKILL
    drain(log, tmp_path)
    check_copy(log, numbers)
    log.close()
    check_index(tmp_path)


@pytest.mark.parametrize("stop_at", ["log.1", "log.2"])
def test_a_worker_that_stood_still_is_fenced(tmp_path: Path, stop_at: str) -> None:
    log = start_log(tmp_path)
    numbers = fill(log, 40)
    assert "rebalanced" in zombie(log, tmp_path, stop_at, "fenced")
    check_copy(log, numbers)
    log.close()


def test_control_without_the_fence_the_zombie_doubles_rows(tmp_path: Path) -> None:
    log = start_log(tmp_path)
    numbers = fill(log, 40)
    assert "copied" in zombie(log, tmp_path, "log.2", "unfenced")
    with pytest.raises(AssertionError, match=r"order|doubled"):
        check_copy(log, numbers)
    log.close()


def zombie(log: EmbeddedLog, directory: Path, stop_at: str, fence: str) -> str:
    """A worker stands still within a transaction until another has done the work, then goes on; what it says."""
    with running(Program("work", directory, "zombie", "process", stop_at, fence)) as (stopped,):
        stopped.expect("working")
        drain(log, directory)
        stopped.signal(signal.SIGCONT)
        return stopped.expect("")


def fill(log: EmbeddedLog, count: int) -> int:
    """Payloads 0 … count − 1 of source 0 into ``in``; the count."""
    producer = log.producer("source.0")
    reader = log.consumer("source.0")
    for first in range(0, count, 10):
        producer.begin()
        for number in range(first, first + 10):
            producer.send("in", partition_of(0, number), payload(0, number))
        producer.send_offsets(reader.membership(), {TopicPartition("out", 0): Position(first + 10)})
        producer.commit()
    return count


def check_copy(log: EmbeddedLog, count: int) -> None:
    """``out`` is ``in``, record by record."""
    assert check_sources(log, "out", {0: count}) == count
    for tp in TPS:
        copied = [bytes(record.value or b"") for record in read_to_end(log, "out", tp.partition)]
        assert copied == [bytes(record.value or b"") for record in read_to_end(log, IN.name, tp.partition)]
