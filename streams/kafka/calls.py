"""Errors of kafka-python as those of the contract."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from kafka import errors

from streams.errors import Busy, Exhausted, Fenced, HeadraceError, Rebalanced, Unreachable, Usage

T = TypeVar("T")

FENCING = (errors.ProducerFencedError, errors.InvalidProducerEpochError)
REBALANCING = (
    errors.CommitFailedError,
    errors.IllegalGenerationError,
    errors.UnknownMemberIdError,
    errors.RebalanceInProgressError,
    errors.FencedInstanceIdError,
)
PERMANENT = (
    errors.UnsupportedVersionError,
    errors.KafkaConfigurationError,
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.PolicyViolationError,
    errors.InvalidReplicationFactorError,
)
PASSING = (errors.RetriableError, errors.KafkaConnectionError, errors.NodeNotReadyError)
RETRY_S = 0.05
SOON = (errors.CoordinatorLoadInProgressError, errors.ConcurrentTransactionsError, errors.UnstableOffsetCommitError)


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Raises ``Fenced``, ``Rebalanced``, ``Busy``, ``Usage``, ``Exhausted``; whatever else Kafka says is ``Unreachable``."""
    try:
        yield
    except HeadraceError:
        raise
    except errors.KafkaError as error:
        raise of_kafka(error, where) from error


def patiently(where: str, deadline_s: float, call: Callable[[], T]) -> T:
    """Call again while Kafka says that it cannot now: a coordinator that moves, a broker that comes back.

    Raises what ``translated`` raises, what passes only after ``deadline_s``.
    """
    until_s = time.monotonic() + deadline_s
    while True:
        try:
            with translated(where):
                return call()
        except HeadraceError as error:
            cause = error.__cause__
            unknown = isinstance(cause, errors.UnknownTopicOrPartitionError)
            if unknown or not isinstance(cause, PASSING) or time.monotonic() > until_s:
                raise
            time.sleep(RETRY_S)


def of_kafka(error: BaseException, where: str) -> HeadraceError:
    """The error of the contract for one of Kafka's."""
    got = f"{type(error).__name__}: {error}"[:400]
    if isinstance(error, FENCING):
        return Fenced(
            expected="to be the newest producer of this id",
            got=got,
            where=where,
            do="Stop, or go on with a new producer.",
        )
    if isinstance(error, REBALANCING):
        return Rebalanced(
            expected="to own the partitions", got=got, where=where, do="Drop the work for them and go on."
        )
    if isinstance(error, SOON):
        return Busy(expected="an answer", got=got, where=where, do="Try again.")
    if isinstance(error, errors.UnknownTopicOrPartitionError):
        return Usage(expected="a topic and a partition that exist", got=got, where=where, do="Create it first.")
    if isinstance(error, (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError)):
        return Exhausted(
            expected="a message below the limits of the topic", got=got, where=where, do="Raise max.message.bytes."
        )
    if isinstance(error, errors.AuthorizationError):
        return Usage(
            expected="the right to do this",
            got=got,
            where=where,
            do="See docs/services/kafka.md for the rights it needs.",
        )
    if isinstance(error, PERMANENT):
        do = "Change log.kafka in headrace.yaml, or the broker; see docs/services/kafka.md."
        return Usage(expected="a broker and settings that fit", got=got, where=where, do=do)
    return Unreachable(
        expected="an answer of Kafka", got=got, where=where, do="Check that the broker is up; it is tried again."
    )
