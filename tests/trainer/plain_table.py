"""A table of dicts: the plainest ``EmbeddingTable``, to compare with, and the smallest thing a session can train."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa

from preprocess.contracts import Float32, Int64, PhysicalTable, TableIds, UInt16
from trainer.contracts import Int32Map


class PlainTable:
    """Keys, slots and rows in Python; row-wise Adagrad written as the formula."""

    def __init__(self, spec: PhysicalTable, width: int, *, seed: int, max_rows: int) -> None:
        self.spec, self.width, self._seed = spec, width, seed
        self._slots: dict[tuple[int, int], int] = {}
        self._weights: list[np.ndarray] = []
        self._state: list[np.float32] = []
        self._count: list[int] = []
        self._seen: list[int] = []

    @property
    def rows(self) -> int:
        return len(self._slots)

    def nbytes(self) -> int:
        return 0

    def find_or_insert(self, logical_U: UInt16, ids_U: Int64, now_us: int) -> Int64:
        slots = []
        for key in zip(logical_U.tolist(), ids_U.tolist(), strict=True):
            if key not in self._slots:
                self._slots[key] = len(self._weights)
                text = f"{self._seed}/{self.spec.logical[key[0]]}/{key[1]}"
                rng = np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little"))
                self._weights.append(rng.uniform(-self.spec.init, self.spec.init, self.width).astype(np.float32))
                self._state.append(np.float32(self.spec.optimizer.initial))
                self._count.append(0)
                self._seen.append(0)
            slot = self._slots[key]
            self._count[slot] += 1
            self._seen[slot] = max(self._seen[slot], now_us)
            slots.append(slot)
        return np.array(slots, np.int64)

    def pool(self, slots_U: Int64, ids: TableIds, out_FBD: Float32) -> None:
        features, rows, _ = out_FBD.shape
        out_FBD[...] = 0
        for f, b, u, share in self._cells(ids, features, rows):
            out_FBD[f, b] += self._weights[slots_U[u]] * share

    def accumulate(self, ids: TableIds, grad_FBD: Float32, into_U: Int32Map, grads_VD: Float32) -> None:
        features, rows, _ = grad_FBD.shape
        for f, b, u, share in self._cells(ids, features, rows):
            grads_VD[into_U[u]] += grad_FBD[f, b] * share

    def apply(self, slots_V: Int64, grads_VD: Float32) -> None:
        optimizer = self.spec.optimizer
        for slot, grad in zip(slots_V.tolist(), grads_VD, strict=True):
            self._state[slot] += np.float32((grad * grad).sum() / np.float32(self.width))
            rate = np.float32(optimizer.lr) / (np.sqrt(self._state[slot]) + np.float32(optimizer.eps))
            self._weights[slot] = self._weights[slot] - rate * grad

    def export(self) -> pa.Table:
        keys = sorted(self._slots, key=lambda key: (self.spec.logical[key[0]], key[1]))
        slots = [self._slots[key] for key in keys]
        weights = np.array([self._weights[slot] for slot in slots], np.float32).reshape(-1)
        state = np.array([self._state[slot] for slot in slots], np.float32)
        return pa.table(
            {
                "logical": pa.array([self.spec.logical[key[0]] for key in keys], pa.string()).dictionary_encode(),
                "id": pa.array([key[1] for key in keys], pa.int64()),
                "weights": pa.FixedSizeListArray.from_arrays(pa.array(weights), self.width),
                "state": pa.FixedSizeListArray.from_arrays(pa.array(state), 1),
                "count": pa.array([self._count[slot] for slot in slots], pa.uint32()),
                "last_seen": pa.array([self._seen[slot] for slot in slots], pa.int64()),
            }
        )

    def load(self, rows: pa.Table) -> None:
        for row in rows.to_pylist():
            self._slots[(self.spec.logical.index(row["logical"]), row["id"])] = len(self._weights)
            self._weights.append(np.array(row["weights"], np.float32))
            self._state.append(np.float32(row["state"][0]))
            self._count.append(row["count"])
            self._seen.append(row["last_seen"])

    def _cells(self, ids: TableIds, features: int, rows: int):  # type: ignore[no-untyped-def]
        offsets = ids.offsets if ids.offsets is not None else np.arange(features * rows + 1)
        for f in range(features):
            for b in range(rows):
                start, end = int(offsets[f * rows + b]), int(offsets[f * rows + b + 1])
                mean = self.spec.features[f].pool == "mean" and end > start
                share = np.float32(1 / (end - start)) if mean else np.float32(1)
                for n in range(start, end):
                    yield f, b, int(ids.inverse_N[n]), share
