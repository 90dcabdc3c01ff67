"""The trainer's consumer group: not its truth (that is the checkpoint), but what retention and back-pressure look at.

Committed offset of a partition: the last message used by the *oldest kept* checkpoint, so that the log keeps all that any
of them may need, and that message itself, by which a checkpoint proves that it fits the log. The metadata says how far
training has come: ``{"v": 1, "pos": next offset, "V": frontier, "step": steps so far}``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from experiments.names import train_group
from experiments.view import Version
from streams.contracts import Clock, Consumer, Log, Position, TopicInfo, TopicPartition
from trainer.contracts import PartitionPosition

COMMIT_S = 1.0
SIGN_OF_LIFE_S = 600.0


class GroupPosition:
    """Commits to ``train.<name>.v<n>``."""

    def __init__(self, log: Log, version: Version, topic: TopicInfo, clock: Clock) -> None:
        self._consumer: Consumer = log.consumer(train_group(version.name, version.number))
        self._topic = topic.spec.name
        self._clock = clock
        self._keep: Sequence[PartitionPosition] = ()
        self._committed: tuple[tuple[int, int], ...] = ()
        self._committed_at_s = 0.0

    def keep(self, oldest: Sequence[PartitionPosition]) -> None:
        """Positions of the oldest checkpoint that is kept, or of the start."""
        self._keep = oldest

    def commit(self, now: Sequence[PartitionPosition], step: int) -> None:
        """Commit at once."""
        positions = {}
        for partition, (oldest, position) in enumerate(zip(self._keep, now, strict=True)):
            metadata = {"v": 1, "pos": position.next_offset, "V": position.V, "step": step}
            offset = oldest.last_offset if oldest.last_offset >= 0 else oldest.next_offset
            positions[TopicPartition(self._topic, partition)] = Position(offset, json.dumps(metadata))
        self._consumer.commit(positions)
        self._committed = _essence(now)
        self._committed_at_s = self._clock.monotonic_s()

    def commit_now_and_then(self, now: Sequence[PartitionPosition], step: int) -> None:
        """Commit once a second where something moved, and every ten minutes as a sign of life."""
        age_s = self._clock.monotonic_s() - self._committed_at_s
        if age_s >= SIGN_OF_LIFE_S or (age_s >= COMMIT_S and _essence(now) != self._committed):
            self.commit(now, step)

    def close(self) -> None:
        """Release. May be called twice."""
        self._consumer.close()


def _essence(positions: Sequence[PartitionPosition]) -> tuple[tuple[int, int], ...]:
    return tuple((position.next_offset, position.V) for position in positions)
