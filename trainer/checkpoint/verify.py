"""Look at checkpoints without loading a model: list, show, verify. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.fields import format_time
from streams.errors import Broken, Usage
from trainer.checkpoint.manifest import NAME, Manifest, entry_of, read_manifest
from trainer.checkpoint.save import DENSE, OPTIMIZER, RNG, TABLES
from trainer.folder import checkpoint_folders
from trainer.metrics import windows
from trainer.scores import FOLDER, read_chunks


@dataclass(frozen=True, slots=True)
class Problem:
    """A file of a checkpoint that is not as it was written."""

    file: str
    what: str

    @property
    def in_scores(self) -> bool:
        """Whether only the history of scores is hurt, not the model."""
        return self.file.startswith(f"{FOLDER}/")


@dataclass(frozen=True, slots=True)
class Listed:
    """A checkpoint as a listing shows it; ``manifest`` is ``None`` where it can't be read (``problem`` says why)."""

    path: Path
    manifest: Manifest | None
    problem: str
    bytes: int

    def as_dict(self) -> dict[str, Any]:
        """JSON types."""
        manifest = self.manifest
        return {
            "path": str(self.path),
            "step": int(self.path.name),
            "rows": manifest.tally.rows if manifest else None,
            "created": format_time(manifest.created_us) if manifest else None,
            "model_digest": manifest.model_digest if manifest else None,
            "bytes": self.bytes,
            "problem": self.problem or None,
        }


def list_checkpoints(folder: Path) -> list[Listed]:
    """Checkpoints of a version (``trainer.folder.version_folder``), newest first. Reads the manifests alone."""
    found = []
    for path in checkpoint_folders(folder):
        manifest, problem = None, ""
        try:
            manifest = read_manifest(path)
        except Broken as error:
            problem = str(error)
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        found.append(Listed(path, manifest, problem, size))
    return found


def verify(path: Path) -> list[Problem]:
    """Everything that differs from what was written; empty if all is well. Reads all files. Raises ``Usage`` if there is
    no such folder."""
    if not path.is_dir():
        raise Usage(
            expected="the folder of a checkpoint",
            got="no such folder",
            where=str(path),
            do="`headrace checkpoint ls` shows them.",
        )
    try:
        manifest = read_manifest(path)
    except Broken as error:
        return [Problem(NAME, f"expected {error.expected}, got {error.got}")]
    return problems_of(path, manifest)


def problems_of(path: Path, manifest: Manifest) -> list[Problem]:
    """As ``verify``, for a manifest that was read."""
    problems = [Problem(name, "not in the manifest") for name in _needed(manifest) if name not in manifest.files]
    for name, entry in manifest.files.items():
        try:
            found = entry_of(path / name)
        except OSError as error:
            problems.append(Problem(name, error.strerror or str(error)))
            continue
        if found.bytes != entry.bytes:
            problems.append(Problem(name, f"{found.bytes} bytes instead of {entry.bytes}"))
        elif found.xxh3_128 != entry.xxh3_128:
            problems.append(Problem(name, "its bytes were changed: another digest"))
    return problems


def show(path: Path) -> dict[str, Any]:
    """One checkpoint as JSON types: its manifest's fields, sizes, and the windows of its scores. Raises ``Broken``."""
    manifest = read_manifest(path)
    parts = read_chunks(path / FOLDER, manifest.scores)
    return {
        "path": str(path),
        "experiment": manifest.experiment,
        "version": manifest.version,
        "hash": manifest.hash,
        "created": format_time(manifest.created_us),
        "step": manifest.step,
        "at": manifest.at._asdict() if manifest.at else None,
        "rows": manifest.tally.rows,
        "tables": dict(manifest.tables),
        "partitions": [
            {"next_offset": p.next_offset, "V": p.V, "last": p.last._asdict() if p.last else None}
            for p in manifest.partitions
        ],
        "metrics": dict(manifest.metrics),
        "model_digest": manifest.model_digest,
        "bit_identical": manifest.bit_identical,
        "fingerprint": dict(manifest.fingerprint),
        "files": {name: entry.bytes for name, entry in manifest.files.items()},
        "windows": list(windows(parts, manifest.scores[0].first if manifest.scores else 0)),
    }


def _needed(manifest: Manifest) -> list[str]:
    return [
        DENSE,
        OPTIMIZER,
        RNG,
        *(f"{TABLES}/{name}.arrow" for name in manifest.tables),
        *(f"{FOLDER}/{chunk.file}" for chunk in manifest.scores),
    ]
