from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from experiments.experiment import Experiment
from experiments.feed import Feed
from streams.embedded.log import EmbeddedLog, open_log
from tests.experiments import specs


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    opened = open_log(tmp_path / "log")
    yield opened
    opened.close()


@pytest.fixture
def feeds(tmp_path: Path) -> dict[str, Feed]:
    return specs.feeds(tmp_path)


@pytest.fixture
def liked(tmp_path: Path, feeds: dict[str, Feed]) -> Experiment:
    return specs.experiment(specs.LIKED, tmp_path, feeds)
