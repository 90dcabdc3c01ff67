"""Names of topics and consumer groups. Everything else in the project asks here."""

from __future__ import annotations

REGISTRY = "registry"


def splits(feed: str) -> str:
    """Splits planned for a feed."""
    return f"splits.{feed}"


def floor(feed: str) -> str:
    """The planner's own records: floor, listing state, closing."""
    return f"floor.{feed}"


def progress(feed: str) -> str:
    """Progress of the readers, per split."""
    return f"progress.{feed}"


def raw(feed: str) -> str:
    """Rows of a feed by partition, and W."""
    return f"raw.{feed}"


def late(feed: str) -> str:
    """Rows older than the bound of their split."""
    return f"late.{feed}"


def dead_letters(name: str) -> str:
    """Rows and messages that cannot be used: of a feed, a view or an experiment."""
    return f"dlq.{name}"


def joined(view: str) -> str:
    """Labelled rows of a view, in order, and V."""
    return f"joined.{view}"


def side(view: str) -> str:
    """Rows a join leaves out (duplicates, orphans)."""
    return f"side.{view}"


def exp(experiment: str, number: int) -> str:
    """Local batches of a version, and V."""
    return f"exp.{experiment}.v{number}"


def read_group(feed: str) -> str:
    """Readers of a feed."""
    return f"read.{feed}"


def join_group(view: str) -> str:
    """Join workers of a view."""
    return f"join.{view}"


def featurize_group(experiment: str, number: int) -> str:
    """Featurizers of a version."""
    return f"feat.{experiment}.v{number}"


def train_group(experiment: str, number: int) -> str:
    """The trainer of a version."""
    return f"train.{experiment}.v{number}"
