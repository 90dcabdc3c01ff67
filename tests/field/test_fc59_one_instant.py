"""Weights, optimizer state, counts and offsets of a checkpoint are of one instant, with the same keys everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import load_file, save_file

from preprocess.contracts import layout_of
from streams.errors import HeadraceError
from tests.trainer.stream import World, messages, run, version
from trainer.checkpoint.manifest import entry_of, read_manifest, to_bytes
from trainer.folder import checkpoint_folders


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, version(), settings={"ledger": str(tmp_path / "ledger"), "keep": 100})
    world.send_all(messages(world.version.experiment, 2, 10))
    world.train()
    yield world
    world.close()


def test_every_checkpoint_is_the_state_of_its_step(world: World, tmp_path: Path) -> None:
    """Each equals what a fresh run has after exactly that many steps: rows, state and counts."""
    checkpoints = list(reversed(checkpoint_folders(world.checkpoints)))
    assert len(checkpoints) >= 4
    fresh = World(tmp_path / "fresh", world.version, settings={"keep": 100})
    fresh.send_all(messages(world.version.experiment, 2, 10))
    trainer = fresh.trainer()
    session = trainer._open()
    assert session is not None
    for path in checkpoints:
        manifest = read_manifest(path)
        while session.step < manifest.step:
            assert session.train_one()
        assert manifest.partitions == tuple(session.source.positions)
        for table in layout_of(world.version.experiment).tables:
            saved = pa.ipc.open_file(path / "tables" / f"{table.name}.arrow").read_all()
            live = session.learner.tables[table.name].export().read_all()
            assert saved.to_pylist() == live.to_pylist()
            assert saved.num_rows == manifest.tables[table.name]
            assert {len(state) for state in saved["state"].to_pylist()} == {1}
            assert np.isfinite(saved["weights"].combine_chunks().flatten().to_numpy()).all()
            assert min(saved["count"].to_pylist()) >= 1
    trainer.close()
    fresh.close()


def reseal(path: Path) -> None:
    """Make the digests fit again, as a faulty writer would."""
    manifest = read_manifest(path)
    files = {name: entry_of(path / name) for name in manifest.files}
    (path / "manifest.json").write_bytes(to_bytes(replace(manifest, files=files)))


def test_missing_keys_are_refused(world: World) -> None:
    """A row of a table, a dense parameter or a slot is missing although every digest fits: never filled up by chance."""
    newest = checkpoint_folders(world.checkpoints)[0]
    slots = load_file(newest / "optimizer.safetensors")
    gone = sorted(slots)[0]
    save_file({name: value for name, value in slots.items() if name != gone}, newest / "optimizer.safetensors")
    reseal(newest)
    with pytest.raises(HeadraceError, match="exp_avg"):
        run(world.trainer())


def test_missing_rows_are_refused(world: World) -> None:
    newest = checkpoint_folders(world.checkpoints)[0]
    path = newest / "tables/item.arrow"
    rows = pa.ipc.open_file(path).read_all()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows.slice(1))
    reseal(newest)
    with pytest.raises(HeadraceError, match="rows in table item"):
        run(world.trainer())
