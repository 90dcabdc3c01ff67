"""Several publishers at once, and publishers that die between the steps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.publishing import publish
from experiments.registry import Registry
from streams.contracts import Log
from streams.embedded.log import open_log
from tests.experiments import specs
from tests.experiments.test_publishing import commit, states

ROOT = Path(__file__).parents[2]
ROUNDS = 6


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "feeds").mkdir()
    for name, text in (("feeds/a.yaml", specs.RATINGS), ("feeds/b.yaml", specs.ITEMS), ("liked.yaml", specs.LIKED)):
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(project: Path, name: str, rounds: int, kill_at: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.experiments.publisher", project / "log", project, name, str(rounds)]
    environment = os.environ | {"HEADRACE_KILL_AT": kill_at}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_publishers_at_once(project: Path, processes: list[subprocess.Popen[str]]) -> None:
    open_log(project / "log").close()
    processes += [start(project, name, ROUNDS) for name in ("one", "two", "three")]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        go(process)
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert output.count("published") == ROUNDS
    log = open_log(project / "log")
    found = states(log)
    numbers = range(1, ROUNDS + 1)
    expected = [(n, i, "live" if i == ROUNDS else "retired") for n in ("one", "two", "three") for i in numbers]
    assert sorted(found) == sorted([("liked", 1, "live"), *expected]), "each content once, in a row of numbers"
    assert_whole(log)
    log.close()


@pytest.mark.parametrize("step", ["publish.1", "publish.2", "publish.3", "publish.4"])
@pytest.mark.parametrize("passing", [1, 2])
def test_killed_at_each_step(project: Path, processes: list[subprocess.Popen[str]], step: str, passing: int) -> None:
    feeds = specs.feeds(project)
    log = open_log(project / "log")
    if passing == 2:
        commit_after = start(project, "own", 1)
        processes.append(commit_after)
        go(commit_after)
        assert commit_after.wait(60) == 0
        commit(log, "feat.own.v1")
    process = start(project, "own", 2, kill_at=f"{step}:{passing}")
    processes.append(process)
    go(process)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, errors
    done = passing - 1 + (step in ("publish.3", "publish.4"))
    assert [s for s in states(log) if s[0] == "own"] == [
        ("own", n, "live" if n == done else "retired") for n in range(1, done + 1)
    ]
    assert_whole(log)
    again = start(project, "own", 2)
    processes.append(again)
    go(again)
    _, errors = again.communicate(timeout=60)
    assert again.returncode == 0, errors
    live = [(v.name, v.experiment.train.seed) for v in _registry(log).live()]
    assert live == [("liked", 0), ("own", 1)]
    assert log.groups() == [], "the next publisher deletes the groups that the dead one left"
    assert_whole(log)
    publish(log, [specs.experiment(specs.LIKED, project, feeds)], feeds, now_us=1)
    log.close()


def assert_whole(log: Log) -> None:
    """Every version has its topics; at most one version of a name is live."""
    registry = _registry(log)
    topics = {topic.spec.name for topic in log.topics()}
    for version in registry.versions:
        needed = {f"exp.{version.name}.v{version.number}", f"joined.{version.view.name}", "raw.ratings", "raw.items"}
        assert needed <= topics
    live = [version.name for version in registry.live()]
    assert len(live) == len(set(live))


def _registry(log: Log) -> Registry:
    registry = Registry(log)
    registry.refresh()
    return registry
