"""Contracts inside the trainer: tables, models, and what a checkpoint holds.

Shapes: ``B`` rows of a step, ``F`` id features of a physical table, ``U`` unique keys, ``D`` width of a row's weights,
``X`` dense features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ingest.contracts import T_MIN
from preprocess.contracts import Float32, Int64, PhysicalTable, TableIds, UInt16

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of the trainer.

    Args:
        directory: of checkpoints; below it ``<name>.v<n>/<step>/``.
        threads: of torch and numba; part of the bits of a model, stored in the manifest.
        keep: newest checkpoints kept.
        score_rows: newest scored rows kept in score files.
        bad_steps: non-finite steps in a row before stopping and rolling back.
        poll_bytes: read from the log at once.
        max_rows: most rows of one physical table.
        ledger: folder for ids of each step (``HEADRACE_LEDGER``), for tests.
    """

    directory: str
    threads: int = 1
    keep: int = 3
    score_rows: int = 10_000_000
    bad_steps: int = 10
    poll_bytes: int = 8 * 1024 * 1024
    max_rows: int = 100_000_000
    ledger: str | None = None


class EmbeddingTable(Protocol):
    """A physical table: rows keyed by (logical table, id), made when first seen, from the id alone.

    A *slot* is the place of a row; it has no meaning outside this process. Weights are ``width`` float32 a row. All
    results depend on keys, never on slots or the history of growth.
    """

    @property
    def spec(self) -> PhysicalTable:
        """Dimension, optimizer and logical tables."""
        ...

    @property
    def width(self) -> int:
        """D: weights of one row (the dimension plus what the model adds)."""

    @property
    def rows(self) -> int:
        """Rows that exist."""

    def nbytes(self) -> int:
        """Bytes of memory in use."""

    def find_or_insert(self, logical_U: UInt16, ids_U: Int64, now_us: int) -> Int64:
        """Slots [U]; unknown keys get new rows. Marks the rows as seen at ``now_us`` and adds 1 to their count.
        Keys are unique. Raises ``Exhausted`` at the reserved size, with nothing changed."""

    def pool(self, slots_U: Int64, ids: TableIds, out_FBD: Float32) -> None:
        """Pooled embeddings of a local batch into ``out_FBD`` [F, B, D] (may be a strided view): sum or mean over each
        row's ids in their order, zeros where there are none."""

    def accumulate(self, ids: TableIds, grad_FBD: Float32, into_U: Int32Map, grads_VD: Float32) -> None:
        """Add the gradient of each unique id of a local batch to ``grads_VD[into_U[u]]``, in the order of occurrence."""

    def apply(self, slots_V: Int64, grads_VD: Float32) -> None:
        """One optimizer step on distinct slots; gradients are finite (checked by the caller)."""

    def export(self) -> pa.RecordBatchReader:
        """All rows sorted by (logical name, signed id), copied piece by piece as they are read: read them before the table
        changes. ``logical`` dictionary<string>, ``id`` int64, ``weights`` fixed_size_list<float32, D>, ``state``
        fixed_size_list<float32, S>, ``count`` uint32, ``last_seen`` int64."""

    def load(self, rows: pa.RecordBatchReader) -> None:
        """Fill an empty table from ``export``. Raises ``SchemaMismatch`` if it does not fit."""


Int32Map = npt.NDArray[np.int32]


class Model(Protocol):
    """A dense model over pooled embeddings. ``torch`` is only imported by implementations."""

    @property
    def module(self) -> torch.nn.Module:
        """Dense parameters."""

    def row_width(self, dim: int) -> int:
        """Weights a table row needs for a dimension: ``dim``, or more (a first-order weight)."""

    def forward(self, embeddings: Mapping[str, torch.Tensor], dense_BX: torch.Tensor) -> torch.Tensor:
        """Logits [B] from pooled embeddings [F, B, D] by physical table."""


class Step(NamedTuple):
    """Name of a step: bucket of event time, and j inside it. Steps are trained in this order."""

    bucket: int
    number: int


@dataclass(frozen=True, slots=True)
class PartitionPosition:
    """How far a partition of ``exp`` was used.

    Args:
        next_offset: of the first message not used. last_offset, last_digest: of the last one used (−1 and empty if none).
        V: the frontier seen.
        last: step of the last local batch used. over: that batch was short, so its bucket has no more in this partition.
        missing: messages after it that could not be read, whose numbers are therefore unknown.
    """

    next_offset: int
    last_offset: int = -1
    last_digest: str = ""
    V: int = T_MIN
    last: Step | None = None
    over: bool = False
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Tally:
    """What happened over the life of a version, in the surviving state.

    Args:
        rows: trained. rejected_rows: of local batches kept out (as far as their headers could be read).
        bad_steps: skipped for a value that is not finite; bad_in_a_row: of them the last ones, without a good step between.
        unreadable: messages that could not be decoded; unreadable_in_a_row: likewise.
        skewed_rows: scored after a row more than 1 h newer was trained. newest_us: largest event time trained.
    """

    rows: int = 0
    rejected_rows: int = 0
    bad_steps: int = 0
    bad_in_a_row: int = 0
    unreadable: int = 0
    unreadable_in_a_row: int = 0
    skewed_rows: int = 0
    newest_us: int = T_MIN


@dataclass(frozen=True, slots=True)
class TrainerState:
    """Everything a checkpoint holds besides score files: one instant.

    ``tables`` by physical table, each to be read once; ``dense`` by parameter; ``optimizer`` by parameter and slot
    (``exp_avg``, ``exp_avg_sq`` float32 of the parameter's shape; ``step`` int64 without dimensions). ``step`` counts all
    steps, skipped ones too.
    """

    step: int
    at: Step | None
    positions: Sequence[PartitionPosition]
    tally: Tally
    tables: Mapping[str, pa.RecordBatchReader]
    dense: Mapping[str, Float32]
    optimizer: Mapping[str, Mapping[str, npt.NDArray[np.generic]]]
    rng: bytes
