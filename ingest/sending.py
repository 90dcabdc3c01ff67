"""What a reader makes of a part, and how it becomes messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from experiments import names
from experiments.feed import Feed
from ingest.contracts import ROWS, Config
from ingest.formats.reading import STAGE
from ingest.partition import spread_of
from ingest.records import Split
from streams.contracts import Log, Producer
from streams.dead_letters import DeadLetter, pack_letters
from streams.packed import Limits, pack

LETTERS_BYTES = 8 * 1024 * 1024
FILE_REASONS = frozenset(
    {
        "not-parquet", "damaged-parquet", "wrong-type", "not-text", "not-gzip", "damaged-gzip", "empty-file", "missing-column",
        "bad-header", "unreadable", "file-changed", "too-many-attempts",
    }
)  # fmt: skip
"""Reasons that tell of a file, not of a row: they count as no row, since nobody knows how many rows are lost."""


@dataclass
class Outcome:
    """Rows of a part after the verdicts, as in ``raw_schema``. ``size``: bytes read for them."""

    used: pa.RecordBatch
    late: pa.RecordBatch
    letters: list[DeadLetter]
    maxseen: int
    size: int = 0


class Sender:
    """Puts outcomes into the transaction of a producer."""

    def __init__(self, log: Log, feed: Feed, config: Config) -> None:
        self._log, self._feed, self._config = log, feed, config
        self._spread = spread_of(feed)
        self._limits: dict[str, int] = {}

    def send(self, producer: Producer, split: Split, outcome: Outcome) -> Counter[str]:
        """Rows by partition, late rows, letters. A row that no message can hold becomes a letter, added to ``outcome.letters``.
        Gives the counts ``rows``, ``used``, ``late`` and ``rejected``."""
        feed = self._feed
        lineage = {"file": split.file, "split": split.id}
        numbers = outcome.used.column(outcome.used.num_columns - 1).to_numpy()
        too_large: list[DeadLetter] = []
        for p, rows in self._spread.divide(outcome.used, split.file, numbers):
            too_large += self._rows(producer, names.raw(feed.feed), p, rows, lineage)
        too_late = self._rows(producer, names.late(feed.feed), 0, outcome.late, lineage)
        outcome.letters += too_large + too_late
        for some in _by_size(outcome.letters, LETTERS_BYTES):
            packed = pack_letters(some)
            producer.send(names.dead_letters(feed.feed), 0, packed.value, headers=packed.headers)
        used, late = outcome.used.num_rows - len(too_large), outcome.late.num_rows - len(too_late)
        rejected = sum(1 for letter in outcome.letters if letter.reason not in FILE_REASONS)
        return Counter(rows=used + late + rejected, used=used, late=late, rejected=rejected)

    def _rows(
        self, producer: Producer, topic: str, p: int, rows: pa.RecordBatch, lineage: dict[str, str]
    ) -> list[DeadLetter]:
        """Send them in one message, or in several if they are too large for one; letters of those that are too large alone."""
        if not rows.num_rows:
            return []
        times, numbers = rows.column(rows.num_columns - 2).to_numpy(), rows.column(rows.num_columns - 1).to_numpy()
        packed = pack(
            rows,
            kind=ROWS,
            times=(int(times.min()), int(times.max())),
            lineage=lineage | {"rows": [int(numbers[0]), int(numbers[-1])]},
            compression=self._config.raw_compression,
        )
        limit = self._max_message_bytes(topic)
        if len(packed.value) <= limit:
            producer.send(topic, p, packed.value, headers=packed.headers)
            return []
        if rows.num_rows > 1:
            half = rows.num_rows // 2
            halves = (rows.slice(0, half), rows.slice(half))
            return [letter for some in halves for letter in self._rows(producer, topic, p, some, lineage)]
        detail = f"expected at most {limit} bytes, got {len(packed.value)}"
        return [DeadLetter(STAGE, "row-too-large", detail, lineage["file"], -1, int(numbers[0]), -1, b"")]

    def _max_message_bytes(self, topic: str) -> int:
        if topic not in self._limits:
            info = self._log.topic(topic)
            own = info.spec.max_message_bytes if info else Limits().max_bytes
            self._limits[topic] = min(own, Limits().max_bytes)
        return self._limits[topic]


def _by_size(letters: list[DeadLetter], cap_bytes: int) -> Iterator[list[DeadLetter]]:
    """Letters in groups of at most about ``cap_bytes``."""
    some: list[DeadLetter] = []
    size = 0
    for one in letters:
        some.append(one)
        size += len(one.raw) + len(one.detail) + 100
        if size >= cap_bytes:
            yield some
            some, size = [], 0
    if some:
        yield some
