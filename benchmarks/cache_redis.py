"""Batches read back through our Redis tier, against redis-py alone with the same bytes on the same server, in turns.

Values are chunks as the trainer's prefetcher keeps them: as many local batches as fit 1 MiB. Ours: the tier and the check of the
chunk's digest, as a trainer that starts again reads them. The peer: ``GET``, nothing looked at.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.harness import median

CHUNKS, BATCH_BYTES, ROUNDS = 200, 120_000, 7
FLOOR, GOAL = 0.9, 1.0


def run() -> dict[str, object]:
    import numpy as np
    import redis

    from cache.chunks import decode_chunk, encode_chunk
    from cache.contracts import Key, RedisConfig
    from cache.redis_tier import RedisTier
    from dev.daemon import dies_with_starter
    from dev.redis_service import Redis
    from streams.contracts import Record, TopicPartition

    tp, batches = TopicPartition("exp.bench.v1", 0), 1024 * 1024 // BATCH_BYTES
    keys = [Key("topic", 0, number * batches) for number in range(CHUNKS)]
    with tempfile.TemporaryDirectory() as folder:
        server = Redis(Path(folder) / "redis", dies_with_starter)
        server.start()
        try:
            tier, plain = RedisTier(RedisConfig(server.url, deadline_s=2.0), "bench"), redis.Redis(port=server.port)
            for number, key in enumerate(keys):
                value = memoryview(np.random.default_rng(number).bytes(BATCH_BYTES))
                made = [Record(tp.topic, 0, key.offset + n, None, value, ()) for n in range(batches)]
                tier.put(key, encode_chunk(key, made, key.offset + batches))
            names = [f"headrace:bench:topic:0:{key.offset}:" for key in keys]

            def ours() -> None:
                for key in keys:
                    value = tier.get(key)
                    assert value is not None
                    assert decode_chunk(key, value, tp) is not None

            def tier_alone() -> None:
                for key in keys:
                    assert tier.get(key) is not None

            def peer() -> None:
                for name in names:
                    assert plain.get(name) is not None

            seconds: dict[str, list[float]] = {"ours": [], "tier_alone": [], "peer": []}
            for turn in range(ROUNDS + 1):
                for name, work in (("ours", ours), ("tier_alone", tier_alone), ("peer", peer)):
                    begun_s = time.perf_counter()
                    work()
                    if turn:
                        seconds[name].append(time.perf_counter() - begun_s)
            tier.close()
            plain.close()
        finally:
            server.stop()
    total = CHUNKS * batches
    return {
        "batches_per_s": {name: round(total / median(found)) for name, found in seconds.items()},
        "gb_per_s": {name: round(total * BATCH_BYTES / median(found) / 1e9, 2) for name, found in seconds.items()},
        "ratio_to_redis_py": median([b / a for a, b in zip(seconds["ours"], seconds["peer"], strict=True)]),
        "ratio_without_digest": median([b / a for a, b in zip(seconds["tier_alone"], seconds["peer"], strict=True)]),
        "floor": FLOOR,
        "goal": GOAL,
    }
