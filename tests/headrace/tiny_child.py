"""A child as small as can be: counts its starts in a file, and does what the file ``orders`` says for that start."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from headrace.guard import die_with

folder, parent = Path(sys.argv[1]), int(sys.argv[-1])
die_with(parent)
with (folder / "starts").open("a") as file:
    file.write(f"{os.getpid()}\n")
start = len((folder / "starts").read_text().splitlines())
orders = (folder / "orders").read_text().split()
order = orders[min(start, len(orders)) - 1]
print("a library prints this", flush=True)
print(json.dumps({"role": "tiny", "moved": 1, "start": start}), flush=True)
print(f"text of start {start}", file=sys.stderr, flush=True)
if order == "die":
    os.kill(os.getpid(), signal.SIGKILL)
if order == "wait":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    time.sleep(120)
if order == "fail":
    error = {"expected": "e", "got": "g", "where": "w", "do": "d", "exit_code": 4}
    print(json.dumps({"error": error}), flush=True)
    sys.exit(4)
sys.exit(int(order))
