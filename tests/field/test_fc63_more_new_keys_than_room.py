"""63: a batch with three times as many new keys as the table holds; sizes at which growth overran or looped for ever."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.tables.test_dynamic import spec
from trainer.kernels.index import LEAST, MOST, SEGMENT
from trainer.tables.dynamic import DynamicTable

SIZES = [1, 2, 3, 255, 256, 257, 300, LEAST - 1, LEAST, LEAST + 1, MOST, MOST + 1, SEGMENT - 1, SEGMENT, SEGMENT + 1]


@pytest.mark.parametrize("size", SIZES)
def test_all_are_there_after_it(size: int) -> None:
    table = DynamicTable(spec(), 3, seed=1, max_rows=8 * SEGMENT)
    rng = np.random.default_rng(size)
    model: dict[int, int] = {}
    for start in (0, 10**12):
        ids = start + rng.permutation((3 if start else 1) * size)
        slots = table.find_or_insert(np.zeros(len(ids), np.uint16), ids, 0)
        assert not set(model.values()) & set(slots.tolist())
        model |= dict(zip(ids.tolist(), slots.tolist(), strict=True))
    keys = rng.permutation(np.array(list(model)))
    found = table.find_or_insert(np.zeros(len(keys), np.uint16), keys, 0)
    assert found.tolist() == [model[int(key)] for key in keys]
    assert table.rows == 4 * size


def test_ids_that_share_their_low_bits() -> None:
    """Siblings: multiples of a power of two, which a weak hash piles into one place."""
    table = DynamicTable(spec(), 3, seed=1, max_rows=200_000)
    for shift in (12, 20, 32, 47):
        ids = np.arange(40_000, dtype=np.int64) << shift
        table.find_or_insert(np.zeros(len(ids), np.uint16), ids[:16_000] if shift == 47 else ids, 0)
    assert table.rows >= 100_000
