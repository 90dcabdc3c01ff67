"""The conformance suite on a real Kafka."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import pytest

from dev.kafka_service import Kafka
from streams.contracts import Log, Position, TopicPartition, TopicSpec
from streams.errors import SchemaMismatch
from streams.kafka.config import KafkaConfig
from streams.kafka.log import KafkaLog, open_log
from tests.contracts.log_conformance import LOG_CONFORMANCE
from tests.contracts.log_helpers import Listener, MakeLog, poll_all, put


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


@pytest.fixture
def log(kafka: Kafka) -> Iterator[KafkaLog]:
    opened = open_log(KafkaConfig(kafka.bootstrap, f"t-{secrets.token_hex(6)}", deadline_s=15.0))
    yield opened
    opened.close()


@pytest.mark.service
def test_retention_deletes_what_all_groups_have_read_and_nothing_else(log: KafkaLog) -> None:
    log.create_topic(TopicSpec("t", 1, retention_bytes=50_000))
    tp, producer = TopicPartition("t", 0), log.producer("p")
    for _ in range(40):
        put(producer, "t", 0, b"x" * 10_000)

    def begin_after_upkeep() -> int:
        log._maintained_s = 0.0
        log.maintain()
        return log.begin_offsets([tp])[tp]

    assert begin_after_upkeep() == 0, "nobody has read anything, and nobody is known"
    done = log.consumer("done")
    done.assign([tp])
    done.commit({tp: Position(60)})
    behind, listener = log.consumer("behind"), Listener()
    behind.subscribe(["t"], listener)
    poll_all([behind], lambda: listener.owned == {tp})
    assert begin_after_upkeep() == 0, "a member that has committed nothing yet wants all"
    producer.begin()
    producer.send_offsets(behind.membership(), {tp: Position(20)})
    producer.commit()
    assert begin_after_upkeep() == 20
    behind.close()
    assert begin_after_upkeep() == 20, "a group that stopped still wants the rest"
    log.delete_group("behind")
    assert 20 < begin_after_upkeep() <= 80


@pytest.mark.service
@pytest.mark.parametrize(
    ("configs", "said"),
    [
        ({"retention.ms": "-1", "max.message.bytes": "1000000"}, "max.message.bytes of at least 68157440"),
        ({"retention.ms": "604800000", "max.message.bytes": "70000000"}, "retention.ms=-1, got retention.ms=604800000"),
        ({"max.message.bytes": "70000000"}, "retention.ms=-1, got retention.ms=of the broker"),
        ({"cleanup.policy": "compact,delete", "max.message.bytes": "70000000"}, "compacted: True"),
    ],
)
def test_a_topic_of_somebody_that_does_not_fit_is_refused(log: KafkaLog, configs: dict[str, str], said: str) -> None:
    outer = log.config.outer("t")
    log._admin.create_topics({outer: {"num_partitions": 1, "replication_factor": 1, "configs": configs}})
    with pytest.raises(SchemaMismatch, match=re.escape(said)):
        log.create_topic(TopicSpec("t", 1))
