"""Rows like those of an ads log: event time, label, 13 nullable int32, 26 int64 ids of Zipf frequency. The same rows for the same
arguments, in whatever files they lie: ``python -m benchmarks.synthetic FOLDER --rows 1000000 --files 4``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

INTS = tuple(f"i{number:02}" for number in range(13))
IDS = tuple(f"c{number:02}" for number in range(26))
CARDINALITIES = (10_000_000, 2_000_000, 400_000, 60_000, 10_000, 2_000, 300, 60, 12, 4)
"""Of the ids, in turn."""

START_US = 1_700_000_000_000_000
ROW_US = 50
"""Time between two rows: 20,000 rows a second."""

CHUNK_ROWS = 131_072
NULL_SHARE = 0.2
EXPONENT = 1.05

SCHEMA = pa.schema(
    [
        ("event_time", pa.timestamp("us", tz="UTC")),
        ("label", pa.float32()),
        *((name, pa.int32()) for name in INTS),
        *((name, pa.int64()) for name in IDS),
    ]
)

Int64 = npt.NDArray[np.int64]


def write_parquet(
    folder: Path, *, rows: int, files: int, seed: int = 0, prefix: str = "part", start_us: int = START_US
) -> list[Path]:
    """Write ``files`` files with ``rows`` rows in order of time; row groups of ``CHUNK_ROWS``, lz4. Gives their paths in order."""
    folder.mkdir(parents=True, exist_ok=True)
    bounds = [rows * number // files for number in range(files + 1)]
    paths = [folder / f"{prefix}-{number:04}.parquet" for number in range(files)]
    for path, start, stop in zip(paths, bounds[:-1], bounds[1:], strict=True):
        with pq.ParquetWriter(path, SCHEMA, compression="lz4") as writer:
            for batch in batches(start, stop, seed=seed, start_us=start_us):
                writer.write_batch(batch)
    return paths


def batches(start: int, stop: int, *, seed: int = 0, start_us: int = START_US) -> Iterator[pa.RecordBatch]:
    """Rows [start, stop) in pieces. Row n is the same in every call with the same seed: rows are made in whole chunks."""
    for chunk in range(start // CHUNK_ROWS, -(-stop // CHUNK_ROWS)):
        first = chunk * CHUNK_ROWS
        whole = _chunk(chunk, seed, start_us)
        low, high = max(start - first, 0), min(stop - first, CHUNK_ROWS)
        yield whole.slice(low, high - low)


def _chunk(chunk: int, seed: int, start_us: int) -> pa.RecordBatch:
    rng = np.random.default_rng([seed, chunk])
    numbers = np.arange(chunk * CHUNK_ROWS, (chunk + 1) * CHUNK_ROWS, dtype=np.int64)
    counts = {name: _counts(rng) for name in INTS}
    ranks = {name: _zipf(rng, CARDINALITIES[place % len(CARDINALITIES)]) for place, name in enumerate(IDS)}
    score = sum(np.sin(ranks[name] * (place + 1.0)) for place, name in enumerate(IDS[3:10]))
    clicked = rng.random(CHUNK_ROWS) < 1 / (1 + np.exp(2.0 - 0.5 * score))
    columns = [
        pa.array(start_us + numbers * ROW_US).view(SCHEMA.field("event_time").type),
        pa.array(clicked.astype(np.float32)),
        *(counts[name] for name in INTS),
        *(pa.array(_spread(ranks[name], place)) for place, name in enumerate(IDS)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _counts(rng: np.random.Generator) -> pa.Array:
    """Small counts with a long tail, some of them −1, a fifth of them null."""
    values = (rng.pareto(1.1, CHUNK_ROWS) * 3).clip(0, 1e6).astype(np.int32) - 1
    return pa.array(values, mask=rng.random(CHUNK_ROWS) < NULL_SHARE)


def _zipf(rng: np.random.Generator, most: int) -> Int64:
    """Ranks 1..most with probability about rank^−EXPONENT (inverse of the continuous distribution)."""
    power = 1.0 - EXPONENT
    uniform = rng.random(CHUNK_ROWS)
    return ((((most + 1.0) ** power - 1.0) * uniform + 1.0) ** (1.0 / power)).astype(np.int64).clip(1, most)


def _spread(ranks: Int64, column: int) -> Int64:
    """Ids over all 64 bits, other ones in each column."""
    words = ranks.astype(np.uint64) + np.uint64(column * 0xD1B54A32D192ED03 % 2**64)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    return (words ^ (words >> np.uint64(27))).view(np.int64)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write synthetic parquet files.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for path in write_parquet(arguments.folder, rows=arguments.rows, files=arguments.files, seed=arguments.seed):
        print(path)


if __name__ == "__main__":
    main()
