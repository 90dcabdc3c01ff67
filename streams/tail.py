"""Reading a topic without a group: to its end, or what came since the last look."""

from __future__ import annotations

from collections.abc import Iterator

from streams.contracts import Log, Record, TopicPartition
from streams.errors import Usage

POLL_BYTES = 8 * 1024 * 1024


def read_to_end(log: Log, topic: str, partition: int, start: int | None = None) -> Iterator[Record]:
    """All records of a partition that are committed when reading begins, in order; maybe later ones too.

    Args:
        start: first offset to read; ``None``: the first stored one.
    """
    tp = TopicPartition(topic, partition)
    consumer = log.consumer()
    try:
        consumer.assign([tp])
        if start is not None:
            consumer.seek(tp, start)
        end = log.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            yield from consumer.poll(POLL_BYTES, 0.1)
    finally:
        consumer.close()


class Follower:
    """Reads a topic from its beginning, a piece at each call. Belongs to one thread.

    Raises:
        Usage: the topic does not exist.
    """

    def __init__(self, log: Log, topic: str) -> None:
        info = log.topic(topic)
        if info is None:
            raise Usage(expected="a topic that exists", got=repr(topic), where="log", do="Create the topic first.")
        self._log = log
        self._partitions = [TopicPartition(topic, p) for p in range(info.spec.partitions)]
        self._consumer = log.consumer()
        self._consumer.assign(self._partitions)

    def new(self) -> list[Record]:
        """What was committed since the last call, to the end of every partition; order within each partition."""
        ends = self._log.end_offsets(self._partitions)
        records: list[Record] = []
        while any(self._consumer.position(tp) < end for tp, end in ends.items()):
            records += self._consumer.poll(POLL_BYTES, 0.1)
        return records

    def close(self) -> None:
        """Release."""
        self._consumer.close()
