"""Write a checkpoint. Its numbered steps, and what a crash between them leaves, are in the README of the trainer."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors.numpy import save_file

from streams.errors import Exhausted
from streams.killpoints import reached
from trainer.checkpoint.digest import model_digest
from trainer.checkpoint.manifest import NAME, FileEntry, LogPlace, Manifest, entry_of, to_bytes
from trainer.contracts import TrainerState
from trainer.errors import NonFinite
from trainer.folder import checkpoint_folders, sync_folder
from trainer.scores import ScoreLog

TABLES, DENSE, OPTIMIZER, RNG = "tables", "dense.safetensors", "optimizer.safetensors", "rng.bin"
TEMPORARY, REPLACED, REJECTED = ".new-", ".old-", "rejected-"


@dataclass(frozen=True, slots=True)
class About:
    """What a manifest says besides the state itself.

    Args:
        files: of the checkpoint before, by path: digests of chunks that are linked from it are not computed again.
    """

    experiment: str
    version: int
    hash: str
    created_us: int
    log: LogPlace
    metrics: Mapping[str, Any]
    fingerprint: Mapping[str, str]
    bit_identical: bool
    files: Mapping[str, FileEntry]


def save(folder: Path, state: TrainerState, scores: ScoreLog, about: About, sync: Callable[[], None]) -> Manifest:
    """Write ``folder/<step>`` whole, or nothing. On return it survives a loss of power, and ``scores`` went on.

    Args:
        folder: of the version; the caller holds its lock. sync: makes what the checkpoint relies on
            outside its folder durable (``Log.sync``).

    Raises ``Exhausted`` where the disk is full, ``NonFinite`` if the state holds values that are not finite; the older
    checkpoints are as before.
    """
    final = folder / f"{state.step:012d}"
    new = folder / f"{TEMPORARY}{final.name}"
    clean(folder)
    try:
        with _full_disk(final):
            # Step 1: an empty folder under a temporary name.
            folder.mkdir(parents=True, exist_ok=True)
            new.mkdir()
            reached("checkpoint.1")
            # Step 2: all files but the manifest, synced.
            tables = _write_state(new, state)
            check_finite(state, tables)
            chunks = scores.write(new)
            files = _sync_files(new, about.files)
            reached("checkpoint.2")
            # Step 3: the messages used so far are durable in the log, before anything says that they were used.
            sync()
            reached("checkpoint.3")
            # Step 4: the manifest, synced, last of all files.
            manifest = _manifest(state, tables, about, chunks, files)
            _write_synced(new / NAME, to_bytes(manifest))
            sync_folder(new)
            reached("checkpoint.4")
            # Step 5: the final name. Only now the checkpoint exists.
            _publish(new, final)
            reached("checkpoint.5")
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    scores.committed(final, chunks)
    return manifest


def prune(folder: Path, keep: int) -> list[Path]:
    """Step 6: remove all but the ``keep`` newest checkpoints; the folders that stay, newest first."""
    folders = checkpoint_folders(folder)
    for old in folders[keep:]:
        _remove(old)
    reached("checkpoint.6")
    return folders[:keep]


def clean(folder: Path) -> None:
    """Remove what a crash left: folders under temporary names."""
    if folder.exists():
        for name in os.listdir(folder):
            if name.startswith((TEMPORARY, REPLACED)):
                shutil.rmtree(folder / name)


def reject(checkpoint: Path) -> Path:
    """Move a checkpoint that can't be used out of the way, in place of an earlier rejected one; its new place."""
    for name in os.listdir(checkpoint.parent):
        if name.startswith(REJECTED):
            shutil.rmtree(checkpoint.parent / name)
    target = checkpoint.with_name(REJECTED + checkpoint.name)
    checkpoint.rename(target)
    sync_folder(checkpoint.parent)
    return target


def check_finite(state: TrainerState, tables: Mapping[str, pa.Table]) -> None:
    """Raises ``NonFinite`` if a weight, an optimizer state or a dense parameter is not finite."""
    arrays: dict[str, Any] = {f"dense parameter {name}": value for name, value in state.dense.items()}
    for name, slots in state.optimizer.items():
        arrays |= {f"{slot} of {name}": value for slot, value in slots.items()}
    for name, table in tables.items():
        for column in ("weights", "state"):
            for number, part in enumerate(table[column].chunks):
                arrays[f"{column} of table {name}, part {number}"] = part.flatten().to_numpy()
    for name, value in arrays.items():
        if not np.isfinite(value).all():
            raise NonFinite(
                expected="finite values in all that is saved",
                got=f"values that are not finite in {name}",
                where=f"step {state.step}",
                do="Nothing was saved; the last checkpoint is good. Lower the learning rates and publish again.",
            )


def _write_state(new: Path, state: TrainerState) -> dict[str, pa.Table]:
    """The tables that were written, as views into the mapped files."""
    (new / TABLES).mkdir()
    tables = {}
    for name, rows in state.tables.items():
        path = str(new / TABLES / f"{name}.arrow")
        with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
            for piece in rows:
                writer.write_batch(piece)
        with pa.memory_map(path) as source:
            tables[name] = pa.ipc.open_file(source).read_all()
    save_file(dict(state.dense), new / DENSE)
    flat = {f"{name}/{slot}": value for name, slots in state.optimizer.items() for slot, value in slots.items()}
    save_file(flat, new / OPTIMIZER)  # type: ignore[arg-type]
    (new / RNG).write_bytes(state.rng)
    return tables


def _sync_files(new: Path, known: Mapping[str, FileEntry]) -> dict[str, FileEntry]:
    """Sync all files and folders below ``new``; their entries by path."""
    entries = {}
    for path in sorted(path for path in new.rglob("*") if path.is_file()):
        name = path.relative_to(new).as_posix()
        linked = path.stat().st_nlink > 1 and name in known  # synced and read when it was written
        if not linked:
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
        entries[name] = known[name] if linked else entry_of(path)
    for path in [path for path in new.rglob("*") if path.is_dir()]:
        sync_folder(path)
    return entries


def _manifest(
    state: TrainerState,
    tables: Mapping[str, pa.Table],
    about: About,
    chunks: tuple[Any, ...],
    files: Mapping[str, FileEntry],
) -> Manifest:
    return Manifest(
        experiment=about.experiment,
        version=about.version,
        hash=about.hash,
        created_us=about.created_us,
        step=state.step,
        at=state.at,
        log=about.log,
        partitions=tuple(state.positions),
        tally=state.tally,
        tables={name: table.num_rows for name, table in tables.items()},
        scores=chunks,
        metrics=about.metrics,
        model_digest=model_digest(tables, state.dense, state.optimizer),
        fingerprint=about.fingerprint,
        bit_identical=about.bit_identical,
        files=files,
    )


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _publish(new: Path, final: Path) -> None:
    """Rename; an unusable folder that has the name already makes room first."""
    if final.exists():
        final.rename(final.with_name(REPLACED + final.name))
    new.rename(final)
    sync_folder(final.parent)


def _remove(checkpoint: Path) -> None:
    """Never leave half a folder under a final name."""
    old = checkpoint.with_name(REPLACED + checkpoint.name)
    checkpoint.rename(old)
    shutil.rmtree(old)


@contextmanager
def _full_disk(final: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:  # pyarrow raises OSError too
        raise _exhausted(final, getattr(error, "strerror", None) or str(error)) from error


def _exhausted(final: Path, reason: str) -> Exhausted:
    return Exhausted(
        expected="a folder that can be written, with room for a checkpoint",
        got=reason,
        where=str(final),
        do="Free space on the disk of the checkpoints (or keep fewer: train.keep). Nothing is lost: the checkpoints before"
        " are whole, and training goes on from the newest when it starts again.",
    )
