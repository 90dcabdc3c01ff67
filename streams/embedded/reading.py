"""Rows of the index → records whose values are views of mapped segments."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import error as StructError
from typing import NamedTuple

from streams.contracts import Record, TopicPartition
from streams.embedded.encoding import decode_headers
from streams.embedded.index import OFFSET_MASK, Index, msg_id
from streams.embedded.segments import Segments
from streams.errors import Broken

MAX_ROWS = 16384
_RETRIES = 3
_SELECT = "SELECT id, seg, pos, len, hdr, key, data FROM msg WHERE id >= ? AND id <= ? ORDER BY id"


class Wanted(NamedTuple):
    """A partition and the offset from which to read it."""

    tp: TopicPartition
    part: int
    offset: int


class _Row(NamedTuple):
    id: int
    segment: int | None
    position: int | None
    length: int
    headers: bytes | None
    key: bytes | None
    data: bytes | None


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one look found.

    Args:
        records: in order within each partition.
        positions: the new position of each partition that was looked at.
        gone: partitions whose topic was deleted.
    """

    records: list[Record]
    positions: dict[TopicPartition, int]
    gone: list[TopicPartition]


class Fetcher:
    """Reads from one log. Keeps no state but the turn of the partitions."""

    def __init__(self, index: Index, segments: Segments) -> None:
        self._index = index
        self._segments = segments
        self._turn = 0

    def fetch(self, wanted: Sequence[Wanted], max_bytes: int) -> Fetched:
        """One look at all partitions, in one snapshot; does not block.

        Raises:
            Broken: the first record to be returned points to a segment or a range that is not there.
        """
        for attempt in range(_RETRIES):
            rows, ends, gone = self._rows(wanted, max_bytes)
            fetched, broken = self._records(wanted, rows, ends, gone)
            if broken is None or fetched.records:
                return fetched
            # Retention may have removed the row and its file since the snapshot: look again before complaining.
            if attempt == _RETRIES - 1:
                raise broken
        raise AssertionError("unreachable")

    def _rows(
        self, wanted: Sequence[Wanted], max_bytes: int
    ) -> tuple[dict[TopicPartition, list[_Row]], dict[TopicPartition, int], list[TopicPartition]]:
        """Rows of each partition that has some, and ``next`` of each partition that was read to its end."""
        rows: dict[TopicPartition, list[_Row]] = {}
        ends: dict[TopicPartition, int] = {}
        gone: list[TopicPartition] = []
        with self._index.read() as db:
            waiting: list[Wanted] = []
            for want in wanted:
                row = db.execute("SELECT next FROM part WHERE id = ?", (want.part,)).fetchone()
                if row is None:
                    gone.append(want.tp)
                    continue
                ends[want.tp] = max(row[0], want.offset)
                if row[0] > want.offset:
                    waiting.append(want)
            self._turn += 1
            left = max_bytes
            for place in range(len(waiting)):
                want = waiting[(place + self._turn) % len(waiting)]
                share = left // (len(waiting) - place)
                taken, cut = _take(db, want, share, left, bool(rows))
                if cut is not None:
                    ends[want.tp] = cut
                if taken:
                    rows[want.tp] = taken
                    left -= sum(row.length for row in taken)
        return rows, ends, gone

    def _records(
        self,
        wanted: Sequence[Wanted],
        rows: Mapping[TopicPartition, list[_Row]],
        ends: dict[TopicPartition, int],
        gone: list[TopicPartition],
    ) -> tuple[Fetched, Broken | None]:
        records: list[Record] = []
        broken: Broken | None = None
        starts = {want.tp: want.offset for want in wanted}
        for tp, of_partition in rows.items():
            position = starts[tp]
            for row in of_partition:
                record = self._record(tp, row)
                if isinstance(record, Broken):
                    # What came before it is delivered first; the next look begins with it.
                    broken = broken or record
                    ends[tp] = position
                    break
                records.append(record)
                position = record.offset + 1
        return Fetched(records, ends, gone), broken

    def _record(self, tp: TopicPartition, row: _Row) -> Record | Broken:
        offset = row.id & OFFSET_MASK
        value: memoryview | None = None
        if row.data is not None:
            value = memoryview(row.data)
        elif row.segment is not None and row.position is not None:
            value = self._segments.view(row.segment, row.position, row.length)
            if value is None:
                return _broken(tp, offset, f"{row.length} bytes of a segment", "no such file or range")
        try:
            headers = decode_headers(row.headers)
        except (StructError, ValueError) as error:
            return _broken(tp, offset, "headers as they were written", str(error))
        return Record(tp.topic, tp.partition, offset, row.key, value, headers)


def _take(
    db: sqlite3.Connection, want: Wanted, share: int, left: int, have_some: bool
) -> tuple[list[_Row], int | None]:
    """Rows within the share, and the offset to go on from if there are more (``None``: read to the end)."""
    taken: list[_Row] = []
    used = 0
    cursor = db.execute(_SELECT, (msg_id(want.part, want.offset), msg_id(want.part, OFFSET_MASK)))
    try:
        for values in cursor:
            row = _Row(*values)
            fits = used + row.length <= (share if taken else left)
            if ((taken or have_some) and not fits) or len(taken) == MAX_ROWS:
                return taken, row.id & OFFSET_MASK if not taken else (taken[-1].id & OFFSET_MASK) + 1
            taken.append(row)
            used += row.length
    finally:
        cursor.close()
    return taken, None


def _broken(tp: TopicPartition, offset: int, expected: str, got: str) -> Broken:
    return Broken(
        expected=expected,
        got=got,
        where=f"{tp.topic}/{tp.partition}@{offset}",
        do="The log has lost data: restore its folder from a copy, or remove it and read the files again.",
    )
