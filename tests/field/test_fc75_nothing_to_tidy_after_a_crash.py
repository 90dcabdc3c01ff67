"""Field case 75: readers killed again and again: the next one goes on, and nobody deletes anything by hand."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.ingest.test_kills import World, ended


@pytest.mark.slow
def test_killed_again_and_again(tmp_path: Path) -> None:
    world = World(tmp_path, files=3, rows=800)
    before = sorted(os.listdir(tmp_path / "in"))
    for number in range(20):
        process = world.start(11)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.05 * (number % 4))
        process.kill()
        process.communicate()
    ended(world.start(50))
    world.check()
    assert sorted(os.listdir(tmp_path / "in")) == before
