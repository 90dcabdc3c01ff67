"""Chunks: what goes in comes out; anything else is no chunk."""

from __future__ import annotations

import random

import pytest

from cache.chunks import decode_chunk, encode_chunk
from cache.contracts import Key
from streams.contracts import Record, TopicPartition

TP = TopicPartition("exp.shop.v1", 3)
KEY = Key("id-of-topic", 3, 0)


def record(offset: int, key: bytes | None, value: bytes | None, *headers: tuple[str, bytes]) -> Record:
    return Record(TP.topic, TP.partition, offset, key, None if value is None else memoryview(value), headers)


ODD = [
    record(0, None, b""),
    record(5, b"", None),
    record(6, bytes(range(256)), bytes(range(256)) * 300, ("d", b"\x00\xff"), ("d", b""), ("größe ☃", b'"\\')),
    record(2**40, b"k", b"x"),
]


@pytest.mark.parametrize("records", [[], ODD[:1], ODD[1:2], ODD], ids=["none", "empty value", "tombstone", "odd ones"])
def test_what_goes_in_comes_out(records: list[Record]) -> None:
    chunk = decode_chunk(KEY, encode_chunk(KEY, records, 2**41), TP)
    assert chunk is not None
    assert chunk.next_offset == 2**41
    assert list(chunk.records) == records
    assert all(r.value is None or r.value.readonly for r in chunk.records)


def test_a_view_decodes_as_well_as_bytes() -> None:
    value = encode_chunk(KEY, ODD, 9)
    assert decode_chunk(KEY, memoryview(bytearray(value)), TP) == decode_chunk(KEY, value, TP)


def test_any_flipped_bit_is_noticed() -> None:
    value = encode_chunk(KEY, ODD[:2] + ODD[3:], 2**41)
    for bit in range(len(value) * 8):
        assert decode_chunk(KEY, _flipped(value, bit), TP) is None


def test_any_cut_is_noticed() -> None:
    value = encode_chunk(KEY, ODD[:2], 2**41)
    for length in range(len(value)):
        assert decode_chunk(KEY, value[:length], TP) is None
    assert decode_chunk(KEY, value + b"\x00", TP) is None


def test_any_bit_of_the_length_is_noticed_in_large_chunks() -> None:
    many = [record(offset, b"key", b"x" * 100) for offset in range(3000)]
    value = encode_chunk(KEY, many, 3000)
    for bit in range(64, 96):
        assert decode_chunk(KEY, _flipped(value, bit), TP) is None


def test_junk_is_no_chunk() -> None:
    draw = random.Random(1)
    for length in [0, 1, 8, 11, 12, 13, 100, 5000]:
        assert decode_chunk(KEY, draw.randbytes(length), TP) is None
        assert decode_chunk(KEY, bytes(length), TP) is None


def _flipped(value: bytes, bit: int) -> bytes:
    copy = bytearray(value)
    copy[bit // 8] ^= 1 << bit % 8
    return bytes(copy)


@pytest.mark.parametrize(
    "other", [Key("another", 3, 0), Key("id-of-topic", 2, 0), Key("id-of-topic", 3, 1), Key("id-of-topic", 3, 0, "f")]
)
def test_the_chunk_of_another_key_is_none(other: Key) -> None:
    assert decode_chunk(KEY, encode_chunk(other, ODD, 9), TP) is None
