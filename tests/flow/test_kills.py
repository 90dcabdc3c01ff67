"""``kill -9`` at any moment: the model is that of the undisturbed run, and every row was used exactly once."""

from __future__ import annotations

import random
import re
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from experiments import names
from ingest.status import FeedStatus
from streams.embedded.log import open_log
from streams.tail import read_to_end
from tests.flow.project import Project, children_of, kill, learned

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Undisturbed = tuple[Project, dict[str, Any]]
KILLS_EARLY, KILLS_TRAIN = 24, 8
SLOW_STAGES = """
ingest: {part_rows: 60}
preprocess: {transaction_messages: 10}
logs: {level: debug}
"""
PROGRESS = re.compile(r"first progress.*child='?([a-z]+)[^=]*pid=(\d+)")


class Victims:
    """Children of a running tree that have made progress since they were started."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        self._killed: set[int] = set()

    def alive(self, tree: int) -> list[tuple[str, int]]:
        found = {int(pid): role for role, pid in PROGRESS.findall(self._errors.read_text())}
        there = set(children_of(tree))
        return [(role, pid) for pid, role in found.items() if pid in there and pid not in self._killed]

    def kill(self, pid: int) -> bool:
        self._killed.add(pid)
        return kill(pid)


def in_the_middle(project: Project, role: str) -> bool:
    """Whether a reader has a split open, or the preprocessor has raw rows left."""
    log = open_log(project.path / ".headrace/log", create=False)
    try:
        report = FeedStatus(log, "ratings").refresh()
        if role == "ingest":
            return report is not None and report.open_splits > 0
        ended = sum(
            1
            for p in range(4)
            for r in read_to_end(log, names.exp("lr", 1), p)
            if b"4611686018427387904" in bytes(r.value or b"")
        )
        return role == "preprocess" and report is not None and report.used > 0 and ended < 4
    finally:
        log.close()


def ledger_is_exact(project: Project, folder: Path, rows: int) -> None:
    """Each (file, row) was trained once in the surviving state of each experiment."""
    for name, ids in project.ledger(folder).items():
        twice = [place for place, count in Counter(ids).items() if count > 1]
        assert not twice, f"{name}: {len(twice)} rows twice, for example {twice[:3]}"
        assert len(ids) == rows, name


def kill_while_it_runs(project: Project, ledger: Path, rng: random.Random) -> tuple[Counter[str], int]:
    """One run to the end with kills at random moments: (kills by role, kills of a reader or preprocessor at work)."""
    process = project.start("run", "all", "--until-end", "--json", env={"HEADRACE_LEDGER": str(ledger)})
    victims = Victims(next(project.path.glob("test-run-all*.err")))
    hits: Counter[str] = Counter()
    middle = 0
    try:
        while process.poll() is None:
            time.sleep(0.05)
            early_left = KILLS_EARLY - hits["ingest"] - hits["preprocess"]
            train_left = KILLS_TRAIN - hits["train"] if len(project.checkpoints()) >= 2 else 0
            alive = victims.alive(process.pid)
            choice = [item for item in alive if (train_left if item[0] == "train" else early_left) > 0]
            if not choice:
                continue
            role, pid = rng.choice(choice)
            time.sleep(rng.random() * (0.4 if role != "train" else 2.0))
            hit = in_the_middle(project, role)
            if victims.kill(pid):
                hits[role] += 1
                middle += hit
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0
    return hits, middle


def test_random_kills_of_any_process(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """At least 30 kills; a fast machine needs a second run for them. Each run must come out right."""
    rng, hits, middle, resumes = random.Random(11), Counter[str](), 0, []
    for turn in range(4):
        project, ledger = Project.create(tmp_path / f"p{turn}", "movielens", SLOW_STAGES), tmp_path / f"ledger{turn}"
        killed, at_work = kill_while_it_runs(project, ledger, rng)
        hits, middle = hits + killed, middle + at_work
        result = project.json("status")
        assert learned(result) == learned(undisturbed[1])
        ledger_is_exact(project, ledger, 100_000)
        resumes += [step for e in result["experiments"].values() for step in e["resumes"]]
        if hits.total() >= 30:
            break
    print(f"kills {dict(hits)}, at work {middle}, resumes {resumes}")
    assert hits.total() >= 30
    assert middle >= hits.total() / 4, "too few kills hit a reader or preprocessor at work: this tests nothing"
    assert sum(step > 0 for step in resumes) >= max(1, len(resumes) / 3), (
        "too few resumes from a step: this tests nothing"
    )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return Project.create(tmp_path_factory.mktemp("shop") / "p", "shop").run_all()


@pytest.mark.parametrize(
    "step", ["ingest.P5:2", "ingest.R4:5", "join.J8:2", "feat.F5:2", "checkpoint.3:1", "checkpoint.6:1", "log.7:40"]
)
def test_death_at_a_numbered_step_of_the_tree(shop: dict[str, Any], tmp_path: Path, step: str) -> None:
    project = Project.create(tmp_path / "p", "shop", "ingest: {part_rows: 500}\n")
    ledger = tmp_path / "ledger"
    done = project(
        "run", "all", "--until-end", "--json", env={"HEADRACE_KILL_AT": step, "HEADRACE_LEDGER": str(ledger)}
    )
    assert done.returncode == 0, done.stderr
    assert "SIGKILL" in done.stderr, "nobody passed this step"
    assert learned(project.json("status")) == learned(shop)
    ledger_is_exact(project, ledger, 24_000)


def test_the_supervisor_killed(shop: dict[str, Any], tmp_path: Path) -> None:
    """Its children die with it; the next run finishes the work."""
    project = Project.create(tmp_path / "p", "shop", "ingest: {part_rows: 200}\n")
    process = project.start("run", "all", "--until-end")
    wait_until(lambda: len(children_of(process.pid)) >= 3)
    time.sleep(1.5)
    children = children_of(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))
    assert learned(project.run_all()) == learned(shop)


def test_a_second_tree_is_refused(tmp_path: Path) -> None:
    project = Project.create(tmp_path / "p", "shop")
    process = project.start("run", "all")
    try:
        wait_until(lambda: len(children_of(process.pid)) >= 3)
        second = project("run", "all", "--until-idle", "--json")
        assert second.returncode == 2
        assert str(process.pid) in second.stdout
    finally:
        process.terminate()
        assert process.wait(30) in (0, 143, -15)


def wait_until(condition: Any, timeout_s: float = 30) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)


def test_processes_leave_nothing_behind(tmp_path: Path) -> None:
    """SIGTERM drains: a checkpoint is written, all processes end, and the run goes on from there."""
    project = Project.create(tmp_path / "p", "shop")
    process = project.start("run", "all")
    wait_until(lambda: bool(project.checkpoints()), 60)
    children = children_of(process.pid)
    process.terminate()
    assert process.wait(30) in (0, 143, -15)
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)
    left = subprocess.run(["pgrep", "-f", str(project.path)], capture_output=True, text=True, check=False)
    assert left.stdout == ""
