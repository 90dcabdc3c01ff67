"""A value that is not finite never reaches a table, a dense parameter or a checkpoint: the step is skipped and counted, the
batches are put aside by their offsets, and after several in a row training stops and has rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ingest.contracts import T_END
from preprocess.contracts import LocalBatch
from tests.trainer.stream import MINUTE_US, START_US, World, local_batch, run, version
from tests.trainer.test_loop import letters
from trainer.errors import NonFinite
from trainer.folder import checkpoint_folders

BUCKET = START_US // MINUTE_US


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, version(partitions=1, every="off"))
    yield world
    world.close()


def batch(world: World, number: int) -> LocalBatch:
    return replace(local_batch(world.version.experiment, 0, number, 8, number + 1, START_US), bucket=0)


def poisoned(of: LocalBatch, field: str, value: float) -> LocalBatch:
    array = getattr(of, field).copy()
    array[(3, 0) if array.ndim == 2 else 3] = value
    return replace(of, **{field: array})


def all_finite(world: World) -> None:
    for path in checkpoint_folders(world.checkpoints):
        for file in (path / "tables").iterdir():
            rows = pa.ipc.open_file(file).read_all()
            for column in ("weights", "state"):
                assert np.isfinite(rows[column].combine_chunks().flatten().to_numpy()).all()
        from safetensors.numpy import load_file

        for file in path.glob("*.safetensors"):
            assert all(np.isfinite(value).all() for value in load_file(file).values())


BAD = [
    *(("weights_B", value) for value in (np.inf, -np.inf, np.nan, 3e38)),
    ("labels_B", np.nan),
    ("dense_BX", 3e38),  # finite, but the sum of squared gradients would not be
]


@pytest.mark.parametrize(("field", "value"), BAD)
def test_one_bad_batch(world: World, field: str, value: float) -> None:
    for number in range(12):
        good = batch(world, number)
        world.send(0, poisoned(good, field, value) if number == 4 else good)
    world.send(0, T_END)
    report = world.train()
    assert (report["rows_trained"], report["rows_rejected"], report["bad_steps"], report["steps"]) == (88, 8, 1, 12)
    assert report["healthy"] is True
    assert report["auc"] is not None
    (letter,) = letters(world)
    assert (letter.reason, letter.source, letter.partition, letter.position) == ("not-finite", world.topic, 0, 4)
    assert "step 5" in letter.detail
    all_finite(world)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_feature_that_is_not_finite(world: World, value: float) -> None:
    """Such a batch is refused before any kernel sees it, put aside and counted in the same way."""
    for number in range(12):
        good = batch(world, number)
        world.send(0, poisoned(good, "dense_BX", value) if number == 4 else good)
    world.send(0, T_END)
    report = world.train()
    assert (report["rows_trained"], report["rows_rejected"], report["bad_steps"] + report["unreadable"]) == (88, 8, 1)
    assert [letter.position for letter in letters(world)] == [4]
    all_finite(world)


def test_several_in_a_row_stop_and_roll_back(world: World) -> None:
    for number in range(30):
        good = batch(world, number)
        world.send(0, poisoned(good, "weights_B", np.inf) if 7 <= number < 20 else good)
    trainer = world.trainer(config={"bad_steps": 6})
    with pytest.raises(NonFinite, match="6 steps in a row") as error:
        run(trainer)
    assert error.value.exit_code == 4
    kept = checkpoint_folders(world.checkpoints)
    assert [int(path.name) for path in kept] == [5], "none from between the bad steps"
    assert len(letters(world)) == 6
    all_finite(world)
    again = world.trainer(config={"bad_steps": 6})
    with pytest.raises(NonFinite):
        run(again)
    assert len(letters(world)) == 6, "each batch is put aside once"
    lenient = world.trainer(config={"bad_steps": 100})
    run(lenient)
    assert lenient.report()["rows_trained"] == (30 - 13) * 8
    lenient.close()


def test_good_step_between_starts_the_count_anew(world: World) -> None:
    for number in range(20):
        good = batch(world, number)
        world.send(0, poisoned(good, "weights_B", np.nan) if number % 3 else good)
    world.send(0, T_END)
    report = world.train(config={"bad_steps": 3})
    assert report["bad_steps"] == 13


def test_values_that_grow_without_end(tmp_path: Path) -> None:
    """A learning rate far too large: no checkpoint ever holds what is not finite."""
    train = {"batch_rows": 8, "checkpoint_every": "1 steps", "seed": 7, "dense_optimizer": {"adam": {"lr": 1e30}}}
    world = World(tmp_path, version(partitions=1, every="off", train=train))
    for number in range(40):
        world.send(0, batch(world, number))
    with pytest.raises(NonFinite):
        run(world.trainer())
    all_finite(world)
    world.close()
