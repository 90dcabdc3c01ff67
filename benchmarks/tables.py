"""Dynamic table: the sparse part of a step of 4096 rows × 26 ids (106,496, Zipf 1.05), dimension 16, in a table of 10 M rows.

Sides, in turn, each with the same batches, unique ids already found (featurize does that), row-wise Adagrad:

- ``headrace``: ``find_or_insert``, ``merge_slots``, ``pool``, ``accumulate``, ``apply``.
- ``dict_numpy``: a Python dict of the same keys; numpy gathers, sums by ``np.add.at`` on whole rows, updates.
- ``torch_bag``: ``EmbeddingBag(sparse=True)`` with 10 M fixed rows, ids modulo 10 M (so it never looks up and ids collide),
  its sparse gradient coalesced, the same update by indexing.

Then the index alone, many small steps, and growth from 1e4 to 1e6 keys. All sides run on one thread. Times are CPU time of that
thread (user and system, so page faults count), which says more than the clock where others use the machine too; medians of
the rounds after the first two.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from experiments.experiment import RowwiseAdagrad
from preprocess.contracts import IdFeature, PhysicalTable, TableIds
from trainer.kernels import index as kernels
from trainer.tables.dynamic import DynamicTable
from trainer.tables.merge import merge_slots

ROWS, FEATURES, DIM = 4096, 26, 16
KEYS = int(os.environ.get("HEADRACE_BENCH_KEYS", 10_000_000))
BATCHES = 12
ROUNDS = 26
NEW_SHARE = 0.001
EXPONENT = 1.05
LR, EPS = np.float32(0.05), np.float32(1e-8)


class Batch(NamedTuple):
    """One step's ids: all (in order of features, then rows), unique ones, gradients of the pooled embeddings."""

    all_N: np.ndarray
    ids: TableIds
    grad_FBD: np.ndarray


def run() -> dict[str, Any]:
    """Milliseconds a step, keys a second, ratios."""
    rng = np.random.default_rng(0)
    batches = [_batch(rng) for _ in range(BATCHES)]
    table, build_s = _filled()
    phases: dict[str, list[float]] = {}
    sides = {"headrace": _ours(table, phases), "dict_numpy": _dict_numpy(), "torch_bag": _torch_bag()}
    seconds = _alternate(sides, batches)
    ms = {name: round(statistics.median(times) * 1e3, 2) for name, times in seconds.items()}
    return {
        "keys": KEYS,
        "unique_share": round(float(np.mean([len(b.ids.ids_U) / len(b.all_N) for b in batches])), 3),
        "build_mkeys_per_s": round(KEYS / build_s / 1e6, 1),
        "step_ms": ms,
        "phases_ms": {name: round(statistics.median(times[2:]) * 1e3, 2) for name, times in phases.items()},
        "ratio_to_dict_numpy": round(ms["dict_numpy"] / ms["headrace"], 1),
        "ratio_to_torch_bag": round(ms["torch_bag"] / ms["headrace"], 1),
        "index_mkeys_per_s": _index(table, batches, rng),
        "small_step_us": _small_steps(),
        "growth": _growth(),
        "goals": {"step_ms": 12, "index_mkeys_per_s": 50, "ratio_to_torch_bag": 2.5, "small_step_us": 300},
        "rounds": ROUNDS - 2,
    }


def _spec(features: int, dim: int) -> PhysicalTable:
    ids = tuple(IdFeature(f"f{number:02}", 0, "sum") for number in range(features))
    return PhysicalTable("ids", dim, 0.01, RowwiseAdagrad(lr=float(LR), eps=float(EPS), initial=0.0), ("ids",), ids)


def _spread(ranks: np.ndarray) -> np.ndarray:
    """Ids over all 64 bits."""
    words = ranks.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((words ^ (words >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)).view(np.int64)


def _batch(rng: np.random.Generator) -> Batch:
    """Zipf ranks below ``KEYS`` (inverse of the continuous distribution), a thousandth of them new ids."""
    n = ROWS * FEATURES
    power = 1.0 - EXPONENT
    ranks = (((float(KEYS) ** power - 1.0) * rng.random(n) + 1.0) ** (1.0 / power)).astype(np.int64).clip(1, KEYS - 1)
    fresh = rng.random(n) < NEW_SHARE
    ranks[fresh] = rng.integers(KEYS, 2**40, int(fresh.sum()))
    all_N = _spread(ranks)
    return Batch(all_N, _unique(all_N), rng.normal(0, 0.01, (FEATURES, ROWS, DIM)).astype(np.float32))


def _unique(all_N: np.ndarray) -> TableIds:
    """In order of first appearance, as featurize does."""
    _, first, inverse = np.unique(all_N, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.uint32)
    place[order] = np.arange(len(order), dtype=np.uint32)
    return TableIds(np.zeros(len(order), np.uint16), all_N[first[order]], place[inverse], None)


def _filled() -> tuple[DynamicTable, float]:
    table = DynamicTable(_spec(FEATURES, DIM), DIM, seed=0, max_rows=2 * KEYS)
    warm = DynamicTable(_spec(FEATURES, DIM), DIM, seed=0, max_rows=10_000)
    warm.find_or_insert(np.zeros(10, np.uint16), np.arange(10), 0)
    chunk = 100_000
    # In no order of rank, so that frequent ids do not lie side by side.
    shuffled = np.random.default_rng(1).permutation(KEYS)
    seconds = 0.0
    for start in range(0, KEYS, chunk):
        ids = _spread(shuffled[start : start + chunk])
        logical = np.zeros(len(ids), np.uint16)
        begin = time.thread_time()
        table.find_or_insert(logical, ids, 0)
        seconds += time.thread_time() - begin
    return table, seconds


def _ours(table: DynamicTable, phases: dict[str, list[float]]) -> Callable[[Batch], object]:
    out = np.empty((FEATURES, ROWS, DIM), np.float32)

    def step(batch: Batch) -> None:
        marks = [time.thread_time()]
        slots = table.find_or_insert(batch.ids.logical_U, batch.ids.ids_U, 1)
        marks.append(time.thread_time())
        distinct, (into,) = merge_slots([slots])
        marks.append(time.thread_time())
        table.pool(slots, batch.ids, out)
        marks.append(time.thread_time())
        grads = np.zeros((len(distinct), DIM), np.float32)
        table.accumulate(batch.ids, batch.grad_FBD, into, grads)
        marks.append(time.thread_time())
        table.apply(distinct, grads)
        marks.append(time.thread_time())
        for name, begin, end in zip(("find", "merge", "pool", "accumulate", "apply"), marks, marks[1:], strict=False):
            phases.setdefault(name, []).append(end - begin)

    return step


def _dict_numpy() -> Callable[[Batch], object]:
    places = {key: place for place, key in enumerate(_spread(np.arange(KEYS)).tolist())}
    weights = np.random.default_rng(0).uniform(-0.01, 0.01, (KEYS + 100_000, DIM)).astype(np.float32)
    state = np.zeros(KEYS + 100_000, np.float32)

    def step(batch: Batch) -> np.ndarray:
        slots = np.array([places.setdefault(key, len(places)) for key in batch.ids.ids_U.tolist()], np.int64)
        out = weights[slots[batch.ids.inverse_N]]
        grads = np.zeros((len(slots), DIM), np.float32)
        np.add.at(grads, batch.ids.inverse_N, batch.grad_FBD.reshape(-1, DIM))
        state[slots] += np.einsum("vd,vd->v", grads, grads) / np.float32(DIM)
        weights[slots] -= (LR / (np.sqrt(state[slots]) + EPS))[:, None] * grads
        return out

    return step


def _torch_bag() -> Callable[[Batch], object]:
    import torch

    torch.set_num_threads(1)
    bag = torch.nn.EmbeddingBag(KEYS, DIM, mode="sum", sparse=True)
    state = torch.zeros(KEYS)
    offsets = torch.arange(ROWS * FEATURES)

    def step(batch: Batch) -> None:
        bag.weight.grad = None
        places = torch.from_numpy(batch.all_N).remainder(KEYS)
        bag(places, offsets).backward(torch.from_numpy(batch.grad_FBD).reshape(-1, DIM))
        assert bag.weight.grad is not None
        grad = bag.weight.grad.coalesce()
        rows, values = grad.indices()[0], grad.values()
        with torch.no_grad():
            sums = state.index_select(0, rows) + values.square().mean(1)
            state.index_copy_(0, rows, sums)
            bag.weight.index_add_(0, rows, values * (-float(LR) / (sums.sqrt() + float(EPS)))[:, None])

    return step


def _alternate(sides: dict[str, Callable[[Batch], object]], batches: list[Batch]) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(ROUNDS):
        for name, side in sides.items():
            begin = time.thread_time()
            side(batches[number % len(batches)])
            seconds[name].append(time.thread_time() - begin)
    return {name: times[2:] for name, times in seconds.items()}


def _index(table: DynamicTable, batches: list[Batch], rng: np.random.Generator) -> dict[str, float]:
    """``find_or_insert`` of known keys: all ids of a batch, with those that repeat, and uniform ones. It also counts and
    marks rows, which is a second random line a key."""
    n = ROWS * FEATURES
    kinds = {
        "zipf": [batch.all_N for batch in batches],
        "uniform": [_spread(rng.integers(0, KEYS, n)) for _ in range(BATCHES)],
    }
    logical = np.zeros(n, np.uint16)
    rates = {}
    for name, keys in kinds.items():
        both: dict[str, list[float]] = {name: [], f"{name}_find_only": []}
        for number in range(ROUNDS):
            begin = time.thread_time()
            _find(table, logical, keys[number % BATCHES], np.empty(n, np.int64))
            middle = time.thread_time()
            table.find_or_insert(logical, keys[(number + BATCHES // 2) % BATCHES], 2)
            both[f"{name}_find_only"].append(middle - begin)
            both[name].append(time.thread_time() - middle)
        rates |= {kind: round(n / statistics.median(times[2:]) / 1e6, 1) for kind, times in both.items()}
    return rates


def _small_steps() -> float:
    """The same path for a step of 64 rows × 10 ids in a table of 100,000 rows: mostly the cost of calls."""
    rows, features = 64, 10
    rng = np.random.default_rng(5)
    table = DynamicTable(_spec(features, DIM), DIM, seed=0, max_rows=1_000_000)
    table.find_or_insert(np.zeros(100_000, np.uint16), _spread(np.arange(100_000)), 0)
    steps = [_unique(_spread(rng.zipf(1.2, rows * features).clip(1, 99_999))) for _ in range(100)]
    grad = rng.normal(0, 0.01, (features, rows, DIM)).astype(np.float32)
    out = np.empty_like(grad)
    times = []
    for number in range(1000):
        ids = steps[number % len(steps)]
        begin = time.thread_time()
        slots = table.find_or_insert(ids.logical_U, ids.ids_U, 1)
        distinct, (into,) = merge_slots([slots])
        table.pool(slots, ids, out)
        grads = np.zeros((len(distinct), DIM), np.float32)
        table.accumulate(ids, grad, into, grads)
        table.apply(distinct, grads)
        times.append(time.thread_time() - begin)
    return round(statistics.median(times) * 1e6, 1)


def _growth() -> dict[str, float]:
    """From 1e4 to 1e6 keys, 1000 new ones a step beside 4000 known ones."""
    rng = np.random.default_rng(9)
    table = DynamicTable(_spec(1, DIM), DIM, seed=0, max_rows=1_000_000)
    table.find_or_insert(np.zeros(10_000, np.uint16), _spread(np.arange(10_000)), 0)
    logical = np.zeros(5000, np.uint16)
    times = []
    for rows in range(10_000, 1_000_000, 1000):
        known = rng.choice(rows, 4000, replace=False) if rows < 20_000 else rng.integers(0, rows, 4000)
        ids = _spread(np.concatenate([known, np.arange(rows, rows + 1000)]))
        begin = time.thread_time()
        table.find_or_insert(logical, ids, 0)
        times.append((time.thread_time() - begin) * 1e6)
    median = statistics.median(times)
    p99 = float(np.percentile(times, 99))
    return {
        "median_us": round(median, 1),
        "p99_us": round(p99, 1),
        "max_us": round(max(times), 1),
        "p99_to_median": round(p99 / median, 2),
    }


def _find(table: DynamicTable, logical_U: np.ndarray, ids_U: np.ndarray, slots_U: np.ndarray) -> None:
    """The look-up alone, as ``find_or_insert`` begins."""
    index = table._index
    kernels.find(index.directory, index.segments, index.shape, logical_U, ids_U, slots_U)
