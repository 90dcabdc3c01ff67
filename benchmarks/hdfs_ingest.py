"""Parquet on a real HDFS of this machine → ``raw`` on the embedded log, in one process.

The limit beside it, in the same run, on the same files: hdfs-native alone under pyarrow, row group by row group, which throws
the rows away. Both are warmed up on a small file; the median of three turns, which take turns.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import synthetic
from benchmarks.chain import feed_of
from benchmarks.harness import median

if TYPE_CHECKING:
    from dev.hdfs_service import Hdfs

ROWS, WARM_ROWS, FILES, TURNS = 1_500_000, 20_000, 4, 3
FLOOR, GOAL = 0.5, 0.8
DEADLINE_S = 120.0
BLOCK_BYTES = 128 * 1024 * 1024


def ingest(url: str, log_folder: Path, rows: int) -> float:
    """Seconds from the first listing to the commit of the last row."""
    from experiments.publishing import feed_topics
    from ingest.contracts import Config
    from ingest.planner import Planner
    from ingest.reader import Reader
    from streams.clock import SystemClock
    from streams.embedded.log import open_log

    feed = feed_of(Path())
    feed = feed.model_copy(update={"files": feed.files.model_copy(update={"url": url})})
    log, clock, config = open_log(log_folder), SystemClock(), Config(listing_s=0.05)
    for spec in feed_topics(feed):
        log.create_topic(spec)
    planner = Planner(log, feed, url, config, clock=clock, may_close=lambda: True, lag_groups=list)
    reader = Reader(log, feed, url, config, clock=clock)
    began_s = time.perf_counter()
    while int(str(reader.report().get("rows", 0))) < rows:
        if not any([planner.step(), reader.step()]):
            log.wait(0.01)
        if time.perf_counter() > began_s + DEADLINE_S:
            raise TimeoutError(f"the rows did not arrive: {planner.report()} {reader.report()}")
    seconds = time.perf_counter() - began_s
    planner.close()
    reader.close()
    log.close()
    return seconds


def read_alone(base: str, folder: str, names: list[str]) -> float:
    """Seconds of hdfs-native and pyarrow alone."""
    import pyarrow.fs as pafs
    import pyarrow.parquet as pq
    from hdfs_native.fsspec import HdfsFileSystem

    host, _, port = base.removeprefix("hdfs://").partition(":")
    system = pafs.PyFileSystem(pafs.FSSpecHandler(HdfsFileSystem(host=host, port=int(port))))
    began_s = time.perf_counter()
    for name in names:
        parquet = pq.ParquetFile(system.open_input_file(f"{folder}/{name}"))
        for group in range(parquet.num_row_groups):
            parquet.read_row_group(group, use_threads=False)
    return time.perf_counter() - began_s


def measure(hdfs: Hdfs, root: Path) -> dict[str, object]:
    """Both ways in turn."""
    sets = {"warm": (WARM_ROWS, 1), "big": (ROWS, FILES)}
    names: dict[str, list[str]] = {}
    for name, (rows, files) in sets.items():
        paths = synthetic.write_parquet(root / name, rows=rows, files=files)
        names[name] = [path.name for path in paths]
        hdfs.put_folder(root / name, f"/{name}", BLOCK_BYTES)
    size = sum(path.stat().st_size for path in (root / "big").iterdir())
    ingest(f"{hdfs.url}/warm", root / "log-warm", WARM_ROWS)
    read_alone(hdfs.url, "/warm", names["warm"])
    ours, alone = [], []
    for turn in range(TURNS):
        alone.append(read_alone(hdfs.url, "/big", names["big"]))
        ours.append(ingest(f"{hdfs.url}/big", root / f"log-{turn}", ROWS))
    ratio = median([other / own for own, other in zip(ours, alone, strict=True)])
    return {
        "rows": ROWS,
        "mb": round(size / 1e6),
        "ingest_mb_per_s": median([size / 1e6 / seconds for seconds in ours]),
        "ingest_rows_per_s": round(ROWS / median(ours)),
        "row_groups_alone_mb_per_s": median([size / 1e6 / seconds for seconds in alone]),
        "ratio_to_row_groups_alone": ratio,
        "floor": FLOOR,
        "goal": GOAL,
    }


def run() -> dict[str, object]:
    from dev.daemon import dies_with_starter
    from dev.hdfs_service import Hdfs

    with tempfile.TemporaryDirectory() as folder:
        hdfs = Hdfs(Path(folder) / "hdfs", dies_with_starter)
        hdfs.start()
        try:
            return measure(hdfs, Path(folder))
        finally:
            hdfs.stop()
