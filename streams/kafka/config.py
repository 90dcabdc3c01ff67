"""How a Kafka cluster is reached, and how its names and ours translate."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streams.errors import Usage

PREFIX = re.compile(r"[A-Za-z0-9_-]{1,40}")
OVERHEAD_BYTES = 1024 * 1024
"""A record is larger than its value: key, headers, and the batch around it."""

LARGEST_RESPONSE_BYTES = 200 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Where the log is.

    Args:
        bootstrap: ``host:port``, several with commas. prefix: of all topics, groups and transactional ids, without a dot.
        replication, min_insync: of topics that are made; −1 and ``None``: as the broker says.
        deadline_s: of one call. session_timeout_s: a member that stands still for longer loses its partitions.
        poll_timeout_s: so does one that does not poll. in_flight_bytes: sent and not acknowledged, of one producer.
        client: further settings of kafka-python (``security_protocol``, ``sasl_mechanism``, ``ssl_cafile``, …), never printed.
    """

    bootstrap: str
    prefix: str
    replication: int = -1
    min_insync: int | None = None
    deadline_s: float = 30.0
    session_timeout_s: float = 10.0
    poll_timeout_s: float = 300.0
    in_flight_bytes: int = 64 * 1024 * 1024
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not PREFIX.fullmatch(self.prefix):
            raise Usage(
                expected="1 to 40 letters, digits, '_' and '-' (no dot: the prefix of one project must not begin another's)",
                got=repr(self.prefix),
                where="log.kafka.prefix",
                do="Name the project, for example: shop.",
            )

    def common(self) -> dict[str, Any]:
        """Settings of every client."""
        return {
            "bootstrap_servers": [part.strip() for part in self.bootstrap.split(",")],
            "retry_backoff_ms": 5,
            "reconnect_backoff_max_ms": 1000,
            "request_timeout_ms": round(self.deadline_s * 1000),
            "bootstrap_timeout_ms": round(self.deadline_s * 1000),
            "receive_message_max_bytes": LARGEST_RESPONSE_BYTES,
            **self.client,
        }

    def outer(self, name: str) -> str:
        """Our name → Kafka's."""
        return f"{self.prefix}.{name}"

    def inner(self, name: str) -> str | None:
        """Kafka's name → ours; ``None`` if it is another project's."""
        return name.removeprefix(f"{self.prefix}.") if name.startswith(f"{self.prefix}.") else None
