"""Topics on Kafka: made with what the contract asks for, described, deleted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from kafka import errors
from kafka.admin import ConfigResource, KafkaAdminClient

from streams.checks import check_same, check_spec, unknown_topic
from streams.contracts import TopicInfo, TopicSpec
from streams.errors import HeadraceError, SchemaMismatch, Usage
from streams.kafka.calls import patiently
from streams.kafka.config import OVERHEAD_BYTES, KafkaConfig

FRESH_S = 2.0
"""So long a description is believed. A topic that another process deletes and makes again is noticed later than that."""

KEPT_BYTES = "local.retention.bytes"
"""Holds our ``retention_bytes``: without tiered storage Kafka does nothing with it. Kafka's own retention is off, since it would
delete what a group has not read; ``KafkaLog.maintain`` deletes."""

UNTOUCHED = {"cleanup.policy": "delete", "retention.ms": "of the broker", "retention.bytes": "-1"}
"""Settings of a topic that does not say them."""

VISIBLE_S = 15.0


class Topics:
    """The topics of one prefix. Callers hold the log's lock."""

    def __init__(self, admin: KafkaAdminClient, config: KafkaConfig) -> None:
        self._admin, self._config = admin, config
        self._known: dict[str, tuple[float, TopicInfo]] = {}
        self._configs: dict[str, dict[str, str]] = {}

    def create(self, spec: TopicSpec) -> TopicInfo:
        """See ``Log.create_topic``. Refuses, too, an existing topic that takes only smaller messages."""
        check_spec(spec)
        if (found := self.find(spec.name)) is None:
            self._make(spec)
            found = self._appeared(spec.name)
        check_same(found.spec, spec)
        self._check_kept(spec)
        if found.spec.max_message_bytes < spec.max_message_bytes:
            raise SchemaMismatch(
                expected=f"max.message.bytes of at least {spec.max_message_bytes + OVERHEAD_BYTES}",
                got=f"{found.spec.max_message_bytes + OVERHEAD_BYTES}",
                where=f"topic {self._config.outer(spec.name)}",
                do="kafka-configs.sh --alter --entity-type topics --entity-name NAME --add-config max.message.bytes=…",
            )
        return found

    def _check_kept(self, spec: TopicSpec) -> None:
        """Kafka must not delete by itself what a group may not have read."""
        values = self._configs.get(spec.name, {})
        wanted = {"cleanup.policy": "compact" if spec.compacted else "delete"}
        wanted |= {} if spec.compacted else {"retention.ms": "-1", "retention.bytes": "-1"}
        for key, value in wanted.items():
            if values.get(key, UNTOUCHED[key]) != value:
                raise SchemaMismatch(
                    expected=f"{key}={value}",
                    got=f"{key}={values.get(key, UNTOUCHED[key])}",
                    where=f"topic {self._config.outer(spec.name)}",
                    do="Kafka would delete rows not yet read. kafka-configs.sh --alter --entity-type topics --entity-name NAME"
                    f" --add-config {key}={value}",
                )

    def find(self, name: str) -> TopicInfo | None:
        """Describe one; up to ``FRESH_S`` old."""
        known = self._known.get(name)
        if known and known[0] > time.monotonic() - FRESH_S:
            return known[1]
        return next(iter(self._describe([name])), None)

    def existing(self, name: str) -> TopicInfo:
        """Describe one that has to be there. Raises ``Usage``."""
        if (found := self.find(name)) is None:
            raise unknown_topic(name)
        return found

    def all(self) -> list[TopicInfo]:
        """All of the prefix, by name."""
        inner = [self._config.inner(name) for name in self._ask("topics", self._admin.list_topics)]
        return self._describe(sorted(name for name in inner if name))

    def delete(self, name: str) -> None:
        """Delete one and wait until it is gone."""
        self.existing(name)
        self._ask(f"topic {name}", lambda: self._admin.delete_topics([self._config.outer(name)]))
        until_s = time.monotonic() + VISIBLE_S
        while self._describe([name]) and time.monotonic() < until_s:
            time.sleep(0.02)

    def forget(self) -> None:
        """Believe nothing."""
        self._known.clear()

    def _ask(self, where: str, call: Callable[[], Any]) -> Any:
        return patiently(where, self._config.deadline_s, call)

    def _make(self, spec: TopicSpec) -> None:
        configs = {
            "cleanup.policy": "compact" if spec.compacted else "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "max.message.bytes": str(spec.max_message_bytes + OVERHEAD_BYTES),
            "compression.type": "producer",
        }
        if spec.retention_bytes is not None:
            configs[KEPT_BYTES] = str(spec.retention_bytes)
        if self._config.min_insync is not None:
            configs["min.insync.replicas"] = str(self._config.min_insync)
        asked = {
            "num_partitions": spec.partitions,
            "replication_factor": self._config.replication,
            "configs": configs,
        }
        try:
            self._ask(f"topic {spec.name}", lambda: self._admin.create_topics({self._config.outer(spec.name): asked}))
        except HeadraceError as error:
            if not isinstance(error.__cause__, errors.TopicAlreadyExistsError):  # another process was faster
                raise

    def _appeared(self, name: str) -> TopicInfo:
        until_s = time.monotonic() + VISIBLE_S
        while time.monotonic() < until_s:
            if found := self._describe([name]):
                return found[0]
            time.sleep(0.02)
        raise unknown_topic(name)

    def _describe(self, names: Iterable[str]) -> list[TopicInfo]:
        outer = [self._config.outer(name) for name in names]
        if not outer:
            return []
        answer = self._ask("topics", lambda: self._admin.describe_topics(outer))
        described = [topic for topic in answer if not topic["error_code"]]
        wanted = [ConfigResource("TOPIC", topic["name"]) for topic in described]
        try:
            configs = self._ask("topics", lambda: self._admin.describe_configs(wanted))["topic"] if wanted else {}
        except Usage:  # deleted meanwhile
            return []
        found = []
        for topic in described:
            values = {key: value["value"] for key, value in configs.get(topic["name"], {}).items()}
            info = self._info(topic, values)
            self._configs[info.spec.name] = values
            found.append(info)
        for name in names:
            self._known.pop(name, None)
        now_s = time.monotonic()
        self._known.update({info.spec.name: (now_s, info) for info in found})
        return sorted(found, key=lambda info: info.spec.name)

    def _info(self, topic: dict[str, Any], values: dict[str, str]) -> TopicInfo:
        name = self._config.inner(topic["name"])
        assert name is not None
        kept = values.get(KEPT_BYTES)
        spec = TopicSpec(
            name,
            len(topic["partitions"]),
            compacted="compact" in values.get("cleanup.policy", "delete"),
            retention_bytes=int(kept) if kept and int(kept) >= 0 else None,
            max_message_bytes=int(values.get("max.message.bytes", 1024 * 1024)) - OVERHEAD_BYTES,
        )
        return TopicInfo(spec, str(topic["topic_id"]))
