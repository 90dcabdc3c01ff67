"""A project folder and the command line, as the flow tests use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_S = 120.0


def headrace(
    *args: str | Path, env: dict[str, str] | None = None, timeout_s: float = 240
) -> subprocess.CompletedProcess[str]:
    """Run one command to its end."""
    command = [sys.executable, "-m", "headrace", *map(str, args)]
    return subprocess.run(
        command, env=os.environ | (env or {}), capture_output=True, text=True, timeout=timeout_s, check=False
    )


@dataclass(frozen=True)
class Project:
    """A project folder."""

    path: Path

    @classmethod
    def create(cls, path: Path, example: str, settings: str = "", *, source: str | None = None) -> Project:
        done = headrace("init", path, "--example", example, *(("--source", source) if source else ()))
        assert done.returncode == 0, done.stderr
        if settings:
            with (path / "headrace.yaml").open("a") as file:
                file.write("\n" + settings)
        project = cls(path)
        published = project("publish", *sorted((path / "experiments").glob("*.yaml")), "--json")
        assert published.returncode == 0, published.stderr + published.stdout
        return project

    def __call__(self, *args: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        return headrace("-C", self.path, *args, **options)

    def json(self, *args: str | Path, **options: Any) -> dict[str, Any]:
        """Run a command that must succeed; its one object on stdout."""
        done = self(*args, "--json", **options)
        assert done.returncode == 0, f"{args}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    def run_all(self, ending: str = "--until-end", **options: Any) -> dict[str, Any]:
        return self.json("run", "all", ending, **options)

    def start(self, *args: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        """Start a command in the background; its output lies in files beside the project."""
        out = self.path / f"test-{'-'.join(args).replace('--', '')}-{time.monotonic_ns()}.out"
        with out.open("w") as stdout, out.with_suffix(".err").open("w") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "headrace", "-C", str(self.path), *args],
                env=os.environ | (env or {}),
                stdout=stdout,
                stderr=stderr,
                text=True,
            )

    def checkpoints(self) -> list[str]:
        return sorted(
            str(p.parent.relative_to(self.path)) for p in self.path.glob(".headrace/checkpoints/*/*/manifest.json")
        )

    def ledger(self, folder: Path) -> dict[str, list[tuple[str, int]]]:
        """Ids of all rows that were trained and survive, by experiment, in the order of steps."""
        import pyarrow as pa

        rows: dict[str, list[tuple[str, int]]] = {}
        for path in sorted(folder.rglob("*.arrow")):
            table = pa.ipc.open_file(path).read_all()
            name = path.relative_to(folder).parts[0]
            rows.setdefault(name, []).extend(zip(table["file"].to_pylist(), table["row"].to_pylist(), strict=True))
        return rows


def digests(result: dict[str, Any]) -> dict[str, str]:
    """Model digest by experiment."""
    return {name: experiment["model_digest"] for name, experiment in result["experiments"].items()}


def learned(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What must be equal on every way to the same model."""
    fields = ("rows_trained", "steps", "auc", "auc_second_half", "log_loss", "log_loss_second_half", "base_log_loss",
              "normalized_entropy", "calibration", "skew_over_1h", "model_digest")  # fmt: skip
    return {name: {key: e[key] for key in fields} for name, e in result["experiments"].items()}


def children_of(pid: int) -> list[int]:
    """Process ids of a tree below ``pid``."""
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill(pid: int) -> bool:
    """SIGKILL; whether it was there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
