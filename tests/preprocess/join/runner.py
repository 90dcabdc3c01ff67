"""A join in a process of its own: ``python -m tests.preprocess.join.runner LOG SEED``, until everything is out."""

from __future__ import annotations

import sys
from pathlib import Path

from preprocess.contracts import Config
from preprocess.join.worker import JoinWorker
from streams.clock import SettableClock
from streams.embedded.log import open_log
from tests.preprocess.join.world import World, at_end

SMALL = Config(transaction_messages=2, poll_bytes=700, settle_rows=3)


def long_world(seed: int) -> World:
    """Many files, one after the other, so that W rises all along."""
    return World.random(seed, files=20)


def main(folder: str, seed: str) -> None:
    log, clock = open_log(Path(folder), create=False), SettableClock()
    view = long_world(int(seed)).view
    worker = JoinWorker(log, view, SMALL, clock=clock)
    while not at_end(log, view):
        for _ in range(5):
            worker.step()
            clock.advance(0.3)
    worker.close()
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
