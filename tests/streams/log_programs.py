"""Programs that the kill tests start as processes of their own: ``python -m tests.streams.log_programs NAME ARGS…``.

Every program prints a line when it starts to work. Payloads follow from (source, number), so each can be checked.
"""

from __future__ import annotations

import ctypes
import os
import platform
import random
import signal
import struct
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from streams.contracts import Consumer, Position, Record, TopicPartition, TopicSpec
from streams.embedded import groups, producer
from streams.embedded.index import Index
from streams.embedded.log import EmbeddedLog, open_log
from streams.embedded.upkeep import Upkeep
from streams.errors import Rebalanced

SESSION_S = 0.6
PARTITIONS = 4
IN = TopicSpec("in", PARTITIONS, retention_bytes=1 << 20)
OUT = TopicSpec("out", PARTITIONS)
_HEAD = struct.Struct("<qq")


def start_log(directory: Path, durability: str = "process") -> EmbeddedLog:
    log = open_log(directory, durability=durability, session_timeout_s=SESSION_S)  # type: ignore[arg-type]
    log.create_topic(IN)
    log.create_topic(OUT)
    return log


def payload(source: int, number: int) -> bytes:
    head = _HEAD.pack(source, number)
    size = 100 if number % 3 else 5_000 + (number * 7919 + source) % 60_000
    return (head * (size // len(head) + 1))[:size]


def identity(value: bytes | memoryview) -> tuple[int, int]:
    """(source, number) of a payload; fails if a byte differs."""
    source, number = _HEAD.unpack_from(value)
    assert bytes(value) == payload(source, number), f"damaged payload of source {source}, number {number}"
    return source, number


def partition_of(source: int, number: int) -> int:
    return (number // 5 + source) % PARTITIONS


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


def produce(directory: str, source_text: str, durability: str = "process", count_text: str = "0") -> None:
    """Write numbered payloads; the next number is the committed offset of the source's own group."""
    source = int(source_text)
    log = start_log(Path(directory), durability)
    out = log.producer(f"source.{source}")
    reader = log.consumer(f"source.{source}")
    tp = TopicPartition("out", source % PARTITIONS)
    found = reader.committed([tp])[tp]
    number = found.offset if found else 0
    chance = random.Random(os.urandom(8))
    left = int(count_text) or -1
    say("working")
    while left:
        left -= 1
        out.begin()
        size = chance.choice([1, 2, 10])
        for one in range(number, number + size):
            out.send("in", partition_of(source, one), payload(source, one))
        if chance.random() < 0.1:
            out.abort()
            continue
        number += size
        out.send_offsets(reader.membership(), {tp: Position(number)})
        out.commit()
        say(f"acked {number}")
    log.close()


class _Nothing:
    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        pass

    def on_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        pass


def rewind(consumer: Consumer) -> None:
    """Back to what is committed: the records of an aborted transaction come again."""
    for tp, position in consumer.committed(consumer.assignment()).items():
        consumer.seek(tp, position.offset if position else 0)


def work(directory: str, name: str, durability: str = "process", stop_at: str = "", fence: str = "fenced") -> None:
    """Copy ``in`` to ``out``, records and offsets in one transaction."""
    log = start_log(Path(directory), durability)
    if fence == "unfenced":
        groups.check_fence = lambda *_: None  # type: ignore[assignment]
    if stop_at:
        at_step(stop_at, lambda: os.kill(os.getpid(), signal.SIGSTOP))
    out = log.producer(f"work.{name}")
    consumer = log.consumer("workers")
    consumer.subscribe(["in"], _Nothing())
    say("working")
    while True:
        records = consumer.poll(100_000, 0.2)
        if not records:
            continue
        copy(out, consumer, records)


def copy(out: producer.EmbeddedProducer, consumer: Consumer, records: list[Record]) -> None:
    out.begin()
    positions = {}
    for record in records:
        out.send("out", record.partition, record.value)
        positions[record.tp] = Position(record.offset + 1)
    out.send_offsets(consumer.membership(), positions)
    try:
        out.commit()
        say("copied")
    except Rebalanced:
        say("rebalanced")
        rewind(consumer)


def keep(directory: str) -> None:
    """Retention and removal of files, without a pause."""
    log = start_log(Path(directory))
    say("working")
    while True:
        log.maintain()
        log.wait(0.005)


def at_step(step: str, act: Callable[[], None]) -> None:
    """Do something once when a step of the commit protocol is reached."""
    done: list[str] = []

    def reached(name: str) -> None:
        if name == step and not done:
            done.append(name)
            act()

    producer.reached = reached


def die_in_commit(directory: str) -> None:
    """Commit on a durable log, and be killed by the kernel at the first flush inside COMMIT.

    By then the whole commit lies in the WAL, and no other process knows.
    """
    log = start_log(Path(directory), "power")
    at_step("log.6", forbid_flushes)
    out = log.producer("victim")
    reader = log.consumer("victim")
    tp = TopicPartition("out", 0)
    out.begin()
    out.send("in", 0, payload(7, 3))
    out.send_offsets(reader.membership(), {tp: Position(5)})
    say("working")
    out.commit()
    say("survived")


def forbid_flushes() -> None:
    """A seccomp filter: fsync and fdatasync kill this process."""
    fsync, fdatasync = {"x86_64": (74, 75), "aarch64": (82, 83)}[platform.machine()]
    load, jump_equal, give_back, kill, allow = 0x20, 0x15, 0x06, 0x80000000, 0x7FFF0000
    steps = [
        (load, 0, 0, 0),
        (jump_equal, 1, 0, fsync),
        (jump_equal, 0, 1, fdatasync),
        (give_back, 0, 0, kill),
        (give_back, 0, 0, allow),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *step) for step in steps))
    program = struct.pack("@HP", len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())  # PR_SET_SECCOMP


class ReadsOnly(Upkeep):
    """The removal of files without its cure: it concludes from a read, and writes nothing."""

    def _remove_files(self) -> bool:
        with self._index.lock, self._index.read() as db:
            unused = self._unused(db)
            for path in [path for _, path in unused.segments] + unused.orphans:
                path.unlink()
        return False


def witness(directory: str) -> None:
    """Does what it is told by lines: a living process beside a dead one. Answers each line."""
    log = start_log(Path(directory), "power")
    index: Index = log.index
    tp = TopicPartition("out", 0)
    say("working")
    for line in sys.stdin:
        match line.strip():
            case "upkeep":
                log.maintain()
                say("done")
            case "upkeep without cure":
                ReadsOnly(Path(directory), index, group_ttl_s=1.0).run()
                say("done")
            case "committed":
                say(str(log.consumer("victim").committed([tp])[tp]))
            case "look":
                say(str(log.group("victim").positions.get(tp)))
            case "end":
                say(str(log.end_offsets([TopicPartition("in", 0)])[TopicPartition("in", 0)]))


if __name__ == "__main__":
    programs: dict[str, Callable[..., None]] = {
        "produce": produce,
        "work": work,
        "keep": keep,
        "die_in_commit": die_in_commit,
        "witness": witness,
    }
    programs[sys.argv[1]](*sys.argv[2:])
