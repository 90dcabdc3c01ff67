"""Running a benchmark by name: figures as ratios of one run, with versions and commit."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import sqlite3
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LIBRARIES = ("numpy", "pyarrow", "numba", "torch", "xxhash")


def names() -> list[str]:
    """Modules of this folder that have something to run."""
    helpers = {"__init__", "__main__", "harness", "synthetic"}
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in helpers)


def run(name: str) -> dict[str, Any]:
    """The benchmark's own figures, and what they were measured with."""
    figures = importlib.import_module(f"benchmarks.{name}").run()
    return {"benchmark": name, **figures, "environment": environment()}


def environment() -> dict[str, Any]:
    """Versions, commit, machine, and how busy it was."""
    versions = {library: _version(library) for library in LIBRARIES}
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{library: version for library, version in versions.items() if version},
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str:
    def git(*args: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "--short", "HEAD") or "unknown") + ("+changes" if changed else "")


def median(values: Sequence[float]) -> float:
    """Median, three significant digits."""
    return float(f"{statistics.median(values):.3g}")


def show(figures: dict[str, Any]) -> str:
    """For people: one line a figure."""
    lines = []
    for key, value in figures.items():
        if isinstance(value, dict):
            lines.append(f"{key}:")
            lines += [f"  {inner:28} {_text(one)}" for inner, one in value.items()]
        else:
            lines.append(f"{key:30} {_text(value)}")
    return "\n".join(lines)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def main(arguments: Sequence[str]) -> int:
    """``NAME [--json]``; the exit code."""
    wanted = [argument for argument in arguments if argument != "--json"]
    if len(wanted) != 1 or wanted[0] not in names():
        print(f"usage: python -m benchmarks NAME [--json]   NAME: {', '.join(names())}", file=sys.stderr)
        return 2
    figures = run(wanted[0])
    print(json.dumps(figures) if "--json" in arguments else show(figures))
    return 0
