"""Every way through the chain ends with the same model: bit for bit."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.flow.project import Project, digests, learned

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

Undisturbed = tuple[Project, dict[str, Any]]
FILES = 8
ROWS = 100_000


def move(files: list[Path], folder: Path) -> list[Path]:
    folder.mkdir(exist_ok=True)
    return [Path(shutil.move(file, folder / file.name)) for file in files]


def test_quality_and_counts(undisturbed: Undisturbed) -> None:
    _, result = undisturbed
    feed = result["feeds"]["ratings"]
    assert (feed["files"], feed["rows"], feed["used"], feed["rejected"], feed["late"]) == (FILES, ROWS, ROWS, 0, 0)
    assert feed["closed"] is True
    assert result["feeds"]["users"]["used"] == 943
    assert result["feeds"]["items"]["used"] == 1682
    for experiment in result["experiments"].values():
        assert experiment["rows_trained"] == ROWS
        assert experiment["rows_waiting"] == 0
        assert experiment["waiting"] == []
        assert experiment["steps"] <= 1570
        assert experiment["skew_over_1h"] <= 0.02
        assert experiment["bit_identical"] is True
        assert experiment["log_loss"] < experiment["base_log_loss"]
    assert result["experiments"]["deepfm"]["auc_second_half"] >= 0.742


def test_second_run_trains_nothing_and_writes_no_checkpoint(undisturbed: Undisturbed) -> None:
    project, first = undisturbed
    before = {path: (project.path / path / "manifest.json").stat().st_mtime_ns for path in project.checkpoints()}
    again = project.run_all()
    after = {path: (project.path / path / "manifest.json").stat().st_mtime_ns for path in project.checkpoints()}
    assert learned(again) == learned(first)
    assert before == after


def test_files_after_the_closing_are_late(tmp_path: Path) -> None:
    """A closed feed takes no more rows: a file that comes later is counted, row by row, and trains nothing."""
    project = Project.create(tmp_path / "p", "shop")
    first = project.run_all()
    impressions = sorted((project.path / "data/impressions").glob("*.csv"))
    late = impressions[-1].with_name("part-999.csv")
    late.write_text(impressions[-1].read_text())
    rows = len(late.read_text().splitlines()) - 1
    again = project.run_all()
    feed = again["feeds"]["impressions"]
    assert (feed["late"], feed["late_files"]) == (rows, 1)
    assert feed["used"] == first["feeds"]["impressions"]["used"]
    assert learned(again) == learned(first)


def test_status_without_processes_shows_the_same_object(undisturbed: Undisturbed) -> None:
    project, first = undisturbed
    status = project.json("status")
    assert learned(status) == learned(first)
    assert status["feeds"] == first["feeds"]


def test_new_folder_and_idle_steps_on_the_way(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """The last four of eight files come later: the rows before wait, are counted, and the model is the same."""
    project = Project.create(tmp_path / "b", "movielens")
    data = project.path / "data/ratings"
    files = sorted(data.glob("*.tsv"))
    assert len(files) == FILES
    away = move(files[4:], tmp_path / "away")
    idle = project.run_all("--until-idle")
    deepfm = idle["experiments"]["deepfm"]
    assert idle["feeds"]["ratings"]["files"] == 4
    assert idle["feeds"]["ratings"]["closed"] is False
    assert 0 < deepfm["rows_trained"] < ROWS // 2
    assert deepfm["rows_trained"] + deepfm["rows_waiting"] == idle["feeds"]["ratings"]["used"]
    assert sum(item["rows"] for item in deepfm["waiting"]) == deepfm["rows_waiting"]
    assert all(item["for"] for item in deepfm["waiting"])
    again = project.run_all("--until-idle")
    assert learned(again) == learned(idle)
    move(away, data)
    assert learned(project.run_all()) == learned(undisturbed[1])


def test_first_files_later_are_late(undisturbed: Undisturbed, tmp_path: Path) -> None:
    project = Project.create(tmp_path / "c", "movielens")
    data = project.path / "data/ratings"
    files = sorted(data.glob("*.tsv"))
    away = move(files[:4], tmp_path / "away")
    late_rows = sum(len(file.read_text().splitlines()) - 1 for file in away)
    project.run_all("--until-idle")
    move(away, data)
    result = project.run_all()
    feed = result["feeds"]["ratings"]
    assert (feed["late"], feed["late_files"], feed["used"]) == (late_rows, 4, ROWS - late_rows)
    assert digests(result) != digests(undisturbed[1])


@pytest.mark.parametrize("order", [("train", "preprocess", "ingest"), ("ingest", "train", "preprocess")])
def test_single_roles_in_any_order(undisturbed: Undisturbed, tmp_path: Path, order: tuple[str, ...]) -> None:
    """Two processes of ingest, two of preprocess, and the trainers, started in any order, each ending by itself."""
    project = Project.create(tmp_path / "d", "movielens")
    roles = [role for role in order for _ in range(1 if role == "train" else 2)]
    started = [project.start("run", role, "--until-end") for role in roles]
    try:
        codes = [process.wait(200) for process in started]
    finally:
        for process in started:
            process.kill()
    assert codes == [0] * len(started)
    assert learned(project.json("status")) == learned(undisturbed[1])
