"""The position is offsets inside the checkpoint, not a sampler: with reading ahead, each row is used exactly once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.trainer.stream import World, messages, version
from tests.trainer.test_loop import assert_each_row_once, few_steps, learned


@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_ten_random_stops_with_reading_ahead(tmp_path: Path, partitions: int) -> None:
    """Dropped without a checkpoint of its own ten times, at random places, while more was read than was trained."""
    rng = np.random.default_rng(partitions)
    world = World(tmp_path, version(partitions), settings={"ledger": str(tmp_path / "ledger")})
    streams = messages(world.version.experiment, partitions, 12)
    world.send_all(streams)
    for _ in range(10):
        trainer = world.trainer(**world.ahead())
        few_steps(trainer, int(rng.integers(1, 14)))
        trainer.close()
    report = world.train(**world.ahead())
    rows = sum(m.rows for stream in streams for m in stream if not isinstance(m, int))
    assert report["rows_trained"] == rows
    assert len(report["resumes"]) == 10
    assert sum(step > 0 for step in report["resumes"]) >= 4
    assert_each_row_once(world, tmp_path / "ledger/ctr.v1", partitions)
    other = World(tmp_path / "undisturbed", version(partitions))
    other.send_all(streams)
    assert learned(report) == learned(other.train())
    world.close()
    other.close()
