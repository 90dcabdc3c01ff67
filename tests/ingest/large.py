"""A process that ingests one feed with the default settings: ``python -m tests.ingest.large LOG FEED.json``.

Prints one JSON list: (rows so far, RssAnon + RssShmem in MiB) after each step of the reader.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from experiments.feed import Feed
from experiments.publishing import feed_topics
from ingest.contracts import Config
from ingest.planner import Planner
from ingest.reader import Reader
from ingest.status import FeedStatus
from streams.clock import SystemClock
from streams.embedded.log import open_log


def anonymous_mib() -> float:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssShmem")) / 1024


def main(directory: str, feed_path: str) -> None:
    log = open_log(Path(directory))
    feed = Feed.model_validate_json(Path(feed_path).read_text())
    for spec in feed_topics(feed):
        log.create_topic(spec)
    clock, config = SystemClock(), Config()
    planner = Planner(log, feed, feed.files.url, config, clock=clock, may_close=lambda: True, lag_groups=list)
    reader = Reader(log, feed, feed.files.url, config, clock=clock)
    status, seen = FeedStatus(log, feed.feed), []
    while not ((report := status.refresh()) and report.closed):
        moved = [planner.step(), reader.step()]
        seen.append((int(str(reader.report().get("rows", 0))), anonymous_mib()))
        if not any(moved):
            log.wait(0.02)
    print(json.dumps(seen))
    for worker in (planner, reader):
        worker.close()
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
