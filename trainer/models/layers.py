"""Layers whose randomness comes from a generator of their own, which is saved with the model."""

from __future__ import annotations

import math

import torch


def linear(inputs: int, outputs: int, generator: torch.Generator) -> torch.nn.Linear:
    """A linear layer with weights and bias uniform in ±1/√inputs (torch's own default), drawn from ``generator``."""
    layer = torch.nn.utils.skip_init(torch.nn.Linear, inputs, outputs)
    bound = 1 / math.sqrt(inputs) if inputs else 0.0
    with torch.no_grad():
        layer.weight.uniform_(-bound, bound, generator=generator)
        layer.bias.uniform_(-bound, bound, generator=generator)
    return layer  # type: ignore[no-any-return]


class Dropout(torch.nn.Module):
    """Dropout in training: each value is zero with probability ``rate``, the others grow by 1/(1 − rate)."""

    def __init__(self, rate: float, generator: torch.Generator) -> None:
        super().__init__()
        self._rate = rate
        self._generator = generator

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Same shape. Identity in evaluation mode."""
        if not self.training:
            return values
        keep = torch.rand(values.shape, generator=self._generator) >= self._rate
        return values * keep / (1 - self._rate)
