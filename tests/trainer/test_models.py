from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from preprocess.contracts import BatchLayout, layout_of
from tests.trainer.stream import experiment
from trainer.models.build import build
from trainer.models.layers import Dropout

ROWS = 6


def generator(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def inputs(layout: BatchLayout, width: int | None = None) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    embeddings = {
        table.name: torch.randn(len(table.features), ROWS, width or table.dim + 1, generator=generator(9))
        for table in layout.tables
    }
    return embeddings, torch.randn(ROWS, len(layout.dense), generator=generator(8))


def test_deepfm_is_its_formula() -> None:
    spec = experiment(model={"deepfm": {"mlp": []}})
    layout = layout_of(spec)
    model = build(spec, layout, generator())
    embeddings, dense_BX = inputs(layout)
    got = model.forward(embeddings, dense_BX)
    net = dict(model.module.named_parameters())
    for row in range(ROWS):
        vectors = {name: [e[f, row, :-1] for f in range(len(e))] for name, e in embeddings.items()}
        flat = torch.cat([torch.cat(vectors[table.name]) for table in layout.tables] + [dense_BX[row]])
        expected = net["mlp.0.weight"][0] @ flat + net["mlp.0.bias"][0]
        expected = expected + net["linear.weight"][0] @ dense_BX[row] + net["linear.bias"][0]
        expected = expected + sum(e[:, row, -1].sum() for e in embeddings.values())
        for same_dim in vectors.values():  # the two tables of the example have different dimensions
            expected = expected + sum(a @ b for a, b in itertools.combinations(same_dim, 2))
        torch.testing.assert_close(got[row], torch.as_tensor(expected), rtol=1e-4, atol=1e-5)


def test_pairs_go_over_tables_of_equal_dimension() -> None:
    table = {"dim": 4, "init": 0.5}
    spec = experiment(tables={"default": {"dim": 4}, "item2": table}, model={"deepfm": {"mlp": [4]}})
    layout = layout_of(spec)
    assert len(layout.tables) == 2
    model = build(spec, layout, generator())
    embeddings, dense_BX = inputs(layout)
    base = model.forward(embeddings, dense_BX)
    embeddings["item2"] = embeddings["item2"] * 2
    assert not torch.allclose(base, model.forward(embeddings, dense_BX))


def test_logistic_regression_is_its_formula() -> None:
    spec = experiment(model="lr")
    layout = layout_of(spec)
    model = build(spec, layout, generator())
    assert model.row_width(16) == 1
    embeddings, dense_BX = inputs(layout, width=1)
    with torch.no_grad():
        for parameter in model.module.parameters():
            parameter.fill_(0.5)
    expected = 0.5 + 0.5 * dense_BX.sum(1) + sum(e[:, :, 0].sum(0) for e in embeddings.values())
    torch.testing.assert_close(model.forward(embeddings, dense_BX), expected)


@pytest.mark.parametrize("model", ["lr", {"deepfm": {"mlp": []}}, {"deepfm": {"mlp": [3, 2]}}])
@pytest.mark.parametrize(
    "features",
    [{"p": {"dense": "price"}}, {"u": {"id": "user"}}, {"u": {"id": "user"}, "p": {"dense": "price"}}],
)
def test_any_mix_of_features(model: object, features: object) -> None:
    spec = experiment(model=model, features=features, tables={})
    layout = layout_of(spec)
    built = build(spec, layout, generator())
    embeddings = {
        t.name: torch.ones(len(t.features), 2, built.row_width(t.dim), requires_grad=True) for t in layout.tables
    }
    logits = built.forward(embeddings, torch.ones(2, len(layout.dense)))
    assert logits.shape == (2,)
    logits.sum().backward()
    assert all(e.grad is not None for e in embeddings.values())


def test_parameters_come_from_the_seed_and_leave_the_global_generator_alone() -> None:
    spec = experiment()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, other = (build(spec, layout_of(spec), generator(seed)).module for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))
    bound = 1 / np.sqrt(first.mlp[0].weight.shape[1])
    assert float(first.mlp[0].weight.detach().abs().max()) <= bound


def test_dropout() -> None:
    layer = Dropout(0.25, generator())
    out = layer(torch.ones(20_000))
    torch.testing.assert_close(out.unique(), torch.tensor([0.0, 1 / 0.75]))
    assert abs(float(out.mean()) - 1) < 0.02
    assert torch.equal(layer.eval()(torch.ones(5)), torch.ones(5))
