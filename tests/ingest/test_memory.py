"""Memory while a file passes that is far larger than what a reader may hold: bounded, and the same at the end as at its quarter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.ingest.world import OLD_S, feed_of

ROOT = Path(__file__).parents[2]
MEGABYTES = int(os.environ.get("HEADRACE_BENCH_MB", "400"))
LIMIT_MIB, GROWTH_MIB = 400, 40
ROW_BYTES, BLOCK_ROWS = 500, 20_000


def columns_from(first: int) -> tuple[list[int], list[str]]:
    """Row numbers, which are keys and times, and long texts that compress badly."""
    digits = np.random.default_rng(first).integers(0, 10**15, (BLOCK_ROWS, ROW_BYTES // 15))
    return list(range(first, first + BLOCK_ROWS)), ["".join(f"{n:015d}" for n in row) for row in digits.tolist()]


def write_csv(path: Path, blocks: int) -> None:
    _, texts = columns_from(0)
    with path.open("w") as out:
        out.write("k,t,x\n")
        for block in range(blocks):
            first = block * BLOCK_ROWS
            out.write("".join(f"{first + i},{first + i},{text}\n" for i, text in enumerate(texts)))


def write_parquet(path: Path, blocks: int) -> None:
    """In one row group for each 50 MB: a quarter of the file is some of them."""
    numbers, texts = columns_from(0)
    schema = pa.schema({"k": pa.int64(), "t": pa.int64(), "x": pa.string()})
    column = pa.array(texts)
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as out:
        for begin in range(0, blocks, 5):
            some = range(begin, min(begin + 5, blocks))
            tables = [
                pa.table({"k": pa.array(n), "t": pa.array(n), "x": column}, schema)
                for n in (np.asarray(numbers) + block * BLOCK_ROWS for block in some)
            ]
            out.write_table(pa.concat_tables(tables), row_group_size=5 * BLOCK_ROWS)


@pytest.mark.slow
@pytest.mark.parametrize(("write", "form"), [(write_csv, {"delimited": {}}), (write_parquet, "parquet")])
def test_memory_is_bounded(tmp_path: Path, write: Callable[[Path, int], None], form: object) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    blocks = MEGABYTES * 1_000_000 // (ROW_BYTES * BLOCK_ROWS)
    write(folder / "a", blocks)
    os.utime(folder / "a", (OLD_S, OLD_S))
    feed = feed_of(folder, {"k": "int64", "t": "int64", "x": "string"}, format=form)
    (tmp_path / "feed.json").write_text(feed.model_dump_json(by_alias=True, exclude_unset=True))
    command = [sys.executable, "-m", "tests.ingest.large", str(tmp_path / "log"), str(tmp_path / "feed.json")]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=280, check=True)
    seen = json.loads(done.stdout)
    rows = blocks * BLOCK_ROWS
    assert seen[-1][0] == rows
    assert max(mib for _, mib in seen) < LIMIT_MIB
    quarter = max(mib for count, mib in seen if count <= rows // 4)
    assert max(mib for count, mib in seen if count > rows // 4) < quarter + GROWTH_MIB
    print(f"peak {max(mib for _, mib in seen):.0f} MiB, first quarter {quarter:.0f} MiB")
