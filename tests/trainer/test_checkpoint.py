"""Saved, verified, found again: or refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from preprocess.contracts import layout_of
from streams.errors import Broken, SchemaMismatch, Usage
from tests.trainer.stream import World, messages, run, version
from trainer.checkpoint.load import Expected, find, read_state
from trainer.checkpoint.manifest import NAME, from_bytes, read_manifest, to_bytes
from trainer.checkpoint.verify import list_checkpoints, show, verify
from trainer.errors import LostTail
from trainer.folder import checkpoint_folders


@pytest.fixture
def trained(tmp_path: Path) -> Iterator[World]:
    """Three checkpoints of a version that was trained to its end."""
    world = World(tmp_path, version())
    world.send_all(messages(world.version.experiment, 2, 10))
    world.train()
    yield world
    world.close()


def expected(world: World) -> Expected:
    topic = world.log.topic(world.topic)
    assert topic is not None
    return Expected(world.version, layout_of(world.version.experiment), world.log, topic)


def flip(path: Path, bit: int) -> None:
    """Flip one bit, in a new file: linked files of other checkpoints stay as they are."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << (bit % 8)
    path.unlink()
    path.write_bytes(content)


def test_manifest_reads_what_it_wrote(trained: World) -> None:
    for path in checkpoint_folders(trained.checkpoints):
        manifest = read_manifest(path)
        assert from_bytes(to_bytes(manifest), "here") == manifest
        assert verify(path) == []


def test_every_flipped_bit_of_a_manifest_is_noticed(trained: World) -> None:
    content = (checkpoint_folders(trained.checkpoints)[0] / NAME).read_bytes()
    from_bytes(content, "as it is")
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 1 << (at % 8)
        with pytest.raises(Broken):
            from_bytes(bytes(changed), "flipped")


def test_one_flipped_bit_in_any_file_is_noticed_and_the_one_before_is_used(trained: World, tmp_path: Path) -> None:
    newest, before = checkpoint_folders(trained.checkpoints)[:2]
    files = sorted(path.relative_to(newest) for path in newest.rglob("*") if path.is_file())
    assert {str(f) for f in files} >= {"manifest.json", "dense.safetensors", "optimizer.safetensors", "rng.bin",
                                       "tables/item.arrow", "tables/item2.arrow"}  # fmt: skip
    assert any(file.parent.name == "scores" for file in files)
    keep = tmp_path / "keep"
    shutil.copytree(trained.checkpoints, keep)
    for number, file in enumerate(files):
        bits = (newest / file).stat().st_size * 8
        flip(newest / file, (number * 7919) % bits)
        (problem,) = verify(newest)
        assert problem.file == str(file)
        warnings: list[str] = []
        found = find(trained.checkpoints, expected(trained), warnings.append)
        assert found is not None
        assert found.path == before
        assert any(str(newest) in line for line in warnings)
        assert not newest.exists()
        shutil.rmtree(trained.checkpoints)
        shutil.copytree(keep, trained.checkpoints)


@pytest.mark.parametrize("damage", ["missing", "short", "longer"])
@pytest.mark.parametrize("file", ["tables/item.arrow", "dense.safetensors", "manifest.json"])
def test_missing_and_cut_files(trained: World, file: str, damage: str) -> None:
    newest, before = checkpoint_folders(trained.checkpoints)[:2]
    content = (newest / file).read_bytes()
    (newest / file).unlink()
    if damage != "missing":
        (newest / file).write_bytes(content[:-1] if damage == "short" else content + b" ")
    assert [problem.file for problem in verify(newest)] == [file]
    found = find(trained.checkpoints, expected(trained), lambda line: None)
    assert found is not None
    assert found.path == before


def test_all_damaged_stops(trained: World) -> None:
    for path in checkpoint_folders(trained.checkpoints):
        flip(path / "dense.safetensors", 100)
    with pytest.raises(Broken, match="move this folder away"):
        find(trained.checkpoints, expected(trained), lambda line: None)
    assert len(checkpoint_folders(trained.checkpoints)) == 3, "nothing was moved"


def test_shared_score_file_damaged_in_all_costs_metrics_only(trained: World) -> None:
    """Score files are linked: one flipped bit on disk hurts all checkpoints. The model is whole, so it goes on."""
    newest = checkpoint_folders(trained.checkpoints)[0]
    for path in checkpoint_folders(trained.checkpoints):
        for chunk in (path / "scores").iterdir():
            flip(chunk, 900)
    warnings: list[str] = []
    found = find(trained.checkpoints, expected(trained), warnings.append)
    assert found is not None
    assert (found.path, found.scores_lost) == (newest, True)
    assert "score files" in warnings[0]
    trainer = trained.trainer()
    run(trainer)
    report = trainer.report()
    assert report["model_digest"] == found.manifest.model_digest
    trainer.close()


def test_no_checkpoints_is_a_cold_start(tmp_path: Path) -> None:
    world = World(tmp_path, version())
    assert find(world.checkpoints, expected(world), lambda line: None) is None
    world.close()


def test_lost_tail(trained: World, tmp_path: Path) -> None:
    """The log was replaced by one that ends earlier: stop, say so, change nothing."""
    other = World(tmp_path / "other", trained.version)
    with pytest.raises(LostTail, match="lost its tail, or is another one"):
        find(trained.checkpoints, expected(other), lambda line: None)
    assert len(checkpoint_folders(trained.checkpoints)) == 3
    other.close()


def test_topic_made_again(trained: World) -> None:
    streams = messages(trained.version.experiment, 2, 10)
    trained.make_topic_again()
    trained.send_all(streams)
    with pytest.raises(LostTail, match="made again"):
        find(trained.checkpoints, expected(trained), lambda line: None)


def test_checkpoints_of_other_content_are_refused(trained: World) -> None:
    other = version()
    changed = type(other)(**{f: getattr(other, f) for f in other.__slots__} | {"hash": "f" * 32})
    seen = expected(trained)
    with pytest.raises(SchemaMismatch, match="Move the folder"):
        find(trained.checkpoints, Expected(changed, seen.layout, seen.log, seen.topic), lambda line: None)


def test_tables_can_be_queried(trained: World) -> None:
    import polars as pl

    path = checkpoint_folders(trained.checkpoints)[0] / "tables/item.arrow"
    frame = pl.read_ipc(path)
    assert set(frame.columns) >= {"logical", "id", "weights", "state", "count", "last_seen"}
    assert frame["logical"].cast(pl.String).unique().sort().to_list() == ["item", "user"]
    assert frame.height == read_manifest(path.parents[1]).tables["item"]


def test_list_and_show(trained: World) -> None:
    listed = list_checkpoints(trained.checkpoints)
    assert [entry.as_dict()["step"] for entry in listed] == sorted((e.as_dict()["step"] for e in listed), reverse=True)
    assert all(entry.problem == "" for entry in listed)
    shown = show(listed[0].path)
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    assert sum(window["rows"] for window in shown["windows"]) == shown["rows"]
    (listed[0].path / NAME).unlink()
    assert "manifest" in list_checkpoints(trained.checkpoints)[0].problem
    with pytest.raises(Usage):
        verify(trained.checkpoints / "nothing")
    assert list_checkpoints(trained.path / "nothing") == []


def test_state_is_read_back(trained: World) -> None:
    found = find(trained.checkpoints, expected(trained), lambda line: None)
    assert found is not None
    state = read_state(found, layout_of(trained.version.experiment))
    assert state.tables["item"].read_all().num_rows == found.manifest.tables["item"]
    assert state.step == found.manifest.step
    assert set(state.optimizer) == set(state.dense)
