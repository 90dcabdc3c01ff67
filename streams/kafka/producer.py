"""The transactional producer on Kafka: limits on what is in flight, deadlines on what kafka-python waits for without one.

| step | does | if it fails, then … |
|---|---|---|
| 1 | ``send``: into the client's buffers, at most ``in_flight_bytes`` | the transaction can only be aborted |
| 2 | wait until all records are acknowledged | as 1 |
| 3 | the offsets, with the membership's generation | ``Rebalanced``: aborted, go on; a newer producer: ``Fenced`` |
| 4 | commit | known: as 3. No answer in time: ``UnknownOutcome``, and this producer is not used again |
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from kafka import KafkaProducer, errors
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as Outer

from streams.checks import check_position, check_record
from streams.contracts import Headers, Membership, Position, TopicPartition
from streams.errors import Closed, Exhausted, Fenced, HeadraceError, Rebalanced, UnknownOutcome, Usage
from streams.kafka.calls import of_kafka, translated
from streams.kafka.consumer import KafkaMembership

if TYPE_CHECKING:
    from streams.kafka.log import KafkaLog

BATCH_BYTES = 1024 * 1024
TRANSACTION_S = 120.0
"""After it the broker gives a transaction up whose process stands still; until then readers wait for it."""


class KafkaTransactions:
    """See ``streams.contracts.Producer``; made by ``KafkaLog.producer``."""

    def __init__(self, log: KafkaLog, transactional_id: str) -> None:
        self._log, self._name = log, transactional_id
        config = log.config
        self._deadline_ms = round(config.deadline_s * 1000)
        self._in_flight: deque[tuple[Any, int]] = deque()
        self._bytes = 0
        self._offsets: list[tuple[KafkaMembership, dict[Outer, OffsetAndMetadata]]] = []
        self._open = self._sent = False
        self._failed: HeadraceError | None = None
        self._dead: str | None = None
        with translated(self._where):
            self._kafka = KafkaProducer(
                **config.common(),
                transactional_id=config.outer(transactional_id),
                transaction_timeout_ms=round(TRANSACTION_S * 1000),
                delivery_timeout_ms=self._deadline_ms + 1000,
                max_block_ms=self._deadline_ms,
                acks="all",
                linger_ms=0,
                batch_size=BATCH_BYTES,
                max_request_size=2**31 - 1,
                allow_auto_create_topics=False,
                metrics_enabled=False,
            )
            try:
                self._kafka.init_transactions()
            except BaseException:
                self._kafka.close(timeout=1)
                raise

    def begin(self) -> None:
        """Start a transaction."""
        self._check_usable()
        if self._open:
            raise self._usage("no open transaction", "begin within one", "Commit or abort it first.")
        self._open = True

    def send(
        self,
        topic: str,
        partition: int,
        value: bytes | memoryview | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
    ) -> None:
        """Add a record; blocks while too much is in flight."""
        self._check_open()
        spec = self._log.existing(topic).spec
        check_record(spec, partition, key, None if value is None else len(value), self._where)
        size = len(value or b"") + sum(len(name) + len(text) for name, text in headers)
        try:
            with translated(self._where):
                self._start()
                while self._in_flight and self._bytes + size > self._log.config.in_flight_bytes:
                    self._settle_one()
                body = None if value is None else bytes(value)
                future = self._kafka.send(
                    self._log.config.outer(topic), body, key, [(name, bytes(text)) for name, text in headers], partition
                )
                self._in_flight.append((future, size))
                self._bytes += size
        except HeadraceError as error:
            self._failed = error
            raise

    def send_offsets(self, membership: Membership, positions: Mapping[TopicPartition, Position]) -> None:
        """Add offsets of a group; checked at commit."""
        self._check_open()
        outer = {}
        for tp, position in positions.items():
            check_position(tp, position)
            self._log.existing(tp.topic)
            outer[Outer(self._log.config.outer(tp.topic), tp.partition)] = OffsetAndMetadata(
                position.offset, position.metadata
            )
        self._offsets.append((cast(KafkaMembership, membership), outer))

    def commit(self) -> None:
        """Make all of it visible."""
        self._check_open()
        if self._failed is not None:
            raise self._failed
        try:
            with translated(self._where):
                self._start()
                while self._in_flight:
                    self._settle_one()  # Step 2
                for membership, positions in self._offsets:
                    self._wait(
                        lambda m=membership, p=positions: self._kafka.send_offsets_to_transaction(p, m.metadata)
                    )  # Step 3
                self._wait(self._kafka.commit_transaction)  # Step 4
        except Rebalanced:
            self._abort()
            raise
        except Fenced:
            self._die("it was fenced by a newer producer of the same id")
            raise
        except (Exhausted, Usage):  # Usage: a right is missing, which another try does not bring
            self._abort()
            raise
        except HeadraceError as error:
            self._die("the outcome of a commit is unknown")
            raise UnknownOutcome(
                expected="a commit that ends",
                got=str(error),
                where=self._where,
                do="Make a new producer, then read the committed offsets again.",
            ) from error
        self._forget()

    def abort(self) -> None:
        """Forget the transaction."""
        if self._dead is None and self._open:
            self._abort()

    def close(self) -> None:
        """Abort and release."""
        if self._dead is None:
            self.abort()
            self._die("it was closed")
        self._log.forget(self)

    # -- inside

    @property
    def _where(self) -> str:
        return f"producer {self._name}"

    def _start(self) -> None:
        if not self._sent:
            self._kafka.begin_transaction()
            self._sent = True

    def _settle_one(self) -> None:
        future, size = self._in_flight[0]
        future.get(timeout=self._log.config.deadline_s)
        self._in_flight.popleft()
        self._bytes -= size

    def _wait(self, call: Any) -> None:
        """Run a call of kafka-python that has no deadline; a thread that does not come back is left behind."""
        outcome: list[BaseException | None] = []

        def work() -> None:
            try:
                call()
                outcome.append(None)
            except BaseException as error:
                outcome.append(error)

        thread = threading.Thread(target=work, name=f"kafka-{self._name}", daemon=True)
        thread.start()
        thread.join(self._log.config.deadline_s)
        if not outcome:
            raise errors.KafkaTimeoutError(f"no answer within {self._log.config.deadline_s:g} s")
        if outcome[0] is not None:
            raise outcome[0]

    def _abort(self) -> None:
        try:
            if self._sent:
                self._wait(self._kafka.abort_transaction)
        except errors.KafkaError as error:
            found = of_kafka(error, self._where)
            self._die("it was fenced" if isinstance(found, Fenced) else "an abort did not end")
        finally:
            self._forget()

    def _forget(self) -> None:
        self._in_flight.clear()
        self._bytes = 0
        self._offsets.clear()
        self._open = self._sent = False
        self._failed = None

    def _die(self, why: str) -> None:
        self._forget()
        self._dead = why
        with contextlib.suppress(Exception):
            self._kafka.close(timeout=0)

    def _check_usable(self) -> None:
        self._log.check_usable()
        if self._dead is not None:
            raise Closed(
                expected="a producer that can be used", got=self._dead, where=self._where, do="Make a new one."
            )

    def _check_open(self) -> None:
        self._check_usable()
        if not self._open:
            raise self._usage("an open transaction", "none", "Call begin first.")

    def _usage(self, expected: str, got: str, do: str) -> Usage:
        return Usage(expected=expected, got=got, where=self._where, do=do)
