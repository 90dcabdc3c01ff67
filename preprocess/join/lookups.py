"""Side tables: read whole, kept in memory, looked up by key."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from experiments import names
from experiments.view import LookupTable
from ingest.contracts import ROW_COLUMN as RAW_ROW
from ingest.contracts import ROWS, T_END, TIME_COLUMN, WATERMARK, raw_schema
from preprocess.contracts import Int64
from preprocess.join.rejected import STAGE
from streams.contracts import Consumer, Log, Record, TopicPartition
from streams.dead_letters import DeadLetter, letter_for
from streams.errors import Broken, Exhausted, SchemaMismatch
from streams.packed import Limits, lineage_of, read_control, unpack

DUPLICATE = "duplicate-key"


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a side table as they were read.

    Args:
        columns: declared columns. file: of all rows. rows_N: int64 row in the file.
    """

    columns: pa.RecordBatch
    file: str
    rows_N: Int64


class LookupIndex:
    """Key → row of a complete side table. Of rows with an equal key the first by (file, row) counts.

    Args:
        table: feed and alias.
        parts: all its rows, in any order.
    """

    def __init__(self, table: LookupTable, parts: Sequence[TableRows]) -> None:
        self.table = table
        ordered = sorted(
            (part for part in parts if len(part.rows_N)), key=lambda part: (part.file, int(part.rows_N[0]))
        )
        schema = raw_schema(table.feed)
        declared = pa.schema([field for field in schema if field.name not in (TIME_COLUMN, RAW_ROW)])
        rows = pa.Table.from_batches([part.columns for part in ordered], declared).combine_chunks()
        self._files = tuple(part.file for part in ordered)
        keys = (
            rows[table.feed.key[0]].combine_chunks()
            if rows.num_rows
            else pa.array([], declared.field(table.feed.key[0]).type)
        )
        keys = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
        first, double = _first_of_each(keys)
        part_N = np.repeat(np.arange(len(ordered)), [len(part.rows_N) for part in ordered])
        row_N = np.concatenate([part.rows_N for part in ordered]) if ordered else np.empty(0, np.int64)
        self._double_parts, self._double_rows = part_N[double], row_N[double]
        self._rows = rows.take(pa.array(first)).combine_chunks()
        self._keys = keys.take(pa.array(first))
        self._integers = pa.types.is_integer(keys.type)
        if self._integers:
            values = self._keys.to_numpy()
            self._order = np.argsort(values, kind="stable")
            self._sorted = values[self._order]
        else:
            self._places = {key: at for at, key in enumerate(self._keys.to_pylist())}

    def under(self, table: LookupTable) -> LookupIndex:
        """The same rows, looked up under another alias. Shares all memory."""
        other = copy(self)
        other.table = table
        return other

    @property
    def num_duplicates(self) -> int:
        """Rows whose key an earlier row has."""
        return len(self._double_rows)

    def duplicates(self, start: int = 0, stop: int | None = None) -> list[tuple[str, int]]:
        """(file, row) of those rows, from number ``start`` to ``stop``, in order."""
        parts, rows = self._double_parts[start:stop].tolist(), self._double_rows[start:stop].tolist()
        return [(self._files[part], row) for part, row in zip(parts, rows, strict=True)]

    def columns_for(self, keys: pa.Array) -> list[pa.Array]:
        """The table's declared columns for each key, nulls where the key is null or unknown. New memory."""
        at = pa.array(*self._find(keys))
        out = []
        for column in self._rows.columns:
            taken = column.take(at)
            out.append(taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken)
        return [one if isinstance(one, pa.Array) else pa.concat_arrays(one.chunks) for one in out]

    def _find(self, keys: pa.Array) -> tuple[Int64, pa.Int64Type, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
        """(places, type, mask of the missing)."""
        valid = keys.is_valid().to_numpy(zero_copy_only=False)
        if not self._integers:
            encoded = keys.dictionary_encode()
            places = np.array([self._places.get(key, -1) for key in encoded.dictionary.to_pylist()] or [-1], np.int64)
            at = places[np.where(valid, encoded.indices.fill_null(0).to_numpy(), 0)]
            return at, pa.int64(), ~valid | (at < 0)
        values = keys.fill_null(0).to_numpy()
        near = np.minimum(np.searchsorted(self._sorted, values), max(0, len(self._sorted) - 1))
        if not len(self._sorted):
            return np.zeros(len(values), np.int64), pa.int64(), np.ones(len(values), np.bool_)
        return self._order[near], pa.int64(), ~valid | (self._sorted[near] != values)


def _first_of_each(keys: pa.Array) -> tuple[Int64, Int64]:
    """(places of the first row of each key, places of the others), both rising."""
    encoded = keys.dictionary_encode().indices.to_numpy() if len(keys) else np.empty(0, np.int64)
    _, first = np.unique(encoded, return_index=True)
    others = np.setdiff1d(np.arange(len(keys)), first)
    return np.sort(first).astype(np.int64), others.astype(np.int64)


class SideTables:
    """Reads the side tables of a view from the beginning of their topics until each is closed.

    Raises (from ``read``):
        Exhausted: the tables together are above the cap.
    """

    def __init__(self, log: Log, tables: Sequence[LookupTable], cap_bytes: int) -> None:
        self._log, self._cap_bytes = log, cap_bytes
        self._tables = {names.raw(table.feed.feed): table for table in tables}
        self._all = tuple(tables)
        self._parts: dict[str, list[TableRows]] = {topic: [] for topic in self._tables}
        self._open: set[TopicPartition] = set()
        self._bytes = 0
        self._consumer: Consumer | None = None
        self._once: dict[str, LookupIndex] = {}  # of each feed one, however many aliases it has
        self.letters: list[DeadLetter] = []
        self.indexes: list[LookupIndex] | None = [] if not tables else None

    @property
    def complete(self) -> bool:
        """Whether all tables are in memory."""
        return self.indexes is not None

    @property
    def waiting_for(self) -> list[str]:
        """Names of feeds that are not closed yet."""
        if self.complete:
            return []
        open_topics = {tp.topic for tp in self._open} if self._consumer else set(self._tables)
        return sorted(self._tables[topic].feed.feed for topic in open_topics)

    def read(self, max_bytes: int) -> bool:
        """Read some; whether anything came."""
        if self.complete:
            return False
        if self._consumer is None:
            partitions = [
                TopicPartition(t, p) for t, table in self._tables.items() for p in range(table.feed.partitions)
            ]
            self._consumer = self._log.consumer()
            self._consumer.assign(partitions)
            self._open = set(partitions)
        records = self._consumer.poll(max_bytes, 0.0)
        for record in records:
            self._take(record)
        if not self._open:
            self._once = {topic: LookupIndex(table, self._parts[topic]) for topic, table in self._tables.items()}
            self.indexes = [self._once[names.raw(table.feed.feed)].under(table) for table in self._all]
            self.letters.sort(key=lambda letter: (letter.source, letter.partition, letter.position))
            self._parts.clear()
            self._consumer.close()
        return bool(records)

    @property
    def num_letters(self) -> int:
        """How many ``letters_from`` has in all."""
        return len(self.letters) + sum(index.num_duplicates for index in self._once.values())

    def letters_from(self, start: int, count: int) -> list[DeadLetter]:
        """What is to be said about complete tables, from number ``start``: messages that could not be read, then rows whose key an
        earlier row has. The same for every reader of the same topics."""
        assert self.complete
        out = self.letters[start : start + count]
        first = len(self.letters)
        for index in self._once.values():
            low, high = max(start - first, 0), max(start + count - first, 0)
            feed = index.table.feed
            detail = f"an earlier row of {feed.feed} has the same {feed.key[0]}; that one is used"
            out += [
                DeadLetter(STAGE, DUPLICATE, detail, f"{feed.feed}/{file}", -1, row, -1, b"")
                for file, row in index.duplicates(low, high)
            ]
            first += index.num_duplicates
        return out

    def close(self) -> None:
        """Release."""
        if self._consumer is not None:
            self._consumer.close()

    def _take(self, record: Record) -> None:
        table = self._tables[record.topic]
        try:
            named = read_control(record)
            if named is not None:
                if named == (WATERMARK, T_END):
                    self._open.discard(record.tp)
                return
            batch = unpack(record, kind=ROWS, schema=raw_schema(table.feed), limits=Limits())
            file = str(lineage_of(record)["file"])
        except (Broken, Exhausted, SchemaMismatch, KeyError) as error:
            self.letters.append(letter_for(record, stage=STAGE, reason="bad-raw-message", detail=str(error)))
            return
        self._bytes += batch.nbytes
        if self._bytes > self._cap_bytes:
            raise Exhausted(
                expected=f"side tables of at most {self._cap_bytes >> 20} MiB together (preprocess.side_table_bytes)",
                got=f"more than {self._bytes >> 20} MiB while reading feed {table.feed.feed}",
                where=f"look-up {table.alias!r}",
                do="Declare fewer columns in the feed, or raise preprocess.side_table_bytes.",
            )
        rows = batch.column(RAW_ROW).to_numpy()
        columns = batch.select([name for name in table.feed.columns])
        self._parts[record.topic].append(TableRows(columns, file, rows))
