"""What a version is: its content. Every field that changes a model, a batch or a joined row changes the hash; nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.publishing import version_hash
from experiments.view import view_of
from tests.experiments import specs
from tests.experiments.specs import ITEMS, LIKED, RATINGS

EXPERIMENT = LIKED.replace("model: lr", "model: deepfm") + "tables: {user: {dim: 8}}\n"


def hash_of(folder: Path, experiment: str = EXPERIMENT, ratings: str = RATINGS, items: str = ITEMS) -> tuple[str, str]:
    """(of the version, name of its view)."""
    feeds = specs.feeds(folder, ratings, items)
    loaded = specs.experiment(experiment, folder, feeds)
    view = view_of(loaded, feeds)
    return version_hash(loaded, view), view.name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("at_least: 4", "at_least: 3"),
        ("at_least: 4", "equals: 4"),
        ("range: [1, 5]", "range: [0, 5]"),
        ("labels: {liked: {column: rating", "labels: {fond: {column: rating"),
        ("on: item_id", "on: user_id"),
        ("lookups:", "lookups: {thing: {feed: items, on: item_id}, item: {feed: items, on: item_id}}\n#"),
    ],
)
def test_of_the_join(tmp_path: Path, old: str, new: str) -> None:
    assert old in EXPERIMENT
    changed, before = hash_of(tmp_path, EXPERIMENT.replace(old, new)), hash_of(tmp_path)
    assert changed[0] != before[0]
    assert changed[1] != before[1], "another join is another view"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("user: {id: user_id}", "user: {hash: user_id}"),
        ("user: {id: user_id}", "user: {id: item_id}"),
        ("user: {id: user_id}", "user: {id: user_id, pool: mean}"),
        ("user: {id: user_id}", "user: {id: user_id}\n  other: {id: user_id, table: user}"),
        ("[{clip: [0, 100]}, log1p]", "[log1p, {clip: [0, 100]}]"),
        ("clip: [0, 100]", "clip: [0, 101]"),
        ("log1p]", "log1p], default: 1"),
        ("model: deepfm", "model: lr"),
        ("model: deepfm", "model: {deepfm: {mlp: [64, 64]}}"),
        ("model: deepfm", "model: {deepfm: {dropout: 0.1}}"),
        ("dim: 8", "dim: 9"),
        ("dim: 8", "dim: 8, init: 0.02"),
        ("dim: 8", "dim: 8, optimizer: {rowwise_adagrad: {lr: 0.1}}"),
        ("dim: 8", "dim: 8, optimizer: {rowwise_adagrad: {initial: 0.1}}"),
        ("tables: {", "tables: {default: {dim: 4}, "),
        ("batch_rows: 64", "batch_rows: 128"),
        ("batch_rows: 64", "batch_rows: 64, seed: 1"),
        ("batch_rows: 64", "batch_rows: 64, dense_optimizer: {adam: {lr: 0.01}}"),
        ("batch_rows: 64", "batch_rows: 64, dense_optimizer: {adam: {eps: 1e-7}}"),
        ("sample: ratings", "sample: ratings\nstart: latest"),
        ("sample: ratings", "sample: ratings\nstart: 2024-05-01"),
    ],
)
def test_of_the_experiment_alone(tmp_path: Path, old: str, new: str) -> None:
    assert old in EXPERIMENT
    changed, before = hash_of(tmp_path, EXPERIMENT.replace(old, new)), hash_of(tmp_path)
    assert changed[0] != before[0]
    assert changed[1] == before[1], "the join is the same, and shared"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("data/ratings}", "data/other}"),
        ("data/ratings}", "data/ratings, match: '*.x'}"),
        ("data/ratings}", "data/ratings, order: in_order}"),
        ("format: parquet", "format: {delimited: {sep: ';'}}"),
        ("rating: float32", "rating: float64"),
        ("rating: float32", "rating: {from: stars, type: float32}"),
        ("rating: float32", "rating: {type: float32, optional: true}"),
        ("event_time: {column: time}", "event_time: {column: time, unit: ms}"),
        ("key: [user_id]", "key: [item_id]"),
        ("key: [user_id]", "key: [user_id]\npartitions: 8"),
        ("key: [user_id]", "key: [user_id]\ncuts: {rows: 100}"),
        ("key: [user_id]", "key: [user_id]\ncuts: {every: 10s}"),
        ("key: [user_id]", "key: [user_id]\ndisorder: 1s"),
        ("key: [user_id]", "key: [user_id]\nfile_disorder: 1s"),
        ("key: [user_id]", "key: [user_id]\nmin_time: 2000-01-01"),
        ("key: [user_id]", "key: [user_id]\nmax_future: 1h"),
    ],
)
def test_of_a_feed(tmp_path: Path, old: str, new: str) -> None:
    assert old in RATINGS
    changed, before = hash_of(tmp_path, ratings=RATINGS.replace(old, new)), hash_of(tmp_path)
    assert changed[0] != before[0]
    assert changed[1] != before[1]


@pytest.mark.parametrize("text", ["experiment: liked", "model: deepfm", "tables: {user: {dim: 8}}"])
def test_not_of_comments_order_defaults_and_the_name(tmp_path: Path, text: str) -> None:
    spelled = {
        "experiment: liked": "# a comment\nexperiment: another",
        "model: deepfm": "model: {deepfm: {mlp: [128, 64], dropout: 0}}  # the same",
        "tables: {user: {dim: 8}}": "tables: {user: {optimizer: {rowwise_adagrad: {eps: 1.0e-8, lr: 0.05}}, init: 1e-2, dim: 8}}",
    }[text]
    assert text in EXPERIMENT
    assert hash_of(tmp_path, EXPERIMENT.replace(text, spelled)) == hash_of(tmp_path)
    backwards = "\n".join(
        ["train: {batch_rows: 64}", *EXPERIMENT.replace("train: {batch_rows: 64}\n", "").strip().splitlines()]
    )
    assert hash_of(tmp_path, backwards) == hash_of(tmp_path)


def test_not_of_how_long_a_file_must_be_at_rest(tmp_path: Path) -> None:
    assert hash_of(tmp_path, ratings=RATINGS + "settle: 10s\n") == hash_of(tmp_path)
