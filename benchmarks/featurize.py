"""Featurize: 13 dense numbers (log1p) and 26 hashed int64 ids a row, in batches of 4096, against polars.

``polars`` and ``numpy`` do the same work: numbers, hashes, and of each column the unique ids with the inverse.
``polars_hash_only`` stops after the hashes. Rounds alternate between the sides, the first is discarded; outputs are dropped.
Rows lie in memory as they come from ``joined``. Encoding a batch as a message is measured beside it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import synthetic
from benchmarks.harness import median

BATCH_ROWS = 4096
BATCHES = 48
ROUNDS = 8


def run() -> dict[str, Any]:
    """Rows a second, and ratios of the medians of one run."""
    rows = _joined(BATCHES * BATCH_ROWS)
    sides: dict[str, Callable[[], None]] = {
        "headrace_1": lambda: _ours(rows, 1),
        "headrace_2": lambda: _ours(rows, 2),
        "headrace_1_b1024": lambda: _ours(rows, 1, 1024),
        "numpy": lambda: _numpy(rows),
        "polars": _polars(rows, _unique_and_inverse),
        "polars_hash_only": _polars(rows, lambda hashes: hashes),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            begin = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - begin)
    rates = {name: float(f"{len(rows) / statistics.median(all_s[1:]):.3g}") for name, all_s in seconds.items()}
    return {
        "rows_per_s": rates,
        "ratio_1_thread_to_polars": round(rates["headrace_1"] / rates["polars"], 1),
        "ratio_2_threads_to_polars": round(rates["headrace_2"] / rates["polars"], 1),
        "ratio_2_threads_to_polars_hash_only": round(rates["headrace_2"] / rates["polars_hash_only"], 1),
        "ratio_1_thread_to_numpy": round(rates["headrace_1"] / rates["numpy"], 1),
        "goals": {"ratio_to_polars": 15, "ratio_to_numpy": 3.5},
        "encode_us": {str(size): _encode_us(rows, size) for size in (16, 1024)},
        "versions": {"polars": _polars_version()},
        "rounds": ROUNDS - 1,
    }


def _joined(rows: int) -> pa.RecordBatch:
    """Synthetic rows with the columns that joined adds."""
    table = pa.Table.from_batches(list(synthetic.batches(0, rows))).combine_chunks()
    batch = table.to_batches()[0]
    columns = {name: batch.column(name).cast(pa.int64()) for name in (*synthetic.INTS, *synthetic.IDS)}
    columns |= {
        "label.y": batch.column("label"),
        "__time": batch.column("event_time").view(pa.int64()),
        "__file": pa.array(["part-0000.parquet"] * rows),
        "__row": pa.array(range(rows), pa.int64()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _plan() -> Any:
    from experiments.experiment import Experiment
    from experiments.feed import Feed
    from experiments.view import view_of
    from preprocess.featurize.graph import compile_plan

    columns = {name: "int64" for name in (*synthetic.INTS, *synthetic.IDS)}
    feed = Feed.model_validate(
        {
            "feed": "clicks",
            "files": {"url": "."},
            "format": "parquet",
            "columns": columns | {"label": "float32", "time": "timestamp"},
            "event_time": {"column": "time"},
            "key": [synthetic.IDS[0]],
        }
    )
    dense = {name: {"dense": name, "ops": ["log1p"]} for name in synthetic.INTS}
    spec = Experiment.model_validate(
        {
            "experiment": "bench",
            "sample": "clicks",
            "labels": {"y": {"column": "label"}},
            "features": dense | {name: {"hash": name} for name in synthetic.IDS},
            "model": "lr",
        }
    )
    return compile_plan(spec, view_of(spec, {"clicks": feed}))


def _ours(rows: pa.RecordBatch, threads: int, batch_rows: int = BATCH_ROWS) -> None:
    """Messages of 4096 rows, one after the other, each thread its own."""
    from preprocess.featurize.batch import Featurizer
    from preprocess.featurize.cutting import Cut

    plan = _plan()
    cuts = [Cut(0, j, j * batch_rows, (j + 1) * batch_rows) for j in range(BATCH_ROWS // batch_rows)]

    def work(first: int) -> None:
        featurizer = Featurizer(plan)
        for number in range(first, BATCHES, threads):
            featurizer.batches(rows.slice(number * BATCH_ROWS, BATCH_ROWS), cuts)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


def _numpy(rows: pa.RecordBatch) -> None:
    """One thread, a batch of 4096 rows at a time."""

    def mix(words: Any) -> Any:
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return words ^ (words >> np.uint64(31))

    for number in range(BATCHES):
        batch = rows.slice(number * BATCH_ROWS, BATCH_ROWS)
        for name in synthetic.INTS:
            values = batch.column(name).to_numpy(zero_copy_only=False)  # float64 with NaN for null
            np.log1p(np.maximum(np.nan_to_num(values), 0.0)).astype(np.float32)
        for place, name in enumerate(synthetic.IDS):
            hashes = mix(batch.column(name).to_numpy().view(np.uint64) ^ np.uint64(place))
            np.unique(hashes, return_inverse=True)


def _polars(rows: pa.RecordBatch, finish: Callable[[list[Any]], list[Any]]) -> Callable[[], None]:
    """Lazily, a batch of 4096 rows at a time, with as many threads as polars likes."""
    import polars as pl

    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    dense = [pl.col(name).fill_null(0).clip(0).cast(pl.Float64).log1p().cast(pl.Float32) for name in synthetic.INTS]
    ids = finish([pl.col(name).hash(seed=place) for place, name in enumerate(synthetic.IDS)])

    def side() -> None:
        for number in range(BATCHES):
            frame.slice(number * BATCH_ROWS, BATCH_ROWS).lazy().select([*dense, *ids]).collect()

    return side


def _unique_and_inverse(hashes: list[Any]) -> list[Any]:
    inverse = [one.rank("dense").name.suffix("_inverse") for one in hashes]
    unique = [one.unique().implode().name.suffix("_unique") for one in hashes]
    return [*inverse, *unique]


def _polars_version() -> str:
    import polars as pl

    return pl.__version__


def _encode_us(rows: pa.RecordBatch, batch_rows: int) -> float:
    """Microseconds to encode one local batch as a message."""
    from preprocess.contracts import encode_batch
    from preprocess.featurize.batch import Featurizer
    from preprocess.featurize.cutting import Cut

    plan = _plan()
    cuts = [Cut(0, j, j * batch_rows, (j + 1) * batch_rows) for j in range(BATCH_ROWS // batch_rows)]
    batches = Featurizer(plan).batches(rows.slice(0, BATCH_ROWS), cuts)
    figures = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for batch in batches:
            encode_batch(batch, plan.layout, lineage={"offset": 1}, compression="none")
        figures.append((time.perf_counter() - begin) / len(batches) * 1e6)
    return median(figures[1:])
