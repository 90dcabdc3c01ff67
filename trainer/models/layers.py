"""Layers whose randomness comes from a generator of their own, which is saved with the model."""

from __future__ import annotations

import math

import torch


class Linear(torch.nn.Module):
    """``x · weightᵀ + bias``, both uniform in ±1/√inputs at first (as torch's own layer), drawn from ``generator``."""

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = torch.nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound, generator=generator))
        self.bias = torch.nn.Parameter(torch.empty(outputs).uniform_(-bound, bound, generator=generator))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """[B, inputs] → [B, outputs]."""
        return torch.nn.functional.linear(values, self.weight, self.bias)


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
