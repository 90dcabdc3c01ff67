"""``docs/digest.md`` is true: its steps by hand, its state, its number."""

from __future__ import annotations

import hashlib
import re
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from trainer.checkpoint.digest import model_digest

DOC = Path(__file__).parents[2] / "docs/digest.md"
Row = tuple[str, int, list[float], list[float], int]

ROWS_A: list[Row] = [
    ("item", -1, [0.5, -0.25], [1.0], 3),
    ("item", 7, [2.0, 0.125], [0.0], 1),
    ("user", -(2**63), [1.0, 1.0], [0.5], 2),
    ("user", 2**63 - 1, [-1.0, 0.0], [0.75], 4),
]
ROWS_B: list[Row] = [("hour", 0, [0.5], [1.5], 9)]
DENSE = {"w": np.array([[1.0, 2.0], [3.0, -4.0]], np.float32), "b": np.array([0.5], np.float32)}
OPTIMIZER = {
    name: {"exp_avg": value * np.float32(0.5), "exp_avg_sq": value * value, "step": np.array(12, np.int64)}
    for name, value in DENSE.items()
}


def table(rows: list[Row]) -> pa.Table:
    logical, ids, weights, state, counts = zip(*rows, strict=True)
    return pa.table(
        {
            "logical": pa.array(logical).dictionary_encode(),
            "id": pa.array(ids, pa.int64()),
            "weights": pa.array(weights, pa.list_(pa.float32(), len(weights[0]))),
            "state": pa.array(state, pa.list_(pa.float32(), len(state[0]))),
            "count": pa.array(counts, pa.uint32()),
            "last_seen": pa.array([5] * len(rows), pa.int64()),
        }
    )


def by_hand() -> str:
    digest = hashlib.sha256()
    for _, identity, weights, state, count in sorted(ROWS_A + ROWS_B):
        digest.update(struct.pack(f"<q{len(weights)}f{len(state)}fI", identity, *weights, *state, count))
    for name in sorted(DENSE):
        digest.update(struct.pack(f"<{DENSE[name].size}f", *DENSE[name].flat))
    for name in sorted(OPTIMIZER):
        digest.update(struct.pack(f"<{DENSE[name].size}f", *OPTIMIZER[name]["exp_avg"].flat))
        digest.update(struct.pack(f"<{DENSE[name].size}f", *OPTIMIZER[name]["exp_avg_sq"].flat))
        digest.update(struct.pack("<q", 12))
    return digest.hexdigest()


def test_vector() -> None:
    (written,) = re.findall(r"^    ([0-9a-f]{64})$", DOC.read_text(), re.MULTILINE)
    assert by_hand() == written
    assert model_digest({"item": table(ROWS_A), "hour": table(ROWS_B)}, DENSE, OPTIMIZER) == written


def test_layout_of_tables_does_not_matter() -> None:
    whole = {"item": table(ROWS_A), "hour": table(ROWS_B)}
    apart = {"a": table(ROWS_B), "b": table(ROWS_A[:2]), "c": table(ROWS_A[2:])}
    chunks = {
        "item": pa.concat_tables([table(ROWS_A[:1]), table(ROWS_A[1:])]).unify_dictionaries(),
        "hour": table(ROWS_B),
    }
    expected = model_digest(whole, DENSE, OPTIMIZER)
    assert model_digest(apart, DENSE, OPTIMIZER) == expected
    assert model_digest(chunks, DENSE, OPTIMIZER) == expected
    later = {name: rows.set_column(5, "last_seen", pa.array([9] * rows.num_rows)) for name, rows in whole.items()}
    assert model_digest(later, DENSE, OPTIMIZER) == expected, "when a row was last seen is not part of it"


@pytest.mark.parametrize("column", ["id", "weights", "state", "count"])
def test_each_number_matters(column: str) -> None:
    rows = table(ROWS_A).to_pylist()
    value = rows[1][column]
    rows[1][column] = [value[0] + 0.5, *value[1:]] if isinstance(value, list) else value + 1
    changed = pa.Table.from_pylist(rows, schema=table(ROWS_A).schema)
    assert model_digest({"t": changed}, DENSE, OPTIMIZER) != model_digest({"t": table(ROWS_A)}, DENSE, OPTIMIZER)


@pytest.mark.parametrize("slot", ["exp_avg", "exp_avg_sq", "step"])
def test_optimizer_state_matters(slot: str) -> None:
    changed = OPTIMIZER | {"w": OPTIMIZER["w"] | {slot: OPTIMIZER["w"][slot] + 1}}
    assert model_digest({}, DENSE, changed) != model_digest({}, DENSE, OPTIMIZER)


def test_empty_table() -> None:
    empty = table(ROWS_A).slice(0, 0)
    assert model_digest({"t": empty}, {}, {}) == hashlib.sha256().hexdigest()
