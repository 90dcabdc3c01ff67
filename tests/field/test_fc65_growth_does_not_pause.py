"""65: growth (rehash) paused the trainer. Here one insertion moves at most one segment a split, whatever the size."""

from __future__ import annotations

import numpy as np

from tests.trainer.tables.test_dynamic import spec
from trainer.tables.dynamic import DynamicTable


def test_no_step_moves_more_than_its_own_splits() -> None:
    """Counted in entries moved, not in time: growing 1e4 → 1e6 keys in steps of 1000."""
    table = DynamicTable(spec(dim=1), 1, seed=1, max_rows=1_000_000)
    worst = 0
    for start in range(0, 1_000_000, 1000):
        before = int(table._index.shape[1])
        ids = np.arange(start, start + 1000)
        slots = table.find_or_insert(np.zeros(1000, np.uint16), ids, 0)
        assert (np.sort(slots) == np.arange(start, start + 1000)).all()
        worst = max(worst, int(table._index.shape[1]) - before)
    # At least 800 keys make a segment split again, so 1000 are worth one or two; by chance some more come together.
    assert worst <= 8
    assert table.rows == 1_000_000
