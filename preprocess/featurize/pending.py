"""Rows of one partition between ``joined`` and ``exp``: read, not yet in a batch; and the position that brings them back.

What is committed is the first message still needed, the rows of it that are done with, and the cursor: from these any
worker cuts the same batches again. The input's V is committed too, but used only once reading has come back to where it was
known: before that, rows behind which it lies are missing, and a bucket would end too early.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from preprocess.contracts import TIME_COLUMN, Int64
from preprocess.featurize.cutting import Cursor, Cut, Rule, cut
from streams.contracts import Position
from streams.errors import Broken

BLOCK_ROWS = 8192
"""Rows featurized at once: enough to share the cost of a call, few enough for the cache."""


@dataclass(slots=True)
class Counts:
    """Of the life of a version, in one partition: rows put out, rows that could not be used, rows before the start, dense
    values replaced by their default."""

    rows: int = 0
    rejected: int = 0
    skipped: int = 0
    replaced: int = 0


@dataclass(slots=True)
class _Piece:
    """Rows of one message; ``skip`` rows before them are done with."""

    offset: int
    skip: int
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Block:
    """Rows for some batches, and where the first of them comes from."""

    rows: pa.RecordBatch
    cuts: list[Cut]
    offset: int
    skip: int


class Pending:
    """State of a partition. One thread.

    Args:
        where: topic and partition, for messages.
        committed: what the group last committed, or ``None``.
        start: offset to begin at when nothing is committed. start_time_us: rows before are skipped.
    """

    def __init__(
        self, where: str, rule: Rule, committed: Position | None, start: int, start_time_us: int | None
    ) -> None:
        saved = json.loads(committed.metadata) if committed else {}
        self.start = committed.offset if committed else start
        self.cursor = Cursor(saved.get("bucket"), saved.get("j", 0))
        self.forwarded_us: int | None = saved.get("V")
        self.counts = Counts(*(saved.get(name, 0) for name in Counts.__slots__))
        self.read_to: int | None = saved.get("pos")
        self._bound_us: int | None = None
        self._saved_bound_us: int | None = saved.get("bound")
        self._at = self.start
        self._skip = saved.get("skip", 0)
        self._where = where
        self._rule = rule
        self._start_time_us = start_time_us
        self._last_us: int | None = None
        self._pieces: deque[_Piece] = deque()

    def is_new(self, offset: int) -> bool:
        """Whether a record was not read before the last commit (else it is read again, and already accounted for)."""
        return self.read_to is None or offset >= self.read_to

    def add(self, offset: int, rows: pa.RecordBatch) -> None:
        """Rows of the next message. Raises ``Broken`` when they are older than what came before: then joined is wrong."""
        times_B = _times(rows)
        if len(rows) and (
            (self._last_us is not None and times_B[0] < self._last_us)
            or (self._bound_us is not None and self.is_new(offset) and times_B[0] < self._bound_us)
        ):
            raise self._wrong(offset, f"event time {times_B[0]} after {self._last_us}, V {self._bound_us}")
        skip = self._skip if offset == self.start else 0
        if self._start_time_us is not None:
            before = max(int(np.searchsorted(times_B, self._start_time_us)) - skip, 0)
            self.counts.skipped += before
            skip += before
        if len(rows) > skip:
            self._last_us = int(times_B[-1])
            self._pieces.append(_Piece(offset, skip, rows.slice(skip)))

    def bound(self, value_us: int) -> None:
        """V of the input."""
        self._bound_us = value_us if self._bound_us is None else max(self._bound_us, value_us)

    def reached(self, position: int) -> None:
        """Everything before ``position`` was added."""
        self._at = max(self._at, position)
        if self.read_to is None or position >= self.read_to:
            self.read_to = position
            if self._saved_bound_us is not None:
                self.bound(self._saved_bound_us)
                self._saved_bound_us = None

    def take(self, most: int) -> Block | None:
        """The next batches, at most ``most`` and of about ``BLOCK_ROWS`` rows, and move past them; ``None``: there are none."""
        times_B = self._all_times()
        try:
            cuts, _ = cut(times_B, self.cursor, self._rule, self._bound_us, most)
        except ValueError as error:
            raise self._wrong(self._pieces[0].offset, str(error)) from error
        if not cuts:
            return None
        first = self._pieces[0]
        # Batches inside one big message need no copy; otherwise rows of several messages are put together.
        most_rows = len(first.rows) if len(first.rows) >= BLOCK_ROWS // 4 else BLOCK_ROWS
        kept = [cuts[0], *(c for c in cuts[1:] if c.stop <= most_rows)]
        block = Block(self._remove(kept[-1].stop), kept, first.offset, first.skip)
        self.cursor = Cursor(kept[-1].bucket, kept[-1].number + 1)
        self.counts.rows += len(block.rows)
        return block

    def has_batch(self) -> bool:
        """Whether ``take`` would give something."""
        return bool(self._pieces) and bool(cut(self._all_times(), self.cursor, self._rule, self._bound_us, 1)[0])

    def would_raise(self) -> int | None:
        """V to forward if it rose: that of the input, but not past the first row held back; ``None``: it did not."""
        if self._bound_us is None:
            return None
        value = min(self._bound_us, int(_times(self._pieces[0].rows)[0])) if self._pieces else self._bound_us
        return value if self.forwarded_us is None or value > self.forwarded_us else None

    def raise_bound(self) -> int | None:
        """As ``would_raise``, and remember it as forwarded."""
        value = self.would_raise()
        if value is not None:
            self.forwarded_us = value
        return value

    def position(self, more: bool) -> Position:
        """What to commit now. ``more``: batches are left that did not fit into the transaction."""
        assert self.read_to is not None
        first = self._pieces[0] if self._pieces else None
        if first:
            needed, skip = first.offset, first.skip
        else:
            needed, skip = self._at, self._skip if self._at == self.start else 0
        known = [value for value in (self._bound_us, self._saved_bound_us) if value is not None]
        metadata = {
            "v": 1,
            "skip": skip,
            "bucket": self.cursor.bucket,
            "j": self.cursor.number,
            "pos": self.read_to,
            "V": self.forwarded_us,
            "bound": max(known, default=None),
            "more": more,
        } | {name: getattr(self.counts, name) for name in Counts.__slots__}
        known_ones = {name: value for name, value in metadata.items() if value is not None}
        return Position(needed, json.dumps(known_ones, separators=(",", ":")))

    @property
    def rows(self) -> int:
        """Rows held back."""
        return sum(len(piece.rows) for piece in self._pieces)

    def _all_times(self) -> Int64:
        return np.concatenate([np.empty(0, np.int64), *(_times(piece.rows) for piece in self._pieces)])

    def _remove(self, count: int) -> pa.RecordBatch:
        parts = []
        while count:
            piece = self._pieces[0]
            used = min(count, len(piece.rows))
            parts.append(piece.rows.slice(0, used))
            count -= used
            if used == len(piece.rows):
                self._pieces.popleft()
            else:
                piece.rows, piece.skip = piece.rows.slice(used), piece.skip + used
        return parts[0] if len(parts) == 1 else pa.concat_batches(parts)

    def _wrong(self, offset: int, got: str) -> Broken:
        return Broken(
            expected="rows in order of event time, none older than V",
            got=got,
            where=f"{self._where}@{offset}",
            do="This is a fault of Headrace itself; keep the log and report it.",
        )


def _times(rows: pa.RecordBatch) -> Int64:
    return rows.column(TIME_COLUMN).to_numpy()  # type: ignore[no-any-return]
