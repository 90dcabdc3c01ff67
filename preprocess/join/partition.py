"""State of one partition of a view: order → look up → label → cut. No input or output here.

Three positions are never mixed: ``needed`` (the lowest raw offset of a row that is still held: where a resume seeks to),
``pos`` (how far raw was read), and ``F`` (the key up to which every row has been put out).
Dead letters have a frontier of their own, ``G``.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from experiments.view import View
from ingest.contracts import T_MIN
from preprocess.contracts import FILE_COLUMN, ROW_COLUMN, Int64, joined_schema
from preprocess.join.cuts import ends_of_messages
from preprocess.join.lookups import LookupIndex
from preprocess.join.order import BEFORE_ALL, Chunk, Ordered, RowKey, bounds_up_to, in_order, split_final
from preprocess.join.rejected import NONE, Rejected, label_rows
from streams.contracts import Position

LAYOUT = 1
PIECES = 8


@dataclass(frozen=True, slots=True)
class Held:
    """Joined rows in order that no closed message has yet.

    Args:
        pieces: the rows, in order: what was held before stays where it is when more comes. times_N, offsets_N: of all.
    """

    pieces: tuple[pa.RecordBatch, ...]
    times_N: Int64
    offsets_N: Int64

    def __len__(self) -> int:
        return len(self.times_N)

    def rows(self, start: int, stop: int) -> pa.RecordBatch:
        """Rows [start, stop), at least one: a view if they lie in one piece, else a copy."""
        found, at = [], 0
        for piece in self.pieces:
            low, high = max(start - at, 0), min(stop - at, piece.num_rows)
            if low < high:
                found.append(piece.slice(low, high - low))
            at += piece.num_rows
        return found[0] if len(found) == 1 else pa.concat_batches(found)

    def key_at(self, at: int) -> RowKey:
        """Key of a row."""
        row = self.rows(at, at + 1)
        return RowKey(int(self.times_N[at]), row.column(FILE_COLUMN)[0].as_py(), row.column(ROW_COLUMN)[0].as_py())

    def from_(self, start: int) -> Held:
        """The rows from ``start`` on."""
        if start == len(self):
            return NOTHING
        pieces, at = [], 0
        for piece in self.pieces:
            if (low := max(start - at, 0)) < piece.num_rows:
                pieces.append(piece.slice(low))
            at += piece.num_rows
        return Held(tuple(pieces), self.times_N[start:], self.offsets_N[start:])

    def followed_by(self, later: Held) -> Held:
        """Both. Many small pieces become one, so that each row is copied a few times at most."""
        pieces = (*self.pieces, *later.pieces)
        if len(pieces) > PIECES:
            pieces = (pa.concat_batches(pieces),)
        times, offsets = (self.times_N, later.times_N), (self.offsets_N, later.offsets_N)
        return Held(pieces, np.concatenate(times), np.concatenate(offsets))

    @property
    def row_bytes(self) -> float:
        """Bytes of a row, on average."""
        return sum(piece.nbytes for piece in self.pieces) / max(1, len(self))


NOTHING = Held((), np.empty(0, np.int64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Caps:
    """Of one transaction's share of a partition."""

    messages: int
    bytes: int
    letters: int


@dataclass(frozen=True, slots=True)
class Emission:
    """What one transaction puts out for a partition.

    Args:
        first: number k of the first message. messages: rows of each; spans: (first, last) raw offset of each.
        letters: rejected rows, in order. F, G: up to which rows, and up to which rejected
            rows, are out after it (no rejected row lies above G and not above F).
        V: new bound, ``None`` if it does not rise. capped: whether a cap stopped it. more: whether there is more to put out.
    """

    first: int
    messages: list[pa.RecordBatch]
    spans: list[tuple[int, int]]
    letters: Rejected
    F: RowKey
    G: RowKey
    V: int | None
    capped: bool
    more: bool
    rest: Held = field(repr=False)
    rest_letters: Rejected = field(repr=False)

    @property
    def says_something(self) -> bool:
        """Whether it is more than a position."""
        return bool(self.messages or len(self.letters) or self.V is not None)


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
        self._rejected, self._held = NONE, NOTHING
        self.W, self._settled_W = T_MIN, T_MIN
        self._bounds: deque[int] = deque()
        self.F, self.G, self.V, self.k = BEFORE_ALL, BEFORE_ALL, T_MIN, 0
        self.rows_out, self.rows_rejected, self.side = 0, 0, 0
        self.needed = committed.offset if committed else 0
        self.saved_pos, self._saved_W = self.needed, T_MIN
        self.capped = self.more = False
        if committed and committed.metadata:
            self._restore(json.loads(committed.metadata))
        self.pos = self.needed
        self._catch_up()

    def _restore(self, body: dict[str, object]) -> None:
        self.F = RowKey(*body["F"])  # type: ignore[misc]
        self.G = RowKey(*body.get("G", body["F"]))  # type: ignore[misc]
        self.V, self.k, self.saved_pos, self._saved_W = (int(body[name]) for name in ("V", "k", "pos", "W"))  # type: ignore[call-overload]
        self.rows_out, self.rows_rejected, self.side = (int(body[n]) for n in ("rows", "rejected", "side"))  # type: ignore[call-overload]

    @property
    def ready(self) -> bool:
        """Whether everything that was read before the last commit has been read again: nothing is decided before."""
        return self.pos >= self.saved_pos

    @property
    def rows_held(self) -> int:
        """Rows read that are not out."""
        return sum(len(c.rows_N) for c in self._chunks) + len(self._held) + len(self._rejected)

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

    def settle(self, rows: int) -> None:
        """Move rows that are final into the held sequence: sorted, looked up, labelled. About ``rows`` at a time, in order, and not
        before those that can go have gone."""
        if self.capped:
            return
        if not self._bounds:
            self._bounds.extend(bounds_up_to(self._chunks, self.W, rows))
        self._settled_W = self._bounds.popleft()
        final, self._chunks = split_final(self._chunks, self._settled_W)
        if not final:
            return
        joined, rejected = self._join(in_order(final))
        self._rejected = self._rejected.followed_by(rejected)
        self._held = self._held.followed_by(joined)

    def emit(self, caps: Caps) -> Emission:
        """What can be put out now, up to the caps. Changes nothing (see ``done``).

        Dead letters go first, and no message passes a row whose letter is not out: so a resume, which drops all rows up to F,
        drops none whose letter is missing.
        """
        held, W = self._held, self._settled_W
        letters = self._rejected.part(0, min(caps.letters, len(self._rejected)))
        left = self._rejected.part(len(letters), len(self._rejected))
        barrier = left.key_at(0) if len(left) else RowKey(W, "", -1)
        G = max(self.G, letters.key_at(len(letters) - 1) if len(left) else barrier)
        messages: list[pa.RecordBatch] = []
        spans: list[tuple[int, int]] = []
        start, most_rows, capped = 0, caps.bytes / max(1.0, held.row_bytes), len(left) > 0
        for end in ends_of_messages(held.times_N, self._view.sample.cuts, W).tolist():
            if len(messages) >= caps.messages or start >= most_rows or (len(left) and held.key_at(end - 1) > barrier):
                capped = True
                break
            offsets = held.offsets_N[start:end]
            messages.append(held.rows(start, end))
            spans.append((int(offsets.min()), int(offsets.max())))
            start = end
        F = held.key_at(start - 1) if start else self.F
        rest = held.from_(start)
        bound = min(int(rest.times_N[0]) if len(rest) else W, barrier.time_us)
        if bound > F.time_us:
            F = RowKey(bound, "", -1)
        V = F.time_us if F.time_us > self.V else None
        more = capped or bool(self._bounds)
        return Emission(self.k, messages, spans, letters, F, G, V, capped, more, rest, left)

    def position_after(self, emission: Emission) -> Position:
        """What to commit with an emission."""
        needed = self._needed_after(emission)
        assert needed >= self.needed, f"needed would go back from {self.needed} to {needed}"
        body = {
            "v": LAYOUT,
            "F": list(emission.F),
            "G": list(emission.G),
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
        self._rejected = emission.rest_letters
        self.F, self.G = emission.F, emission.G
        self.V = self.V if emission.V is None else emission.V
        self.k += len(emission.messages)
        self.rows_out += sum(message.num_rows for message in emission.messages)
        self.rows_rejected += len(emission.letters)
        self.capped, self.more = emission.capped, emission.more
        self.saved_pos = self.pos

    def nothing_to_say(self, emission: Emission) -> None:
        """The emission was not committed, as it says nothing: rows were joined, and all of them are held."""
        self.more = emission.more

    def _needed_after(self, emission: Emission) -> int:
        offsets = [chunk.offset for chunk in self._chunks]
        for rest in (emission.rest, emission.rest_letters):
            offsets += [int(rest.offsets_N.min())] if len(rest) else []
        return min([*offsets, self.pos])

    def _join(self, ordered: Ordered) -> tuple[Held, Rejected]:
        """Look up and label; rows without a usable label come back apart."""
        columns: list[pa.Array] = list(ordered.columns.columns)
        for index in self._indexes:
            columns += index.columns_for(ordered.columns.column(index.table.on))
        labels, usable, rejected = label_rows(ordered, [rule for _, rule in self._view.labels], self.G)
        if not usable.any():
            return NOTHING, rejected
        columns += labels
        columns += [pa.array(ordered.times_N), ordered.file_column(), pa.array(ordered.rows_N)]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._schema)
        if usable.all():
            return Held((rows,), ordered.times_N, ordered.offsets_N), rejected
        kept = (rows.filter(pa.array(usable)),)
        return Held(kept, ordered.times_N[usable], ordered.offsets_N[usable]), rejected
