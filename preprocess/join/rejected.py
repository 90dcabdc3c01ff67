"""Rows without a usable label: kept in columns as their dead letters, in the order of the rows, until they are written.

Any number of them may come at once (a column of the wrong scale rejects every row), so nothing here works row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from experiments.experiment import ColumnLabel
from preprocess.contracts import Int64
from preprocess.join.labels import Bools, expected_text, label_of
from preprocess.join.order import Ordered, RowKey
from streams.dead_letters import SCHEMA

STAGE = "join"
RAW_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Rejected:
    """Rows in order, with their letters.

    Args:
        letters: ``streams.dead_letters.SCHEMA``. times_N, offsets_N: int64, event time and raw offset of each row.
    """

    letters: pa.RecordBatch
    times_N: Int64
    offsets_N: Int64

    def __len__(self) -> int:
        return len(self.times_N)

    def key_at(self, at: int) -> RowKey:
        """Key of a row."""
        source, row = self.letters.column("source")[at].as_py(), self.letters.column("position")[at].as_py()
        return RowKey(int(self.times_N[at]), source, row)

    def part(self, start: int, stop: int) -> Rejected:
        """Rows [start, stop). Views."""
        return Rejected(self.letters.slice(start, stop - start), self.times_N[start:stop], self.offsets_N[start:stop])

    def followed_by(self, later: Rejected) -> Rejected:
        """Both, one after the other."""
        if not len(self):
            return later
        if not len(later):
            return self
        return Rejected(
            pa.concat_batches([self.letters, later.letters]),
            np.concatenate([self.times_N, later.times_N]),
            np.concatenate([self.offsets_N, later.offsets_N]),
        )


NONE = Rejected(pa.RecordBatch.from_pylist([], SCHEMA), np.empty(0, np.int64), np.empty(0, np.int64))


def label_rows(ordered: Ordered, rules: Sequence[ColumnLabel], after: RowKey) -> tuple[list[pa.Array], Bools, Rejected]:
    """(label columns float32, usable [N], letters of the others that come after ``after``).

    A row that several labels reject has one letter, of the first of them.
    """
    usable = np.ones(len(ordered.times_N), np.bool_)
    columns: list[pa.Array] = []
    places: list[Int64] = []
    texts: list[tuple[pa.Array, pa.Array]] = []
    for rule in rules:
        source = ordered.columns.column(rule.column)
        labels, fits = label_of(source, rule)
        columns.append(pa.array(labels))
        unfit = usable & ~fits
        if unfit.any() and len(at := np.flatnonzero(unfit & _comes_after(ordered, after))):
            places.append(at)
            texts.append(_texts(source.take(pa.array(at)), rule))
        usable &= fits
    return columns, usable, _rejected(ordered, places, texts) if places else NONE


def _comes_after(ordered: Ordered, key: RowKey) -> Bools:
    """Which rows come after ``key`` in the order."""
    later = np.array([file > key.file for file in ordered.files], np.bool_)[ordered.file_N]
    same = np.array([file == key.file for file in ordered.files], np.bool_)[ordered.file_N]
    tie = later | (same & (ordered.rows_N > key.row))
    return (ordered.times_N > key.time_us) | ((ordered.times_N == key.time_us) & tie)


def _texts(values: pa.Array, rule: ColumnLabel) -> tuple[pa.Array, pa.Array]:
    """(detail, value) of each, as text."""
    shown = pc.utf8_slice_codeunits(pc.fill_null(pc.cast(values, pa.string()), "null"), 0, RAW_CHARACTERS)
    said = f"column {rule.column}: expected {expected_text(rule)}, got "
    return pc.binary_join_element_wise(pa.scalar(said), shown, pa.scalar("")), shown


def _rejected(ordered: Ordered, places: list[Int64], texts: list[tuple[pa.Array, pa.Array]]) -> Rejected:
    found = np.concatenate(places)
    order = np.argsort(found, kind="stable")
    at = found[order]
    detail, shown = (pa.concat_arrays(list(column)).take(pa.array(order)) for column in zip(*texts, strict=True))
    count = len(at)
    columns = {
        "stage": pa.repeat(STAGE, count),
        "reason": pa.repeat("bad-label", count),
        "detail": detail,
        "source": ordered.file_column(at),
        "partition": pa.repeat(pa.scalar(-1, pa.int32()), count),
        "position": pa.array(ordered.rows_N[at]),
        "line": pa.repeat(pa.scalar(-1, pa.int64()), count),
        "raw": shown.cast(pa.binary()),
    }
    letters = pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)
    return Rejected(letters, ordered.times_N[at], ordered.offsets_N[at])
