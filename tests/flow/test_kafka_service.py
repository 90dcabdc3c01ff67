"""The whole chain through a real Kafka, by the command line: the same model as through the embedded log."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import pytest

from dev.daemon import dies_with_starter
from dev.kafka_service import Kafka
from tests.flow.project import Project, digests, learned
from tests.services import running

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


@pytest.mark.parametrize("how", ["killed", "stands still"])
def test_a_broker_away_in_the_middle_costs_time_only(tmp_path: Path, embedded: dict[str, object], how: str) -> None:
    with running(lambda: Kafka(tmp_path / "kafka", dies_with_starter)) as kafka:
        project = Project.create(tmp_path / "p", "shop", settings(kafka) + "\ningest: {part_rows: 500}")
        process = project.start("run", "all", "--until-end", "--json")
        until_s = time.monotonic() + 90
        while not any(feed["rows"] for feed in project.json("status")["feeds"].values() if feed):
            assert time.monotonic() < until_s
        if how == "killed":
            kafka.kill()
            time.sleep(8)
            kafka.start()
        else:
            kafka.stand_still()
            time.sleep(15)
            kafka.go_on()
        code = process.wait(150)
        assert code == 0, "".join(path.read_text()[-3000:] for path in project.path.glob("test-run*.err"))
        assert digests(project.run_all()) == digests(embedded)
