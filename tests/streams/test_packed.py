"""Packed batches, control records, dead letters: what comes in is checked before it is used."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams import packed
from streams.contracts import Headers, Record
from streams.dead_letters import DeadLetter, letter_for, pack_letters, unpack_letters
from streams.embedded.encoding import decode_headers, encode_headers
from streams.errors import Broken, Exhausted, SchemaMismatch
from streams.packed import Limits, Packed, control, kind_of, lineage_of, pack, read_control, unpack

BATCH = pa.record_batch({"a": pa.array([1, 2, 3], pa.int64()), "s": pa.array(["x", None, "yy" * 500])})


def record(message: Packed, value: bytes | memoryview | None = None, headers: Headers | None = None) -> Record:
    raw = memoryview(message.value if value is None else value)
    return Record("t", 1, 42, None, raw, message.headers if headers is None else headers)


def packed_batch(compression: packed.Compression = "none") -> Packed:
    return pack(BATCH, kind="rows", times=(5, 9), lineage={"file": "a", "row": 1}, compression=compression)


@pytest.mark.parametrize("compression", ["lz4", "zstd", "none"])
def test_there_and_back(compression: packed.Compression) -> None:
    message = packed_batch(compression)
    back = unpack(record(message), kind="rows", schema=BATCH.schema, limits=Limits())
    assert back.equals(BATCH)
    assert kind_of(record(message)) == "rows"
    assert lineage_of(record(message)) == {"file": "a", "row": 1}
    assert record(message).header("hr.times") == b"5:9"
    assert bytes(packed_batch(compression).value) == bytes(message.value)


def test_lineage_is_outside_the_digest() -> None:
    other = pack(BATCH, kind="rows", times=(5, 9), lineage={"file": "b"}, compression="none")
    assert other.value == packed_batch().value
    assert dict(other.headers)["hr.digest"] == dict(packed_batch().headers)["hr.digest"]


@given(st.data())
def test_any_flipped_bit_is_noticed(data: st.DataObject) -> None:
    message = packed_batch()
    value = bytearray(message.value)
    value[data.draw(st.integers(0, len(value) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Broken) as caught:
        unpack(record(message, bytes(value)), kind="rows", schema=None, limits=Limits())
    assert caught.value.where == "t/1@42"


@given(st.binary(max_size=200))
def test_bytes_that_are_no_batch_are_broken_though_their_digest_fits(value: bytes) -> None:
    headers = (("hr.kind", b"rows"), ("hr.rows", b"1"), ("hr.digest", packed.digest_of(value).encode()))
    with pytest.raises(Broken):
        unpack(record(packed_batch(), value, headers), kind="rows", schema=None, limits=Limits())


def test_caps_kinds_schemas() -> None:
    message = packed_batch("zstd")
    for limits in (Limits(max_bytes=10), Limits(max_rows=2), Limits(max_decoded_bytes=100)):
        with pytest.raises(Exhausted):
            unpack(record(message), kind="rows", schema=None, limits=limits)
    with pytest.raises(Broken):
        unpack(record(message), kind="batch", schema=None, limits=Limits())
    with pytest.raises(SchemaMismatch):
        unpack(record(message), kind="rows", schema=pa.schema([("a", pa.int32())]), limits=Limits())
    assert packed.schema_id(BATCH.schema) != packed.schema_id(pa.schema([("a", pa.int64())]))


def test_control_records() -> None:
    message = control("W", -(2**62))
    assert read_control(record(message)) == ("W", -(2**62))
    assert read_control(record(packed_batch())) is None
    with pytest.raises(Broken):
        read_control(record(message, bytes(message.value) + b" "))


def test_dead_letters() -> None:
    letters = [
        DeadLetter("ingest", "bad-time", "expected a time, got 'x'", "a.tsv", -1, 7, 8, b"\xff"),
        letter_for(record(packed_batch()), stage="join", reason="bad-message", detail="digest"),
    ]
    assert unpack_letters(record(pack_letters(letters))) == letters
    assert letters[1].position == 42


@given(st.lists(st.tuples(st.text(max_size=20), st.binary(max_size=300)), max_size=20))
def test_headers_there_and_back(headers: list[tuple[str, bytes]]) -> None:
    assert decode_headers(encode_headers(tuple(headers))) == tuple(headers)


def test_damaged_headers_are_refused() -> None:
    data = encode_headers((("a", b"b"),))
    assert data is not None
    for damaged in (data + b"x", data[:-1] + b"", b"\x02" + data[1:]):
        with pytest.raises(Exception, match=r"unpack|bytes of headers"):
            decode_headers(damaged)
