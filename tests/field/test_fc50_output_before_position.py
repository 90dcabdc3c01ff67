"""50: state was flushed before the output was delivered, so a crash lost or doubled rows. Here output and position are one
transaction: killed between any two steps, the next run puts out exactly what the undisturbed one does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from experiments import names
from experiments.registry import Registry
from streams.embedded.log import open_log
from streams.tail import read_to_end
from tests.flow.project import Project

POINTS = ["join.J5:3", "join.J7:2", "join.J8:2", "feat.F2:2", "feat.F3:3", "feat.F5:3"]
SMALL = "preprocess: {transaction_messages: 20, poll_size: 50KiB}\n"


def outputs(project: Project) -> dict[str, list[list[bytes | None]]]:
    """Digests of all messages of joined and exp, by partition, in order; V records left out."""
    log = open_log(project.path / ".headrace/log", create=False)
    try:
        registry = Registry(log)
        registry.refresh()
        version = registry.live()[0]
        topics = [names.joined(version.view.name), names.exp(version.name, version.number)]
        return {
            topic: [
                [r.header("hr.digest") for r in read_to_end(log, topic, p) if r.header("hr.kind") != b"control"]
                for p in range(version.view.partitions)
            ]
            for topic in topics
        }
    finally:
        log.close()


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose files are read, and nothing else is done."""
    project = Project.create(tmp_path_factory.mktemp("fc50") / "p", "shop", SMALL)
    done = project("run", "ingest", "--until-end")
    assert done.returncode == 0, done.stderr
    return project


def copy_of(project: Project, path: Path) -> Project:
    shutil.copytree(project.path, path)
    return Project(path)


@pytest.fixture(scope="module")
def undisturbed(read: Project, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[bytes | None]]]:
    project = copy_of(read, tmp_path_factory.mktemp("fc50-undisturbed") / "p")
    assert project("run", "preprocess", "--until-end").returncode == 0
    found = outputs(project)
    assert all(len(messages) > 10 for topic in found.values() for messages in topic)
    return found


@pytest.mark.parametrize("point", POINTS)
def test_killed_between_two_steps(
    read: Project, undisturbed: dict[str, list[list[bytes | None]]], tmp_path: Path, point: str
) -> None:
    project = copy_of(read, tmp_path / "p")
    killed = project("run", "preprocess", "--until-end", env={"HEADRACE_KILL_AT": point})
    assert killed.returncode == -9, "nobody passed this step"
    again = project("run", "preprocess", "--until-end")
    assert again.returncode == 0, again.stderr
    assert outputs(project) == undisturbed
