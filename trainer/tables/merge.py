"""The local batches of a step name rows of the same table: which distinct rows are these?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from preprocess.contracts import Int64
from trainer.contracts import Int32Map
from trainer.kernels import rows as kernels


def merge_slots(slots: Sequence[Int64]) -> tuple[Int64, list[Int32Map]]:
    """Distinct slots [V] in order of first appearance over the local batches in their order, and for each local batch the
    place of each of its slots among them (int32). New memory."""
    joined = np.concatenate(slots) if slots else np.empty(0, np.int64)
    table = np.full(1 << max(4, int(2 * len(joined)).bit_length()), -1, np.int32)
    distinct = np.empty(len(joined), np.int64)
    into = np.empty(len(joined), np.int32)
    count = kernels.merge(joined, table, distinct, into)
    ends = np.cumsum([len(part) for part in slots])[:-1]
    return distinct[:count], list(np.split(into, ends)) if slots else []


def merge_slots_reference(slots: Sequence[Int64]) -> tuple[Int64, list[Int32Map]]:
    """As ``merge_slots``, plainly."""
    places: dict[int, int] = {}
    maps = [np.array([places.setdefault(int(s), len(places)) for s in part], np.int32) for part in slots]
    return np.array(list(places), np.int64), maps
