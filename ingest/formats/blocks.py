"""Text files as blocks of whole records, plain or gzip (told by its magic bytes, never by the name).

The grammar is that of ``ingest.kernels.records``, and one rule more: quotes that are not closed within
``LONGEST_QUOTED_BYTES`` or by the end of the file are no quotes; the line they begin in is broken, and reading goes on with
the next line. So one stray quote costs one row, not the rest of the file. What the records of a file are depends on its
bytes alone, not on where blocks or ranges end.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from experiments.feed import Delimited
from ingest.errors import FileRejected
from ingest.kernels import records as kernels
from ingest.sources import Folder

BLOCK_BYTES = 8 * 1024 * 1024
GZIP_PIECE = 64 * 1024
LONGEST_QUOTED_BYTES = 16 * 1024 * 1024
GZIP_MAGIC, BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
FOREIGN = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
    b"PAR1": "parquet",
    b"ORC": "ORC",
    b"ARROW1": "Arrow",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
"""Beginnings of files that would only give garbage as text."""

Int64 = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Span:
    """What to read: bytes [begin, end) of the (decompressed) content, ``end`` −1: all; ``line``: number of the first line."""

    begin: int = 0
    end: int = -1
    line: int = 1


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records.

    Args:
        data: ends with a line end unless the file does not. offset: of its first byte in the content.
        line: number in the file of its first line, from 1. broken: one line whose quotes are never closed.
    """

    data: bytes
    offset: int
    line: int
    broken: bool = False

    @property
    def end(self) -> int:
        """Offset after it."""
        return self.offset + len(self.data)

    @property
    def lines(self) -> int:
        """Lines in it."""
        return self.data.count(b"\n")


def is_gzip(folder: Folder, path: str) -> bool:
    """Whether the file begins as gzip does.

    Raises:
        FileRejected: it begins as something else that is no text, or is named ``.gz`` and is not.
    """
    with folder.open(path) as handle:
        return _is_gzip(handle.read(8), path)


def _is_gzip(head: bytes, path: str) -> bool:
    if head.startswith(GZIP_MAGIC):
        return True
    for magic, kind in FOREIGN.items():
        if head.startswith(magic):
            raise FileRejected("not-text", f"expected plain or gzip text in UTF-8, got {kind}", raw=head)
    if head and path.endswith(".gz"):
        raise FileRejected("not-gzip", "expected gzip in a file named .gz, got other bytes", raw=head)
    return False


def blocks(
    folder: Folder, path: str, span: Span, dialect: Delimited, *, piece_bytes: int = BLOCK_BYTES
) -> Iterator[Block]:
    """Blocks of about ``piece_bytes``; a record is never cut.

    Raises:
        FileRejected: not text; damaged gzip: truncated, or with something else behind it. The whole records before the
            damage were given. Or the file ends before ``span.end``.
    """
    with folder.open(path) as raw:
        gzip = _is_gzip(raw.read(8), path)
        raw.seek(0)
        pieces = _gzip_pieces(raw, span, piece_bytes) if gzip else _plain_pieces(raw, span, piece_bytes)
        rest, offset, line = b"", span.begin, span.line
        for piece in pieces:
            rest += piece
            while found := _whole(rest, dialect):
                block = Block(rest[: found[0]], offset, line, found[1])
                yield block
                offset, line, rest = block.end, line + block.lines, rest[found[0] :]
                if not found[1]:
                    break
        while rest:
            end, broken = _last(rest, dialect)
            block = Block(rest[:end], offset, line, broken)
            yield block
            offset, line, rest = block.end, line + block.lines, rest[end:]


def _whole(data: bytes, dialect: Delimited) -> tuple[int, bool] | None:
    """(end of the last whole record, whether it is a broken line); ``None`` if more bytes are needed to tell."""
    if not has_quotes(data, dialect) and (end := data.rfind(b"\n") + 1):
        return end, False
    _, end, quoted = scan(data, dialect)
    if end:
        return end, False
    if quoted and len(data) >= LONGEST_QUOTED_BYTES:
        return _line_end(data), True
    return None


def _last(data: bytes, dialect: Delimited) -> tuple[int, bool]:
    """The same where no more bytes come."""
    if not has_quotes(data, dialect):
        return len(data), False
    starts, end, quoted = scan(data, dialect)
    if not quoted:
        return len(data), False
    return (end, False) if len(starts) > 1 else (end + _line_end(data[end:]), True)


def _line_end(data: bytes) -> int:
    places = [place for place in (data.find(b"\n"), data.find(b"\r")) if place >= 0]
    if not places:
        return len(data)
    first = min(places)
    return first + (2 if data[first : first + 2] == b"\r\n" else 1)


def has_quotes(data: bytes, dialect: Delimited) -> bool:
    """Whether the quote character is there (an empty one never is)."""
    return bool(dialect.quote) and dialect.quote.encode() in data


def scan(data: bytes, dialect: Delimited) -> tuple[Int64, int, bool]:
    """(where records begin, the unfinished one at the end too; end of the last whole line; whether the tail is in quotes)."""
    body = np.frombuffer(data, np.uint8)
    starts = np.empty(data.count(b"\n") + data.count(b"\r") + 1, np.int64)
    quote = ord(dialect.quote) if has_quotes(data, dialect) else -1
    count, end, quoted = kernels.scan(body, ord(dialect.sep), quote, starts)
    tail = end < len(data) and data[end:] != b"\r"
    return starts[: count + int(tail)], end, quoted


def scan_reference(data: bytes, dialect: Delimited) -> tuple[Int64, int, bool]:
    """As ``scan``, plainly."""
    text, starts, at, end, quoted = data.decode("latin-1"), [], 0, 0, False
    while at < len(text):
        begin, fresh, quoted, blank = at, True, False, True
        while at < len(text) and (quoted or text[at] not in "\r\n"):
            c = text[at]
            if quoted and c == dialect.quote and text[at + 1 : at + 2] == dialect.quote:
                at += 2
                continue
            was = quoted
            quoted = (c != dialect.quote) if quoted else (fresh and c == dialect.quote)
            fresh, blank = not was and not quoted and c == dialect.sep, False
            at += 1
        if not blank:
            starts.append(begin)
        if at == len(text) or text[at:] == "\r":
            break
        at += 2 if text[at : at + 2] == "\r\n" else 1
        end = at
    return np.array(starts, np.int64), end, quoted


def _plain_pieces(raw: pa.NativeFile, span: Span, piece_bytes: int) -> Iterator[bytes]:
    raw.seek(span.begin)
    left = span.end - span.begin if span.end >= 0 else -1
    while left:
        data = raw.read(piece_bytes if left < 0 else min(piece_bytes, left))
        if not data:
            if left > 0:
                raise FileRejected("file-changed", f"expected {span.end} bytes, got {span.end - left}")
            return
        left -= len(data) if left > 0 else 0
        yield data


def _gzip_pieces(raw: pa.NativeFile, span: Span, piece_bytes: int) -> Iterator[bytes]:
    """The content from ``span.begin`` on. It is taken out in the same steps wherever reading begins, so what comes before damage
    is the same on every run."""
    read, gathered = 0, bytearray()
    try:
        for data in _members(raw):
            gathered += data[max(0, span.begin - read) :]
            read += len(data)
            if len(gathered) >= piece_bytes:
                yield bytes(gathered)
                gathered.clear()
    except (zlib.error, EOFError) as error:
        if gathered:
            yield bytes(gathered)
        raise FileRejected("damaged-gzip", f"expected whole gzip members to the end, got: {error}") from error
    if gathered:
        yield bytes(gathered)


def _members(raw: pa.NativeFile) -> Iterator[bytes]:
    """What the members hold, one after the other; zeros behind the last are padding. Raises ``zlib.error``, ``EOFError``."""
    packed, member = raw.read(GZIP_PIECE), zlib.decompressobj(wbits=31)
    while packed:
        if data := member.decompress(packed, GZIP_PIECE * 16):
            yield data
        packed = member.unused_data if member.eof else member.unconsumed_tail
        if not packed:
            packed = raw.read(GZIP_PIECE)
        if member.eof:
            while packed and not packed.strip(b"\0"):
                packed = raw.read(GZIP_PIECE)
            if not packed:
                return
            member = zlib.decompressobj(wbits=31)
    raise EOFError("the end in the middle of a member")
