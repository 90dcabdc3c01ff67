"""What ingest promises to those downstream: the rows of ``raw.<feed>``, its control records, and the plan's records.

See ``join-protocol``: W of a feed is one scalar, written only by its planner to every partition of ``raw.<feed>``, and no
row older than W comes after it. Times are integers, µs since 1970 UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from experiments.feed import Feed
from experiments.fields import arrow_type
from streams.packed import Compression

ROWS = "rows"
"""``hr.kind`` of a message of rows in ``raw.<feed>``. Its lineage: ``{"file": path, "split": id, "rows": [a, b]}``."""

WATERMARK = "W"
"""Control record in ``raw.<feed>``: no row older than its value comes any more."""

T_MIN = -(2**62)
"""Before all times: W of a feed that has none yet."""

T_END = 2**62
"""W of a closed feed: after all times."""

TIME_COLUMN, ROW_COLUMN = "__time", "__row"
"""Columns of ``raw`` besides the declared ones: event time in µs (0 in a snapshot) and row number in the file (data rows,
from 0; rejected and late rows count)."""


BEHIND = "for group "
"""How the reason begins that a planner gives while it waits for consumers that are behind."""


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of ingest.

    Args:
        max_lag_bytes: the planner stops planning while the slowest live consumer of the feed is further behind.
        open_splits: splits that may be open at once, a feed.
        ahead_us: event time that planning may run before the oldest open split.
        split_bytes: largest split (a row group is never divided).
        part_rows, part_bytes: largest transaction of a reader.
        attempts: times a split is begun before it is rejected.
        listing_s: time between two listings of a folder.
        raw_compression: of messages in ``raw``.
        dead_letter_bytes: longest raw text kept of one rejected row.
    """

    max_lag_bytes: int = 4 * 1024**3
    open_splits: int = 8
    ahead_us: int = 24 * 3600 * 1_000_000
    split_bytes: int = 16 * 1024 * 1024
    part_rows: int = 65_536
    part_bytes: int = 32 * 1024 * 1024
    attempts: int = 5
    listing_s: float = 1.0
    raw_compression: Compression = "lz4"
    dead_letter_bytes: int = 4096


def raw_schema(feed: Feed) -> pa.Schema:
    """Arrow schema of the rows in ``raw.<feed>``: declared columns in order (nullable), then ``__time`` and ``__row``."""
    fields = [pa.field(name, arrow_type(column.type)) for name, column in feed.columns.items()]
    return pa.schema([*fields, pa.field(TIME_COLUMN, pa.int64()), pa.field(ROW_COLUMN, pa.int64())])


@dataclass(frozen=True, slots=True)
class Downstream:
    """A group that consumes what became of a feed: its lag holds up planning.

    Its position is ``pos`` in the metadata of its offsets, where they have any: the offset is what it still needs.
    """

    group: str
    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class FloorState:
    """Newest record of ``floor.<feed>``, as others read it (JSON object; unknown keys are ignored).

    Args:
        floor: no file planned later has rows below it that count as on time.
        calm: at this moment two listings found nothing to plan and all splits were done.
        closed: the feed is closed; W is ``T_END``.
        files: files planned so far. late_files: files found after the closing, or that broke the order.
        waiting: why the planner does not plan, for people; empty if there is nothing to plan.
    """

    floor: int
    calm: bool
    closed: bool
    files: int
    late_files: int
    waiting: str = ""


Verdict = Literal["used", "rejected", "late"]
