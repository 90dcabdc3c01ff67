"""A process that publishes: ``python -m tests.experiments.publisher LOG FOLDER NAME ROUNDS``.

Each round changes the experiment NAME, so each is a new version, and publishes it together with the shared one.
"""

from __future__ import annotations

import sys
from pathlib import Path

from experiments.loading import load_experiment, load_feeds
from experiments.publishing import publish
from streams.embedded.log import open_log


def main(log_folder: str, folder: str, name: str, rounds: str) -> None:
    feeds = load_feeds(Path(folder) / "feeds")
    log = open_log(Path(log_folder))
    print("ready", flush=True)
    sys.stdin.readline()
    base = load_experiment(Path(folder) / "liked.yaml", feeds)
    for number in range(int(rounds)):
        train = base.train.model_copy(update={"seed": number})
        own = base.model_copy(update={"experiment": name, "train": train})
        publish(log, [base, own], feeds, now_us=number)
        print(f"published {number}", flush=True)
    log.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
