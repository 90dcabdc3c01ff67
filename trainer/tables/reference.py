"""The plain version of ``DynamicTable``: a dict and loops. What the fast one is compared with."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from preprocess.contracts import Float32, Int64, PhysicalTable, TableIds, UInt16
from trainer.contracts import Int32Map
from trainer.tables.dynamic import export_schema, salt_of

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix64(x: int) -> int:
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


class ReferenceTable:
    """``EmbeddingTable``, plainly. Slots are places in lists."""

    def __init__(self, spec: PhysicalTable, width: int, *, seed: int, max_rows: int) -> None:
        del max_rows
        self.spec, self.width, self._seed = spec, width, seed
        self._slots: dict[tuple[int, int], int] = {}
        self._weights: list[Float32] = []
        self._state: list[np.float32] = []
        self._count: list[int] = []
        self._last_seen: list[int] = []

    @property
    def rows(self) -> int:
        """Rows that exist."""
        return len(self._slots)

    def nbytes(self) -> int:
        """A guess."""
        return self.rows * (self.width * 4 + 100)

    def find_or_insert(self, logical_U: UInt16, ids_U: Int64, now_us: int) -> Int64:
        """Slots of distinct keys; unknown ones get new rows."""
        slots = []
        for logical, key in zip(logical_U.tolist(), ids_U.tolist(), strict=True):
            if (logical, key) not in self._slots:
                self._slots[logical, key] = len(self._weights)
                self._weights.append(self._initial(logical, key))
                self._state.append(np.float32(self.spec.optimizer.initial))
                self._count.append(0)
                self._last_seen.append(0)
            slot = self._slots[logical, key]
            self._count[slot] += 1
            self._last_seen[slot] = now_us
            slots.append(slot)
        return np.array(slots, np.int64)

    def pool(self, slots_U: Int64, ids: TableIds, out_FBD: Float32) -> None:
        """Pooled embeddings of a local batch, in place."""
        for f, b, uniques in self._cells(ids, out_FBD.shape[1]):
            out_FBD[f, b] = self._weights[slots_U[uniques[0]]] if uniques else 0
            for u in uniques[1:]:
                out_FBD[f, b] += self._weights[slots_U[u]]
            out_FBD[f, b] *= self._scale(f, len(uniques))

    def accumulate(self, ids: TableIds, grad_FBD: Float32, into_U: Int32Map, grads_VD: Float32) -> None:
        """Add the gradients of a local batch's ids to ``grads_VD``, in place."""
        for f, b, uniques in self._cells(ids, grad_FBD.shape[1]):
            for u in uniques:
                grads_VD[into_U[u]] += grad_FBD[f, b] * self._scale(f, len(uniques))

    def apply(self, slots_V: Int64, grads_VD: Float32) -> None:
        """One step of row-wise Adagrad on distinct slots, in place."""
        assert np.isfinite(grads_VD).all()
        lr, eps = np.float32(self.spec.optimizer.lr), np.float32(self.spec.optimizer.eps)
        for slot, grad in zip(slots_V.tolist(), grads_VD, strict=True):
            total = np.float32(0)
            for value in grad:
                total += value * value
            self._state[slot] += total / np.float32(self.width)
            self._weights[slot] -= lr / (np.sqrt(self._state[slot]) + eps) * grad

    def export(self) -> pa.RecordBatchReader:
        """All rows, sorted by (logical name, signed id)."""
        order = sorted(self._slots, key=lambda key: (self.spec.logical[key[0]], key[1]))
        slots = [self._slots[key] for key in order]
        columns = [
            pa.array([self.spec.logical[key[0]] for key in order], pa.string()).dictionary_encode(),
            pa.array([key[1] for key in order], pa.int64()),
            pa.array([self._weights[s].tolist() for s in slots], pa.list_(pa.float32(), self.width)),
            pa.array([[float(self._state[s])] for s in slots], pa.list_(pa.float32(), 1)),
            pa.array([self._count[s] for s in slots], pa.uint32()),
            pa.array([self._last_seen[s] for s in slots], pa.int64()),
        ]
        return pa.Table.from_arrays(columns, schema=export_schema(self.width)).to_reader()

    def load(self, rows: pa.RecordBatchReader) -> None:
        """Fill the empty table from ``export``."""
        for row in rows.read_all().to_pylist():
            self._slots[self.spec.logical.index(row["logical"]), row["id"]] = len(self._weights)
            self._weights.append(np.array(row["weights"], np.float32))
            self._state.append(np.float32(row["state"][0]))
            self._count.append(row["count"])
            self._last_seen.append(row["last_seen"])

    def _initial(self, logical: int, key: int) -> Float32:
        base = _mix64((key & _MASK) ^ salt_of(self.spec.logical[logical], self._seed))
        weights = np.zeros(self.width, np.float32)
        for d in range(self.spec.dim):
            bits = _mix64((base + (d + 1) * _GOLDEN) & _MASK) >> 40
            weights[d] = (np.float32(bits) * np.float32(2.0**-23) - np.float32(1)) * np.float32(self.spec.init)
        return weights

    def _cells(self, ids: TableIds, rows: int) -> list[tuple[int, int, list[int]]]:
        cells = [(f, b) for f in range(len(self.spec.features)) for b in range(rows)]
        ends = ids.offsets if ids.offsets is not None else np.arange(len(cells) + 1)
        return [(f, b, ids.inverse_N[ends[c] : ends[c + 1]].tolist()) for c, (f, b) in enumerate(cells)]

    def _scale(self, feature: int, count: int) -> np.float32:
        mean = self.spec.features[feature].pool == "mean" and count > 1
        return np.float32(1) / np.float32(count) if mean else np.float32(1)
