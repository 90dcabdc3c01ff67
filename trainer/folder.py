"""The folder of a version's checkpoints: ``<directory>/<name>.v<n>/``. Its lock, its list of resumes, its steps."""

from __future__ import annotations

import fcntl
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

STEP = re.compile(r"^\d{12}$")
LOCK, RESUMES = "trainer.lock", "resumes.jsonl"


def version_folder(directory: str | Path, name: str, number: int) -> Path:
    """Where the checkpoints of a version lie."""
    return Path(directory) / f"{name}.v{number}"


def checkpoint_folders(folder: Path) -> list[Path]:
    """Folders of finished checkpoints, newest first. A folder has its final name only when it is whole."""
    try:
        names = [name for name in os.listdir(folder) if STEP.match(name)]
    except FileNotFoundError:
        return []
    return [folder / name for name in sorted(names, reverse=True)]


def sync_folder(folder: Path) -> None:
    """Make names in a folder survive a loss of power."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@dataclass(slots=True)
class Lock:
    """The right to train a version: one holder at a time, released by the kernel when the holder dies."""

    path: Path
    _fd: int = -1

    def acquire(self) -> bool:
        """Take it if it is free. Never blocks."""
        if self._fd < 0:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
            except BaseException:
                os.close(fd)
                raise
            self._fd = fd
        return True

    def release(self) -> None:
        """Give it back. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def add_start(folder: Path, step: int, wall_us: int) -> None:
    """Write down that a trainer started at a step; durable on return."""
    path = folder / RESUMES
    # A line cut by a crash must not swallow this one.
    torn = path.exists() and path.stat().st_size > 0 and not path.read_bytes().endswith(b"\n")
    line = ("\n" if torn else "") + json.dumps({"step": step, "started_us": wall_us}) + "\n"
    with path.open("a") as file:
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def resumes(folder: Path) -> list[int]:
    """Steps at which trainers of this version went on, without the first start; 0 where there was no checkpoint yet."""
    steps = []
    try:
        lines = (folder / RESUMES).read_text().splitlines()
    except FileNotFoundError:
        return []
    for line in lines:
        try:
            steps.append(int(json.loads(line)["step"]))
        except (ValueError, KeyError, TypeError):  # cut by a crash: a start that came to nothing
            continue
    return steps[1:]
