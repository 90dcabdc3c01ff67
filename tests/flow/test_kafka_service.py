"""The whole chain through a real Kafka, by the command line: the same model as through the embedded log."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest

from dev.kafka_service import Kafka
from tests.flow.project import Project, digests, learned

pytestmark = [pytest.mark.service, pytest.mark.timeout(290)]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return Project.create(tmp_path_factory.mktemp("embedded") / "p", "shop").run_all()


def settings(kafka: Kafka) -> str:
    return f"log: {{kafka: {{bootstrap: '{kafka.bootstrap}', prefix: p-{secrets.token_hex(4)}}}}}"


def test_the_model_through_kafka_is_the_model_through_the_embedded_log(
    kafka: Kafka, tmp_path: Path, embedded: dict[str, object]
) -> None:
    project = Project.create(tmp_path / "p", "shop", settings(kafka))
    result = project.run_all()
    assert digests(result) == digests(embedded)
    assert learned(result) == learned(embedded)
    assert not (project.path / ".headrace" / "log" / "log.db").exists()
    again = project.run_all()
    assert digests(again) == digests(embedded)
