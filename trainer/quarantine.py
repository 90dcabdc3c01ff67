"""Local batches that are kept out of training: written to ``dlq.<name>`` with topic, partition and offset, each once."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.names import dead_letters
from streams.contracts import Log, Producer, Record
from streams.dead_letters import DeadLetter, letter_for, unpack_letters
from streams.dead_letters import pack_letters as pack
from streams.errors import Broken
from streams.tail import read_to_end

UNREADABLE, NOT_FINITE = "unreadable", "not-finite"


class Quarantine:
    """Sends letters. After a crash the same batches come again: letters that lie in the topic already are not repeated."""

    def __init__(self, log: Log, name: str, transactional_id: str) -> None:
        self._log = log
        self._topic = dead_letters(name)
        self._transactional_id = transactional_id
        self._producer: Producer | None = None
        self._sent: set[tuple[str, int, int]] = set()

    def put(self, records: Sequence[Record], reason: str, detail: str) -> None:
        """Write a letter for each message; visible on return."""
        if self._producer is None:
            self._producer = self._log.producer(self._transactional_id)
            self._sent = self._written()
        letters = [letter_for(record, stage="train", reason=reason, detail=detail) for record in records]
        fresh = [letter for letter in letters if _place(letter) not in self._sent]
        if not fresh:
            return
        packed = pack(fresh)
        self._producer.begin()
        try:
            self._producer.send(self._topic, 0, packed.value, headers=packed.headers)
            self._producer.commit()
        except BaseException:
            self._producer.close()
            self._producer = None
            raise
        self._sent |= {_place(letter) for letter in fresh}

    def close(self) -> None:
        """Release. May be called twice."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _written(self) -> set[tuple[str, int, int]]:
        info = self._log.topic(self._topic)
        places = set()
        for partition in range(info.spec.partitions if info else 0):
            for record in read_to_end(self._log, self._topic, partition):
                try:
                    letters = unpack_letters(record)
                except Broken:  # a damaged letter hides one that was sent: at worst it is there twice
                    continue
                places |= {_place(letter) for letter in letters if letter.stage == "train"}
        return places


def _place(letter: DeadLetter) -> tuple[str, int, int]:
    return letter.source, letter.partition, letter.position
