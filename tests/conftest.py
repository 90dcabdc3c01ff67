"""Settings that must be there before numba or torch are imported, and the fixtures that all tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace"
os.environ.setdefault("NUMBA_CACHE_DIR", str(CACHE / "numba"))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NUMBA_THREADING_LAYER", "omp")

import pytest  # noqa: E402

from streams.contracts import Log  # noqa: E402
from streams.embedded.log import open_log  # noqa: E402
from tests.hdfs_cluster import Hdfs, started  # noqa: E402


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """An embedded log in a folder of its own."""
    opened = open_log(tmp_path / "log")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    """A real HDFS, for the whole session. A test that stops a daemon starts it again."""
    with started(tmp_path_factory.mktemp("hdfs") / "hdfs") as running:
        yield running
