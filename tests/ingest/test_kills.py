"""kill -9 of planners and readers, at each numbered step and at random: each row once, W kept, the rest goes on."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from experiments.feed import Feed
from experiments.publishing import feed_topics
from ingest.contracts import T_END
from ingest.status import FeedStatus
from streams.embedded.log import open_log
from tests.ingest.world import feed_of, jsons, late_rows, letters, raw_rows, write

STEPS = ["P1", "P2", "P3", "P4", "P5", "R1", "R2", "R3", "R4"]
COLUMNS = {"k": "int64", "t": "float64", "x": "string"}
ROOT = Path(__file__).parents[2]
WAIT_S = 90.0


class World:
    """A feed of in-order files with bad and late rows, and processes that read it."""

    def __init__(self, folder: Path, files: int, rows: int, **more: Any) -> None:
        self.directory, self.feed_path = folder / "log", folder / "feed.json"
        data = folder / "in"
        self.want: set[tuple[str, int]] = set()
        for n in range(files):
            lines = []
            for i in range(rows):
                key = "" if i % 17 == 5 else i
                time = n * rows + i - (500 if i % 23 == 7 else 0)
                lines.append(f"{key},{time},value {n} {i}\n")
                self.want.add((f"p{n}.csv", i))
            write(data / f"p{n}.csv", "k,t,x\n" + "".join(lines))
        files_spec = {"url": str(data), "order": "in_order"}
        self.feed: Feed = feed_of(data, COLUMNS, files=files_spec, disorder="20s", **more)
        self.feed_path.write_text(self.feed.model_dump_json(by_alias=True, exclude_unset=True))
        log = open_log(self.directory)
        for spec in feed_topics(self.feed):
            log.create_topic(spec)
        log.close()

    def start(self, part_rows: int, kill_at: str = "") -> subprocess.Popen[str]:
        environment = os.environ | {"HEADRACE_KILL_AT": kill_at, "PYTHONPATH": str(ROOT)}
        command = [
            sys.executable,
            "-m",
            "tests.ingest.killed",
            str(self.directory),
            str(self.feed_path),
            str(part_rows),
        ]
        return subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)

    def check(self) -> dict[str, int]:
        """The ledger: every row in exactly one of raw, late and dead letters; counts agree."""
        log = open_log(self.directory)
        used, late, dead = raw_rows(log, self.feed), late_rows(log, self.feed), letters(log, self.feed)
        places = [*used, *late, *[(letter.source, letter.position) for letter in dead]]
        assert len(places) == len(set(places))
        assert set(places) == self.want
        report = FeedStatus(log, "f").refresh()
        assert report is not None
        assert (report.used, report.late, report.rejected) == (len(used), len(late), len(dead))
        assert report.W == T_END
        attempts = len(jsons(log, "progress.f"))
        log.close()
        return {"used": len(used), "late": len(late), "rejected": len(dead), "progress": attempts}


def ended(process: subprocess.Popen[str], code: int = 0) -> None:
    try:
        process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == code


@pytest.mark.parametrize("step", STEPS)
def test_death_at_each_step(tmp_path: Path, step: str) -> None:
    world = World(tmp_path, files=2, rows=60)
    count = {"P1": 1, "P2": 1, "P3": 3, "R1": 1, "R2": 2}.get(step, 3)
    ended(world.start(10, f"ingest.{step}:{count}"), -signal.SIGKILL)
    ended(world.start(7))
    first = world.check()
    assert first["late"]
    assert first["rejected"]


@pytest.mark.slow
def test_two_processes_killed_at_random(tmp_path: Path) -> None:
    """Kills are timed from the first progress; a third of them must hit while splits are open, else this tests nothing."""
    rng = random.Random(7)
    world = World(tmp_path, files=6, rows=1500)
    processes = [world.start(15), world.start(40)]
    hits, kills = 0, 9
    log = open_log(world.directory)
    status = FeedStatus(log, "f")
    for _ in range(kills):
        at = rng.randrange(2)
        assert processes[at].stdout is not None
        processes[at].stdout.readline()
        time.sleep(rng.uniform(0.0, 0.4))
        processes[at].kill()
        processes[at].communicate()
        report = status.refresh()
        hits += bool(report and report.open_splits and report.rows)
        processes[at] = world.start(rng.choice([7, 15, 60]))
    status.close()
    log.close()
    for process in processes:
        ended(process)
    counts = world.check()
    assert hits >= kills // 3, f"only {hits} of {kills} kills hit open splits: {counts}"
