"""The log on a real Kafka against Kafka's own tools on the same broker in the same run: packed messages of 256 KiB and 896 KiB.

Produce: transactions of 16 MB against ``ProducerPerformance`` (acks=all, as many bytes, no transactions). Consume: polls of 8 MB
against ``ConsumerPerformance``. Small transactions: one message of 64 KiB each, milliseconds from ``begin`` to the
end of ``commit``.
The Java tools' start-up is not counted: they measure themselves.
"""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import median

if TYPE_CHECKING:
    from dev.kafka_service import Kafka
    from streams.contracts import Log

SIZES = (256 * 1024, 896 * 1024)
TOTAL_BYTES = 256 * 1024 * 1024
TRANSACTION_BYTES, POLL_BYTES = 16 * 1024 * 1024, 8 * 1024 * 1024
ROUNDS, PARTITIONS = 3, 4
SMALL, SMALL_BYTES = 100, 64 * 1024


def run() -> dict[str, Any]:
    from dev.daemon import dies_with_starter
    from dev.kafka_service import Kafka
    from streams.kafka.config import KafkaConfig
    from streams.kafka.log import open_log

    with tempfile.TemporaryDirectory() as folder:
        kafka = Kafka(Path(folder) / "kafka", dies_with_starter, heap="1g")
        kafka.start()
        try:
            log = open_log(KafkaConfig(kafka.bootstrap, "bench"))
            figures: dict[str, Any] = {str(size // 1024): measure(kafka, log, size) for size in SIZES}
            small = small_transactions(log)
            log.close()
        finally:
            kafka.stop()
    return {
        "produce_ratio": {size: found["produce_ratio"] for size, found in figures.items()},
        "consume_ratio": {size: found["consume_ratio"] for size, found in figures.items()},
        "floors": {"produce_ratio": 0.8, "consume_ratio": 0.5, "small_ms_p50": 30},
        "mb_per_s": {size: found["mb_per_s"] for size, found in figures.items()},
        **small,
    }


def measure(kafka: Kafka, log: Log, size: int) -> dict[str, Any]:
    """Both ways in turn, the first round left out."""
    from streams.contracts import TopicSpec

    found: dict[str, list[float]] = {"produce": [], "their_produce": [], "consume": [], "their_consume": []}
    for turn in range(ROUNDS + 1):
        ours, theirs = f"ours-{size}-{turn}", f"theirs-{size}-{turn}"
        for name in (ours, theirs):
            log.create_topic(TopicSpec(name, PARTITIONS))
        ways = [
            ("their_produce", lambda topic=theirs: their_produce(kafka, f"bench.{topic}", size)),
            ("produce", lambda topic=ours: produce(log, topic, size)),
        ]
        figures = {name: work() for name, work in (ways if turn % 2 else ways[::-1])}
        ways = [
            ("their_consume", lambda topic=ours: their_consume(kafka, f"bench.{topic}", size)),
            ("consume", lambda topic=ours: consume(log, topic)),
        ]
        figures |= {name: work() for name, work in (ways if turn % 2 else ways[::-1])}
        if turn:
            for name, value in figures.items():
                found[name].append(value)
        for name in (ours, theirs):
            log.delete_topic(name)
    return {
        "produce_ratio": median([a / b for a, b in zip(found["produce"], found["their_produce"], strict=True)]),
        "consume_ratio": median([a / b for a, b in zip(found["consume"], found["their_consume"], strict=True)]),
        "mb_per_s": {name: round(statistics.median(values)) for name, values in found.items()},
    }


def produce(log: Log, topic: str, size: int) -> float:
    """MB/s."""
    import os

    values = [os.urandom(size) for _ in range(8)]
    producer = log.producer("bench")
    begun_s, sent, open_bytes, number = time.perf_counter(), 0, 0, 0
    producer.begin()
    while sent < TOTAL_BYTES:
        producer.send(topic, number % PARTITIONS, values[number % len(values)])
        sent, open_bytes, number = sent + size, open_bytes + size, number + 1
        if open_bytes >= TRANSACTION_BYTES:
            producer.commit()
            producer.begin()
            open_bytes = 0
    producer.commit()
    seconds = time.perf_counter() - begun_s
    producer.close()
    return sent / seconds / 1e6


def consume(log: Log, topic: str) -> float:
    """MB/s."""
    from streams.contracts import TopicPartition

    tps = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    consumer = log.consumer()
    consumer.assign(tps)
    ends = log.end_offsets(tps)
    begun_s, got = time.perf_counter(), 0
    while any(consumer.position(tp) < end for tp, end in ends.items()):
        got += sum(len(record.value or b"") for record in consumer.poll(POLL_BYTES, 0.1))
    seconds = time.perf_counter() - begun_s
    consumer.close()
    return got / seconds / 1e6


def their_produce(kafka: Kafka, topic: str, size: int) -> float:
    """MB/s of ``ProducerPerformance``, which says MiB/s."""
    count = TOTAL_BYTES // size
    settings = [
        f"bootstrap.servers={kafka.bootstrap}",
        "acks=all",
        f"max.request.size={2 * size}",
        f"batch.size={2 * size}",
    ]
    arguments = ["--topic", topic, "--num-records", str(count), "--record-size", str(size), "--throughput", "-1"]
    done = kafka.tool("org.apache.kafka.tools.ProducerPerformance", *arguments, "--producer-props", *settings)
    return float(re.findall(r"\(([\d.]+) MB/sec\)", done.stdout)[-1]) * 1024 * 1024 / 1e6


def their_consume(kafka: Kafka, topic: str, size: int) -> float:
    """MB/s of ``ConsumerPerformance``: its fetch rate, which leaves the joining of its group out."""
    arguments = ["--bootstrap-server", kafka.bootstrap, "--topic", topic, "--num-records", str(TOTAL_BYTES // size)]
    done = kafka.tool("org.apache.kafka.tools.ConsumerPerformance", *arguments, "--timeout", "60000")
    names, values = ([part.strip() for part in line.split(",")] for line in done.stdout.strip().splitlines()[-2:])
    return float(dict(zip(names, values, strict=True))["fetch.MB.sec"]) * 1024 * 1024 / 1e6


def small_transactions(log: Log) -> dict[str, float]:
    """Milliseconds of a transaction with one message."""
    from streams.contracts import TopicSpec

    log.create_topic(TopicSpec("small", 1))
    producer, value, found = log.producer("small"), b"x" * SMALL_BYTES, []
    for number in range(SMALL + 10):
        begun_s = time.perf_counter()
        producer.begin()
        producer.send("small", 0, value)
        producer.commit()
        if number >= 10:
            found.append((time.perf_counter() - begun_s) * 1000)
    producer.close()
    return {
        "small_ms_p50": round(statistics.median(found), 1),
        "small_ms_p99": round(sorted(found)[int(SMALL * 0.99)], 1),
    }
