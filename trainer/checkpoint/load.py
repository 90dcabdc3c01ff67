"""Find the checkpoint to go on from, and read it.

The newest one that is whole and whose place in the log is still there. Else the one before, loudly. None that fits
although there are some: stop, because going on would lose or repeat rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from safetensors import SafetensorError
from safetensors.numpy import load_file

from experiments.view import Version
from preprocess.contracts import BatchLayout
from streams.contracts import Log, TopicInfo, TopicPartition
from streams.errors import Broken, SchemaMismatch
from streams.packed import DIGEST
from streams.tail import read_to_end
from trainer.checkpoint.manifest import Manifest, read_manifest
from trainer.checkpoint.save import DENSE, OPTIMIZER, RNG, TABLES, reject
from trainer.checkpoint.verify import problems_of
from trainer.contracts import PartitionPosition, TrainerState
from trainer.errors import LostTail
from trainer.folder import checkpoint_folders


@dataclass(frozen=True, slots=True)
class Found:
    """A checkpoint to go on from. ``scores_lost``: its score files are damaged, so metrics start anew."""

    path: Path
    manifest: Manifest
    scores_lost: bool


@dataclass(frozen=True, slots=True)
class Expected:
    """What a checkpoint must fit: the version, its layout, the log and the topic of its batches."""

    version: Version
    layout: BatchLayout
    log: Log
    topic: TopicInfo


def find(folder: Path, expected: Expected, warn: Callable[[str], None]) -> Found | None:
    """The checkpoint to go on from; ``None`` if there is none at all. The caller holds the lock of the folder.

    Newer ones that can't be used are moved to ``rejected-<step>`` once an older one is found good. ``warn`` gets a line for
    each. Raises ``LostTail`` or ``Broken`` if there are checkpoints, but none to go on from, ``SchemaMismatch`` if they are of
    another version.
    """
    refused: list[tuple[Path, str]] = []
    only_scores: list[Found] = []
    lost: list[str] = []
    for path in checkpoint_folders(folder):
        try:
            manifest = _checked(path, expected)
            problems = problems_of(path, manifest)
        except Broken as error:
            refused.append((path, f"{error.expected} expected, got {error.got}"))
            continue
        if reason := place_lost(manifest, expected):
            lost.append(reason)
            refused.append((path, reason))
        elif all(problem.in_scores for problem in problems):
            found = Found(path, manifest, bool(problems))
            if not problems:
                return _chosen(found, refused, warn)
            only_scores.append(found)
            refused.append((path, f"{problems[0].file}: {problems[0].what}"))
        else:
            refused.append((path, "; ".join(f"{problem.file}: {problem.what}" for problem in problems)))
    if only_scores:
        found = only_scores[0]
        warn(f"The score files of checkpoint {found.path} are damaged; the model is whole. Metrics start anew.")
        newer = [item for item in refused if item[0].name > found.path.name]
        return _chosen(found, newer, warn)
    if refused:
        raise _none_fits(folder, refused, lost)
    return None


def place_lost(manifest: Manifest, expected: Expected) -> str:
    """Why the log does not hold the messages that the checkpoint stands behind; empty if it does."""
    log, topic, place = expected.log, expected.topic, manifest.log
    if place.id != log.id:
        return f"it belongs to the log {place.id}, this log is {log.id}"
    if place.topic_id != topic.id:
        return f"the topic {place.topic} was deleted and made again"
    for partition, position in enumerate(manifest.partitions):
        if reason := _message_lost(log, TopicPartition(place.topic, partition), position):
            return reason
    return ""


def read_state(found: Found, layout: BatchLayout) -> TrainerState:
    """The state of a verified checkpoint. Raises ``Broken`` if counts or names do not fit its manifest or the layout."""
    path, manifest = found.path, found.manifest
    tables = {table.name: _read_table(path / TABLES / f"{table.name}.arrow") for table in layout.tables}
    for name, rows in tables.items():
        if rows.num_rows != manifest.tables[name]:
            raise _broken(path, f"{manifest.tables[name]} rows in table {name}", f"{rows.num_rows}")
    try:
        dense = load_file(path / DENSE)
        flat = load_file(path / OPTIMIZER)
    except (SafetensorError, OSError) as error:
        raise _broken(path, "readable safetensors files", str(error)) from error
    optimizer: dict[str, dict[str, Any]] = {}
    for name, value in flat.items():
        parameter, _, slot = name.rpartition("/")
        optimizer.setdefault(parameter, {})[slot] = value
    if any(set(slots) != {"exp_avg", "exp_avg_sq", "step"} for slots in optimizer.values()) or set(optimizer) != set(
        dense
    ):
        raise _broken(path, "exp_avg, exp_avg_sq and step for each dense parameter", ", ".join(sorted(flat)))
    return TrainerState(
        step=manifest.step,
        at=manifest.at,
        positions=manifest.partitions,
        tally=manifest.tally,
        tables={name: rows.to_reader() for name, rows in tables.items()},
        dense=dense,
        optimizer=optimizer,
        rng=(path / RNG).read_bytes(),
    )


def _checked(path: Path, expected: Expected) -> Manifest:
    manifest = read_manifest(path)
    version = expected.version
    if (manifest.experiment, manifest.version, manifest.hash) != (version.name, version.number, version.hash):
        raise SchemaMismatch(
            expected=f"a checkpoint of {version.label} with content {version.hash}",
            got=f"{manifest.experiment} v{manifest.version} with content {manifest.hash}",
            where=str(path),
            do=f"These checkpoints were made by another log or project. Move the folder {path.parent} away to start"
            " from the beginning.",
        )
    if int(path.name) != manifest.step:
        raise _broken(path, f"the checkpoint of step {int(path.name)}", f"step {manifest.step}")
    missing = [table.name for table in expected.layout.tables if table.name not in manifest.tables]
    if missing:
        raise _broken(path, "all tables of the experiment", f"none of {', '.join(missing)}")
    if len(manifest.partitions) != expected.topic.spec.partitions:
        raise _broken(path, f"{expected.topic.spec.partitions} partitions", str(len(manifest.partitions)))
    return manifest


def _message_lost(log: Log, tp: TopicPartition, position: PartitionPosition) -> str:
    if position.last_offset < 0:
        return ""
    where = f"{tp.topic}/{tp.partition}@{position.last_offset}"
    record = next(read_to_end(log, *tp, start=position.last_offset), None)
    if record is None or record.offset != position.last_offset:
        return f"the log has no message {where} any more"
    digest = (record.header(DIGEST) or b"").decode("ascii", "replace")
    return "" if digest == position.last_digest else f"the message {where} is another one than was trained on"


def _chosen(found: Found, refused: list[tuple[Path, str]], warn: Callable[[str], None]) -> Found:
    for path, reason in reversed(refused):
        moved = reject(path)
        warn(f"Checkpoint {path} can't be used: {reason}. It was moved to {moved.name}.")
    if refused:
        warn(f"Going on from the checkpoint before: {found.path}.")
    return found


def _none_fits(folder: Path, refused: list[tuple[Path, str]], lost: list[str]) -> Exception:
    reasons = "; ".join(f"{path.name}: {reason}" for path, reason in refused)
    if lost:
        return LostTail(
            expected="a log that holds the messages of at least one checkpoint",
            got=f"none ({reasons}): the log lost its tail, or is another one",
            where=str(folder),
            do="Restore the log whole. Or, to train again from what the log holds now: move this folder away.",
        )
    return Broken(
        expected="at least one checkpoint that is whole",
        got=f"none ({reasons})",
        where=str(folder),
        do="Restore the folder from a copy. Or, to train again from the first stored batch: move this folder away.",
    )


def _read_table(path: Path) -> pa.Table:
    try:
        with pa.memory_map(str(path)) as source:
            return pa.ipc.open_file(source).read_all()
    except (pa.ArrowException, OSError) as error:
        raise _broken(path, "an Arrow file", str(error)) from error


def _broken(path: Path, expected: str, got: str) -> Broken:
    return Broken(
        expected=expected, got=got, where=str(path), do="Move this checkpoint away; the one before is used instead."
    )
