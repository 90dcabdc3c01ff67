"""What is planned next, the floor and W: no log, no files."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.feed import Feed
from ingest.contracts import T_END, T_MIN, Config
from ingest.formats.reading import FilePlan, Range, Start
from ingest.plan import Candidate, Decision, Listed, Plan, eligible_files
from ingest.records import Progress, Split
from ingest.sources import FoundFile
from tests.ingest.world import feed_of

S = 1_000_000


def feed(**more: Any) -> Feed:
    return feed_of(Path("."), {"k": "int64", "t": "int64"}, **more)


def in_order() -> Feed:
    return feed(files={"url": ".", "order": "in_order"})


def candidate(path: str, *lows: int | None, hi: int | None = None, begin: int = 0) -> Candidate:
    """A file whose ranges have these bounds."""
    ranges = [
        Range(begin + at, begin + at + 1, at, -1, lo, Start(begin + at + 1, at + 1, -1) if at + 1 < len(lows) else None)
        for at, lo in enumerate(lows)
    ]
    return Candidate(FoundFile(path, 1, 1), FilePlan(tuple(ranges), hi, judged_by_rows=False), "fp")


class Case:
    """A plan and what was decided."""

    def __init__(self, spec: Feed, **config: Any) -> None:
        self.plan = Plan(spec, Config(**config))
        self.files: dict[str, Candidate] = {}
        self.W = T_MIN

    def turn(self, *, lag: str = "", may_close: bool = False, young: bool = False) -> Decision:
        listed = Listed(fresh=True, young=young)
        for path, found in sorted(self.files.items()):
            if path not in self.plan.files:
                listed.eligible.append(found)
        for file, fp, start in self.plan.rests():
            left = [part for part in self.files[file.path].plan.ranges if part.begin >= start.begin]
            listed.rests.append(Candidate(file, replace(self.files[file.path].plan, ranges=tuple(left)), fp))
        done = self.plan.decide(listed, lag=lag, may_close=may_close, now_us=10**15)
        for split in done.splits:
            assert split.L >= self.W or self.plan.feed.snapshot
            self.plan.add_split(split)
        assert done.floor.W >= self.W
        assert done.raises_W == (done.floor.W > self.W)
        self.W = done.floor.W
        self.plan.add_floor(done.floor)
        return done

    def add(self, *found: Candidate) -> None:
        self.files |= {one.file.path: one for one in found}

    def read(self, id: str, maxseen: int, *, done: bool = True) -> None:
        self.plan.add_progress(Progress(id, id.split("#")[0], maxseen, done, 0, 0, 0, 0))


def ids(decision: Decision) -> list[str]:
    return [split.id for split in decision.splits]


def test_by_bound_and_path_and_capped() -> None:
    case = Case(feed(), open_splits=3)
    case.add(candidate("b", 20 * S, 40 * S), candidate("a", 20 * S, 30 * S), candidate("z", 10 * S))
    assert ids(case.turn()) == ["z#0", "a#0", "b#0"]
    assert case.W == 10 * S
    case.read("z#0", 15 * S)
    assert ids(case.turn()) == ["a#1"]
    assert case.W == 20 * S
    case.read("a#0", 25 * S)
    case.read("b#0", 25 * S)
    assert ids(case.turn()) == ["b#1"]
    case.read("a#1", 35 * S)
    case.read("b#1", 45 * S)
    case.turn()
    assert case.W == 40 * S


def test_a_file_that_came_too_late_is_late_by_the_floor() -> None:
    case = Case(feed(file_disorder="5s"))
    case.add(candidate("b", 20 * S))
    case.turn()
    case.add(candidate("a", 14 * S), candidate("c", 16 * S))
    found = {split.id: split for split in case.turn().splits}
    assert (found["a#0"].L, found["a#0"].late) == (15 * S, True)
    assert (found["c#0"].L, found["c#0"].late) == (16 * S, False)


def test_later_parts_keep_the_bound_of_their_file() -> None:
    """The floor rises by what was read; the rest of the same file must not become late by it."""
    case = Case(in_order(), open_splits=1)
    case.add(candidate("a", 10 * S, 10 * S))
    assert ids(case.turn()) == ["a#0"]
    case.read("a#0", 90 * S)
    (split,) = case.turn().splits
    assert split.L == 10 * S
    assert case.plan.floor.floor == 90 * S
    assert case.W == 10 * S


def test_in_order_waits_for_earlier_files_unless_it_is_proved_harmless() -> None:
    case = Case(in_order())
    case.add(candidate("a", 10 * S, hi=19 * S), candidate("b", 20 * S, hi=29 * S), candidate("c", 25 * S, hi=40 * S))
    assert ids(case.turn()) == ["a#0", "b#0"]
    case.read("b#0", 28 * S, done=False)
    assert ids(case.turn()) == []
    case.read("b#0", 29 * S)
    (split,) = case.turn().splits
    assert (split.file, split.L, split.late) == ("c", 29 * S, True)
    assert case.W == 10 * S


def test_in_order_without_bounds_is_one_file_at_a_time() -> None:
    case = Case(in_order())
    case.add(candidate("a", None), candidate("b", 5 * S), candidate("c", 6 * S))
    for file in "abc":
        assert ids(case.turn()) == [f"{file}#0"]
        assert ids(case.turn()) == []
        case.read(f"{file}#0", 6 * S)


def test_what_holds_planning_is_told() -> None:
    case = Case(in_order())
    case.add(candidate("a", None), candidate("b", 5 * S))
    assert case.turn().held == ""
    assert case.turn().held == "for a to be read: b comes after it (files.order: in_order)"
    case.read("a#0", 6 * S)
    assert case.turn().held == ""
    far = Case(feed(), ahead_us=10 * S)
    far.add(candidate("a", 10 * S), candidate("b", 30 * S))
    assert far.turn().held == ""
    assert far.turn().held == "for a to be read: b begins too long after it (setting ingest.ahead)"
    assert far.turn(lag="for group g").held == ""


def test_a_file_is_late_only_if_its_first_row_is() -> None:
    """Without statistics the bound lies ``disorder`` before the first row, and rows that old need not be there."""
    case = Case(feed(disorder="10s", file_disorder="0s"))
    case.add(candidate("a", 40 * S))
    case.turn()
    for path, lo, late in [("b", 32 * S, False), ("c", 30 * S, False), ("d", 29 * S, True)]:
        found = candidate(path, lo)
        case.add(replace(found, plan=replace(found.plan, judged_by_rows=True)))
        (split,) = case.turn().splits
        assert (split.L, split.late) == (40 * S, late)


def test_unknown_and_garbage_bounds_hold_no_more_than_min_time() -> None:
    case = Case(feed(min_time="2000-01-01"))
    case.add(candidate("a", None), candidate("b", 5 * S))
    found = {split.file: split.L for split in case.turn().splits}
    assert found == dict.fromkeys("ab", 946_684_800 * S)


def test_ahead_of_the_oldest_open_split() -> None:
    case = Case(feed(), ahead_us=50 * S)
    case.add(candidate("a", 10 * S), candidate("b", 60 * S), candidate("c", 61 * S))
    assert ids(case.turn()) == ["a#0", "b#0"]
    case.read("a#0", 15 * S)
    assert ids(case.turn()) == ["c#0"]


def test_lag_holds_planning_but_not_snapshots() -> None:
    case = Case(feed())
    case.add(candidate("a", 10 * S))
    done = case.turn(lag="for group x")
    assert (ids(done), done.floor.waiting, done.floor.calm) == ([], "for group x", False)
    assert ids(case.turn()) == ["a#0"]
    case = Case(feed(snapshot=True))
    case.add(candidate("a", None))
    assert ids(case.turn(lag="for group x")) == ["a#0"]


def test_calm_and_closing_take_two_listings() -> None:
    case = Case(feed())
    assert not case.turn().floor.calm
    assert case.turn().floor.calm
    case.add(candidate("a", 10 * S))
    assert not case.turn(may_close=True).floor.calm
    assert not case.turn(may_close=True).floor.closed
    case.read("a#0", 10 * S)
    assert not case.turn(may_close=True).floor.closed
    assert not case.turn(may_close=True, young=True).floor.closed
    assert not case.turn(may_close=True).floor.closed
    done = case.turn(may_close=True)
    assert (done.floor.closed, done.floor.W) == (True, T_END)
    case.add(candidate("b", 99 * S), candidate("c", None))
    done = case.turn()
    assert [(split.L, split.late) for split in done.splits] == [(T_END, True)] * 2
    assert (done.floor.late_files, done.floor.calm) == (2, False)


def test_an_unreachable_folder_is_not_calm() -> None:
    case = Case(feed())
    case.turn()
    assert case.turn().floor.calm
    done = case.plan.decide(Listed(fresh=True, trouble="away"), lag="", may_close=True, now_us=0)
    assert (done.floor.calm, done.floor.closed, done.floor.waiting) == (False, False, "away")


def test_a_snapshot_closes_once_it_has_files() -> None:
    case = Case(feed(snapshot=True))
    for _ in range(4):
        assert not case.turn().floor.closed
    case.add(candidate("a", None))
    case.turn()
    assert case.W == T_MIN
    case.read("a#0", T_MIN)
    case.turn()
    assert case.turn().floor.closed
    assert case.W == T_END
    done = case.plan.decide(Listed(fresh=True, unused=["x", "y"]), lag="", may_close=False, now_us=0)
    assert (done.floor.late_files, done.floor.unused, done.floor.closed) == (2, ["x", "y"], True)


@pytest.mark.parametrize("seed", range(60))
def test_any_files_in_any_order_end_and_W_is_kept(seed: int) -> None:
    """Random files, bounds, readers: everything is planned once, parts in order; no part is below a W before it."""
    rng = random.Random(seed)
    case = Case(
        rng.choice([feed(), in_order(), feed(file_disorder="20s"), feed(snapshot=True)]),
        open_splits=rng.choice([1, 2, 8]),
        ahead_us=rng.choice([S, 30 * S, 10**9 * S]),
    )
    waiting = []
    for n in range(rng.randint(0, 7)):
        lows: list[int | None] = sorted(rng.randint(1, 200) * S for _ in range(rng.randint(1, 5)))  # type: ignore[assignment]
        if rng.random() < 0.2:
            lows = [None] * len(lows)
        top = max((low for low in lows if low is not None), default=0) + 9 * S
        waiting.append(candidate(f"f{n}", *lows, hi=rng.choice([None, top])))
    total = sum(len(one.plan.ranges) for one in waiting)
    if case.plan.feed.snapshot:  # closes when it is calm: what comes later is another test
        case.add(*waiting)
        waiting.clear()
    seen: list[Split] = []
    for _ in range(2000):
        if waiting and rng.random() < 0.2:
            case.add(waiting.pop(rng.randrange(len(waiting))))
        seen += case.turn(may_close=not waiting, young=rng.random() < 0.1, lag=rng.choice(["", "", "", "x"])).splits
        if rng.random() < 0.5 and (opened := case.plan.open_splits()):
            id = rng.choice(opened)
            split = next(one for one in seen if one.id == id)
            case.read(
                id, T_MIN if case.plan.feed.snapshot else split.L + rng.randint(0, 9) * S, done=rng.random() < 0.7
            )
        if case.plan.closed and not case.plan.open_splits():
            break
    assert len(seen) == total == len({split.id for split in seen})
    assert case.plan.closed or (case.plan.feed.snapshot and not total)
    for file in case.files:
        mine = [split for split in seen if split.file == file]
        assert [split.begin for split in mine] == list(range(len(mine)))
        assert [split.L for split in mine] == sorted(split.L for split in mine)


def test_listing_rules() -> None:
    files = [FoundFile(name, 1, at) for name, at in (("a", 1), ("b", 9), ("c", 1), ("d", 1))]
    every = frozenset("abcd")
    assert [f.path for f in eligible_files(files, {}, every, in_order=False, young_after_us=5)[0]] == ["a", "c", "d"]
    assert [f.path for f in eligible_files(files, {}, every, in_order=True, young_after_us=5)[0]] == ["a"]
    found, young = eligible_files(files, {"a": 1, "b": 1}, frozenset("abd"), in_order=True, young_after_us=5)
    assert ([f.path for f in found], young) == ([], True)
    found, young = eligible_files(files, {"a": 1, "b": 1}, every, in_order=True, young_after_us=5)
    assert ([f.path for f in found], young) == (["c", "d"], False)
