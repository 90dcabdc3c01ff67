"""What a format does: plan a file into ranges, and read a range part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from experiments.feed import Feed
from experiments.fields import arrow_type
from ingest.conversion import convert
from ingest.records import Split
from ingest.sources import Folder, FoundFile
from ingest.verdicts import Int64
from streams.dead_letters import DeadLetter

STAGE = "ingest"


@dataclass(frozen=True, slots=True)
class Range:
    """A part of a file: row groups or bytes [begin, end); ``end`` −1: to the end. ``first_row``: number of its first row."""

    begin: int
    end: int
    first_row: int


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What is known of a file before it is read.

    Args:
        ranges: in order, covering it.
        lo, hi: bounds of its event times in µs; ``lo`` may be a guess from the first row, ``hi`` only what is proved.
        judged_by_rows: ``lo`` is a guess, so the reader judges rows by those before them too.
    """

    ranges: tuple[Range, ...]
    lo: int | None
    hi: int | None
    judged_by_rows: bool


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that were read together.

    Args:
        batch: declared columns of the rows that could be read. rows_N: their numbers in the file.
        letters: the rows that could not. next_row: number of the first row after them all.
        resume: where reading goes on after this part, JSON types. size: bytes read.
    """

    batch: pa.RecordBatch
    rows_N: Int64
    letters: list[DeadLetter]
    next_row: int
    resume: dict[str, Any]
    size: int


class Format(Protocol):
    """A file format. Both methods may raise ``OSError`` (try again) and ``FileRejected`` (the file is no good)."""

    def plan(self, folder: Folder, file: FoundFile) -> FilePlan:
        """Ranges and bounds; looks at as little of the file as it can."""

    def read(self, folder: Folder, split: Split, resume: Mapping[str, Any] | None) -> Iterator[Part]:
        """Parts from the beginning, or from where an earlier part said. The parts may differ from run to run, their rows
        may not."""


def declared_schema(feed: Feed) -> pa.Schema:
    """Arrow schema of a part's batch."""
    return pa.schema([pa.field(name, arrow_type(column.type)) for name, column in feed.columns.items()])


def typed(
    feed: Feed,
    file: str,
    columns: Mapping[str, pa.Array | None],
    rows_N: Int64,
    origin: Callable[[int], tuple[int, bytes]],
) -> tuple[pa.RecordBatch, Int64, list[DeadLetter]]:
    """Columns as read → a batch of declared types, its row numbers, and letters for rows with a value that does not fit.

    Args:
        columns: by declared name; ``None`` for an optional column the file does not have.
        origin: place in the part → (line, raw bytes) for a letter.
    """
    zone = feed.event_time.zone if feed.event_time else None
    list_sep = feed.format.delimited.list_sep if feed.format.delimited else None
    arrays, bad, details = [], np.zeros(len(rows_N), np.bool_), {}
    for name, spec in feed.columns.items():
        column = columns[name]
        if column is None:
            arrays.append(pa.nulls(len(rows_N), arrow_type(spec.type)))
            continue
        done = convert(column, spec.type, zone=zone, list_sep=list_sep)
        for at in np.flatnonzero(done.bad_N & ~bad).tolist():
            details[at] = f"column {name}: {done.why}"
        bad |= done.bad_N
        arrays.append(done.column)
    batch = pa.RecordBatch.from_arrays(arrays, schema=declared_schema(feed))
    letters = []
    for at, detail in details.items():
        line, raw = origin(at)
        letters.append(DeadLetter(STAGE, "bad-value", detail, file, -1, int(rows_N[at]), line, raw))
    if bad.any():
        return batch.filter(pa.array(~bad)), rows_N[~bad], letters
    return batch, rows_N, letters
