"""Where the records of delimited text begin and end: the grammar of pyarrow's CSV parser, byte by byte.

A quote counts only where a field begins; inside quotes a doubled quote is one, and line ends are text. A line ends with
``\\n``, ``\\r`` or ``\\r\\n``. Blank lines are no records. ``ingest.formats.blocks`` has the plain version beside it.
"""

from __future__ import annotations

import numba as nb

NEWLINE, RETURN = 10, 13


@nb.njit(cache=True, nogil=True)
def scan(data, sep, quote, starts):  # type: ignore[no-untyped-def]
    """(whole records, bytes up to the end of the last whole line, whether the tail is inside quotes).

    Args:
        data: uint8 [N], begins where a record does. sep, quote: bytes; quote −1: none.
        starts: int64, room for one more than there can be records; gets where each begins, the unfinished tail's too.
    """
    n = len(data)
    i = count = end = 0
    while i < n:
        c = data[i]
        if c in (NEWLINE, RETURN):
            if c == RETURN and i + 1 == n:
                break
            i += 2 if c == RETURN and data[i + 1] == NEWLINE else 1
            end = i
            continue
        starts[count] = i
        i, whole, quoted = _record(data, i, sep, quote)
        if not whole:
            return count, end, quoted
        count += 1
        end = i
    return count, end, False


@nb.njit(cache=True, nogil=True, inline="always")
def _record(data, i, sep, quote):  # type: ignore[no-untyped-def]
    """(end, whether its line end was seen, whether the end lies in quotes)."""
    n = len(data)
    fresh = True
    while i < n:
        c = data[i]
        if fresh and c == quote:
            i += 1
            while i < n:
                if data[i] != quote:
                    i += 1
                elif i + 1 < n and data[i + 1] == quote:
                    i += 2
                else:
                    break
            if i >= n:
                return n, False, True
            i += 1
            fresh = False
            continue
        fresh = False
        if c == NEWLINE:
            return i + 1, True, False
        if c == RETURN:
            if i + 1 == n:
                return n, False, False
            return (i + 2 if data[i + 1] == NEWLINE else i + 1), True, False
        if c == sep:
            fresh = True
        i += 1
    return n, False, False
