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

from dev.daemon import dies_with_starter  # noqa: E402
from dev.hdfs_service import Hdfs  # noqa: E402
from dev.kafka_service import Kafka  # noqa: E402
from dev.redis_service import Redis  # noqa: E402
from streams.contracts import Log  # noqa: E402
from streams.embedded.log import open_log  # noqa: E402
from tests.services import running, up  # noqa: E402


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """An embedded log in a folder of its own."""
    opened = open_log(tmp_path / "log")
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def session_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with running(lambda: Kafka(tmp_path_factory.mktemp("services") / "kafka", dies_with_starter)) as service:
        yield service


@pytest.fixture(scope="session")
def session_hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with running(lambda: Hdfs(tmp_path_factory.mktemp("services") / "hdfs", dies_with_starter)) as service:
        yield service


@pytest.fixture(scope="session")
def session_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    with running(lambda: Redis(tmp_path_factory.mktemp("services") / "redis", dies_with_starter)) as service:
        yield service


@pytest.fixture
def kafka(session_kafka: Kafka) -> Kafka:
    """A real Kafka, one for the whole session. Whatever the test before left of it, it is up."""
    return up(session_kafka)


@pytest.fixture
def hdfs(session_hdfs: Hdfs) -> Hdfs:
    """A real HDFS, one for the whole session. Whatever the test before left of it, it is up."""
    return up(session_hdfs)


@pytest.fixture
def redis_server(session_redis: Redis) -> Redis:
    """A real Redis, one for the whole session. Whatever the test before left of it, it is up."""
    return up(session_redis)
