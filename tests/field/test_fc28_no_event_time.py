"""A source without event time is allowed only as a side table; what needs time refuses before anything runs. Its sibling: an
experiment without a label."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.errors import SpecError
from tests.experiments.specs import ITEMS, LIKED, RATINGS, experiment, feed, feeds

NO_TIME = RATINGS.replace("event_time: {column: time}\n", "")


def test_a_feed_must_say_where_time_is(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        feed(NO_TIME, tmp_path)
    assert "event_time: {column: …} or, for a side table, snapshot: true, got neither" in str(error.value)


def test_a_time_that_is_no_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="Did you mean 'time'"):
        feed(RATINGS.replace("{column: time}", "{column: tme}"), tmp_path)


def test_a_sample_without_time_is_refused(tmp_path: Path) -> None:
    tables = feeds(tmp_path, NO_TIME + "snapshot: true\n", ITEMS)
    with pytest.raises(SpecError) as error:
        experiment(LIKED, tmp_path, tables)
    (problem,) = error.value.problems
    assert (problem.line, problem.path) == (3, "sample")
    assert problem.expected == "a feed with event_time"


def test_a_side_table_with_time_is_refused(tmp_path: Path) -> None:
    timed = ITEMS.replace("snapshot: true", "event_time: {column: released}")
    with pytest.raises(SpecError, match="snapshot: true"):
        experiment(LIKED, tmp_path, feeds(tmp_path, RATINGS, timed))


@pytest.mark.parametrize("labels", ["", "labels: {}", "labels: {liked: {}}"])
def test_an_experiment_without_a_label_is_refused(tmp_path: Path, labels: str) -> None:
    text = LIKED.replace("labels: {liked: {column: rating, at_least: 4, range: [1, 5]}}", labels)
    with pytest.raises(SpecError) as error:
        experiment(text, tmp_path, feeds(tmp_path))
    (problem,) = error.value.problems
    assert problem.path.startswith("labels")
