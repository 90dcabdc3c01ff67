"""22: ids −1 and −2 were a table's internal marks; here every 64-bit value is an id, in every logical table."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainer.tables.test_dynamic import spec
from trainer.tables.dynamic import DynamicTable

IDS = np.array([0, -1, -2, -(2**63), 2**63 - 1, 2**48, -(2**48), 1], np.int64)


@pytest.mark.parametrize("logical", [0, 1])
def test_inserted_looked_up_saved_restored(logical: int) -> None:
    table = DynamicTable(spec(), 3, seed=1, max_rows=10_000)
    numbers = np.full(len(IDS), logical, np.uint16)
    slots = table.find_or_insert(numbers, IDS, 1)
    assert len(set(slots.tolist())) == len(IDS)
    table.find_or_insert(np.zeros(5000, np.uint16), np.arange(10_000, 15_000), 2)
    np.testing.assert_array_equal(table.find_or_insert(numbers, IDS, 3), slots)
    restored = DynamicTable(spec(), 3, seed=1, max_rows=10_000)
    restored.load(table.export())
    again = restored.find_or_insert(numbers, IDS, 3)
    np.testing.assert_array_equal(restored._weights[again], table._weights[slots])
    assert restored.rows == len(IDS) + 5000


def test_the_same_id_in_two_logical_tables_is_two_rows() -> None:
    table = DynamicTable(spec(), 3, seed=1, max_rows=100)
    a = table.find_or_insert(np.zeros(len(IDS), np.uint16), IDS, 1)
    b = table.find_or_insert(np.ones(len(IDS), np.uint16), IDS, 1)
    assert not set(a.tolist()) & set(b.tolist())
    assert not (table._weights[a] == table._weights[b]).all(axis=1).any()
