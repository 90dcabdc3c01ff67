"""Field case 43: one message that cannot be decoded blocks a partition while every probe says healthy.

Here it goes to the dead letters with its place and the error, once, and the partition goes on.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from experiments import names
from experiments.view import Version
from ingest.contracts import ROWS, T_END, WATERMARK, raw_schema
from preprocess.contracts import FRONTIER, JOINED, Config
from preprocess.featurize.cutting import END_OF_TIME
from preprocess.featurize.worker import FeaturizeWorker
from preprocess.join.worker import JoinWorker
from preprocess.status import featurize_report, join_report
from streams.clock import SettableClock
from streams.contracts import Headers, Log, Record, TopicPartition, Worker
from streams.dead_letters import DeadLetter, unpack_letters
from streams.errors import Broken, Usage
from streams.packed import DIGEST, Limits, Packed, control, digest_of, pack, read_control, unpack
from streams.tail import read_to_end
from tests.preprocess.featurize.stream import batches, create_topics, joined, rows_of, version_of
from tests.preprocess.join.world import World, joined_of, table_feed

POISONS = (
    "garbage", "empty", "no headers", "unknown kind", "flipped bit", "wrong magic", "cut body", "cut body, right digest",
    "another schema", "more rows than it has", "no number of rows", "lineage is no JSON", "damaged control",
    "control of another kind of body", "null times",
)  # fmt: skip


def _with(headers: Headers, **changes: bytes) -> Headers:
    """Headers with some replaced: ``rows=b"7"`` for ``hr.rows``."""
    named = {f"hr.{name}": value for name, value in changes.items()}
    return tuple((name, named.get(name, value)) for name, value in headers)


def _body(good: Packed, value: bytes) -> Packed:
    """Another body whose digest fits."""
    return Packed(memoryview(value), _with(good.headers, digest=digest_of(value).encode()))


def poison(name: str, good: Packed, other: Packed, nulls: Packed) -> Packed:
    """``good`` spoiled. other: of another schema. nulls: with null times."""
    value = bytes(good.value)
    bound = control(WATERMARK, 50)
    no_object = b'["W", 50]'
    made = {
        "garbage": Packed(memoryview(b"\xff"), ()),
        "empty": Packed(memoryview(b""), good.headers),
        "no headers": Packed(good.value, ()),
        "unknown kind": Packed(good.value, _with(good.headers, kind=b"protobuf")),
        "flipped bit": Packed(memoryview(value[:-9] + bytes([value[-9] ^ 1]) + value[-8:]), good.headers),
        "wrong magic": _body(good, b"PAR1" + value[4:]),
        "cut body": Packed(good.value[: len(value) // 2], good.headers),
        "cut body, right digest": _body(good, value[: len(value) - 40]),
        "another schema": other,
        "more rows than it has": Packed(good.value, _with(good.headers, rows=b"5")),
        "no number of rows": Packed(good.value, _with(good.headers, rows=b"\xff")),
        "lineage is no JSON": Packed(good.value, _with(good.headers, lineage=b"{")),
        "damaged control": Packed(memoryview(bytes(bound.value)[:-1]), bound.headers),
        "control of another kind of body": Packed(
            memoryview(no_object), tuple((n, digest_of(no_object).encode() if n == DIGEST else v) for n, v in bound.headers)
        ),
        "null times": nulls,
    }  # fmt: skip
    return made[name]


def put(log: Log, topic: str, *messages: Packed) -> None:
    producer = log.producer("test-poison")
    producer.begin()
    for message in messages:
        producer.send(topic, 0, message.value, headers=message.headers)
    producer.commit()
    producer.close()


def drain(worker: Worker) -> None:
    for _ in range(1000):
        if not worker.step():
            return
    raise AssertionError("never at rest")


def letters_in(log: Log, topic: str) -> list[DeadLetter]:
    return [x for record in read_to_end(log, topic, 0) for x in unpack_letters(record)]


def raw_rows(world: World, times: list[int | None]) -> Packed:
    count = len(times)
    columns = [
        pa.array(np.arange(count)), pa.array(np.full(count, 3.0)), pa.array(times, pa.timestamp("us", "UTC")),
        pa.array(times, pa.int64()), pa.array(np.arange(count)),
    ]  # fmt: skip
    batch = pa.RecordBatch.from_arrays(columns, schema=raw_schema(world.view.sample))
    return pack(batch, kind=ROWS, times=None, lineage={"file": "poison"}, compression="lz4")


@pytest.mark.parametrize("name", POISONS)
def test_in_raw(log: Log, name: str) -> None:
    world = World.random(1)
    assert world.view.partitions == 1
    world.create(log)
    world.write_items(log)
    other = pack(pa.record_batch({"x": [1, 2]}), kind=ROWS, times=None, lineage={"file": "f"}, compression="none")
    bad = poison(name, raw_rows(world, [60, 61]), other, raw_rows(world, [60, None]))
    half = len(world.messages) // 2
    world.write(log, 0, half)
    tp = TopicPartition(names.raw("views"), 0)
    at = log.end_offsets([tp])[tp]
    put(log, names.raw("views"), bad)
    world.write(log, half, len(world.messages) - 1)  # W does not rise to the end yet: rows wait and are read again
    for _ in range(2):
        worker = JoinWorker(log, world.view, Config(), clock=SettableClock())
        drain(worker)
        worker.close()
    world.write(log, len(world.messages) - 1, len(world.messages))
    worker = JoinWorker(log, world.view, Config(), clock=SettableClock())
    drain(worker)
    worker.close()
    found = letters_in(log, names.dead_letters(world.view.name))
    (letter,) = (x for x in found if x.reason == "bad-raw-message")
    assert (letter.stage, letter.source, letter.partition, letter.position) == ("join", names.raw("views"), 0, at)
    assert "expected" in letter.detail
    assert "got" in letter.detail
    assert letter.raw == bytes(bad.value)[:4096]
    (report,) = join_report(log, world.view)
    assert (report.at_end, report.lag_bytes, report.V) == (True, 0, T_END)
    messages, rejected = world.oracle(0)
    assert joined_of(log, world.view, 0)[1] == messages
    assert report.rejected - len(rejected) == {"more rows than it has": 5}.get(name, _declared(name))
    good = [x for x in found if x is not letter]
    assert sorted((x.source, x.position) for x in good) == sorted(rejected)


def _declared(name: str) -> int:
    """Rows that are lost with a message, as far as its headers say."""
    if "control" in name:
        return 0
    return 1 if name in ("garbage", "no headers", "no number of rows") else 2


@pytest.mark.parametrize("name", POISONS)
def test_in_a_side_table(log: Log, name: str) -> None:
    world = World.random(1)
    world.create(log)
    schema = raw_schema(table_feed())
    good, nulls = (
        pack(batch, kind=ROWS, times=None, lineage={"file": "p"}, compression="lz4")
        for batch in (pa.record_batch([[77], [1.0], [time], [0]], schema=schema) for time in (0, None))
    )
    other = pack(pa.record_batch({"x": [1]}), kind=ROWS, times=None, lineage={"file": "p"}, compression="none")
    put(log, names.raw("items"), poison(name, good, other, nulls))
    world.write_items(log)
    world.write(log, 0, len(world.messages))
    for _ in range(2):
        worker = JoinWorker(log, world.view, Config(), clock=SettableClock())
        drain(worker)
        worker.close()
    found = [x for x in letters_in(log, names.dead_letters(world.view.name)) if x.reason == "bad-raw-message"]
    if name == "null times":
        assert found == [], "a snapshot has no time"
        return
    (letter,) = found
    assert (letter.source, letter.partition, letter.position) == (names.raw("items"), 0, 0)
    assert join_report(log, world.view)[0].at_end


# Lineage is not read there: joined rows carry their file and row themselves.
@pytest.mark.parametrize("name", [name for name in POISONS if name != "lineage is no JSON"])
def test_in_joined(log: Log, name: str) -> None:
    version = version_of()
    create_topics(log, version)
    rows = rows_of(version.view, 40, 3)
    nulls = rows.set_column(rows.schema.get_field_index("__time"), "__time", pa.nulls(len(rows), pa.int64()))
    other = pack(pa.record_batch({"x": [1, 2]}), kind=JOINED, times=None, lineage={}, compression="none")
    bad = poison(name, joined(rows.slice(0, 2)), other, joined(nulls.slice(0, 2)))
    topic = names.joined(version.view.name)
    put(log, topic, joined(rows.slice(0, 20)), bad, joined(rows.slice(20)), control(FRONTIER, END_OF_TIME))
    worker = _featurizer(log, version)
    drain(worker)
    worker.close()
    again = _featurizer(log, version)
    drain(again)
    again.close()
    found = letters_in(log, names.dead_letters(version.name))
    kept = np.concatenate([batch.row_B for batch in batches(log, version, 0)]).tolist()
    (letter,) = found
    assert (letter.stage, letter.source, letter.partition, letter.position) == ("featurize", topic, 0, 1)
    assert kept == list(range(40))
    report = featurize_report(log, version)[0]
    assert (report.at_end, report.lag_bytes, report.rows) == (True, 0, 40)


def _featurizer(log: Log, version: Version) -> FeaturizeWorker:
    return FeaturizeWorker(log, version, Config(), clock=SettableClock())


def test_a_tombstone(log: Log) -> None:
    """The embedded log refuses it where nothing is compacted; from another log it is as broken as the rest."""
    world = World.random(1)
    world.create(log)
    producer = log.producer("test")
    producer.begin()
    with pytest.raises(Usage):
        producer.send(names.raw("views"), 0, None)
    producer.close()
    headers = raw_rows(world, [60]).headers
    for given in ((), headers):
        record = Record(names.raw("views"), 0, 5, None, None, given)
        with pytest.raises(Broken, match="no value"):
            unpack(record, kind=ROWS, schema=None, limits=Limits())
    with pytest.raises(Broken):
        read_control(Record(names.raw("views"), 0, 5, None, None, control(WATERMARK, 5).headers))


def test_nothing_but_poison(log: Log) -> None:
    """A whole partition of it: all counted, and the end is reached."""
    world = World.random(1)
    world.rows, world.messages = {0: []}, [(-1, T_END)]
    world.create(log)
    world.write_items(log)
    put(log, names.raw("views"), *[Packed(memoryview(bytes([n % 256])), ()) for n in range(5000)])
    world.write(log, 0, 1)
    worker = JoinWorker(log, world.view, Config(poll_bytes=100), clock=SettableClock())
    drain(worker)
    worker.close()
    assert len(letters_in(log, names.dead_letters(world.view.name))) == 5000
    (report,) = join_report(log, world.view)
    assert (report.rejected, report.at_end) == (5000, True)
