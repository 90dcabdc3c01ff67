"""DeepFM (Guo et al. 2017, "DeepFM: A Factorization-Machine based Neural Network for CTR Prediction").

``logit = bias + Σ first-order weights + w·dense + FM + MLP``. A table row holds ``dim`` numbers of its vector, then its
first-order weight. The FM part is the sum over all pairs of feature vectors of equal dimension of their inner product,
computed as ``½ Σ_d ((Σ_f v)² − Σ_f v²)`` (Rendle 2010). The MLP sees all vectors and the dense features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from preprocess.contracts import BatchLayout
from trainer.models.layers import Dropout, Linear


class DeepFm:
    """``trainer.contracts.Model``: see the module."""

    def __init__(self, layout: BatchLayout, mlp: Sequence[int], dropout: float, generator: torch.Generator) -> None:
        self.module = _Net(layout, mlp, dropout, generator)

    def row_width(self, dim: int) -> int:
        """``dim`` numbers and the first-order weight."""
        return dim + 1

    def forward(self, embeddings: Mapping[str, torch.Tensor], dense_BX: torch.Tensor) -> torch.Tensor:
        """Logits [B]."""
        return self.module(embeddings, dense_BX)


class _Net(torch.nn.Module):
    def __init__(self, layout: BatchLayout, mlp: Sequence[int], dropout: float, generator: torch.Generator) -> None:
        super().__init__()
        self._tables = [table.name for table in layout.tables]
        self._dims = {table.name: table.dim for table in layout.tables}
        width = sum(len(table.features) * table.dim for table in layout.tables) + len(layout.dense)
        layers: list[torch.nn.Module] = []
        for out in mlp:
            layers += [Linear(width, out, generator), torch.nn.ReLU()]
            if dropout:
                layers.append(Dropout(dropout, generator))
            width = out
        self.mlp = torch.nn.Sequential(*layers, Linear(width, 1, generator))
        self.linear = Linear(len(layout.dense), 1, generator) if layout.dense else None

    def forward(self, embeddings: Mapping[str, torch.Tensor], dense_BX: torch.Tensor) -> torch.Tensor:
        rows = dense_BX.shape[0]
        vectors = {name: embeddings[name][:, :, : self._dims[name]] for name in self._tables}
        inputs = [vector_FBD.transpose(0, 1).reshape(rows, -1) for vector_FBD in vectors.values()]
        logits_B = self.mlp(torch.cat([*inputs, dense_BX], dim=1)).squeeze(1)
        if self.linear is not None:
            logits_B = logits_B + self.linear(dense_BX).squeeze(1)
        for name in self._tables:
            logits_B = logits_B + embeddings[name][:, :, self._dims[name]].sum(0)
        for dim in sorted(set(self._dims.values())):
            logits_B = logits_B + _pairwise([vectors[name] for name in self._tables if self._dims[name] == dim])
        return logits_B


def _pairwise(vectors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Sum of inner products over all pairs of features [F, B, D] → [B]."""
    vector_FBD = vectors[0] if len(vectors) == 1 else torch.cat(list(vectors), dim=0)
    sum_BD = vector_FBD.sum(0)
    return 0.5 * (sum_BD * sum_BD - (vector_FBD * vector_FBD).sum(0)).sum(1)
