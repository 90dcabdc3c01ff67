"""Join and featurize on one log, workers of both dying at random moments: each kept row once, in order, with its own values."""

from __future__ import annotations

import random

import pytest

from experiments.experiment import Experiment
from experiments.publishing import version_topics
from experiments.view import Version
from preprocess.contracts import Config
from preprocess.featurize.worker import FeaturizeWorker
from preprocess.join.worker import JoinWorker
from streams.clock import SettableClock
from streams.contracts import Log, Worker
from tests.preprocess.featurize.stream import batches, check_bounds, drain
from tests.preprocess.join.world import World

CONFIG = Config(transaction_messages=3, poll_bytes=1)


def _version(world: World) -> Version:
    partitions = world.view.partitions
    experiment = Experiment.model_validate(
        {
            "experiment": "e",
            "sample": "views",
            "labels": {"liked": {"column": "label", "range": [0, 5], "at_least": 3}},
            "lookups": {"item": {"feed": "items", "on": "item_id"}},
            "features": {"item": {"id": "item_id"}, "price": {"dense": "item.price", "default": -1}},
            "model": "lr",
            "train": {"batch_rows": 3 * partitions},
        }
    )
    return Version(experiment, world.view, 1, "live", "", (0,) * partitions, None, 0)


@pytest.mark.parametrize("seed", range(12))
def test_each_row_once_in_order(log: Log, seed: int) -> None:
    world, rng = World.random(seed), random.Random(seed)
    version = _version(world)
    world.create(log)
    for spec in version_topics(version):
        log.create_topic(spec)
    world.write_items(log)

    def join() -> JoinWorker:
        return JoinWorker(log, world.view, CONFIG, clock=SettableClock())

    def featurize() -> FeaturizeWorker:
        return FeaturizeWorker(log, version, CONFIG, clock=SettableClock())

    workers: list[Worker] = [join(), featurize()]
    for at in range(0, len(world.messages), 3):
        world.write(log, at, at + 3)
        for _ in range(rng.randrange(8)):
            which = rng.randrange(2)
            if rng.random() < 0.2:
                workers[which].close()
                workers[which] = (join, featurize)[which]()
            workers[which].step()
    for worker in workers:
        drain(worker)  # type: ignore[arg-type]
    prices = world.prices()
    for p in range(world.view.partitions):
        messages, _ = world.oracle(p)
        kept = [row for message in messages for row in message]
        found = []
        for batch in batches(log, version, p):
            (ids,) = batch.tables.values()
            items = ids.ids_U[ids.inverse_N].tolist()
            for b in range(batch.rows):
                assert batch.dense_BX[b, 0] == prices.get(items[b], -1.0)
                name = batch.files[batch.file_B[b]]
                found.append((int(batch.times_B[b]), name, int(batch.row_B[b]), items[b], float(batch.labels_B[b])))
        assert found == [(*row[:4], float((row[4] or 0) >= 3)) for row in kept]
        assert check_bounds(log, version, p) == 2**62
        every = world.view.sample.cuts.every
        full = [b for b in batches(log, version, p) if b.rows == 3]
        assert full or len(kept) < 3 or every
