"""State of one partition of a view: order → look up → label → cut. No input or output here.

Three positions are never mixed: ``needed`` (the lowest raw offset of a row that is still held: where a resume seeks to),
``pos`` (how far raw was read), and ``F`` (the key up to which every row has been put out).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from experiments.view import View
from ingest.contracts import T_MIN
from preprocess.contracts import Int64, joined_schema
from preprocess.join.cuts import ends_of_messages
from preprocess.join.labels import expected_text, label_of
from preprocess.join.lookups import STAGE, LookupIndex
from preprocess.join.order import BEFORE_ALL, Chunk, Ordered, RowKey, in_order, split_final
from streams.contracts import Position
from streams.dead_letters import DeadLetter

LAYOUT = 1


@dataclass(frozen=True, slots=True)
class Rejected:
    """A row without a usable label, until the frontier has passed it."""

    key: RowKey
    offset: int
    letter: DeadLetter


@dataclass(slots=True)
class Held:
    """Joined rows in order that no closed message has yet."""

    rows: pa.RecordBatch
    times_N: Int64
    offsets_N: Int64

    def from_(self, start: int) -> Held:
        """The rows from ``start`` on."""
        return Held(self.rows.slice(start), self.times_N[start:], self.offsets_N[start:])


@dataclass(frozen=True, slots=True)
class Emission:
    """What one transaction puts out for a partition.

    Args:
        first: number k of the first message. messages: rows of each; spans: (first, last) raw offset of each.
        letters: rejected rows that the frontier passes. F: the frontier after it. V: new bound, ``None`` if it does not rise.
        more: whether a cap stopped it.
    """

    first: int
    messages: list[pa.RecordBatch]
    spans: list[tuple[int, int]]
    letters: list[DeadLetter]
    F: RowKey
    V: int | None
    more: bool
    rest: Held = field(repr=False)


class PartitionState:
    """Rows and positions of one partition.

    Args:
        view: what is joined. indexes: complete side tables, in the view's order.
        committed: the group's position with metadata; ``None`` before the first commit.
    """

    def __init__(self, view: View, indexes: Sequence[LookupIndex], committed: Position | None) -> None:
        self._view, self._indexes = view, indexes
        self._schema = joined_schema(view)
        self._chunks: list[Chunk] = []
        self._rejected: list[Rejected] = []
        self._held = Held(pa.RecordBatch.from_pylist([], self._schema), np.empty(0, np.int64), np.empty(0, np.int64))
        self.W = T_MIN
        self.F, self.V, self.k = BEFORE_ALL, T_MIN, 0
        self.rows_out, self.rows_rejected, self.side = 0, 0, 0
        self.needed = committed.offset if committed else 0
        self.saved_pos, self._saved_W = self.needed, T_MIN
        self.more = False
        if committed and committed.metadata:
            self._restore(json.loads(committed.metadata))
        self.pos = self.needed
        self._catch_up()

    def _restore(self, body: dict[str, object]) -> None:
        time_us, file, row = body["F"]  # type: ignore[misc]
        self.F = RowKey(int(time_us), str(file), int(row))  # type: ignore[has-type]
        self.V, self.k, self.saved_pos, self._saved_W = (int(body[name]) for name in ("V", "k", "pos", "W"))  # type: ignore[call-overload]
        self.rows_out, self.rows_rejected, self.side = (int(body[n]) for n in ("rows", "rejected", "side"))  # type: ignore[call-overload]

    @property
    def ready(self) -> bool:
        """Whether everything that was read before the last commit has been read again: nothing is decided before."""
        return self.pos >= self.saved_pos

    @property
    def rows_held(self) -> int:
        """Rows read that are not out."""
        return sum(len(c.rows_N) for c in self._chunks) + len(self._held.times_N) + len(self._rejected)

    def add(self, chunk: Chunk) -> None:
        """A raw message of rows. Asserts that none is older than W, at offsets that are new."""
        if chunk.offset >= self.saved_pos and len(chunk.times_N):
            assert int(chunk.times_N.min()) >= self.W, (
                f"row below W={self.W} in {chunk.file}: the planner broke its promise"
            )
        if (part := chunk.after(self.F)) is not None:
            self._chunks.append(part)

    def raise_watermark(self, W: int) -> None:
        """W of the input."""
        self.W = max(self.W, W)

    def reached(self, pos: int) -> None:
        """The input was read up to ``pos``."""
        self.pos = max(self.pos, pos)
        self._catch_up()

    def _catch_up(self) -> None:
        if self.ready:
            self.W = max(self.W, self._saved_W)

    def settle(self) -> None:
        """Move rows that are final into the held sequence: sorted, looked up, labelled."""
        final, self._chunks = split_final(self._chunks, self.W)
        if not final:
            return
        joined, rejected = self._join(in_order(final))
        self._rejected += rejected
        if not len(joined.times_N):
            return
        held = self._held
        if len(held.times_N):
            rows = pa.Table.from_batches([held.rows, joined.rows]).combine_chunks().to_batches()[0]
            times = np.concatenate([held.times_N, joined.times_N])
            joined = Held(rows, times, np.concatenate([held.offsets_N, joined.offsets_N]))
        self._held = joined

    def emit(self, max_messages: int, max_bytes: int) -> Emission:
        """What can be put out now, up to the caps. Changes nothing (see ``done``)."""
        held = self._held
        ends = ends_of_messages(held.times_N, self._view.sample.cuts, self.W)
        messages: list[pa.RecordBatch] = []
        spans: list[tuple[int, int]] = []
        start, size, more = 0, 0, False
        for end in ends.tolist():
            if len(messages) >= max_messages or size >= max_bytes:
                more = True
                break
            message = held.rows.slice(start, end - start)
            offsets = held.offsets_N[start:end]
            messages.append(message)
            spans.append((int(offsets.min()), int(offsets.max())))
            size += message.nbytes
            start = end
        F = self._key_at(start - 1) if start else self.F
        rest = held.from_(start)
        bound = int(rest.times_N[0]) if len(rest.times_N) else self.W
        if bound > F.time_us:
            F = RowKey(bound, "", -1)
        letters = [item.letter for item in self._rejected if item.key <= F]
        V = F.time_us if F.time_us > self.V else None
        return Emission(self.k, messages, spans, letters, F, V, more, rest)

    def position_after(self, emission: Emission) -> Position:
        """What to commit with an emission."""
        needed = self._needed_after(emission)
        assert needed >= self.needed, f"needed would go back from {self.needed} to {needed}"
        body = {
            "v": LAYOUT,
            "F": list(emission.F),
            "V": self.V if emission.V is None else emission.V,
            "k": self.k + len(emission.messages),
            "pos": self.pos,
            "W": self.W,
            "rows": self.rows_out + sum(message.num_rows for message in emission.messages),
            "rejected": self.rows_rejected + len(emission.letters),
            "side": self.side,
            "more": emission.more,
        }
        return Position(needed, json.dumps(body, separators=(",", ":"), ensure_ascii=False))

    def done(self, emission: Emission) -> None:
        """The emission was committed."""
        self.needed = self._needed_after(emission)
        self._held = emission.rest
        self._rejected = [item for item in self._rejected if item.key > emission.F]
        self.F = emission.F
        self.V = self.V if emission.V is None else emission.V
        self.k += len(emission.messages)
        self.rows_out += sum(message.num_rows for message in emission.messages)
        self.rows_rejected += len(emission.letters)
        self.more = emission.more
        self.saved_pos = self.pos

    def _needed_after(self, emission: Emission) -> int:
        offsets = [chunk.offset for chunk in self._chunks]
        offsets += [int(emission.rest.offsets_N.min())] if len(emission.rest.offsets_N) else []
        offsets += [item.offset for item in self._rejected if item.key > emission.F]
        return min([*offsets, self.pos])

    def _key_at(self, at: int) -> RowKey:
        rows = self._held.rows
        file, row = rows.column(rows.num_columns - 2)[at].as_py(), rows.column(rows.num_columns - 1)[at].as_py()
        return RowKey(int(self._held.times_N[at]), file, row)

    def _join(self, ordered: Ordered) -> tuple[Held, list[Rejected]]:
        """Look up and label; rows without a usable label come back apart."""
        columns: list[pa.Array] = list(ordered.columns.columns)
        for index in self._indexes:
            columns += index.columns_for(ordered.columns.column(index.table.on))
        usable = np.ones(len(ordered.times_N), np.bool_)
        rejected: list[Rejected] = []
        for _, rule in self._view.labels:
            source = ordered.columns.column(rule.column)
            labels, fits = label_of(source, rule)
            unfit = np.flatnonzero(usable & ~fits).tolist()
            rejected += [
                self._reject(ordered, at, rule.column, source[at].as_py(), expected_text(rule)) for at in unfit
            ]
            usable &= fits
            columns.append(pa.array(labels))
        columns += [pa.array(ordered.times_N), ordered.file_column(), pa.array(ordered.rows_N)]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if usable.all():
            return Held(rows, ordered.times_N, ordered.offsets_N), rejected
        kept = Held(rows.filter(pa.array(usable)), ordered.times_N[usable], ordered.offsets_N[usable])
        return kept, rejected

    def _reject(self, ordered: Ordered, at: int, column: str, value: object, expected: str) -> Rejected:
        file = ordered.files[int(ordered.file_N[at])]
        row = int(ordered.rows_N[at])
        detail = f"column {column}: expected {expected}, got {value!r}"
        letter = DeadLetter(STAGE, "bad-label", detail, file, -1, row, -1, repr(value).encode()[:200])
        return Rejected(RowKey(int(ordered.times_N[at]), file, row), int(ordered.offsets_N[at]), letter)
