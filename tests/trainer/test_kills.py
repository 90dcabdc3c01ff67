"""kill -9 and a full disk, in real processes: the same model, each row once, never a torn checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer.stream import World, messages, version
from tests.trainer.test_loop import assert_each_row_once, learned
from trainer.checkpoint.verify import verify
from trainer.folder import checkpoint_folders

BUCKETS = 40


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    world = filled(tmp_path_factory.mktemp("undisturbed"))
    report = world.train(**world.ahead())
    world.close()
    return report


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = filled(tmp_path)
    yield world
    world.close()


def filled(path: Path) -> World:
    world = World(path, version())
    world.send_all(messages(world.version.experiment, 2, BUCKETS))
    return world


def victim(folder: Path, *args: object, kill_at: str = "", kill_after: int = 0) -> tuple[int, list[str]]:
    """Run one; kill it after it printed so many steps. Its exit code and lines."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "HEADRACE_KILL_AT": kill_at}
    command = [sys.executable, "-m", "tests.trainer.victim", str(folder), *map(str, args)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    lines: list[str] = []
    with process.stdout:
        for line in process.stdout:
            lines.append(line.strip())
            if kill_after and len(lines) == kill_after:
                process.kill()
    return process.wait(60), lines


def check_whole(world: World) -> None:
    """Whatever has a final name is whole."""
    for path in checkpoint_folders(world.checkpoints):
        assert verify(path) == []


@pytest.mark.slow
def test_killed_at_each_step_of_the_protocol_and_at_random(world: World, undisturbed: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    codes = []
    for point in range(1, 8):
        code, _ = victim(world.path, kill_at=f"checkpoint.{point}:{1 + point % 3}")
        codes.append(code)
        check_whole(world)
    for _ in range(2):
        code, lines = victim(world.path, kill_after=int(rng.integers(1, 6)))
        codes.append(code)
        check_whole(world)
    assert codes.count(-9) >= 8, codes
    code, lines = victim(world.path)
    assert code == 0
    report = json.loads(lines[-1])
    assert learned(report) == learned(undisturbed)
    assert sum(step > 0 for step in report["resumes"]) * 3 >= len(report["resumes"]) == 9
    assert_each_row_once(world, world.path / "ledger/ctr.v1", buckets=BUCKETS)
    assert not [path for path in world.checkpoints.iterdir() if path.name.startswith((".new", ".old"))]


@pytest.mark.slow
def test_disk_full_while_checkpointing(world: World, undisturbed: dict[str, Any]) -> None:
    """A limit on the size of files stands for a full disk: it fails in the middle of a file."""
    code, lines = victim(world.path, 1500)
    error = json.loads(lines[-1])
    assert code == 1
    assert "room for a checkpoint" in error["expected"]
    assert "Free space" in error["do"]
    assert checkpoint_folders(world.checkpoints) == []
    assert [path.name for path in world.checkpoints.iterdir() if path.is_dir()] == []
    report = world.train(**world.ahead())
    assert learned(report) == learned(undisturbed)
