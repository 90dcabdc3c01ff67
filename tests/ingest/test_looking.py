"""Choosing among many files: the queue against sorting, and turns that stay short."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ingest.contracts import T_MIN, Config
from ingest.formats.reading import FilePlan, Range
from ingest.looking import Looker, Queue
from ingest.plan import Candidate, Plan
from ingest.sources import FoundFile
from streams.clock import SettableClock
from tests.ingest.world import feed_of, write


def candidate(path: str) -> Candidate:
    return Candidate(FoundFile(path, 1, 1), FilePlan((Range(0, 1, 0, 1, None, None),), None, judged_by_rows=True), "fp")


@pytest.mark.parametrize("seed", range(20))
def test_queue_equals_sorting(seed: int) -> None:
    rng = random.Random(seed)
    lows = {f"f{i}": rng.randrange(-5, 30) for i in range(rng.randrange(60))}
    queue, planned, floor = Queue(), set[str](), T_MIN
    paths = list(lows)
    rng.shuffle(paths)
    for path in paths:
        queue.add(candidate(path), lows[path])
    while len(planned) < len(lows):
        floor = max(floor, rng.choice([floor, rng.randrange(-5, 30)]))
        count = rng.randrange(1, 6)
        left = sorted((path for path in lows if path not in planned), key=lambda path: (max(lows[path], floor), path))
        got = [one.file.path for one in queue.least(count, floor, planned)]
        assert got == left[:count]
        planned |= set(rng.sample(got, rng.randrange(len(got) + 1)))


class SlowClock(SettableClock):
    """Each look at it takes a tenth of a second."""

    def monotonic_s(self) -> float:
        self.advance(0.1)
        return super().monotonic_s()


def test_a_turn_looks_into_some_files_and_chooses_after_all(tmp_path: Path) -> None:
    for i in range(20):
        write(tmp_path / f"f{i:02d}.csv", f"k,t\n{i},{100 - i}\n")
    feed = feed_of(tmp_path, {"k": "int64", "t": "int64"}, settle="0s")
    looker, plan = Looker(feed, str(tmp_path), Config(open_splits=2), SlowClock(4 * 10**15)), Plan(feed, Config())
    turns = 1
    listed = looker.look(plan, fresh=True)
    while looker.more:
        assert listed.eligible == []
        assert listed.young
        listed = looker.look(plan, fresh=False)
        turns += 1
    assert turns >= 3
    assert [one.file.path for one in listed.eligible] == ["f19.csv", "f18.csv", "f17.csv"]
    assert looker.look(plan, fresh=True).eligible == listed.eligible


def test_a_file_that_cannot_be_opened_holds_the_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        write(tmp_path / f"{name}.csv", "k,t\n1,1\n")
    feed = feed_of(tmp_path, {"k": "int64", "t": "int64"}, settle="0s")
    looker, plan = Looker(feed, str(tmp_path), Config(), SettableClock(4 * 10**15)), Plan(feed, Config())
    open_one = looker._folder.open

    def fails(path: str) -> object:
        if path == "b.csv":
            raise PermissionError(13, "no right to read it")
        return open_one(path)

    with monkeypatch.context() as patch:
        patch.setattr(looker._folder, "open", fails)
        listed = looker.look(plan, fresh=True)
        assert (listed.eligible, listed.young) == ([], True)
        assert "b.csv" in listed.trouble
        assert "b.csv" in looker.look(plan, fresh=False).trouble
    listed = looker.look(plan, fresh=True)
    assert [one.file.path for one in listed.eligible] == ["a.csv", "b.csv"]
    assert not listed.trouble
