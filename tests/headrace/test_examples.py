"""Example projects: what ``headrace init`` writes is valid, whole, and the same every time."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.experiment import Experiment
from experiments.feed import Feed
from experiments.loading import load_experiment, load_feeds
from experiments.view import view_of
from headrace.examples import EXAMPLES, movielens, write_project
from streams.errors import Broken, Unreachable, Usage

ROOT = Path(__file__).parents[2]


def specs_of(folder: Path) -> tuple[dict[str, Feed], dict[str, Experiment]]:
    feeds = load_feeds(folder / "feeds")
    loaded = [load_experiment(path, feeds) for path in sorted((folder / "experiments").glob("*.yaml"))]
    return feeds, {experiment.experiment: experiment for experiment in loaded}


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache folder of the machine, with MovieLens in it."""
    folder = movielens.cache_folder()
    try:
        movielens.fetched(folder / "ml-100k")
    except Unreachable as error:
        if os.environ.get("HEADRACE_REQUIRE_SERVICES") == "1":
            raise
        pytest.skip(f"the data cannot be fetched here: {error.got}")
    return folder


def test_shop_is_valid_and_the_same_every_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_project(tmp_path / name, "shop")
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    feeds, experiments = specs_of(tmp_path / "a")
    assert sorted(feeds) == ["impressions", "items"]
    assert list(experiments) == ["ctr"]
    for feed in feeds.values():
        files = sorted((tmp_path / "a" / feed.files.url).glob(feed.files.match))
        assert files
        for file in files:
            assert set(feed.columns) == set(file.read_text().splitlines()[0].split(","))
    rows = [
        line.split(",") for file in (tmp_path / "a/data/impressions").iterdir() for line in file.read_text().split()[1:]
    ]
    assert len(rows) == 24_000
    assert 0.1 < sum(row[-1] == "1" for row in rows) / len(rows) < 0.5


def test_movielens_is_valid_and_in_order(tmp_path: Path, data: Path) -> None:
    write_project(tmp_path / "m", "movielens")
    feeds, experiments = specs_of(tmp_path / "m")
    assert sorted(experiments) == ["deepfm", "lr"]
    assert len({view_of(experiment, feeds).name for experiment in experiments.values()}) == 1, "both share one join"
    files = sorted((tmp_path / "m/data/ratings").iterdir())
    assert [file.name for file in files] == [f"part-{n}.tsv" for n in range(8)]
    rows = [line.split("\t") for file in files for line in file.read_text().splitlines()[1:]]
    keys = [(float(time), int(user), int(item)) for user, item, _, time in rows]
    assert len(keys) == 100_000
    assert keys == sorted(keys)
    ratings = feeds["ratings"]
    assert (ratings.key, ratings.partitions, ratings.cuts.every) == (("user_id", "item_id"), 4, None)
    assert ratings.files.order == "in_order"


@pytest.mark.parametrize("example", EXAMPLES)
def test_no_feature_sees_the_answer(example: str) -> None:
    _, experiments = specs_of(ROOT / "headrace/examples/templates" / example)
    for experiment in experiments.values():
        labels = {label.column for label in experiment.labels.values()}
        assert not labels.intersection(column for f in experiment.features.values() for column in f.columns)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(Usage, match="which holds something"):
        write_project(tmp_path, "shop")
    with pytest.raises(Usage, match="which holds something"):
        write_project(tmp_path / "mine", "shop")
    assert os.listdir(tmp_path) == ["mine"]
    with pytest.raises(Usage, match="shop or movielens"):
        write_project(tmp_path / "new", "shopp")
    assert not (tmp_path / "new").exists()


def test_two_processes_at_once(tmp_path: Path, data: Path) -> None:
    """From the wheel, put there by hand, into one empty cache folder."""
    wheel = _wheel(data)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / movielens.WHEEL).write_bytes(wheel.read_bytes())
    code = (
        "import sys, pathlib; from headrace.examples import write_project\n"
        "write_project(pathlib.Path(sys.argv[1]), 'movielens')"
    )
    environment = os.environ | {"HEADRACE_DATA_DIR": str(tmp_path / "cache")}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, tmp_path / name], env=environment, stderr=subprocess.PIPE, text=True
        )
        for name in ("a", "b")
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert "for research use" in errors
        assert "fetching" not in errors, "a wheel that was put there is used"
    assert digests(tmp_path / "a") == digests(tmp_path / "b")
    assert sorted(os.listdir(tmp_path / "cache")) == ["ml-100k", movielens.WHEEL]


def test_a_damaged_copy_is_made_anew(tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path))
    (tmp_path / movielens.WHEEL).write_bytes(_wheel(data).read_bytes())
    folder = movielens.fetched(tmp_path / "ml-100k")
    damaged = folder / "ml-100k.user"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    movielens.fetched(folder)
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()} == movielens.NAMES


def test_another_wheel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path))
    (tmp_path / movielens.WHEEL).write_bytes(b"something else")
    with pytest.raises(Broken, match=movielens.SHA256):
        write_project(tmp_path / "new", "movielens")
    assert os.listdir(tmp_path / "new") == [], "it can be tried again in the same folder"


def test_where_fetching_fails_the_manual_way_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path / "cache"))
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", str(tmp_path)), ("PIP_CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(name, value)
    with pytest.raises(Unreachable) as error:
        write_project(tmp_path / "new", "movielens")
    assert error.value.exit_code == 3
    for part in (movielens.WHEEL, movielens.SHA256, str(tmp_path / "cache")):
        assert part in error.value.do
    assert os.listdir(tmp_path / "cache") == []


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path / "file" / "below"))
    with pytest.raises(Usage, match="HEADRACE_DATA_DIR"):
        write_project(tmp_path / "new", "movielens")


def test_places_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place: Callable[[], Path] = movielens.cache_folder
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path / "x"))
    assert place() == tmp_path / "x"
    monkeypatch.delenv("HEADRACE_DATA_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert place() == tmp_path / "headrace/datasets"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert place() == Path.home() / ".cache/headrace/datasets"


def _wheel(data: Path) -> Path:
    """The wheel, fetched into the cache folder if only what was in it is kept."""
    if not (data / movielens.WHEEL).is_file():
        movielens._download(data)
    return data / movielens.WHEEL
