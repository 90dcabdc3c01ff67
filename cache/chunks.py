"""Chunks: records of one partition from an offset on, as bytes that a tier can keep.

Layout, little endian: xxh3-64 of the rest and of the key (8) · length of the head (4) · head, JSON:
``{"next": offset, "records": [[offset, key or null, headers, length of the value or −1], …]}``, texts in latin-1 · the values
one after the other. A chunk whose digest does not fit is no chunk: it is loaded again. The digest is bound to the key, so a
store that answers with another key's chunk answers with none.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from cache.contracts import Key
from streams.contracts import Record, TopicPartition

_HEAD = struct.Struct("<QI")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records in order, and the position after them."""

    records: tuple[Record, ...]
    next_offset: int


def encode_chunk(key: Key, records: Sequence[Record], next_offset: int) -> bytes:
    """A chunk as the bytes to keep under ``key``. New memory."""
    entries = [
        [
            record.offset,
            None if record.key is None else record.key.decode("latin-1"),
            [[name, value.decode("latin-1")] for name, value in record.headers],
            -1 if record.value is None else len(record.value),
        ]
        for record in records
    ]
    head = json.dumps({"next": next_offset, "records": entries}, separators=(",", ":")).encode()
    body = b"".join([head, *(record.value for record in records if record.value is not None)])
    return _HEAD.pack(_digest(key, len(head), body), len(head)) + body


def decode_chunk(key: Key, value: bytes | memoryview, tp: TopicPartition) -> Chunk | None:
    """The chunk; ``None`` if the bytes are not what ``encode_chunk`` gave for ``key``. Values are views into it."""
    view = memoryview(value).toreadonly()
    if len(view) < _HEAD.size:
        return None
    digest, length = _HEAD.unpack_from(view)
    body = view[_HEAD.size :]
    if length > len(body) or digest != _digest(key, length, body):
        return None
    head = json.loads(bytes(body[:length]))
    records, at = [], length
    for offset, text_key, headers, size in head["records"]:
        part = None if size < 0 else body[at : at + size]
        at += max(size, 0)
        packed = tuple((name, text.encode("latin-1")) for name, text in headers)
        records.append(
            Record(
                tp.topic, tp.partition, offset, None if text_key is None else text_key.encode("latin-1"), part, packed
            )
        )
    return Chunk(tuple(records), head["next"])


def _digest(key: Key, length: int, body: bytes | memoryview) -> int:
    seed = xxhash.xxh3_64_intdigest(f"{length}/{key.partition}/{key.offset}/{key.topic_id}/{key.fingerprint}".encode())
    return int(xxhash.xxh3_64_intdigest(body, seed))
