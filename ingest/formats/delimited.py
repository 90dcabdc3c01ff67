"""CSV and its kin. Types come from the feed alone; a row that does not fit goes to the dead letters, the rest goes on.

A row's number counts records from 0 after the header; blank lines do not count.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from experiments.feed import Delimited, Feed
from experiments.fields import arrow_type, is_list
from ingest.contracts import Config
from ingest.errors import FileRejected
from ingest.formats.blocks import BOM, Block, blocks, has_quotes, is_gzip, record_count, record_starts
from ingest.formats.reading import STAGE, FilePlan, Part, Range, typed
from ingest.records import Split
from ingest.sources import Folder, FoundFile
from ingest.verdicts import Int64, times_us
from streams.dead_letters import DeadLetter

TYPED = ("int64", "uint64", "float32", "float64")


class DelimitedFormat:
    """``Format`` of delimited text, plain or gzip."""

    def __init__(self, feed: Feed, config: Config) -> None:
        assert feed.format.delimited is not None
        self._feed, self._config, self._dialect = feed, config, feed.format.delimited

    def plan(self, folder: Folder, file: FoundFile) -> FilePlan:
        """A large plain file without quotes is divided at line ends; any other is one range. The lower bound is the first
        valid event time less ``disorder``."""
        if not file.size:
            return FilePlan((Range(0, -1, 0),), None, None, judged_by_rows=True)
        whole = file.size <= self._config.split_bytes or is_gzip(folder, file.path)
        ranges = None if whole else self._ranges(folder, file)
        return FilePlan(ranges or (Range(0, -1, 0),), self._first_time(folder, file), None, judged_by_rows=True)

    def _ranges(self, folder: Folder, file: FoundFile) -> tuple[Range, ...] | None:
        out, begin, first, row = [], 0, 0, -int(self._dialect.header)
        for block in blocks(folder, file.path, 0, -1, ""):
            if has_quotes(block.data, self._dialect.quote):
                return None
            if block.offset - begin >= self._config.split_bytes:
                out.append(Range(begin, block.offset, max(first, 0)))
                begin, first = block.offset, row
            row += record_count(block.data)
        return (*out, Range(begin, -1, max(first, 0)))

    def _first_time(self, folder: Folder, file: FoundFile) -> int | None:
        event_time = self._feed.event_time
        if event_time is None:
            return None
        probe = Split("", 0, file.path, file.size, 0, "", 0, -1, 0, 0, False, 0)
        try:
            for part in self.read(folder, probe, None):
                times, usable = times_us(part.batch.column(event_time.column), event_time)
                if usable.any():
                    return int(times[usable][0]) - self._feed.disorder
        except FileRejected:
            return None
        return None

    def read(self, folder: Folder, split: Split, resume: Mapping[str, Any] | None) -> Iterator[Part]:
        """Parts of at most ``part_rows``."""
        names = self._names(folder, split.file)
        if names is None:
            return
        begin = int((resume or {}).get("byte", split.begin))
        row = int((resume or {}).get("row", split.first_row))
        for block in blocks(folder, split.file, begin, split.end, self._dialect.quote):
            first = self._after_header(block) if block.offset == 0 else block
            for piece in self._pieces(first):
                part = self._part(split.file, piece, names, row)
                row = part.next_row
                yield part

    def _after_header(self, block: Block) -> Block:
        """The first block without BOM and header."""
        data = block.data
        start = len(BOM) if data.startswith(BOM) else 0
        if self._dialect.header:
            starts = record_starts(data[start:])
            start = start + int(starts[1]) if len(starts) > 1 else len(data)
        return Block(data[start:], start, data.count(b"\n", 0, start))

    def _pieces(self, block: Block) -> Iterator[Block]:
        """A block divided so that no part is above ``part_rows``; blocks with quotes stay whole (rows are few bytes)."""
        if not block.data.strip(b"\r\n"):
            return
        rows = self._config.part_rows
        starts = None if has_quotes(block.data, self._dialect.quote) else record_starts(block.data)
        if starts is None or len(starts) <= rows:
            yield block
            return
        edges = [0, *starts[rows::rows].tolist(), len(block.data)]
        for begin, end in itertools.pairwise(edges):
            lines = -1 if block.lines_before < 0 else block.lines_before + block.data.count(b"\n", 0, begin)
            yield Block(block.data[begin:end], block.offset + begin, lines)

    def _names(self, folder: Folder, path: str) -> list[str] | None:
        """Names of the columns in the file, in order; ``None`` for a file without bytes."""
        if not self._dialect.header:
            return [self._feed.source_of(name) for name in self._feed.columns]
        first = next(iter(blocks(folder, path, 0, -1, self._dialect.quote)), None)
        if first is None:
            return None
        line = (first.data.removeprefix(BOM).lstrip(b"\r\n").splitlines() or [b""])[0]
        table = _parse(line + b"\n", self._dialect, None, [])
        try:
            names = [column.cast(pa.string())[0].as_py() or "" for column in table.columns]
        except pa.ArrowInvalid as error:
            raise FileRejected("bad-header", "expected a header of UTF-8 text", raw=line[:200]) from error
        self._check_names(names, line)
        return names

    def _check_names(self, names: list[str], line: bytes) -> None:
        for name, column in self._feed.columns.items():
            source = self._feed.source_of(name)
            if names.count(source) > 1:
                raise FileRejected(
                    "bad-header", f"expected the column {source!r} once, got it {names.count(source)} times", raw=line
                )
            if source not in names and not column.optional:
                shown = ", ".join(names[:20])
                detail = f"expected the column {source!r}, got the header {shown!r} (separator {self._dialect.sep!r})"
                raise FileRejected("missing-column", detail, raw=line[: self._config.dead_letter_bytes])

    def _part(self, file: str, block: Block, names: list[str], first: int) -> Part:
        invalid: list[pacsv.InvalidRow] = []
        sources = {self._feed.source_of(name): name for name in self._feed.columns}
        wanted = {source: self._read_type(name) for source, name in sources.items() if source in names}
        try:
            table = _parse(block.data, self._dialect, wanted, invalid, names)
        except pa.ArrowInvalid:
            invalid.clear()
            table = _parse(block.data, self._dialect, dict.fromkeys(wanted, pa.binary()), invalid, names)
        total = table.num_rows + len(invalid)
        bad = np.array([item.number - 1 for item in invalid], np.int64)
        rows = np.setdiff1d(np.arange(total), bad) if len(bad) else np.arange(total)
        starts = _Starts(block, self._dialect)
        columns = {
            name: _text_nulls(table[source], self._dialect) if source in names else None
            for source, name in sources.items()
        }
        origin = lambda at: (starts.line(int(rows[at])), starts.raw(int(rows[at]))[: self._config.dead_letter_bytes])  # noqa: E731
        good, numbers, letters = typed(self._feed, file, columns, rows + first, origin)
        for item, at in zip(invalid, bad.tolist(), strict=True):
            detail = f"expected {item.expected_columns} columns, got {item.actual_columns}"
            raw = item.text.encode()[: self._config.dead_letter_bytes]
            letters.append(DeadLetter(STAGE, "bad-columns", detail, file, -1, first + at, starts.line(at), raw))
        last = first + total
        return Part(good, numbers, letters, last, {"byte": block.end, "row": last}, len(block.data))

    def _read_type(self, name: str) -> pa.DataType:
        declared = self._feed.columns[name].type
        return pa.binary() if is_list(declared) or declared not in TYPED else arrow_type(declared)


class _Starts:
    """Places of records in a block, found only when a letter needs them."""

    def __init__(self, block: Block, dialect: Delimited) -> None:
        self._block = block
        self._quoted = has_quotes(block.data, dialect.quote)
        self._starts: Int64 | None = None

    def line(self, record: int) -> int:
        """Line in the file, from 1; −1 where finding it would mean reading the file again."""
        start, before = self._start(record), self._block.lines_before
        return -1 if start < 0 or before < 0 else before + self._block.data.count(b"\n", 0, start) + 1

    def raw(self, record: int) -> bytes:
        """The record's bytes."""
        start = self._start(record)
        if start < 0:
            return b""
        end = self._block.data.find(b"\n", start)
        return self._block.data[start : end if end >= 0 else None]

    def _start(self, record: int) -> int:
        if self._quoted:  # records may span lines: which bytes are theirs only the parser knows
            return -1
        if self._starts is None:
            self._starts = record_starts(self._block.data)
        return int(self._starts[record]) if record < len(self._starts) else -1


def _parse(
    data: bytes,
    dialect: Delimited,
    types: Mapping[str, pa.DataType] | None,
    invalid: list[pacsv.InvalidRow],
    names: list[str] | None = None,
) -> pa.Table:
    """One block in one piece: so pyarrow never meets a record on the edge of a block."""

    def on_invalid(row: pacsv.InvalidRow) -> str:
        invalid.append(row)
        return "skip"

    read = pacsv.ReadOptions(
        use_threads=False, block_size=len(data) + 1, column_names=names, autogenerate_column_names=names is None
    )
    parse = pacsv.ParseOptions(
        delimiter=dialect.sep,
        quote_char=dialect.quote or False,
        newlines_in_values=has_quotes(data, dialect.quote),
        ignore_empty_lines=True,
        invalid_row_handler=on_invalid,
    )
    convert = pacsv.ConvertOptions(
        column_types=types if types is not None else None,
        include_columns=list(types) if types is not None else None,
        null_values=[dialect.null],
        strings_can_be_null=False,
        check_utf8=False,
    )
    if types is None:
        convert.column_types = {}
        convert.null_values = []
        convert.strings_can_be_null = False
        return pacsv.read_csv(pa.py_buffer(data), read, parse, _all_binary(data, dialect, convert))
    return pacsv.read_csv(pa.py_buffer(data), read, parse, convert)


def _all_binary(data: bytes, dialect: Delimited, convert: pacsv.ConvertOptions) -> pacsv.ConvertOptions:
    count = data.count(dialect.sep.encode()) + 1
    convert.column_types = {f"f{at}": pa.binary() for at in range(count)}
    return convert


def _text_nulls(column: pa.ChunkedArray, dialect: Delimited) -> pa.Array:
    """Cells of text columns that are the null text → nulls."""
    import pyarrow.compute as pc

    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if not pa.types.is_binary(array.type):
        return array
    is_null = pc.equal(array, pa.scalar(dialect.null.encode(), pa.binary()))
    return pc.if_else(is_null, pa.scalar(None, pa.binary()), array)
