"""What a format does: plan a file into ranges, and read a range part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from experiments.feed import Feed
from experiments.fields import arrow_type
from ingest.contracts import T_MIN
from ingest.conversion import Target, convert
from ingest.records import Split
from ingest.sources import Folder, FoundFile
from ingest.verdicts import Int64
from streams.dead_letters import DeadLetter

STAGE = "ingest"

Origin = Callable[[int], tuple[int, bytes]]
"""Row number → (line or −1, raw bytes, capped), for a letter."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where the next range of a file begins: row group or byte, its row and line (−1: no lines), newest guess of a time so far."""

    begin: int = 0
    row: int = 0
    line: int = 1
    newest: int = T_MIN


@dataclass(frozen=True, slots=True)
class Range:
    """A part of a file: row groups or bytes [begin, end); ``end`` −1: to the end.

    ``lo``: no row of it and of the ranges after it counts as on time below this (µs); ``None``: nothing is known. ``next``: where
    the range after it begins; ``None``: it is the last.
    """

    begin: int
    end: int
    first_row: int
    first_line: int
    lo: int | None
    next: Start | None


@dataclass(frozen=True, slots=True)
class FilePlan:
    """What is known of a file, or of the rest of it, before it is read.

    Args:
        ranges: the next ones, in order; at least one.
        hi: proved upper bound of event times in µs, if any.
        judged_by_rows: ``lo`` is a guess, so the reader judges rows by those before them too.
    """

    ranges: tuple[Range, ...]
    hi: int | None
    judged_by_rows: bool


UNREADABLE = FilePlan((Range(0, -1, 0, -1, None, None),), None, judged_by_rows=True)
"""Plan of a file that is no good: its reader rejects it, so that it is counted."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that were read together.

    Args:
        batch: declared columns of the rows that could be read. rows_N: their numbers in the file.
        letters: the rows that could not. next_row: number of the first row after them all.
        resume: where reading goes on after this part, JSON types. size: bytes read.
        origin: of each row, also of those in ``batch``.
    """

    batch: pa.RecordBatch
    rows_N: Int64
    letters: list[DeadLetter]
    next_row: int
    resume: dict[str, Any]
    size: int
    origin: Origin


class Format(Protocol):
    """A file format. Both methods may raise ``OSError`` (try again) and ``FileRejected`` (the file is no good)."""

    def plan(self, folder: Folder, file: FoundFile, start: Start, limit_us: int) -> FilePlan:
        """Ranges and bounds from ``start`` on; looks at as little of the file as it can.

        Times at or after ``limit_us`` tell nothing: their rows will be rejected."""

    def read(self, folder: Folder, split: Split, resume: Mapping[str, Any] | None) -> Iterator[Part]:
        """Parts from the beginning, or from where an earlier part said. The parts may differ from run to run, their rows
        may not."""


def declared_schema(feed: Feed) -> pa.Schema:
    """Arrow schema of a part's batch."""
    return pa.schema([pa.field(name, arrow_type(column.type)) for name, column in feed.columns.items()])


def target_of(feed: Feed, name: str) -> Target:
    """What a column of the feed shall become."""
    zone = feed.event_time.zone if feed.event_time else None
    return Target(feed.columns[name].type, zone, feed.format.delimited.list_sep if feed.format.delimited else None)


def typed(
    feed: Feed, file: str, columns: Mapping[str, pa.Array | None], rows_N: Int64, origin: Origin
) -> tuple[pa.RecordBatch, Int64, list[DeadLetter]]:
    """Columns as read → a batch of declared types, its row numbers, and letters for rows with a value that does not fit.

    Args:
        columns: by declared name; ``None`` for an optional column the file does not have.
    """
    arrays, bad = [], np.zeros(len(rows_N), np.bool_)
    details: dict[int, str] = {}
    for name, spec in feed.columns.items():
        column = columns[name]
        if column is None:
            arrays.append(pa.nulls(len(rows_N), arrow_type(spec.type)))
            continue
        done = convert(column, target_of(feed, name))
        for at, why in done.why.items():
            details.setdefault(at, f"column {name}: {why}")
        bad |= done.bad_N
        arrays.append(done.column)
    batch = pa.RecordBatch.from_arrays(arrays, schema=declared_schema(feed))
    if not details:
        return batch, rows_N, []
    letters = [letter(file, "bad-value", details[at], int(rows_N[at]), origin) for at in sorted(details)]
    return batch.filter(pa.array(~bad)), rows_N[~bad], letters


def letter(file: str, reason: str, detail: str, row: int, origin: Origin) -> DeadLetter:
    """A letter for one row."""
    line, raw = origin(row)
    return DeadLetter(STAGE, reason, detail, file, -1, row, line, raw)
