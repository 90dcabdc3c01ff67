"""What ``status`` and the result object say about a version's training. From checkpoints alone, where no trainer runs;
imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streams.errors import Broken
from trainer.checkpoint.manifest import Manifest, read_manifest
from trainer.contracts import Tally
from trainer.folder import checkpoint_folders, resumes, version_folder
from trainer.metrics import summary

METRICS = (*summary([], 0, 0), "skew_over_1h")
"""Names of the metrics; ``healthy`` is false where a score was not a number."""


def newest(folder: Path) -> tuple[Path, Manifest] | None:
    """The newest checkpoint whose manifest can be read; its other files are not checked."""
    for path in checkpoint_folders(folder):
        try:
            return path, read_manifest(path)
        except Broken:
            continue
    return None


def train_report(directory: str | Path, name: str, number: int) -> dict[str, Any]:
    """The fields of ``experiments.<name>`` that training knows, as of the newest checkpoint of the version."""
    folder = version_folder(directory, name, number)
    found = newest(folder)
    tally = found[1].tally if found else Tally()
    return {"version": number} | counts(found[1].step if found else 0, tally) | saved(folder, found)


def counts(step: int, tally: Tally) -> dict[str, Any]:
    """What was trained and what was kept out."""
    return {
        "rows_trained": tally.rows,
        "rows_rejected": tally.rejected_rows,
        "steps": step,
        "bad_steps": tally.bad_steps,
        "unreadable": tally.unreadable,
    }


def saved(folder: Path, found: tuple[Path, Manifest] | None) -> dict[str, Any]:
    """What the newest checkpoint says."""
    metrics: Mapping[str, Any] = found[1].metrics if found else dict.fromkeys(METRICS)
    return {
        "resumes": resumes(folder),
        **metrics,
        "checkpoint": str(found[0]) if found else None,
        "checkpoint_step": found[1].step if found else None,
        "model_digest": found[1].model_digest if found else None,
        "bit_identical": found[1].bit_identical if found else True,
    }
