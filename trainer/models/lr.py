"""Logistic regression over ids and dense features: ``logit = bias + Σ weights of the ids + w·dense``.

A table row is one weight, whatever ``dim`` says.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from preprocess.contracts import BatchLayout


class LogisticRegression:
    """``trainer.contracts.Model``: see the module."""

    def __init__(self, layout: BatchLayout) -> None:
        self.module = _Net(layout)

    def row_width(self, dim: int) -> int:
        """One weight."""
        return 1

    def forward(self, embeddings: Mapping[str, torch.Tensor], dense_BX: torch.Tensor) -> torch.Tensor:
        """Logits [B]."""
        return self.module(embeddings, dense_BX)


class _Net(torch.nn.Module):
    def __init__(self, layout: BatchLayout) -> None:
        super().__init__()
        self._tables = [table.name for table in layout.tables]
        self.bias = torch.nn.Parameter(torch.zeros(1))
        self.weight = torch.nn.Parameter(torch.zeros(len(layout.dense))) if layout.dense else None

    def forward(self, embeddings: Mapping[str, torch.Tensor], dense_BX: torch.Tensor) -> torch.Tensor:
        logits_B = self.bias.expand(dense_BX.shape[0])
        if self.weight is not None:
            logits_B = logits_B + (dense_BX * self.weight).sum(1)
        for name in self._tables:
            logits_B = logits_B + embeddings[name][:, :, 0].sum(0)
        return logits_B
