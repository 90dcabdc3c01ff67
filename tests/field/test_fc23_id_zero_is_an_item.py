"""23: padding id 0 trained as a real item, or a real item 0 frozen as padding. Lists are jagged; there is no padding."""

from __future__ import annotations

import numpy as np

from preprocess.contracts import TableIds
from tests.trainer.tables.test_dynamic import spec, train
from trainer.tables.dynamic import DynamicTable


def test_a_real_zero_moves_and_empty_lists_touch_nothing() -> None:
    table = DynamicTable(spec(), 3, seed=1, max_rows=100)
    zero = TableIds(
        np.zeros(1, np.uint16), np.zeros(1, np.int64), np.zeros(1, np.uint32), np.array([0, 1, 1, 1, 1], np.int32)
    )
    empty = TableIds(np.empty(0, np.uint16), np.empty(0, np.int64), np.empty(0, np.uint32), np.zeros(5, np.int32))
    start = None
    for step in range(100):
        pooled = train(table, [(zero, np.ones((2, 2, 3), np.float32)), (empty, np.ones((2, 2, 3), np.float32))], step)
        start = pooled[0][0, 0].copy() if start is None else start
        assert (pooled[0][1] == 0).all()
        assert (pooled[1] == 0).all()
    assert table.rows == 1
    moved = table.export().read_all()["weights"].combine_chunks().flatten().to_numpy()
    assert (moved < start - 0.1).all()
