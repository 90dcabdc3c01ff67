"""The packed batch: one Arrow record batch a message.

The value is an Arrow IPC stream (schema, one record batch, end). Headers say what it is, so that a reader can judge
before it decodes; the digest covers the value. Lineage lies in the headers, *outside* the digest: the same rows packed
again after a crash are the same bytes.

| header | bytes |
|---|---|
| ``hr.kind`` | ``rows``, ``batch``, ``control`` … |
| ``hr.schema`` | id of the schema: 16 hex digits of the fingerprint, see ``schema_id`` |
| ``hr.rows`` | number of rows, decimal |
| ``hr.times`` | smallest and largest event time, µs, ``a:b``; empty if there is none |
| ``hr.digest`` | xxh3-64 of the value, 16 hex digits |
| ``hr.lineage`` | JSON: where the rows come from |
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import xxhash

from streams.contracts import Headers, Record
from streams.errors import Broken, Exhausted, SchemaMismatch

Compression = Literal["lz4", "zstd", "none"]

KIND, SCHEMA, ROWS, TIMES, DIGEST, LINEAGE = "hr.kind", "hr.schema", "hr.rows", "hr.times", "hr.digest", "hr.lineage"
CONTROL = "control"


_recent_schemas: deque[tuple[pa.Schema, str]] = deque(maxlen=8)
"""Comparing schemas is 200 times cheaper than describing one, and a process packs few different ones."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a reader accepts.

    Args:
        max_bytes: of one value as it lies in the log.
        max_rows: of one batch.
        max_decoded_bytes: of one batch after decompression.
    """

    max_bytes: int = 64 * 1024 * 1024
    max_rows: int = 4_000_000
    max_decoded_bytes: int = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Packed:
    """A value and its headers, ready for ``Producer.send``."""

    value: memoryview
    headers: Headers


def schema_id(schema: pa.Schema) -> str:
    """16 hex digits: xxh3-64 of names, types and order (metadata left out)."""
    for known, found in tuple(_recent_schemas):
        if known.equals(schema):
            return found
    text = "\n".join(f"{field.name}\0{field.type}" for field in schema)
    found = f"{xxhash.xxh3_64_intdigest(text.encode()):016x}"
    _recent_schemas.append((schema, found))
    return found


def digest_of(value: bytes | memoryview) -> str:
    """xxh3-64 of the value, 16 hex digits."""
    return f"{xxhash.xxh3_64_intdigest(value):016x}"


def pack(
    batch: pa.RecordBatch,
    *,
    kind: str,
    times: tuple[int, int] | None,
    lineage: Mapping[str, object],
    compression: Compression,
) -> Packed:
    """Serialise a batch. The value is new memory: the same bytes for equal batches, however they were sliced or put together,
    if the bytes under their nulls are equal (``take`` makes them zeros).

    Args:
        batch: any schema.
        kind: what a reader shall expect, for example ``rows``.
        times: smallest and largest event time in µs.
        lineage: JSON types; not part of the digest.
        compression: of the Arrow buffers.
    """
    batch = _rebased(batch)
    value = _serialised(batch, compression)
    headers = (
        (KIND, kind.encode()),
        (SCHEMA, schema_id(batch.schema).encode()),
        (ROWS, str(batch.num_rows).encode()),
        (TIMES, f"{times[0]}:{times[1]}".encode() if times else b""),
        (DIGEST, digest_of(value).encode()),
        (LINEAGE, json.dumps(lineage, separators=(",", ":"), sort_keys=True).encode()),
    )
    return Packed(value, headers)


def _serialised(batch: pa.RecordBatch, compression: Compression) -> memoryview:
    if compression == "none":  # the size is known, so nothing grows and is copied on the way
        room = pa.ipc.get_record_batch_size(batch) + batch.schema.serialize().size + 64
        buffer = pa.allocate_buffer(room)
        sink = pa.FixedSizeBufferWriter(buffer)
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return memoryview(buffer)[: sink.tell()].toreadonly()
    grown = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(grown, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return memoryview(grown.getvalue())


def _rebased(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Columns in buffers of exactly their size: Arrow writes (and compresses) a slice with up to 63 bytes of its neighbours."""
    columns = [pa.concat_arrays([column]) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def place(record: Record) -> str:
    """``topic/partition@offset``, for messages to people."""
    return f"{record.topic}/{record.partition}@{record.offset}"


def kind_of(record: Record) -> str:
    """The kind header, or the empty string."""
    return (record.header(KIND) or b"").decode("ascii", "replace")


def lineage_of(record: Record) -> dict[str, object]:
    """The lineage header as an object; ``Broken`` if it is none."""
    try:
        value = json.loads(record.header(LINEAGE) or b"{}")
    except ValueError as error:
        raise _broken(record, "a JSON object in the header hr.lineage", str(error)) from error
    if not isinstance(value, dict):
        raise _broken(record, "a JSON object in the header hr.lineage", type(value).__name__)
    return value


def declared_rows(record: Record, cap: int = 4_000_000) -> int:
    """Rows that a message says it has, in [1, cap]: how many are lost with it if it is damaged."""
    try:
        return min(max(int(record.header(ROWS) or b""), 1), cap)
    except ValueError:
        return 1


def unpack(record: Record, *, kind: str, schema: pa.Schema | None, limits: Limits) -> pa.RecordBatch:
    """Check and decode a record: kind, caps, digest, schema, then Arrow's own full validation.

    Uncompressed columns are views into ``record.value``.

    Raises:
        Broken: wrong kind, digest or structure, or no value. Exhausted: above a cap.
        SchemaMismatch: the batch has another schema than ``schema``.
    """
    value = record.value
    if value is None or kind_of(record) != kind:
        raise _broken(record, f"a message of kind {kind!r}", repr(kind_of(record)) if value is not None else "no value")
    declared_rows = _int_header(record, ROWS)
    if len(value) > limits.max_bytes or declared_rows > limits.max_rows:
        raise Exhausted(
            expected=f"at most {limits.max_bytes} bytes and {limits.max_rows} rows",
            got=f"{len(value)} bytes and {declared_rows} rows",
            where=place(record),
            do="Write smaller batches, or raise the reader's limits.",
        )
    if digest_of(value) != (record.header(DIGEST) or b"").decode("ascii", "replace"):
        raise _broken(record, "the digest in the header hr.digest", digest_of(value))
    return _decode(record, value, schema, declared_rows, limits)


def _decode(
    record: Record, value: memoryview, schema: pa.Schema | None, declared_rows: int, limits: Limits
) -> pa.RecordBatch:
    try:
        with pa.ipc.open_stream(pa.py_buffer(value)) as reader:
            if schema is not None and not reader.schema.equals(schema):
                raise SchemaMismatch(
                    expected=_describe(schema),
                    got=_describe(reader.schema),
                    where=place(record),
                    do="The writer and this reader use different versions of the feed or experiment.",
                )
            batch = reader.read_next_batch()
            if batch.num_rows != declared_rows:
                raise _broken(record, f"{declared_rows} rows", f"{batch.num_rows} rows")
            if batch.nbytes > limits.max_decoded_bytes:
                raise Exhausted(
                    expected=f"at most {limits.max_decoded_bytes} bytes after decompression",
                    got=f"{batch.nbytes} bytes",
                    where=place(record),
                    do="Write smaller batches, or raise the reader's limits.",
                )
            batch.validate(full=True)
            return batch
    except (pa.ArrowException, StopIteration, OSError, EOFError, UnicodeDecodeError) as error:
        raise _broken(
            record, "an Arrow IPC stream with one record batch", str(error) or type(error).__name__
        ) from error


def control(kind: str, value: int) -> Packed:
    """A control record: one named integer (``W`` of a feed, ``V`` of an output)."""
    body = json.dumps({"kind": kind, "value": value}, separators=(",", ":")).encode()
    headers = ((KIND, CONTROL.encode()), (DIGEST, digest_of(body).encode()))
    return Packed(memoryview(body), headers)


def read_control(record: Record) -> tuple[str, int] | None:
    """(kind, value) of a control record; ``None`` if it is none. Raises ``Broken`` if it is a damaged one."""
    if kind_of(record) != CONTROL:
        return None
    value = record.value
    if value is None or digest_of(value) != (record.header(DIGEST) or b"").decode("ascii", "replace"):
        raise _broken(record, "a control record whose digest fits", "another digest")
    try:
        body = json.loads(bytes(value))
        return str(body["kind"]), int(body["value"])
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(record, "a control record", str(error)) from error


def _int_header(record: Record, name: str) -> int:
    try:
        return int(record.header(name) or b"")
    except ValueError as error:
        raise _broken(record, f"a number in the header {name}", repr(record.header(name))) from error


def _describe(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def _broken(record: Record, expected: str, got: str) -> Broken:
    return Broken(
        expected=expected,
        got=got,
        where=place(record),
        do="The message goes to the dead letters; see `headrace status` for the count.",
    )
