"""When roles end, decided from the log alone: real planners, readers, join and featurizers, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace.endings import Ending, Forever, UntilEnd, UntilIdle
from headrace.result import compose
from streams.errors import Usage
from tests.headrace.chain import Chain, chain_in

TURNS = 200


@pytest.fixture
def chain(tmp_path: Path) -> Iterator[Chain]:
    with chain_in(tmp_path / "p") as made:
        yield made


def turn_until(chain: Chain, ending: Ending, over: Callable[[], bool], stages: tuple[str, ...]) -> int:
    for number in range(TURNS):
        if not chain.turn(ending, stages=stages) and over():
            return number
    raise AssertionError(f"not over after {TURNS} turns: {compose(chain.look, chain.project)}")


def settle(chain: Chain, ending: Ending, turns: int = 12) -> None:
    for _ in range(turns):
        chain.turn(ending)


ALL = ("ingest", "preprocess")


def test_nothing_is_over_before_anything_is_published(chain: Chain) -> None:
    for ending in (UntilIdle(chain.look, {}), UntilEnd(chain.look), Forever()):
        assert not ending.ingest_over()
        assert not ending.preprocess_over()


def test_forever_is_never_over(chain: Chain) -> None:
    chain.users(7)
    chain.rows("a.csv", 0, 100)
    chain.publish("ctr")
    settle(chain, Forever())
    assert not Forever().ingest_over()
    assert not Forever().preprocess_over()
    assert UntilIdle(chain.look, {}).ingest_over(), "and yet it was idle"


def test_idle_leaves_rows_waiting_and_says_so(chain: Chain) -> None:
    chain.users(7)
    chain.rows("a.csv", 0, 400)
    chain.publish("ctr")
    ending = UntilIdle(chain.look, {})
    turn_until(chain, ending, ending.ingest_over, ("ingest",))
    assert not ending.preprocess_over(), "preprocess has not begun"
    turn_until(chain, ending, ending.preprocess_over, ALL)
    result = compose(chain.look, chain.project)
    assert result["feeds"]["rows"]["closed"] is False
    assert result["feeds"]["users"]["closed"] is True
    ctr = result["experiments"]["ctr"]
    assert ctr["rows_waiting"] == 400
    assert [entry["stage"] for entry in ctr["waiting"]][-1] == "train"
    assert all(entry["for"] for entry in ctr["waiting"])


def test_a_calm_of_an_earlier_run_does_not_count(chain: Chain) -> None:
    chain.users(7)
    chain.rows("a.csv", 0, 100)
    chain.publish("ctr")
    first = UntilIdle(chain.look, {})
    turn_until(chain, first, first.preprocess_over, ALL)
    chain.ingest.close()
    chain.rows("b.csv", 100, 100)
    again = UntilIdle(chain.look, chain.look.floor_ends())
    assert not again.ingest_over()
    assert not again.preprocess_over()
    turn_until(chain, again, again.preprocess_over, ALL)
    assert compose(chain.look, chain.project)["feeds"]["rows"]["used"] == 200


def test_two_looks_are_needed(chain: Chain) -> None:
    chain.users(7)
    chain.rows("a.csv", 0, 100)
    chain.publish("ctr")
    settle(chain, Forever(), 20)
    ending = UntilIdle(chain.look, {})
    assert not ending.preprocess_over()
    assert ending.preprocess_over()


def test_end_closes_snapshots_first_and_drains(chain: Chain) -> None:
    chain.rows("a.csv", 0, 100)
    chain.publish("ctr")
    ending = UntilEnd(chain.look)
    assert not ending.may_close()
    chain.users(7)
    turn_until(chain, ending, ending.ingest_over, ALL)
    turn_until(chain, ending, ending.preprocess_over, ALL)
    assert ending.may_close()
    result = compose(chain.look, chain.project)
    assert all(feed["closed"] for feed in result["feeds"].values())
    waiting = result["experiments"]["ctr"]["waiting"]
    assert [(entry["stage"], entry["rows"]) for entry in waiting] == [("train", 100)]


def test_end_without_files_of_a_side_table_says_so(chain: Chain) -> None:
    chain.rows("a.csv", 0, 100)
    chain.publish("ctr")
    ending = UntilEnd(chain.look)
    with pytest.raises(Usage, match="users"):
        turn_until(chain, ending, ending.ingest_over, ALL)


def test_idle_without_files_of_a_side_table_ends_and_names_it(chain: Chain) -> None:
    chain.rows("a.csv", 0, 100)
    chain.publish("ctr")
    ending = UntilIdle(chain.look, {})
    turn_until(chain, ending, ending.preprocess_over, ALL)
    (entry,) = compose(chain.look, chain.project)["experiments"]["ctr"]["waiting"]
    assert (entry["stage"], entry["rows"]) == ("join", 100)
    assert "users" in entry["for"]


def test_no_files_at_all(chain: Chain) -> None:
    chain.users(7)
    chain.publish("ctr")
    ending = UntilEnd(chain.look)
    turn_until(chain, ending, ending.preprocess_over, ALL)
    result = compose(chain.look, chain.project)
    assert result["feeds"]["rows"]["closed"] is True
    assert result["experiments"]["ctr"]["rows_waiting"] == 0


def test_published_after_the_end_is_made_from_what_is_stored(chain: Chain) -> None:
    chain.users(7)
    chain.rows("a.csv", 0, 100)
    chain.publish("ctr")
    ending = UntilEnd(chain.look)
    turn_until(chain, ending, ending.preprocess_over, ALL)
    chain.publish("late")
    assert not ending.preprocess_over()
    turn_until(chain, ending, ending.preprocess_over, ALL)
    counts = {name: e["rows_waiting"] for name, e in compose(chain.look, chain.project)["experiments"].items()}
    assert counts == {"ctr": 100, "late": 100}
