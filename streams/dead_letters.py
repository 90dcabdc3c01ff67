"""Dead letters: what a stage could not use, with position and reason, so that nothing is silently lost.

One message holds the letters of one transaction's part, as a packed batch of kind ``dead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from streams.contracts import Record
from streams.packed import Limits, Packed, pack, unpack

DEAD = "dead"

SCHEMA = pa.schema(
    [
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("source", pa.string()),
        ("partition", pa.int32()),
        ("position", pa.int64()),
        ("line", pa.int64()),
        ("raw", pa.binary()),
    ]
)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One row, message or file that could not be used.

    Args:
        stage: ``ingest``, ``join``, ``featurize`` or ``train``.
        reason: a code of lower-case words joined by ``-``, counted in ``status``; for example ``bad-time``.
        detail: expected and got, for people.
        source: file (relative to the feed's root) or topic.
        partition: of the topic; −1 for a file.
        position: row in the file or offset in the topic; −1 for the whole file.
        line: line in a text file, from 1; −1 where there is none.
        raw: the bytes that came, capped.
    """

    stage: str
    reason: str
    detail: str
    source: str
    partition: int
    position: int
    line: int
    raw: bytes


def pack_letters(letters: Sequence[DeadLetter]) -> Packed:
    """One message for ``dlq.*``."""
    columns = [pa.array([getattr(letter, field.name) for letter in letters], field.type) for field in SCHEMA]
    return pack_letter_columns(pa.RecordBatch.from_arrays(columns, schema=SCHEMA))


def pack_letter_columns(letters: pa.RecordBatch) -> Packed:
    """As ``pack_letters``, of letters in columns (``SCHEMA``)."""
    return pack(letters, kind=DEAD, times=None, lineage={}, compression="lz4")


def unpack_letters(record: Record, limits: Limits | None = None) -> list[DeadLetter]:
    """Letters of one message; ``Broken`` if it is damaged."""
    batch = unpack(record, kind=DEAD, schema=SCHEMA, limits=limits or Limits())
    return [DeadLetter(**row) for row in batch.to_pylist()]


def letter_for(record: Record, *, stage: str, reason: str, detail: str, cap_bytes: int = 4096) -> DeadLetter:
    """A letter for a message of a topic."""
    raw = bytes(record.value[:cap_bytes]) if record.value is not None else b""
    return DeadLetter(stage, reason, detail, record.topic, record.partition, record.offset, -1, raw)
