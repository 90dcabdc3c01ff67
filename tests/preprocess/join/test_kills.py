"""The join killed at each numbered step, again and again: the same bytes, letters and side rows as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from experiments import names
from streams.contracts import Log
from streams.embedded.log import open_log
from tests.preprocess.join.runner import long_world
from tests.preprocess.join.test_worker import check
from tests.preprocess.join.world import World, joined_of

ROOT = Path(__file__).parents[3]
SEED = 5


def run(folder: Path, kill_at: str = "") -> int:
    env = {**os.environ, "HEADRACE_KILL_AT": kill_at, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.preprocess.join.runner", str(folder), str(SEED)]
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, timeout=120, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr.decode()
    return done.returncode


def prepare(folder: Path) -> tuple[Log, World]:
    log, world = open_log(folder), long_world(SEED)
    world.create(log)
    world.write_items(log)
    for at in range(len(world.messages)):
        world.write(log, at, at + 1)
    return log, world


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[int, int], bytes]:
    folder = tmp_path_factory.mktemp("undisturbed")
    log, world = prepare(folder)
    assert run(folder) == 0
    found = check(log, world)
    log.close()
    return found


def progress(log: Log, world: World) -> tuple[int, int]:
    """(messages out, bytes of positions committed so far): both never go back."""
    out = sum(len(joined_of(log, world.view, p)[0]) for p in world.rows)
    positions = log.group(names.join_group(world.view.name)).positions
    return out, sum(position.offset for position in positions.values())


@pytest.mark.parametrize("step", ["join.J3", "join.J5", "join.J7", "join.J8"])
def test_killed_at_each_step(tmp_path: Path, undisturbed: dict[tuple[int, int], bytes], step: str) -> None:
    log, world = prepare(tmp_path)
    seen = [(0, 0)]
    for passing in (1, 9, 2, 9):
        assert run(tmp_path, f"{step}:{passing}") == -signal.SIGKILL
        seen.append(progress(log, world))
    assert seen == sorted(seen)
    assert 0 < seen[-1][0] < len(undisturbed), "no resume began in the middle"
    assert run(tmp_path) == 0
    assert check(log, world) == undisturbed
    log.close()
