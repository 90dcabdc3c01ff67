"""The trainer over a real log: the same model whatever happens on the way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.names import dead_letters, train_group
from ingest.contracts import T_END
from streams.contracts import TopicPartition
from streams.dead_letters import unpack_letters
from streams.errors import Broken, Closed, HeadraceError
from streams.packed import Packed
from streams.tail import read_to_end
from tests.trainer.stream import MINUTE_US, START_US, Message, World, local_batch, messages, run, steps_of, version
from trainer.errors import Contradiction, LostTail
from trainer.folder import checkpoint_folders
from trainer.loop import Trainer
from trainer.status import train_report

LEARNED = ("rows_trained", "steps", "model_digest", "auc", "auc_second_half", "log_loss", "log_loss_second_half",
           "base_log_loss", "normalized_entropy", "calibration", "skew_over_1h", "bit_identical")  # fmt: skip


def learned(report: dict[str, Any]) -> dict[str, Any]:
    return {name: report[name] for name in LEARNED}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path, version())
    yield world
    world.close()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    world = World(tmp_path_factory.mktemp("undisturbed"), version())
    world.send_all(messages(world.version.experiment, 2, 12))
    report = world.train()
    world.close()
    return report


def test_report(undisturbed: dict[str, Any]) -> None:
    streams = messages(version().experiment, 2, 12)
    rows = sum(m.rows for stream in streams for m in stream if not isinstance(m, int))
    assert undisturbed["rows_trained"] == rows > 100
    assert undisturbed["waiting"] == []
    assert undisturbed["state"] == "finished"
    assert undisturbed["resumes"] == []
    assert undisturbed["bit_identical"] is True
    assert undisturbed["V"] == [T_END, T_END]
    json.dumps(undisturbed, allow_nan=False)


@pytest.mark.parametrize("seed", range(6))
def test_arrival_order_and_reading_ahead_change_nothing(tmp_path: Path, undisturbed: dict[str, Any], seed: int) -> None:
    """Messages come one by one in a random order of the partitions, with the trainer running in between."""
    rng = np.random.default_rng(seed)
    world = World(tmp_path, version())
    trainer = world.trainer(**(world.ahead() if seed % 2 else {}))
    left = [list(stream) for stream in messages(world.version.experiment, 2, 12)]
    while any(left):
        partition = int(rng.choice([p for p, stream in enumerate(left) if stream]))
        count = int(rng.integers(1, 6))
        world.send(partition, *left[partition][:count])
        del left[partition][:count]
        trainer.step()
    run(trainer)
    assert learned(trainer.report()) == learned(undisturbed)
    trainer.close()
    world.close()


@pytest.mark.parametrize("seed", range(6))
def test_dropped_anywhere_and_started_again(tmp_path: Path, undisturbed: dict[str, Any], seed: int) -> None:
    """The trainer is thrown away at random points, as a crash does, and one with other slots goes on."""
    rng = np.random.default_rng(seed)
    world = World(tmp_path, version(), settings={"ledger": str(tmp_path / "ledger")})
    world.send_all(messages(world.version.experiment, 2, 12))
    resumed = []
    for _ in range(8):
        trainer = world.trainer(**(world.ahead() if rng.random() < 0.5 else {}))
        few_steps(trainer, int(rng.integers(0, 14)))
        resumed.append(trainer.report()["steps"])
        trainer.close()
    report = world.train()
    assert learned(report) == learned(undisturbed)
    assert len(report["resumes"]) == 8
    assert any(step > 0 for step in report["resumes"])
    assert_each_row_once(world, tmp_path / "ledger/ctr.v1")
    world.close()


def few_steps(trainer: Trainer, count: int) -> None:
    """Exactly so many steps, less at the end."""
    session = trainer._open()
    assert session is not None
    for _ in range(count):
        if session.train_one() and session.due:
            session.checkpoint()


def assert_each_row_once(world: World, ledger: Path, partitions: int = 2, buckets: int = 12) -> None:
    """The ledger has every row of the stream once, in the order of steps."""
    streams = messages(world.version.experiment, partitions, buckets)
    expected = sorted(
        (batch.files[f], int(row))
        for stream in streams
        for batch in stream
        if not isinstance(batch, int)
        for f, row in zip(batch.file_B, batch.row_B, strict=True)
    )
    got = list(steps_of(ledger))
    assert sorted((file, row) for _, file, row in got) == expected
    assert [step for step, _, _ in got] == sorted(step for step, _, _ in got)


def test_second_run_trains_nothing_and_writes_nothing(world: World) -> None:
    world.send_all(messages(world.version.experiment, 2, 12))
    first = world.train()
    before = {p: p.stat().st_mtime_ns for p in world.checkpoints.rglob("*") if p.name != "resumes.jsonl"}
    again = world.train()
    assert learned(again) == learned(first)
    assert again["resumes"] == [first["steps"]]
    assert {p: p.stat().st_mtime_ns for p in world.checkpoints.rglob("*") if p.name != "resumes.jsonl"} == before


def test_status_from_checkpoints_alone(world: World) -> None:
    world.send_all(messages(world.version.experiment, 2, 12))
    report = world.train()
    alone = train_report(world.path / "checkpoints", "ctr", 1)
    assert {name: alone[name] for name in alone} == {name: report[name] for name in alone}
    nothing = train_report(world.path / "checkpoints", "ctr", 2)
    assert (nothing["rows_trained"], nothing["model_digest"], nothing["auc"]) == (0, None, None)


def test_waits_for_proof_and_says_for_what(world: World) -> None:
    bucket = START_US // MINUTE_US
    spec = world.version.experiment
    world.send(0, local_batch(spec, bucket, 0, 4, 1, START_US), local_batch(spec, bucket, 1, 4, 2, START_US))
    world.send(1, local_batch(spec, bucket, 0, 4, 3, START_US))
    trainer = world.trainer()
    run(trainer)
    report = trainer.report()
    assert (report["rows_trained"], report["steps"]) == (8, 1)
    (waiting,) = report["waiting"]
    assert (waiting["stage"], waiting["rows"]) == ("train", 4)
    assert "partition 1" in waiting["for"]
    assert trainer.stuck
    assert not trainer.finished
    world.send(1, START_US + MINUTE_US - 1)
    run(trainer)
    assert trainer.report()["rows_trained"] == 8, "V just before the end of the bucket proves nothing"
    world.send(1, START_US + MINUTE_US)
    run(trainer)
    report = trainer.report()
    assert (report["rows_trained"], report["steps"], report["waiting"]) == (12, 2, [])
    trainer.close()


def test_checkpoint_on_demand_goes_on_from_there(world: World) -> None:
    streams = messages(world.version.experiment, 2, 12)
    for partition, stream in enumerate(streams):
        world.send(partition, *stream[: len(stream) // 2])
    trainer = world.trainer()
    assert not trainer.checkpoint(), "nothing happened"
    run(trainer)
    assert trainer.checkpoint()
    assert not trainer.checkpoint(), "nothing happened since"
    steps = trainer.report()["steps"]
    trainer.close()
    with pytest.raises(Closed):
        trainer.step()
    for partition, stream in enumerate(streams):
        world.send(partition, *stream[len(stream) // 2 :])
    report = world.train()
    assert report["resumes"] == [steps]


def test_by_time(tmp_path: Path) -> None:
    train = {"batch_rows": 8, "checkpoint_every": "60s", "seed": 7}
    world = World(tmp_path, version(train=train))
    streams = messages(world.version.experiment, 2, 12)
    world.send(0, *streams[0][:4])
    world.send(1, *streams[1][:4])
    trainer = world.trainer()
    run(trainer)
    assert checkpoint_folders(world.checkpoints) == []
    world.clock.advance(60)
    trainer.step()
    assert len(checkpoint_folders(world.checkpoints)) == 1
    world.clock.advance(600)
    trainer.step()
    assert len(checkpoint_folders(world.checkpoints)) == 1, "nothing happened since"
    trainer.close()
    world.close()


def test_one_trainer_stands_by_and_takes_over(world: World, undisturbed: dict[str, Any]) -> None:
    world.send_all(messages(world.version.experiment, 2, 12))
    first, second = world.trainer(), world.trainer()
    few_steps(first, 7)
    assert second.step() is False
    assert second.report()["state"] == "standby"
    assert not second.finished
    first.close()
    run(second)
    assert learned(second.report()) == learned(undisturbed)
    assert second.report()["resumes"] == [5]
    second.close()


def test_waits_for_its_topic(tmp_path: Path) -> None:
    world = World(tmp_path, version())
    world.log.delete_topic(world.topic)
    trainer = world.trainer()
    assert trainer.step() is False
    assert trainer.report()["state"] == "waiting"
    trainer.close()
    world.close()


def test_keeps_few_checkpoints_and_what_the_oldest_needs(world: World) -> None:
    world.send_all(messages(world.version.experiment, 2, 12))
    world.train(config={"keep": 2})
    kept = checkpoint_folders(world.checkpoints)
    assert len(kept) == 2
    group = world.log.group(train_group("ctr", 1))
    oldest = json.loads((kept[-1] / "manifest.json").read_text())["partitions"]
    for partition in range(2):
        position = group.positions[TopicPartition(world.topic, partition)]
        assert position.offset == oldest[partition]["last_offset"]
        end = world.log.end_offsets([TopicPartition(world.topic, partition)]).popitem()[1]
        assert json.loads(position.metadata)["pos"] == end


def test_retention_keeps_what_the_oldest_checkpoint_needs(tmp_path: Path, undisturbed: dict[str, Any]) -> None:
    """The log may forget what was read; the oldest kept checkpoint can still be gone back to."""
    world = World(tmp_path, version(), retention_bytes=1)
    streams = messages(world.version.experiment, 2, 12)
    for start in range(0, max(map(len, streams)), 4):
        for partition, stream in enumerate(streams):
            if part := stream[start : start + 4]:
                world.send(partition, *part)
    world.train(config={"keep": 2})
    world.log.maintain()
    tps = [TopicPartition(world.topic, partition) for partition in range(2)]
    assert max(world.log.begin_offsets(tps).values()) > 0, "something was removed"
    newest, oldest = checkpoint_folders(world.checkpoints)
    (newest / "dense.safetensors").write_bytes(b"damaged")
    report = world.train()
    assert report["resumes"] == [int(oldest.name)]
    assert learned(report) == learned(undisturbed)
    world.close()


def test_position_moves_without_checkpoints(world: World) -> None:
    """Back-pressure looks at the position; it must not stand still until the next checkpoint."""
    streams = messages(world.version.experiment, 2, 12)
    world.send(0, *streams[0][:3])
    world.send(1, *streams[1][:3])
    trainer = world.trainer()
    run(trainer)
    world.clock.advance(1)
    trainer.step()
    position = world.log.group(train_group("ctr", 1)).positions[TopicPartition(world.topic, 0)]
    assert json.loads(position.metadata)["pos"] > position.offset == 0
    trainer.close()


def garbage(packed: Packed) -> Packed:
    value = bytearray(packed.value)
    value[len(value) // 2] ^= 1
    return Packed(memoryview(bytes(value)), packed.headers)


@pytest.mark.parametrize("place", [0, 3, -2])
def test_unreadable_batch_is_kept_out_once(tmp_path: Path, place: int) -> None:
    world = World(tmp_path, version())
    streams: list[list[Message | Packed]] = [list(stream) for stream in messages(world.version.experiment, 2, 12)]
    batches = [n for n, message in enumerate(streams[1]) if not isinstance(message, int)]
    lost = streams[1][batches[place]]
    assert not isinstance(lost, int | Packed)
    streams[1][batches[place]] = garbage(world.pack(lost))
    total = sum(m.rows for s in streams for m in s if not isinstance(m, int | Packed))
    for partition, stream in enumerate(streams):
        world.send(partition, *stream)
    trainer = world.trainer()
    few_steps(trainer, 3)
    trainer.close()
    report = world.train()
    assert (report["rows_trained"], report["rows_rejected"], report["unreadable"]) == (total, lost.rows, 1)
    (letter,) = letters(world)
    assert (letter.stage, letter.reason, letter.partition) == ("train", "unreadable", 1)
    assert letter.position == batches[place]
    world.close()


def letters(world: World) -> list[Any]:
    return [x for record in read_to_end(world.log, dead_letters("ctr"), 0) for x in unpack_letters(record)]


def test_topic_of_garbage_stops(world: World) -> None:
    streams = messages(world.version.experiment, 2, 12)
    batches = [m for m in streams[0] if not isinstance(m, int)]
    world.send(0, *[garbage(world.pack(batch)) for batch in batches[:12]])
    trainer = world.trainer()
    with pytest.raises(Broken, match="10 in a row"):
        run(trainer)
    assert checkpoint_folders(world.checkpoints) == []


def test_missing_message_stops(world: World) -> None:
    spec, bucket = world.version.experiment, START_US // MINUTE_US
    world.send(0, local_batch(spec, bucket, 0, 4, 1, START_US), local_batch(spec, bucket, 2, 4, 2, START_US))
    world.send(1, T_END)
    with pytest.raises(Contradiction, match="batch number 1"):
        run(world.trainer())


def test_row_older_than_V_stops(world: World) -> None:
    spec, bucket = world.version.experiment, START_US // MINUTE_US
    world.send(0, START_US + MINUTE_US, local_batch(spec, bucket, 0, 4, 1, START_US))
    with pytest.raises(Contradiction, match="not older than V"):
        run(world.trainer())


def test_newest_checkpoint_behind_the_log_is_passed_over(world: World) -> None:
    """The log was restored from a copy that ends a little earlier: the checkpoint before fits."""
    streams = messages(world.version.experiment, 2, 12)
    world.send_all(streams)
    world.train()
    newest, before = checkpoint_folders(world.checkpoints)[:2]
    offset = json.loads((before / "manifest.json").read_text())["partitions"]
    other = World(world.path / "other", world.version)
    for partition, stream in enumerate(streams):
        other.send(partition, *stream[: offset[partition]["next_offset"] + 1])
    (other.path / "checkpoints").mkdir()
    world.checkpoints.rename(other.checkpoints)
    for path in checkpoint_folders(other.checkpoints):
        as_of_log(path, other)
    trainer = other.trainer()
    trainer.step()
    assert trainer.report()["resumes"] == [int(before.name)]
    assert any("no message" in line for line in trainer.report()["warnings"])
    assert not (other.checkpoints / newest.name).exists()
    trainer.close()
    other.close()


def as_of_log(checkpoint: Path, world: World) -> None:
    """Make a checkpoint one of this log (a restored copy keeps its id; a test's second log has another)."""
    from dataclasses import replace

    from trainer.checkpoint.manifest import LogPlace, read_manifest, to_bytes

    topic = world.log.topic(world.topic)
    assert topic is not None
    manifest = replace(read_manifest(checkpoint), log=LogPlace(world.log.id, world.topic, topic.id))
    (checkpoint / "manifest.json").write_bytes(to_bytes(manifest))


def test_lost_tail_stops_before_anything_is_written(world: World) -> None:
    world.send_all(messages(world.version.experiment, 2, 12))
    world.train()
    other = World(world.path / "other", world.version)
    (other.path / "checkpoints").mkdir()
    world.checkpoints.rename(other.checkpoints)
    before = sorted(path.name for path in other.checkpoints.iterdir())
    trainer = other.trainer()
    with pytest.raises(LostTail):
        trainer.step()
    assert sorted(path.name for path in other.checkpoints.iterdir()) == before
    other.close()


def test_other_threads_are_said_and_remembered(world: World) -> None:
    streams = messages(world.version.experiment, 2, 12)
    for partition, stream in enumerate(streams):
        world.send(partition, *stream[: len(stream) // 2])
    trainer = world.trainer()
    run(trainer)
    trainer.checkpoint()
    trainer.close()
    for partition, stream in enumerate(streams):
        world.send(partition, *stream[len(stream) // 2 :])
    report = world.train(config={"threads": 2})
    assert report["bit_identical"] is False
    assert any(
        "not bit-identical from here" in line and "threads: 1 then, 2 now" in line for line in report["warnings"]
    )
    assert world.train(config={"threads": 2})["bit_identical"] is False, "also for those who go on from there"


def test_read_only_folder(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes nothing: a clear error, the checkpoints before stay."""
    world.send_all(messages(world.version.experiment, 2, 12))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    trainer = world.trainer()
    few_steps(trainer, 6)
    monkeypatch.setattr("trainer.checkpoint.save.save_file", full)
    with pytest.raises(HeadraceError, match="room for a checkpoint"):
        run(trainer)
    monkeypatch.undo()
    assert [path.name for path in checkpoint_folders(world.checkpoints)] == ["000000000005"]
    assert not [path for path in world.checkpoints.iterdir() if path.name.startswith(".new")]
    assert world.train()["resumes"] == [5]
