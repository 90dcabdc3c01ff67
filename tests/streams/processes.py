"""Starting, killing and stopping the programs of ``log_programs``, and checking what they left."""

from __future__ import annotations

import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from streams.contracts import TopicPartition
from streams.embedded.log import EmbeddedLog
from streams.tail import read_to_end
from tests.streams.log_programs import PARTITIONS, identity, partition_of

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0


class Program:
    """One process; its lines are collected as they come."""

    def __init__(self, *args: str | Path, kill_at: str = "") -> None:
        self.args = args
        self.lines: list[str] = []
        self._new: queue.Queue[str] = queue.Queue()
        env = {**os.environ, "HEADRACE_KILL_AT": kill_at}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.streams.log_programs", *map(str, args)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def working(self) -> bool:
        return bool(self.lines)

    @property
    def acked(self) -> int:
        """The last number that a source was told to be committed."""
        return max((int(line.split()[1]) for line in self.lines if line.startswith("acked")), default=0)

    def expect(self, text: str, timeout_s: float = PATIENCE_S) -> str:
        """Wait for a line that contains ``text``."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._new.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"{self.args}: no line {text!r}, but {self.lines[-5:]}") from None
            if text in line:
                return line

    def ask(self, line: str) -> str:
        """Send a line, return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self.expect("")

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for its end; all its lines are there then."""
        code = self._process.wait(timeout_s)
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        return code

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        self._process.kill()
        self.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.strip())
            self._new.put(line.strip())


@contextmanager
def running(*programs: Program) -> Iterator[tuple[Program, ...]]:
    """Kill what is left at the end."""
    try:
        yield programs
    finally:
        for program in programs:
            program.signal(signal.SIGCONT)
            program.kill()


def check_sources(log: EmbeddedLog, topic: str, acked: Mapping[int, int]) -> int:
    """Each number of each source once, in the right partition, in order; nothing that was acknowledged is missing.

    Returns the number of payloads.
    """
    seen: dict[int, list[int]] = defaultdict(list)
    for partition in range(PARTITIONS):
        last: dict[int, int] = {}
        for record in read_to_end(log, topic, partition):
            assert record.value is not None
            source, number = identity(record.value)
            assert partition == partition_of(source, number)
            assert number > last.get(source, -1), f"order: source {source}, {number} after {last[source]}"
            last[source] = number
            seen[source].append(number)
    for source in acked.keys() | seen.keys():
        numbers = seen[source]
        assert len(numbers) == len(set(numbers)), f"source {source}: doubled"
        tp = TopicPartition("out", source % PARTITIONS)
        committed = log.group(f"source.{source}").positions.get(tp)
        missing = sorted(set(range(committed.offset if committed else 0)) - set(numbers))
        assert not missing, f"source {source}: of {committed} misses {len(missing)}: {missing[:20]} … {missing[-3:]}"
        assert len(numbers) == (committed.offset if committed else 0), f"source {source}: {committed} committed"
        assert len(numbers) >= acked.get(source, 0), f"source {source}: an acknowledged transaction is lost"
    return sum(map(len, seen.values()))


def check_index(directory: Path) -> None:
    """SQLite finds its file whole, and the counters of the segments are right. The log must be closed."""
    db = sqlite3.connect(f"file:{directory / 'log.db'}?mode=ro", uri=True)
    try:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        counted = dict(db.execute("SELECT seg, count(*) FROM msg WHERE seg IS NOT NULL GROUP BY seg").fetchall())
        stored = dict(db.execute("SELECT id, live FROM seg WHERE live > 0").fetchall())
        assert stored == counted
        names = {name for (name,) in db.execute("SELECT name FROM seg").fetchall()}
        assert {path.name for path in (directory / "seg").iterdir()} == names
    finally:
        db.close()
