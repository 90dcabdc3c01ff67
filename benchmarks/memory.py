"""Anonymous memory (RssAnon + RssShmem) of each role while one large file passes through the whole tree.

The file is parquet (`benchmarks/synthetic.py`), by default 2 GB; ``HEADRACE_BENCH_MB`` sets another size. Growth compares the
largest figure of the last tenth of the file with that around its first quarter. The trainer's figures are without its tables,
which are counted apart: they are the mappings that were made for them (``trainer/tables/reserved.py``), as the kernel sees them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil

from benchmarks import synthetic

ROW_BYTES = 165
LIMITS_MB = {"ingest": 400, "preprocess": 400, "train": 700}

FEED = """
feed: clicks
files: {{url: {data}, match: "*.parquet"}}
format: parquet
columns: {{label: float32, event_time: timestamp, {columns}}}
event_time: {{column: event_time, zone: UTC}}
key: [{key}]
settle: 0s
"""
EXPERIMENT = """
experiment: big
sample: clicks
labels: {{click: {{column: label}}}}
features: {{{features}}}
tables: {{default: {{dim: 1, init: 0}}}}
model: lr
train: {{batch_rows: 4096, checkpoint_every: 1000 steps}}
"""


def write_project(root: Path, megabytes: int) -> int:
    """A project with one large file; its rows."""
    rows = megabytes * 1_000_000 // ROW_BYTES
    columns = [*synthetic.INTS, *synthetic.IDS]
    for name in ("feeds", "experiments"):
        (root / name).mkdir()
    (root / "headrace.yaml").write_text("{}\n")
    listed = ", ".join(f"{name}: int64" for name in columns)
    (root / "feeds/clicks.yaml").write_text(FEED.format(data=root / "data", columns=listed, key=synthetic.IDS[0]))
    features = ", ".join(f"{name}: {{id: {name}}}" for name in synthetic.IDS)
    (root / "experiments/big.yaml").write_text(EXPERIMENT.format(features=features))
    synthetic.write_parquet(root / "data", rows=rows, files=1, seed=3)
    return rows


def tables_mb(pid: int) -> float:
    """What is touched of the mappings without reserve that want huge pages: embedding tables, and nothing else."""
    total = anonymous = 0
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if line.startswith("Anonymous:"):
            anonymous = int(line.split()[1])
        elif line.startswith("VmFlags:") and {"nr", "hg"} <= set(line.split()[1:]):
            total += anonymous
    return total / 1024


def anonymous_mb(pid: int) -> float:
    """RssAnon + RssShmem of a process."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem")) / 1024


def role_of(process: psutil.Process) -> str:
    line = process.cmdline()
    return next((role for role in LIMITS_MB if "run" in line and role in line), "")


def watch(root: Path) -> dict[str, list[tuple[float, float]]]:
    """(seconds, MB) of each role, and of the trainer's tables, until the run ends."""
    command = [sys.executable, "-m", "headrace", "-C", str(root)]
    subprocess.run([*command, "publish", str(root / "experiments/big.yaml")], check=True, capture_output=True)
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with (root / "err").open("w") as errors:
        process = subprocess.Popen(
            [*command, "run", "all", "--until-end", "--json"], stdout=subprocess.PIPE, stderr=errors
        )
        begin = time.monotonic()
        while process.poll() is None:
            for child in psutil.Process(process.pid).children(recursive=True):
                try:
                    if role := role_of(child):
                        at_s, tables = time.monotonic() - begin, tables_mb(child.pid) if role == "train" else 0.0
                        seen[role].append((at_s, anonymous_mb(child.pid) - tables))
                        seen[f"{role} tables"].append((at_s, tables))
                except (psutil.NoSuchProcess, FileNotFoundError, KeyError):
                    continue
            time.sleep(0.25)
    assert process.returncode == 0, (root / "err").read_text()[-2000:]
    assert process.stdout is not None
    result = json.loads(process.stdout.read())
    assert result["experiments"]["big"]["rows_waiting"] == 0
    return seen


def growth(points: list[tuple[float, float]]) -> float:
    """How much more at the end than around a quarter, as a share."""
    first, last = points[0][0], points[-1][0]
    quarter, tail = first + 0.25 * (last - first), first + 0.9 * (last - first)
    early = max(mb for at, mb in points if quarter - 0.1 * (last - first) <= at <= quarter + 0.05 * (last - first))
    return max(mb for at, mb in points if at >= tail) / early - 1


def run() -> dict[str, object]:
    megabytes = int(os.environ.get("HEADRACE_BENCH_MB", "2000"))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        rows = write_project(root, megabytes)
        seen = watch(root)
    figures: dict[str, object] = {"file_mb": megabytes, "rows": rows}
    for role, limit in LIMITS_MB.items():
        peak = max(mb for _, mb in seen[role])
        figures |= {
            f"{role}_peak_mb": round(peak),
            f"{role}_limit_mb": limit,
            f"{role}_growth": round(growth(seen[role]), 3),
        }
    figures["train_tables_mb"] = round(max(mb for _, mb in seen["train tables"]))
    return figures
