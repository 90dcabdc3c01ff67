"""The demo with everything at once on real services: Kafka, HDFS and Redis. The model is that of the embedded default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dev.hdfs_service import Hdfs
from dev.kafka_service import Kafka
from dev.redis_service import Redis
from tests.flow.project import digests, headrace, learned

pytestmark = [pytest.mark.service, pytest.mark.timeout(280)]


def demo(folder: Path, *options: str) -> dict[str, object]:
    done = headrace("demo", folder, "--example", "shop", *options, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def test_the_same_model_on_all_services(kafka: Kafka, hdfs: Hdfs, redis_server: Redis, tmp_path: Path) -> None:
    plain = demo(tmp_path / "plain")
    options = ("--log", kafka.url, "--source", f"{hdfs.url}/all/of-them", "--cache", redis_server.url)
    served = demo(tmp_path / "served", *options)
    assert digests(served) == digests(plain)
    assert learned(served) == learned(plain)
    assert not (tmp_path / "served" / "data").exists()


@pytest.mark.parametrize("option", [("--log", "redis://h:1"), ("--cache", "kafka://h:1"), ("--log", "kafka://")])
def test_urls_of_other_kinds_are_refused(tmp_path: Path, option: tuple[str, str]) -> None:
    done = headrace("demo", tmp_path / "p", "--example", "shop", *option)
    assert done.returncode == 2
    assert option[0] in done.stderr
    assert not (tmp_path / "p" / "headrace.yaml").exists()
