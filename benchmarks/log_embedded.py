"""The embedded log against plain files: 256 KiB messages, 512 MB, digests checked on both sides; wake-up; idle CPU.

Log and files take turns every 64 MB; the first round is discarded. Writes go to the page cache on both sides
(``durability: process``).
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import xxhash

from benchmarks.harness import ROOT, median
from streams.contracts import TopicPartition, TopicSpec
from streams.embedded.consumer import EmbeddedConsumer
from streams.embedded.log import open_log
from streams.embedded.producer import EmbeddedProducer

MESSAGE_BYTES = 256 * 1024
TOTAL_BYTES = 512 * 1024 * 1024
TRANSACTION_MESSAGES = 32
PIECE_MESSAGES = 256
ROUNDS = 7
SMALL = 200
IDLE_S = 5.0
TP = TopicPartition("t", 0)
Message = tuple[bytes, int]


def run() -> dict[str, Any]:
    """Ratios log / files, and milliseconds from before the commit to the return of the poll."""
    messages = _messages()
    rounds = [_round(messages) for _ in range(ROUNDS)][1:]
    figures = {key: [one[key] for one in rounds] for key in rounds[0]}
    gigabytes = TOTAL_BYTES / 1e9
    return {
        "produce_ratio": median([f / log for f, log in zip(figures["write_s"], figures["produce_s"], strict=True)]),
        "consume_ratio": median([f / log for f, log in zip(figures["read_s"], figures["consume_s"], strict=True)]),
        "floors": {"produce_ratio": 0.7, "consume_ratio": 0.9, "wake_ms_p99": 50, "idle_cpu_percent": 1},
        "gb_per_s": {
            name.removesuffix("_s"): median([gigabytes / seconds for seconds in all_seconds])
            for name, all_seconds in figures.items()
        },
        "rounds": ROUNDS - 1,
        **_wake_up(),
    }


def _messages() -> list[Message]:
    """Random bytes, a hundred different messages, each with its digest."""
    blocks = [os.urandom(MESSAGE_BYTES) for _ in range(100)]
    return [(blocks[i % 100], xxhash.xxh3_64_intdigest(blocks[i % 100])) for i in range(TOTAL_BYTES // MESSAGE_BYTES)]


def _round(messages: list[Message]) -> dict[str, float]:
    """Seconds of each side; they take turns every 64 MB, so that what the machine does besides hits both."""
    with _folder() as folder:
        log = open_log(folder / "log")
        log.create_topic(TopicSpec("t", 1))
        producer, consumer = log.producer("bench"), log.consumer()
        consumer.assign([TP])
        pieces = [messages[at : at + PIECE_MESSAGES] for at in range(0, len(messages), PIECE_MESSAGES)]
        seconds = _take_turns(
            pieces,
            produce_s=lambda number: _produce(producer, pieces[number]),
            write_s=lambda number: _write(folder / f"plain-{number}", pieces[number]),
        )
        os.sync()
        seconds |= _take_turns(
            pieces,
            consume_s=lambda number: _consume(consumer, pieces[number]),
            read_s=lambda number: _read(folder / f"plain-{number}", pieces[number]),
        )
        log.close()
        return seconds


def _take_turns(pieces: Sequence[object], **sides: Callable[[int], None]) -> dict[str, float]:
    seconds = dict.fromkeys(sides, 0.0)
    for number in range(len(pieces)):
        order = list(sides.items())
        for name, act in order if number % 2 else order[::-1]:
            began = time.perf_counter()
            act(number)
            seconds[name] += time.perf_counter() - began
    return seconds


def _produce(producer: EmbeddedProducer, messages: list[Message]) -> None:
    for first in range(0, len(messages), TRANSACTION_MESSAGES):
        producer.begin()
        for value, digest in messages[first : first + TRANSACTION_MESSAGES]:
            producer.send("t", 0, value, headers=(("digest", digest.to_bytes(8, "little")),))
        producer.commit()


def _write(path: Path, messages: list[Message]) -> None:
    """What the log has to do at least: digest and bytes, into a file as large as one of its segments."""
    with path.open("wb", buffering=0) as file:
        for value, digest in messages:
            assert xxhash.xxh3_64_intdigest(value) == digest
            file.write(value)


def _consume(consumer: EmbeddedConsumer, messages: list[Message]) -> None:
    count = 0
    while count < len(messages):
        left = (len(messages) - count) * MESSAGE_BYTES
        for record in consumer.poll(min(left, 8 * 1024 * 1024), 1.0):
            assert record.value is not None
            assert xxhash.xxh3_64_intdigest(record.value) == messages[count][1]
            count += 1


def _read(path: Path, messages: list[Message]) -> None:
    with path.open("rb", buffering=0) as file:
        for _, digest in messages:
            assert xxhash.xxh3_64_intdigest(file.read(MESSAGE_BYTES)) == digest


def _wake_up() -> dict[str, Any]:
    """One process waits, another commits small transactions at rest; then nobody does anything."""
    with _folder() as folder:
        log = open_log(folder / "log")
        log.create_topic(TopicSpec("t", 1))
        log.create_topic(TopicSpec("back", 1))
        producer = log.producer("bench")
        answers = log.consumer()
        answers.assign([TopicPartition("back", 0)])
        child = subprocess.Popen(
            [sys.executable, "-c", f"from benchmarks import log_embedded as b; b.waiter({str(folder / 'log')!r})"],
            cwd=ROOT,
        )
        assert answers.poll(1 << 20, 60.0), "the waiting process did not start"
        for _ in range(SMALL):
            time.sleep(0.005)
            producer.begin()
            producer.send("t", 0, time.monotonic_ns().to_bytes(8, "little") + b"x" * 64)
            producer.commit()
        (result,) = answers.poll(1 << 20, 60.0)
        latencies_ms = sorted(int(text) / 1e6 for text in bytes(result.value or b"").split())
        (idle,) = answers.poll(1 << 20, IDLE_S + 60.0)
        assert child.wait(60) == 0
        log.close()
    return {
        "wake_ms_p50": median(latencies_ms),
        "wake_ms_p99": float(f"{statistics.quantiles(latencies_ms, n=100)[98]:.3g}"),
        "idle_cpu_percent": float(bytes(idle.value or b"")),
    }


def waiter(directory: str) -> None:
    """The process that waits: sends back the latencies, then its CPU time while nothing happens."""
    log = open_log(Path(directory))
    producer = log.producer("waiter")
    consumer = log.consumer()
    consumer.assign([TP])

    def answer(text: str) -> None:
        producer.begin()
        producer.send("back", 0, text.encode())
        producer.commit()

    answer("ready")
    latencies: list[int] = []
    while len(latencies) < SMALL:
        records = consumer.poll(1 << 20, 10.0)
        now = time.monotonic_ns()
        latencies += [now - int.from_bytes(bytes(record.value or b"")[:8], "little") for record in records]
    answer(" ".join(map(str, latencies)))
    before, began = _cpu_s(), time.monotonic()
    consumer.poll(1 << 20, IDLE_S)
    answer(f"{100 * (_cpu_s() - before) / (time.monotonic() - began):.2f}")
    log.close()


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
