"""A project folder: ``headrace.yaml``, ``feeds/``, ``experiments/``, and what running leaves in ``.headrace/``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streams.errors import Usage

if TYPE_CHECKING:
    from headrace.settings import Settings
    from streams.contracts import Log

SETTINGS = "headrace.yaml"


@dataclass(frozen=True, slots=True)
class Project:
    """Paths of one project. ``root`` is absolute."""

    root: Path

    @property
    def settings_file(self) -> Path:
        """What marks the folder as a project."""
        return self.root / SETTINGS

    @property
    def feeds(self) -> Path:
        """One file a feed."""
        return self.root / "feeds"

    @property
    def experiments(self) -> Path:
        """One file an experiment."""
        return self.root / "experiments"

    @property
    def state(self) -> Path:
        """Everything that running makes; removing it starts from nothing."""
        return self.root / ".headrace"

    @property
    def log(self) -> Path:
        """The embedded log, if that is the log."""
        return self.state / "log"

    @property
    def checkpoints(self) -> Path:
        """Of all versions: ``<name>.v<n>/<step>``."""
        return self.state / "checkpoints"

    @property
    def answering(self) -> Path:
        """A file for each process that answers HTTP requests; its lock is held while it does."""
        return self.state / "http"

    @property
    def lock(self) -> Path:
        """Held while roles run."""
        return self.state / "run.lock"


def find_project(directory: Path | None) -> Project:
    """The project in ``directory``, or around the current folder. Raises ``Usage`` if there is none."""
    if directory is not None:
        project = Project(directory.absolute())
        if project.settings_file.is_file():
            return project
        raise _none(str(directory), "no such file" if directory.is_dir() else "no such folder")
    here = Path(os.getcwd())
    for folder in (here, *here.parents):
        if (folder / SETTINGS).is_file():
            return Project(folder)
    raise _none(str(here), f"no {SETTINGS} here or in a folder above")


def open_project_log(project: Project, settings: Settings, *, create: bool) -> Log:
    """Open the project's log. ``create=False`` raises ``Usage`` where nothing was published yet."""
    log = settings.log
    session_timeout_s = log.session_timeout / 1e6
    if log.kafka is not None:
        from streams.kafka.log import open_log as open_kafka_log

        return open_kafka_log(log.kafka.config(project.root.resolve().name, session_timeout_s))
    from streams.embedded.log import open_log

    if not create and not (project.log / "log.db").exists():
        raise Usage(
            expected="something published",
            got="a project in which nothing was published yet",
            where=str(project.root),
            do="headrace publish experiments/NAME.yaml",
        )
    return open_log(project.log, durability=log.durability, create=create, session_timeout_s=session_timeout_s)


def _none(where: str, got: str) -> Usage:
    return Usage(
        expected=f"a project folder (with the file {SETTINGS})",
        got=got,
        where=where,
        do="Go into the project folder or name it: headrace -C DIR ...; headrace init DIR makes one.",
    )
