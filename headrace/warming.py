"""Compiles all kernels by running a small chain in this process: files → model, in a temporary folder."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from cache.memory import MemoryTier
from cache.tiers import TieredCache
from experiments.loading import load_experiment, load_feeds
from experiments.publishing import publish
from experiments.registry import Registry
from headrace.endings import UntilEnd
from headrace.look import Look
from headrace.settings import Settings
from ingest.planner import Planner
from ingest.reader import Reader
from preprocess.featurize.worker import FeaturizeWorker
from preprocess.join.worker import JoinWorker
from streams.clock import SettableClock
from streams.contracts import Worker
from streams.embedded.log import open_log
from trainer.loop import Trainer

FEED = """
feed: rows
files: {url: data, match: "*.csv"}
format: {delimited: {sep: ","}}
columns: {user: int64, word: string, words: list<string>, price: float32, time: int64, label: int64}
event_time: {column: time, unit: s}
key: [user]
partitions: 2
cuts: {rows: 64, every: off}
"""
EXPERIMENT = """
experiment: warm
sample: rows
labels: {label: {column: label}}
features:
  user: {id: user}
  word: {hash: word, table: word}
  words: {hash: words, table: word, last: 2, pool: mean}
  both: {cross: [user, word]}
  price: {dense: price, ops: [{clip: [0, 100]}, log1p]}
  hour: {hour_of: event_time}
model: {deepfm: {mlp: [8]}}
train: {batch_rows: 16, checkpoint_every: 100 steps}
"""
ROWS = 200
MAX_ROUNDS = 10_000


def run_small_chain(settings: Settings) -> None:
    """Some seconds the first time, then less than one."""
    with tempfile.TemporaryDirectory(prefix="headrace-warm-") as name:
        folder = Path(name)
        for path, text in (("feeds/rows.yaml", FEED), ("warm.yaml", EXPERIMENT), ("data/rows.csv", _rows())):
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text(text)
        os.utime(folder / "data/rows.csv", (0, 0))
        _train(folder, settings)


def _rows() -> str:
    lines = ["user,word,words,price,time,label"]
    lines += [f"{i % 17},w{i % 13},a{i % 5} b{i % 7},{i % 9},{1_600_000_000 + i},{i % 2}" for i in range(ROWS)]
    return "\n".join(lines) + "\n"


def _train(folder: Path, settings: Settings) -> None:
    log = open_log(folder / "log")
    clock = SettableClock()
    workers: list[Worker] = []
    try:
        feeds = load_feeds(folder / "feeds")
        publish(log, [load_experiment(folder / "warm.yaml", feeds)], feeds, now_us=clock.wall_us())
        registry = Registry(log)
        registry.refresh()
        (version,) = registry.live()
        config, ending = settings.ingest_config(), UntilEnd(Look(log, registry))
        files, feed = str(folder / "data"), feeds["rows"]
        trainer = Trainer(
            log,
            version,
            settings.train_config(folder / "checkpoints", {}),
            TieredCache([MemoryTier(1 << 20)]),
            clock=clock,
        )
        workers = [
            Planner(log, feed, files, config, clock=clock, may_close=ending.may_close, lag_groups=tuple),
            Reader(log, feed, files, config, clock=clock),
            JoinWorker(log, version.view, settings.preprocess_config(), clock=clock),
            FeaturizeWorker(log, version, settings.preprocess_config(), clock=clock),
            trainer,
        ]
        for _ in range(MAX_ROUNDS):
            if not any([worker.step() for worker in workers]):  # a list: all of them work
                clock.advance(1.0)
            if trainer.finished:
                return
        raise AssertionError(f"the small chain did not end: {[worker.report() for worker in workers]}")
    finally:
        for worker in workers:
            worker.close()
        log.close()
