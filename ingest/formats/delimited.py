"""CSV and its kin. Types come from the feed alone; a row that does not fit goes to the dead letters, the rest goes on.

A row's number counts records from 0 after the header, blank lines not. Cells of columns that are no text are null where they
are empty or the null text; cells of text columns only where they are the null text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from experiments.feed import Delimited, Feed
from experiments.fields import arrow_type
from ingest.contracts import T_MIN, Config
from ingest.errors import FileRejected
from ingest.formats import blocks as text
from ingest.formats.blocks import BOM, Block, Span, blocks
from ingest.formats.reading import FilePlan, Part, Range, Start, letter, typed
from ingest.records import Split
from ingest.sources import Folder, FoundFile
from ingest.verdicts import Int64, times_us
from streams.errors import Usage

TYPED = ("int64", "uint64", "float32", "float64")
HEAD_BYTES = 64 * 1024
PROBE_BYTES = 256 * 1024
PROBES = 32
"""Pieces of ``PROBE_BYTES`` that are searched for a first valid time."""


class DelimitedFormat:
    """``Format`` of delimited text, plain or gzip."""

    def __init__(self, feed: Feed, config: Config) -> None:
        assert feed.format.delimited is not None
        self._feed, self._config, self._dialect = feed, config, feed.format.delimited
        self._sources = {name: feed.source_of(name) for name in feed.columns}
        if not (self._dialect.sep + self._dialect.quote).isascii():
            raise Usage(
                expected="a separator and a quote of one byte each",
                got=repr(self._dialect.sep + self._dialect.quote),
                where=f"format of the feed {feed.feed}",
                do="Use an ASCII character.",
            )

    # -- planning

    def plan(self, folder: Folder, file: FoundFile, start: Start, limit_us: int) -> FilePlan:
        """The next range: about ``split_bytes`` of whole records of a plain file; a gzip file is one. Its bound is its first valid
        event time, or one before it if that is newer, less ``disorder``."""
        if not file.size:
            return FilePlan((Range(0, 0, 0, 1, None, None),), None, judged_by_rows=True)
        gzip = text.is_gzip(folder, file.path)
        self._names(folder, file.path)
        end, after = (-1, None) if gzip else self._range(folder, file, start)
        newest = start.newest
        if (first := self._first_time(folder, file, start, limit_us)) is not None:
            newest = max(newest, first)
        lo = None if newest <= T_MIN else newest - self._feed.disorder
        following = Start(after.begin, after.row, after.line, newest) if after else None
        return FilePlan((Range(start.begin, end, start.row, start.line, lo, following),), None, judged_by_rows=True)

    def _range(self, folder: Folder, file: FoundFile, start: Start) -> tuple[int, Start | None]:
        """(end, where the next begins); the records in it are counted, so that rows have their numbers."""
        if file.size - start.begin <= self._config.split_bytes:
            return file.size, None
        row, line = start.row, start.line
        span, piece = Span(start.begin, file.size, start.line), min(text.BLOCK_BYTES, self._config.split_bytes)
        for block in blocks(folder, file.path, span, self._dialect, piece_bytes=piece):
            body = self._after_header(block) if block.offset == 0 else block
            row += 1 if body.broken else len(text.scan(body.data, self._dialect)[0])
            line += block.lines
            if block.end - start.begin >= self._config.split_bytes and block.end < file.size:
                return block.end, Start(block.end, row, line)
        return file.size, None

    def _first_time(self, folder: Folder, file: FoundFile, start: Start, limit_us: int) -> int | None:
        event_time, names = self._feed.event_time, self._names(folder, file.path)
        if event_time is None or names is None:
            return None
        span = Span(start.begin, file.size if not text.is_gzip(folder, file.path) else -1, start.line)
        probes = blocks(folder, file.path, span, self._dialect, piece_bytes=PROBE_BYTES)
        try:
            for part in itertools.islice(self._parts(file.path, probes, names, 0), PROBES):
                times, usable = times_us(part.batch.column(event_time.column), event_time)
                usable &= times < limit_us
                if usable.any():
                    return int(times[usable][0])
        except FileRejected:
            return None
        return None

    # -- reading

    def read(self, folder: Folder, split: Split, resume: Mapping[str, Any] | None) -> Iterator[Part]:
        """Parts of at most ``part_rows``."""
        names = self._names(folder, split.file)
        if names is None:
            raise FileRejected("empty-file", "expected a header or rows, got 0 bytes")
        at = {"byte": split.begin, "row": split.first_row, "line": split.first_line} | dict(resume or {})
        row = int(at["row"])
        span, piece = Span(int(at["byte"]), split.end, int(at["line"])), min(text.BLOCK_BYTES, self._config.part_bytes)
        found = blocks(folder, split.file, span, self._dialect, piece_bytes=piece)
        try:
            for part in self._parts(split.file, found, names, row):
                row = part.next_row
                yield part
        except FileRejected as error:
            error.row = row
            raise

    def _parts(self, file: str, found: Iterator[Block], names: list[str], row: int) -> Iterator[Part]:
        for block in found:
            for piece in self._pieces(self._after_header(block) if block.offset == 0 else block):
                part = self._part(file, piece, names, row)
                row = part.next_row
                yield part

    def _after_header(self, block: Block) -> Block:
        """The first block without BOM and header."""
        data = block.data
        start = len(BOM) if data.startswith(BOM) else 0
        if self._dialect.header:
            starts = text.scan(data[start:], self._dialect)[0]
            start = start + int(starts[1]) if len(starts) > 1 else len(data)
        return Block(data[start:], block.offset + start, block.line + data.count(b"\n", 0, start), block.broken)

    def _pieces(self, block: Block) -> Iterator[Block]:
        """A block divided so that no part is above ``part_rows``."""
        if not block.data.strip(b"\r\n"):
            return
        rows = self._config.part_rows
        if block.broken or block.data.count(b"\n") + block.data.count(b"\r") < rows:
            yield block
            return
        starts = text.scan(block.data, self._dialect)[0]
        edges = [0, *starts[rows::rows].tolist(), len(block.data)]
        for begin, end in itertools.pairwise(edges):
            yield Block(block.data[begin:end], block.offset + begin, block.line + block.data.count(b"\n", 0, begin))

    def _names(self, folder: Folder, path: str) -> list[str] | None:
        """Names of the columns in the file, in order; ``None`` for a file without bytes."""
        first = next(blocks(folder, path, Span(), self._dialect, piece_bytes=HEAD_BYTES), None)
        if first is None:
            return None
        if not self._dialect.header:
            return [self._feed.source_of(name) for name in self._feed.columns]
        body = first.data.removeprefix(BOM)
        starts = text.scan(body, self._dialect)[0]
        line = body[int(starts[0]) : int(starts[1]) if len(starts) > 1 else None] if len(starts) else b""
        if first.broken or not line:
            raise FileRejected("bad-header", "expected a header line", raw=line[:200])
        try:
            names = _cells(line.rstrip(b"\r\n") + b"\n", self._dialect)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise FileRejected("bad-header", "expected a header of UTF-8 text", raw=line[:200]) from error
        self._check_names(names, line[: self._config.dead_letter_bytes])
        return names

    def _check_names(self, names: list[str], line: bytes) -> None:
        for name, source in self._sources.items():
            if names.count(source) > 1:
                raise FileRejected(
                    "bad-header", f"expected the column {source!r} once, got it {names.count(source)} times", raw=line
                )
            if source not in names and not self._feed.columns[name].optional:
                shown = ", ".join(names[:20])
                detail = f"expected the column {source!r}, got the header {shown!r} (separator {self._dialect.sep!r})"
                raise FileRejected("missing-column", detail, raw=line)

    # -- one block

    def _part(self, file: str, block: Block, names: list[str], first: int) -> Part:
        places = _Places(block, self._dialect, first, self._config.dead_letter_bytes)
        if block.broken:
            detail = "expected a closing quote within 16 MiB and before the end of the file"
            broken = [letter(file, "unclosed-quote", detail, first, places.origin)]
            table, letters, total = self._nothing(names), broken, 1
            rows = np.empty(0, np.int64)
        else:
            table, wrong, total = self._table(block.data, names)
            letters = [letter(file, "bad-columns", detail, first + at, places.origin) for at, detail in wrong.items()]
            rows = np.delete(np.arange(total), list(wrong)) if wrong else np.arange(total)
        columns = {
            name: self._nulls(name, table[source]) if source in names else None
            for name, source in self._sources.items()
        }
        good, numbers, unfit = typed(self._feed, file, columns, rows + first, places.origin)
        last = first + total
        resume = {"byte": block.end, "row": last, "line": block.line + block.lines}
        return Part(good, numbers, letters + unfit, last, resume, len(block.data), places.origin)

    def _nothing(self, names: list[str]) -> pa.Table:
        return pa.table({name: pa.array([], pa.binary()) for name in names if name in self._sources.values()})

    def _table(self, data: bytes, names: list[str]) -> tuple[pa.Table, dict[int, str], int]:
        """(rows, records with another number of columns and why, records in all). Numbers are parsed at once if all of them
        fit; else all cells come as bytes and are converted later, by the same rules."""
        wanted = {source: self._read_type(name) for name, source in self._sources.items() if source in names}
        try:
            return _parse(data, self._dialect, wanted or {names[0]: pa.binary()}, names)
        except pa.ArrowInvalid:
            return self._texts(data, names)

    def _texts(self, data: bytes, names: list[str]) -> tuple[pa.Table, dict[int, str], int]:
        """The same with all cells as bytes. pyarrow refuses a block with a record of too few columns that is no UTF-8 either: it is
        halved until that record stands alone."""
        wanted = [source for source in self._sources.values() if source in names] or names[:1]
        try:
            return _parse(data, self._dialect, dict.fromkeys(wanted, pa.binary()), names)
        except pa.ArrowInvalid as error:
            starts = text.scan(data, self._dialect)[0]
            if len(starts) <= 1:
                return self._nothing(names), {0: f"expected {len(names)} columns ({str(error)[:100]})"}, 1
        middle = int(starts[len(starts) // 2])
        left, wrong, total = self._texts(data[:middle], names)
        right, more, rest = self._texts(data[middle:], names)
        order = [name for name in left.column_names if name in right.column_names]
        both = pa.concat_tables([left.select(order), right.select(order)])
        return both, wrong | {total + at: why for at, why in more.items()}, total + rest

    def _read_type(self, name: str) -> pa.DataType:
        declared = self._feed.columns[name].type
        return arrow_type(declared) if declared in TYPED else pa.binary()

    def _nulls(self, name: str, column: pa.ChunkedArray) -> pa.Array:
        """Cells that are nulls → nulls."""
        array = column.combine_chunks()
        array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
        if not pa.types.is_binary(array.type):
            return array
        null = pc.equal(array, pa.scalar(self._dialect.null.encode(), pa.binary()))
        if self._feed.columns[name].type in (*TYPED, "bool", "timestamp"):
            null = pc.or_(null, pc.equal(pc.binary_length(array), 0))
        return pc.if_else(null, pa.scalar(None, pa.binary()), array)


class _Places:
    """Where the records of a block are, found only when a letter needs it."""

    def __init__(self, block: Block, dialect: Delimited, first: int, cap: int) -> None:
        self._block, self._dialect, self._first, self._cap = block, dialect, first, cap
        self._starts: Int64 | None = None

    def origin(self, row: int) -> tuple[int, bytes]:
        """(line in the file from 1, the record's bytes)."""
        data = self._block.data
        if self._starts is None:
            self._starts = text.scan(data, self._dialect)[0]
        at = row - self._first
        begin = int(self._starts[at])
        end = int(self._starts[at + 1]) if at + 1 < len(self._starts) else len(data)
        line = self._block.line + data.count(b"\n", 0, begin)
        return line, data[begin : min(end, begin + self._cap)].rstrip(b"\r\n")


def _parse(
    data: bytes, dialect: Delimited, types: Mapping[str, pa.DataType], names: list[str]
) -> tuple[pa.Table, dict[int, str], int]:
    """(columns of ``types``, records with another number of columns and why, records in all) of one block, in one piece, so that
    pyarrow never meets a record on the edge of a block."""
    wrong: dict[int, str] = {}
    handled = _is_utf8(data)  # pyarrow cannot tell of a bad row that is not: it raises instead

    def on_invalid(row: pacsv.InvalidRow) -> str:
        wrong[row.number - 1] = f"expected {row.expected_columns} columns, got {row.actual_columns}"
        return "skip"

    table = pacsv.read_csv(
        pa.py_buffer(data),
        pacsv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        pacsv.ParseOptions(
            delimiter=dialect.sep,
            quote_char=dialect.quote or False,
            newlines_in_values=text.has_quotes(data, dialect),
            ignore_empty_lines=True,
            invalid_row_handler=on_invalid if handled else None,
        ),
        pacsv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=["", dialect.null],
            strings_can_be_null=False,
            check_utf8=False,
        ),
    )
    return table, wrong, table.num_rows + len(wrong)


def _is_utf8(data: bytes) -> bool:
    try:
        return data.isascii() or bool(data.decode())
    except UnicodeDecodeError:
        return False


def _cells(line: bytes, dialect: Delimited) -> list[str]:
    """Texts of one record. Raises ``ArrowInvalid``, ``UnicodeDecodeError``."""
    table = pacsv.read_csv(
        pa.py_buffer(line),
        pacsv.ReadOptions(use_threads=False, block_size=len(line) + 1, autogenerate_column_names=True),
        pacsv.ParseOptions(delimiter=dialect.sep, quote_char=dialect.quote or False, newlines_in_values=True),
        pacsv.ConvertOptions(
            column_types={f"f{at}": pa.binary() for at in range(line.count(dialect.sep.encode()) + 1)},
            strings_can_be_null=False,
        ),
    )
    return [column[0].as_py().decode() for column in table.columns]
