"""Headers of a record as bytes: count, then length and bytes of each name and value."""

from __future__ import annotations

import struct

from streams.contracts import Headers

_COUNT = struct.Struct("<H")
_LENGTHS = struct.Struct("<HI")


def encode_headers(headers: Headers) -> bytes | None:
    """``None`` for no headers."""
    if not headers:
        return None
    pieces = [_COUNT.pack(len(headers))]
    for name, value in headers:
        raw = name.encode()
        pieces += (_LENGTHS.pack(len(raw), len(value)), raw, value)
    return b"".join(pieces)


def decode_headers(data: bytes | None) -> Headers:
    """The inverse. Raises ``ValueError`` or ``struct.error`` on damaged bytes."""
    if data is None:
        return ()
    (count,) = _COUNT.unpack_from(data)
    at = _COUNT.size
    headers = []
    for _ in range(count):
        name_length, value_length = _LENGTHS.unpack_from(data, at)
        at += _LENGTHS.size
        end = at + name_length + value_length
        headers.append((data[at : at + name_length].decode(), data[at + name_length : end]))
        at = end
    if at != len(data):
        raise ValueError(f"{len(data)} bytes of headers, of which {at} are used")
    return tuple(headers)
