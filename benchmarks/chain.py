"""The whole data path: file → raw → joined → exp → the trainer's hands, in three processes on the embedded log.

The clock starts when the files appear in the feed's folder (the processes run and a small file has been through them, so
nothing is compiled or imported inside it) and stops when the last row lies decoded before the trainer. The limit beside
it: the same files read by pyarrow alone, one process.
"""

from __future__ import annotations

import multiprocessing as mp
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import synthetic

if TYPE_CHECKING:
    from multiprocessing.queues import Queue

    from experiments.feed import Feed
    from streams.contracts import Log, Worker

PARTITIONS, BATCH_ROWS = 4, 4096
WARM_ROWS, ROWS, FILES = 20_000, 3_000_000, 16
DEADLINE_S = 60.0


@dataclass(frozen=True)
class Place:
    """What the processes share."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    def open(self) -> Log:
        from streams.embedded.log import open_log

        return open_log(self.root / "log")


def feed_of(data: Path) -> Feed:
    from experiments.feed import Feed

    columns = {name: "int64" for name in (*synthetic.INTS, *synthetic.IDS)}
    return Feed.model_validate(
        {
            "feed": "clicks",
            "files": {"url": str(data), "match": "*.parquet"},
            "format": "parquet",
            "columns": columns | {"label": "float32", "event_time": "timestamp"},
            "event_time": {"column": "event_time", "zone": "UTC"},
            "key": [synthetic.IDS[0]],
            "partitions": PARTITIONS,
            "settle": "0s",
        }
    )


def experiment() -> Any:
    from experiments.experiment import Experiment

    dense = {name: {"dense": name, "ops": ["log1p"]} for name in synthetic.INTS}
    ids = {name: {"id": name} for name in synthetic.IDS}
    return Experiment.model_validate(
        {
            "experiment": "chain",
            "sample": "clicks",
            "labels": {"click": {"column": "label"}},
            "features": dense | ids,
            "model": "lr",
            "train": {"batch_rows": BATCH_ROWS},
        }
    )


def loop(log: Log, workers: list[Worker], stop: Event) -> None:
    while not stop.is_set():
        moved = [worker.step() for worker in workers]
        if not any(moved):
            log.wait(0.05)


def ingest_process(place: Place, stop: Event, close: Event) -> None:
    from experiments import names
    from experiments.registry import Registry
    from ingest.contracts import Config, Downstream
    from ingest.planner import Planner
    from ingest.reader import Reader
    from streams.clock import SystemClock

    log, clock = place.open(), SystemClock()
    registry = Registry(log)
    registry.refresh()
    feed, view = registry.feeds["clicks"], registry.views()[0]
    config = Config(listing_s=0.05)
    groups = lambda: [Downstream(names.join_group(view.name), names.raw("clicks"), PARTITIONS)]  # noqa: E731
    planner = Planner(log, feed, str(place.data), config, clock=clock, may_close=close.is_set, lag_groups=groups)
    loop(log, [planner, Reader(log, feed, str(place.data), config, clock=clock)], stop)


def preprocess_process(place: Place, stop: Event, close: Event) -> None:
    from experiments.registry import Registry
    from preprocess.contracts import Config
    from preprocess.featurize.worker import FeaturizeWorker
    from preprocess.join.worker import JoinWorker
    from streams.clock import SystemClock

    log, clock = place.open(), SystemClock()
    registry = Registry(log)
    registry.refresh()
    join = JoinWorker(log, registry.views()[0], Config(), clock=clock)
    loop(log, [join, FeaturizeWorker(log, registry.live()[0], Config(), clock=clock)], stop)


def trainer_process(place: Place, stop: Event, seen: Queue[tuple[int, float]]) -> None:
    """Takes and decodes local batches as the trainer does, and tells how many rows have come."""
    from cache.contracts import Config
    from cache.memory import MemoryTier
    from cache.prefetch import Prefetcher
    from cache.tiers import TieredCache
    from experiments import names
    from preprocess.contracts import decode_batch, layout_of
    from streams.packed import Limits, read_control

    log, config = place.open(), Config()
    topic = log.topic(names.exp("chain", 1))
    assert topic is not None
    layout, limits, rows = layout_of(experiment()), Limits(), 0
    cache = TieredCache([MemoryTier(config.memory_bytes)])
    prefetcher = Prefetcher(log, topic, cache, max_bytes=config.prefetch_bytes, poll_bytes=8 << 20)
    prefetcher.start(dict.fromkeys(range(PARTITIONS), 0))
    while not stop.is_set():
        for partition in range(PARTITIONS):
            record = prefetcher.take(partition, 0.01)
            if record is not None and read_control(record) is None:
                rows += decode_batch(record, layout, limits).rows
                seen.put((rows, time.perf_counter()))
    prefetcher.close()


def measure(place: Place, big: list[Path], rows: int) -> float:
    """Seconds from the moment the files are there to the last row in the trainer's hands."""
    context = mp.get_context("spawn")
    stop, close, seen = context.Event(), context.Event(), context.Queue()
    children = [
        context.Process(target=target, args=(place, stop, extra), daemon=True)
        for target, extra in ((ingest_process, close), (preprocess_process, close), (trainer_process, seen))
    ]
    for child in children:
        child.start()
    try:
        wait_for(seen, lambda count: count > 0, children)
        time.sleep(0.5)
        start = time.perf_counter()
        for file in big:
            shutil.move(file, place.data / file.name)
        close.set()
        return wait_for(seen, lambda count: count >= rows + WARM_ROWS, children) - start
    finally:
        stop.set()
        for child in children:
            child.join(10)
            child.kill()


def wait_for(seen: Queue[tuple[int, float]], enough: Callable[[int], bool], children: list[Any]) -> float:
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        assert all(child.is_alive() for child in children), "a process ended"
        while not seen.empty():
            count, moment = seen.get()
            if enough(count):
                return float(moment)
        time.sleep(0.01)
    raise TimeoutError("the rows did not arrive")


def run(rows: int = ROWS) -> dict[str, object]:
    import pyarrow.parquet as pq

    from experiments.publishing import publish

    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        place.data.mkdir()
        synthetic.write_parquet(place.data, rows=WARM_ROWS, files=4, seed=1, prefix="a-warm")
        later = place.root / "later"
        later.mkdir()
        big = synthetic.write_parquet(
            later, rows=rows, files=FILES, seed=2, prefix="b-big", start_us=synthetic.START_US + 3_600_000_000
        )
        begin = time.perf_counter()
        for file in big:
            for _ in pq.ParquetFile(file).iter_batches(65_536):
                pass
        read_s = time.perf_counter() - begin
        log = place.open()
        publish(log, [experiment()], {"clicks": feed_of(place.data)}, now_us=time.time_ns() // 1000)
        log.close()
        seconds = measure(place, big, rows)
    rate = rows / seconds
    return {
        "rows": rows,
        "seconds": round(seconds, 2),
        "rows_per_s": round(rate),
        "floor_rows_per_s": 250_000,
        "ratio_to_floor": round(rate / 250_000, 2),
        "iter_batches_rows_per_s": round(rows / read_s),
        "ratio_to_iter_batches": round(rate / (rows / read_s), 3),
    }
