"""Small feeds and experiments."""

from __future__ import annotations

from pathlib import Path

from experiments.documents import Document, parse_document
from experiments.errors import SpecError
from experiments.experiment import Experiment
from experiments.feed import Feed
from experiments.loading import load_experiment, load_feed

RATINGS = """
feed: ratings
files: {url: data/ratings}
format: parquet
columns: {user_id: int64, item_id: int64, rating: float32, time: int64, tags: list<string>, place: string}
event_time: {column: time}
key: [user_id]
"""
ITEMS = """
feed: items
files: {url: data/items}
format: parquet
columns: {item_id: int64, category: string, price: float32, released: timestamp}
snapshot: true
key: [item_id]
"""
LIKED = """
experiment: liked
sample: ratings
labels: {liked: {column: rating, at_least: 4, range: [1, 5]}}
lookups: {item: {feed: items, on: item_id}}
features:
  user: {id: user_id}
  category: {hash: item.category}
  price: {dense: item.price, ops: [{clip: [0, 100]}, log1p]}
model: lr
train: {batch_rows: 64}
"""


def parse(text: str) -> Document:
    return parse_document(text, "spec.yaml")


def feed(text: str, folder: Path) -> Feed:
    return load_feed(written(text, folder))


def experiment(text: str, folder: Path, feeds: dict[str, Feed] | None = None) -> Experiment:
    return load_experiment(written(text, folder), feeds)


def feeds(folder: Path, *texts: str) -> dict[str, Feed]:
    loaded = [feed(text, folder) for text in texts or (RATINGS, ITEMS)]
    return {one.feed: one for one in loaded}


def written(text: str, folder: Path) -> Path:
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def told(error: SpecError) -> list[tuple[int, str, str, str, str]]:
    """(line, path, expected, got, do) of each problem."""
    return [(p.line, p.path, p.expected, p.got, p.do) for p in error.problems]
