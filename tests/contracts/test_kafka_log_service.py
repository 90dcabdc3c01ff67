"""The conformance suite on a real Kafka."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from dev.kafka_service import Kafka
from streams.contracts import Log
from streams.kafka.config import KafkaConfig
from streams.kafka.log import open_log
from tests.contracts.log_conformance import LOG_CONFORMANCE
from tests.contracts.log_helpers import MakeLog


@pytest.mark.service
class TestKafkaLog(*LOG_CONFORMANCE):
    @pytest.fixture
    def make_log(self, kafka: Kafka) -> Iterator[MakeLog]:
        opened: list[Log] = []
        prefix = f"t-{secrets.token_hex(6)}"

        def make() -> Log:
            opened.append(open_log(KafkaConfig(kafka.bootstrap, prefix, deadline_s=15.0)))
            return opened[-1]

        yield make
        for log in opened:
            log.close()
