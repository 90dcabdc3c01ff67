from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.experiment import Adam
from streams.errors import SchemaMismatch
from trainer.dense import Dense, adam_fast, adam_reference


@pytest.mark.parametrize("size", [0, 1, 7, 16, 33, 4_097])
def test_fast_is_the_reference_bit_for_bit(size: int) -> None:
    rng = np.random.default_rng(size)
    ours = [rng.standard_normal(size).astype(np.float32) for _ in range(4)]
    ours[3] = np.abs(ours[3])
    plain = [values.copy() for values in ours]
    for step in range(1, 6):
        factors = np.array([0.1, 0.001, 0.01 / (1 - 0.9**step), 1 / np.sqrt(1 - 0.999**step), 1e-8], np.float32)
        adam_fast(ours[0], ours[1], (ours[2], ours[3]), factors)
        adam_reference(plain[0], plain[1], (plain[2], plain[3]), factors)
        ours[1] *= np.float32(-0.7)
        plain[1] *= np.float32(-0.7)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(ours, plain, strict=True))


def net() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))


def test_same_as_torch_adam() -> None:
    ours, theirs = net(), net()
    spec = Adam(lr=0.05, beta1=0.8, beta2=0.99, eps=1e-6)
    dense = Dense(ours, spec)
    optimizer = torch.optim.Adam(theirs.parameters(), lr=0.05, betas=(0.8, 0.99), eps=1e-6, foreach=False)
    rng = np.random.default_rng(0)
    for _ in range(50):
        inputs = torch.from_numpy(rng.standard_normal((16, 5)).astype(np.float32))
        dense.clear_grads()
        ours(inputs).square().sum().backward()
        dense.apply(1.0)
        optimizer.zero_grad()
        theirs(inputs).square().sum().backward()
        optimizer.step()
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6, msg=name)


def test_share_scales_the_learning_rate_of_a_short_step() -> None:
    moved = []
    for share in (1.0, 0.25):
        module = net()
        dense = Dense(module, Adam(lr=0.1))
        before = dense.values.copy()
        dense.clear_grads()
        module(torch.ones(2, 5)).sum().backward()
        dense.apply(share)
        moved.append(before - dense.values)
    np.testing.assert_allclose(moved[1], moved[0] * 0.25, rtol=1e-4, atol=1e-7)


def test_saved_and_loaded_goes_on_the_same() -> None:
    dense = Dense(net(), Adam())
    dense.grads[:] = np.linspace(-1, 1, len(dense.grads))
    for _ in range(3):
        dense.apply(1.0)
    other = Dense(net(), Adam())
    other.load(dense.parameters(), dense.optimizer())
    other.grads[:] = dense.grads
    dense.apply(0.5)
    other.apply(0.5)
    assert dense.values.tobytes() == other.values.tobytes()
    assert int(other.optimizer()["0.weight"]["step"]) == 4


def test_other_names_or_shapes_are_refused() -> None:
    dense = Dense(net(), Adam())
    parameters, optimizer = dense.parameters(), dense.optimizer()
    with pytest.raises(SchemaMismatch):
        dense.load({k: v for k, v in parameters.items() if k != "0.bias"}, optimizer)
    with pytest.raises(SchemaMismatch):
        dense.load(parameters | {"0.bias": np.zeros(4, np.float32)}, optimizer)
    with pytest.raises(SchemaMismatch):
        dense.load(parameters, {k: v for k, v in optimizer.items() if k != "0.bias"})
