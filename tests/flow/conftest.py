"""One undisturbed run, which the other ways are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.flow.project import Project


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, dict[str, Any]]:
    """MovieLens through ``run all --until-end``, with its result object."""
    path: Path = tmp_path_factory.mktemp("undisturbed") / "a"
    project = Project.create(path, "movielens")
    return project, project.run_all()
