"""A process with a planner and a reader of one feed: ``python -m tests.ingest.killed LOG FEED.json PART_ROWS``.

Ends when the feed is closed.
Prints ``moved`` at its first progress, so that whoever kills it can wait for that.
"""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.feed import Feed
from ingest.contracts import Config
from ingest.planner import Planner
from ingest.reader import Reader
from ingest.status import FeedStatus
from streams.clock import SystemClock
from streams.embedded.log import open_log


def main(directory: str, feed_path: str, part_rows: str) -> None:
    log = open_log(Path(directory), session_timeout_s=2.0)
    feed = Feed.model_validate_json(Path(feed_path).read_text())
    config = Config(
        part_rows=int(part_rows), listing_s=0.05, part_bytes=int(part_rows) * 30, split_bytes=4000, attempts=50
    )
    workers = [
        Planner(log, feed, feed.files.url, config, clock=SystemClock(), may_close=lambda: True, lag_groups=list),
        Reader(log, feed, feed.files.url, config, clock=SystemClock()),
    ]
    status, said = FeedStatus(log, feed.feed), False
    while True:
        moved = [worker.step() for worker in workers]
        report = status.refresh()
        if report and report.closed and not report.open_splits:
            break
        if moved[1] and not said:
            print("moved", flush=True)
            said = True
        if not any(moved):
            log.wait(0.02)
    for worker in workers:
        worker.close()
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
