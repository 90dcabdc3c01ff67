"""Text files as blocks of whole records, plain or gzip (told by its magic bytes, never by the name)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ingest.errors import FileRejected
from ingest.sources import Folder

BLOCK_BYTES = 8 * 1024 * 1024
GZIP_PIECE = 64 * 1024
LONGEST_RECORD_BYTES = 64 * 1024 * 1024
GZIP_MAGIC, BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
_NEWLINE, _RETURN = 10, 13


@dataclass(frozen=True, slots=True)
class Block:
    """Whole records.

    Args:
        data: ends with a newline unless the file does not. offset: of its first byte in the (decompressed) file.
        lines_before: lines of the file before it; −1 if they were not read.
    """

    data: bytes
    offset: int
    lines_before: int = -1

    @property
    def end(self) -> int:
        """Offset after it."""
        return self.offset + len(self.data)


def is_gzip(folder: Folder, path: str) -> bool:
    """Whether the file begins as gzip does."""
    with folder.open(path) as handle:
        return bool(handle.read(2) == GZIP_MAGIC)


def blocks(folder: Folder, path: str, begin: int, end: int, quote: str) -> Iterator[Block]:
    """Blocks of [begin, end) (``end`` −1: to the end of the file); of a gzip file from ``begin`` of its content on.

    A block ends at a newline that is in no quotes, so a record is never cut; quotes that are never closed stop to count after
    ``LONGEST_RECORD_BYTES``.

    Raises:
        FileRejected: damaged gzip: truncated, or with something else behind it. Blocks before it were given.
    """
    with folder.open(path) as raw:
        pieces = _gzip_pieces(raw, path, begin) if is_gzip(folder, path) else _plain_pieces(raw, begin, end)
        rest, offset, lines = b"", begin, 0 if begin == 0 else -1
        for piece in pieces:
            rest += piece
            if cut := _end_of_records(rest, quote):
                yield Block(rest[:cut], offset, lines)
                lines += rest.count(b"\n", 0, cut) if lines >= 0 else 0
                offset += cut
                rest = rest[cut:]
        if rest:
            yield Block(rest, offset, lines)


def has_quotes(data: bytes, quote: str) -> bool:
    """Whether the quote character is there (an empty one never is)."""
    return bool(quote) and quote.encode() in data


def _plain_pieces(raw: pa.NativeFile, begin: int, end: int) -> Iterator[bytes]:
    raw.seek(begin)
    while want := BLOCK_BYTES if end < 0 else min(BLOCK_BYTES, end - raw.tell()):
        if not (data := raw.read(want)):
            return
        yield data


def _gzip_pieces(raw: pa.NativeFile, path: str, begin: int) -> Iterator[bytes]:
    """The content from ``begin`` on. It is read in the same small pieces wherever reading begins, so what comes before damage
    is the same on every run."""
    handle, read, gathered = pa.CompressedInputStream(raw, "gzip"), 0, b""
    try:
        while data := handle.read(GZIP_PIECE):
            fresh = data[max(0, begin - read) :]
            read += len(data)
            gathered += fresh
            if len(gathered) >= BLOCK_BYTES:
                yield gathered
                gathered = b""
    except OSError as error:
        text = (str(error).splitlines() or [""])[0]
        if gathered:
            yield gathered
        raise FileRejected("damaged-gzip", f"expected whole gzip members, got: {text} (file {path})") from error
    if gathered:
        yield gathered


def _end_of_records(data: bytes, quote: str) -> int:
    """Bytes up to and with the last newline that is in no quotes; 0 if there is none."""
    if has_quotes(data, quote):
        body = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(body == _NEWLINE)
        quotes = np.flatnonzero(body == quote.encode()[0])
        outside = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
        if len(outside):
            return int(outside[-1]) + 1
        if len(data) < LONGEST_RECORD_BYTES:
            return 0
    return data.rfind(b"\n") + 1


def record_count(data: bytes) -> int:
    """Records of a block without quotes: lines that are not blank."""
    return len(record_starts(data))


def record_starts(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Where each line that is not blank begins."""
    body = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(body == _NEWLINE)
    if not len(ends) or ends[-1] != len(body) - 1:
        ends = np.append(ends, len(body))
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts
    blank = (lengths == 0) | ((lengths == 1) & (body[np.minimum(starts, len(body) - 1)] == _RETURN))
    return starts[~blank] if len(body) else np.empty(0, np.int64)
