"""One step of learning: look up, forward, score, backward, check, update. Tables are ours, the dense part is torch.

Shapes: ``B`` rows of the step, ``F`` id features of a table, ``U`` unique keys of a local batch, ``V`` of the step,
``D`` width of a row, ``X`` dense features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import torch

from experiments.experiment import Experiment
from preprocess.contracts import BatchLayout, Float32, Int64, LocalBatch, PhysicalTable, TableIds
from streams.errors import SchemaMismatch
from trainer.contracts import EmbeddingTable, Int32Map, TrainerState
from trainer.dense import Dense
from trainer.models.build import build
from trainer.tables.merge import merge_slots

LARGEST_GRADIENT = 1e15

MakeTable = Callable[[PhysicalTable, int], EmbeddingTable]
"""A new, empty table for a physical table and a row width."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step did.

    Args:
        labels_B, scores_B: float32; scores are probabilities from *before* the step. times_B: int64 µs.
        fault: which values were not finite, or far too large; then nothing was updated. Empty if all went well.
    """

    labels_B: Float32
    scores_B: Float32
    times_B: Int64
    fault: str


class Learner:
    """The model of a version: tables, dense parameters, optimizer, generator. Not thread safe."""

    def __init__(self, experiment: Experiment, layout: BatchLayout, make_table: MakeTable) -> None:
        self._nominal_rows = experiment.train.batch_rows
        self._layout = layout
        self._generator = torch.Generator().manual_seed(experiment.train.seed)
        self._model = build(experiment, layout, self._generator)
        self._model.module.train()
        self.dense = Dense(self._model.module, experiment.train.dense_optimizer.adam)
        self.tables = {table.name: self._make(table, make_table) for table in layout.tables}

    def _make(self, table: PhysicalTable, make_table: MakeTable) -> EmbeddingTable:
        width = self._model.row_width(table.dim)
        return make_table(replace(table, dim=min(table.dim, width)), width)

    def train(self, parts: Sequence[LocalBatch]) -> Outcome:
        """One step on the local batches, in their order. At least one row.

        The loss is the weighted sum over the rows, divided by the *nominal* rows of a step: so a row of a short step does
        not weigh more than others. New ids get their rows also when the step turns out to be faulty.
        """
        labels_B, weights_B, times_B, dense_BX = (
            _join([getattr(part, name) for part in parts]) for name in ("labels_B", "weights_B", "times_B", "dense_BX")
        )
        now_us = int(times_B.max())
        gathers = [_Gather(self.tables[table.name], table, parts, now_us) for table in self._layout.tables]
        embeddings = {gather.name: gather.embeddings(len(labels_B)) for gather in gathers}
        logits_B = self._model.forward(embeddings, torch.from_numpy(dense_BX))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(
            logits_B, torch.from_numpy(labels_B), torch.from_numpy(weights_B), reduction="sum"
        )
        scores_B = torch.sigmoid(logits_B.detach()).numpy()
        self.dense.clear_grads()
        (loss / self._nominal_rows).backward()
        sums = [gather.gradients() for gather in gathers]
        fault = _fault(
            float(loss.detach()), [(gather.name, grads) for gather, grads in zip(gathers, sums, strict=True)]
        )
        if not fault and not _usable(self.dense.grads):
            fault = "a gradient of the dense parameters"
        if not fault:
            for gather, grads_VD in zip(gathers, sums, strict=True):
                gather.table.apply(gather.slots_V, grads_VD)
            self.dense.apply(min(1.0, len(labels_B) / self._nominal_rows))
        return Outcome(labels_B, scores_B, times_B, fault)

    def export(self) -> dict[str, pa.RecordBatchReader]:
        """All rows of all tables, by physical table; to be read before the next step."""
        return {name: table.export() for name, table in self.tables.items()}

    def rng(self) -> bytes:
        """State of the generator."""
        return self._generator.get_state().numpy().tobytes()

    def load(self, state: TrainerState) -> None:
        """Take over a saved state; this learner is new. Raises ``SchemaMismatch`` if it is the state of another model."""
        if set(state.tables) != set(self.tables):
            raise SchemaMismatch(
                expected=f"the tables {', '.join(sorted(self.tables))}",
                got=", ".join(sorted(state.tables)) or "none",
                where="tables of a checkpoint",
                do="The checkpoint is not whole or belongs to another model; it can't be used.",
            )
        for name, rows in state.tables.items():
            self.tables[name].load(rows)
        self.dense.load(state.dense, state.optimizer)
        self._generator.set_state(torch.from_numpy(np.frombuffer(state.rng, np.uint8).copy()))

    def nbytes(self) -> int:
        """Memory of the tables."""
        return sum(table.nbytes() for table in self.tables.values())


class _Gather:
    """One table's part of a step: the slots of the keys, pooled embeddings, and the way back for gradients."""

    def __init__(self, table: EmbeddingTable, spec: PhysicalTable, parts: Sequence[LocalBatch], now_us: int) -> None:
        self.table = table
        self.name = spec.name
        self._features = len(spec.features)
        self._rows = [part.rows for part in parts]
        self._ids: list[TableIds] = [part.tables[spec.name] for part in parts]
        self._slots = [table.find_or_insert(ids.logical_U, ids.ids_U, now_us) for ids in self._ids]
        self.slots_V, self._into = merge_slots(self._slots)
        self._leaf: torch.Tensor | None = None

    def embeddings(self, rows: int) -> torch.Tensor:
        """Pooled embeddings [F, B, D], a leaf that wants a gradient."""
        pooled_FBD = np.empty((self._features, rows, self.table.width), np.float32)
        for slots, ids, place in zip(self._slots, self._ids, self._places(), strict=True):
            self.table.pool(slots, ids, pooled_FBD[:, place])
        self._leaf = torch.from_numpy(pooled_FBD).requires_grad_()
        return self._leaf

    def gradients(self) -> Float32:
        """Sum of the gradients of each distinct row [V, D], in partition order; zeros before ``backward``."""
        sums_VD = np.zeros((len(self.slots_V), self.table.width), np.float32)
        assert self._leaf is not None
        if self._leaf.grad is not None:
            grads_FBD = self._leaf.grad.numpy()
            into: Int32Map
            for ids, into, place in zip(self._ids, self._into, self._places(), strict=True):
                self.table.accumulate(ids, grads_FBD[:, place], into, sums_VD)
        return sums_VD

    def _places(self) -> list[slice]:
        ends = np.cumsum(self._rows).tolist()
        return [slice(end - rows, end) for end, rows in zip(ends, self._rows, strict=True)]


def _join(arrays: list[np.ndarray]) -> np.ndarray:
    joined = np.concatenate(arrays)
    return joined if joined.flags.writeable else joined.copy()


def _fault(loss: float, grads: Sequence[tuple[str, Float32]]) -> str:
    if not np.isfinite(loss):
        return f"the loss ({loss})"
    return next((f"a gradient of the table {name}" for name, sums in grads if not _usable(sums)), "")


def _usable(grads: Float32) -> bool:
    """Whether all gradients are finite, and small enough that the optimizers' sums of squares stay so too."""
    return not grads.size or bool(max(grads.max(), -grads.min()) <= LARGEST_GRADIENT)  # a NaN is not ≤


def state_of(learner: Learner) -> Mapping[str, object]:
    """The model's part of a ``TrainerState``, of this moment: to be read before the next step."""
    return {
        "tables": learner.export(),
        "dense": learner.dense.parameters(),
        "optimizer": learner.dense.optimizer(),
        "rng": learner.rng(),
    }
