from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from preprocess.contracts import LocalBatch, layout_of
from tests.trainer.stream import experiment, local_batch
from trainer.learner import Learner
from trainer.tables.dynamic import DynamicTable
from trainer.tables.reference import ReferenceTable

SPEC = experiment(model={"deepfm": {"mlp": [8]}})
LAYOUT = layout_of(SPEC)
Make = type[DynamicTable] | type[ReferenceTable]


def learner(make: Make = DynamicTable, **changes: object) -> Learner:
    spec = experiment(**({"model": {"deepfm": {"mlp": [8]}}} | changes))
    return Learner(spec, LAYOUT, lambda table, width: make(table, width, seed=7, max_rows=10_000))


def batch(seed: int, rows: int = 4) -> LocalBatch:
    return local_batch(SPEC, 0, 0, rows, seed, 0)


def weights(of: Learner) -> dict[str, np.ndarray]:
    out = {}
    for name, rows in of.export().items():
        table = rows.read_all()
        column = table["weights"].combine_chunks()
        out[name] = column.flatten().to_numpy().reshape(table.num_rows, -1)
    return out


def test_two_halves_are_one_batch() -> None:
    """A step over two local batches is the step over their rows: keys of both are merged."""
    left, right = batch(1), batch(2)
    one = learner()
    one.train([left, right])
    expected, _ = torch_step([left, right])
    got = {name: one.export()[name].read_all().to_pylist() for name in one.tables}
    for name, rows in got.items():
        for row in rows:
            key = (name, row["logical"], row["id"])
            np.testing.assert_allclose(row["weights"], expected[key], rtol=2e-4, atol=1e-6)


def torch_step(parts: list[LocalBatch]) -> tuple[dict[tuple[str, str, int], np.ndarray], float]:
    """The same step with autograd all the way to single rows, and row-wise Adagrad by hand."""
    fresh = learner()
    leaves: dict[tuple[str, str, int], torch.Tensor] = {}
    for table in LAYOUT.tables:
        rows = fresh.tables[table.name]
        for part in parts:
            ids = part.tables[table.name]
            rows.find_or_insert(ids.logical_U, ids.ids_U, 0)
        for row in rows.export().read_all().to_pylist():
            key = (table.name, row["logical"], row["id"])
            leaves[key] = torch.tensor(row["weights"], requires_grad=True)
    embeddings = {}
    for table in LAYOUT.tables:
        cells = []
        for f, feature in enumerate(table.features):
            for part in parts:
                ids = part.tables[table.name]
                offsets = ids.offsets if ids.offsets is not None else np.arange(len(table.features) * part.rows + 1)
                for b in range(part.rows):
                    span = ids.inverse_N[offsets[f * part.rows + b] : offsets[f * part.rows + b + 1]]
                    found = [leaves[(table.name, table.logical[ids.logical_U[u]], int(ids.ids_U[u]))] for u in span]
                    pooled = torch.stack(found).sum(0) if found else torch.zeros(table.dim + 1)
                    cells.append(pooled / len(found) if found and feature.pool == "mean" else pooled)
        total = sum(part.rows for part in parts)
        embeddings[table.name] = torch.stack(cells).view(len(table.features), total, -1)
    dense = torch.from_numpy(np.concatenate([part.dense_BX for part in parts]))
    labels = torch.from_numpy(np.concatenate([part.labels_B for part in parts]))
    logits = fresh._model.forward(embeddings, dense)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="sum") / SPEC.train.batch_rows
    loss.backward()
    out = {}
    for key, leaf in leaves.items():
        table = next(t for t in LAYOUT.tables if t.name == key[0])
        grad = leaf.grad.numpy() if leaf.grad is not None else np.zeros(table.dim + 1, np.float32)
        state = table.optimizer.initial + (grad * grad).mean()
        out[key] = leaf.detach().numpy() - table.optimizer.lr * grad / (np.sqrt(state) + table.optimizer.eps)
    return out, float(loss.detach())


def test_plain_table_trains_the_same() -> None:
    one, two = learner(), learner(ReferenceTable)
    for seed in range(3, 8):
        parts = [batch(seed), batch(seed + 100, rows=3)]
        np.testing.assert_allclose(one.train(parts).scores_B, two.train(parts).scores_B, rtol=1e-5)
    for name, got in weights(one).items():
        np.testing.assert_allclose(got, weights(two)[name], rtol=1e-3, atol=1e-6)


def test_logistic_regression_ignores_the_dimension() -> None:
    one = learner(model="lr", tables={"default": {"dim": 16}, "item2": {"dim": 3}})
    one.train([batch(1)])
    assert {table.width for table in one.tables.values()} == {1}
    assert all(np.isfinite(values).all() for values in weights(one).values())


def test_scores_are_from_before_the_step() -> None:
    one, part = learner(), batch(5)
    first = one.train([part]).scores_B
    second = one.train([part]).scores_B
    loss = [-(np.log(s) * part.labels_B + np.log(1 - s) * (1 - part.labels_B)).sum() for s in (first, second)]
    assert loss[1] < loss[0]
    assert not np.array_equal(first, second)


def test_short_step_weighs_its_rows_as_a_full_one() -> None:
    """The loss is divided by the nominal rows: one row alone moves its table rows by 1/8 of what sum/1 would give."""
    one, part = learner(), batch(6, rows=1)
    before = one.dense.values.copy()
    one.train([part])
    moved = float(np.abs(one.dense.values - before).max())
    rate = SPEC.train.dense_optimizer.adam.lr  # the first step of Adam moves by its rate, whatever the gradient
    assert moved == pytest.approx(rate / SPEC.train.batch_rows, rel=0.01)
    _, loss = torch_step([part])
    score = float(learner().train([part]).scores_B[0])
    assert loss * SPEC.train.batch_rows == pytest.approx(-np.log(score if part.labels_B[0] else 1 - score), rel=1e-4)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
def test_fault_changes_no_weight(value: float) -> None:
    one = learner()
    one.train([batch(1)])
    before, dense = weights(one), one.dense.values.copy()
    bad = batch(1)
    broken = bad.dense_BX.copy()
    broken[2, 0] = value
    outcome = one.train([replace(bad, dense_BX=broken)])
    if outcome.fault:
        after = weights(one)
        assert all(np.array_equal(before[name], after[name]) for name in before)
        assert np.array_equal(dense, one.dense.values)
    assert outcome.fault or value == 3e38
    assert all(np.isfinite(values).all() for values in weights(one).values())
    assert np.isfinite(one.dense.values).all()


def test_weights_of_rows_count() -> None:
    part = batch(8)
    heavy, light = learner(), learner()
    heavy.train([replace(part, weights_B=np.array([1, 0, 0, 0], np.float32))])
    light.train([replace(part, weights_B=np.array([1, 1, 1, 1], np.float32))])
    assert heavy.dense.grads.tobytes() != light.dense.grads.tobytes()
