"""The whole chain from files on a real HDFS, through the command line."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from dev.hdfs_service import Hdfs
from tests.flow.project import Project, digests, headrace, learned

pytestmark = [pytest.mark.service, pytest.mark.timeout(280)]


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The result of ``shop`` with its files on this disk."""
    return Project.create(tmp_path_factory.mktemp("local") / "p", "shop").run_all()


def test_the_model_from_hdfs_is_the_model_from_a_disk(hdfs: Hdfs, tmp_path: Path, local: dict[str, object]) -> None:
    project = Project.create(tmp_path / "p", "shop", source=f"{hdfs.url}/flow/same")
    assert not (project.path / "data").exists()
    result = project.run_all()
    assert digests(result) == digests(local)
    assert learned(result) == learned(local)


def test_the_name_node_dies_in_the_middle(hdfs: Hdfs, tmp_path: Path, local: dict[str, object]) -> None:
    project = Project.create(tmp_path / "p", "shop", "ingest: {part_rows: 20}", source=f"{hdfs.url}/flow/dies")
    found: dict[str, object] = {}
    run = threading.Thread(target=lambda: found.update(project.run_all()))
    run.start()
    until_s = time.monotonic() + 60
    while not any(feed["rows"] for feed in project.json("status")["feeds"].values() if feed):
        assert time.monotonic() < until_s
    hdfs.namenode.kill()
    time.sleep(5)
    assert run.is_alive()
    hdfs.namenode.start()
    run.join(120)
    hdfs.wait()
    assert digests(found) == digests(local)


def test_demo_from_hdfs(hdfs: Hdfs, tmp_path: Path) -> None:
    source = f"{hdfs.url}/flow/demo"
    done = headrace("demo", tmp_path / "p", "--example", "shop", "--source", source, "--json")
    assert done.returncode == 0, done.stderr
    assert source in (tmp_path / "p/feeds/impressions.yaml").read_text()
    again = headrace("init", tmp_path / "q", "--source", source)
    assert again.returncode == 2
    assert "which holds files" in again.stderr
    assert not (tmp_path / "q/headrace.yaml").exists()


def test_doctor_looks_at_each_feed(hdfs: Hdfs, tmp_path: Path) -> None:
    project = Project.create(tmp_path / "p", "shop", source=f"{hdfs.url}/flow/doctor")
    found = [finding["what"] for finding in project.json("doctor")["findings"]]
    assert sum(f"{hdfs.url}/flow/doctor" in what and "answers" in what for what in found) == 2


def test_what_cannot_be_reached_is_exit_code_3(tmp_path: Path) -> None:
    assert headrace("init", tmp_path / "p").returncode == 0
    project = Project(tmp_path / "p")
    for path in (project.path / "feeds").glob("*.yaml"):
        path.write_text(path.read_text().replace("url: data", "url: hdfs://127.0.0.1:1/data"))
    for args in (("validate",), ("plan",)):
        done = project(*args)
        assert done.returncode == 3, done.stderr
        assert "hdfs://127.0.0.1:1/data/" in done.stderr
        assert "refused" in done.stderr
        assert project(*args, "--offline").returncode == 0
    assert project("publish", *(project.path / "experiments").glob("*.yaml")).returncode == 0
    for role in ("all", "ingest"):
        done = project("run", role, "--until-end")
        assert done.returncode == 3, done.stderr
        assert "refused" in done.stderr
    done = project("doctor", "--json")
    assert done.returncode == 1
    bad = [finding["what"] for finding in json.loads(done.stdout)["findings"] if finding["level"] == "bad"]
    assert len(bad) == 2
    assert headrace("init", tmp_path / "q", "--source", "hdfs://127.0.0.1:1/x").returncode == 3
    assert headrace("init", tmp_path / "r", "--source", "s3://bucket/x").returncode == 2
