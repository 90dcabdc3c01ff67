"""A flipped bit in any file of a checkpoint is noticed on load: the checkpoint before is used, loudly."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.stream import World, messages, run, version
from trainer.checkpoint.verify import verify
from trainer.folder import checkpoint_folders


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, version())
    world.send_all(messages(world.version.experiment, 2, 10))
    world.train()
    yield world
    world.close()


FILES = ["manifest.json", "dense.safetensors", "optimizer.safetensors", "rng.bin", "tables/item.arrow"]


@pytest.mark.parametrize("file", FILES)
def test_flip_and_resume(world: World, file: str) -> None:
    undisturbed = world.trainer()
    run(undisturbed)
    digest = undisturbed.report()["model_digest"]
    undisturbed.close()
    newest, before = checkpoint_folders(world.checkpoints)[:2]
    flip(newest / file)
    assert [problem.file for problem in verify(newest)] == [file]
    trainer = world.trainer()
    run(trainer)
    report = trainer.report()
    assert report["resumes"][-1] == int(before.name)
    assert report["model_digest"] == digest
    assert any(str(newest) in line and "can't be used" in line for line in report["warnings"])
    assert verify(Path(str(report["checkpoint"]))) == []
    trainer.close()


def test_sibling_flip_in_place_in_a_linked_score_file(world: World) -> None:
    """In place, in a file that several checkpoints share: no model is lost, and the metrics do not lie."""
    for chunk in {
        os.stat(c).st_ino: c for p in checkpoint_folders(world.checkpoints) for c in p.glob("scores/*")
    }.values():
        flip(chunk)
    newest = checkpoint_folders(world.checkpoints)[0]
    assert all(problem.in_scores for problem in verify(newest))
    trainer = world.trainer()
    run(trainer)
    assert trainer.finished
    assert any("score files" in line for line in trainer.report()["warnings"])
    trainer.close()


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 4]))
