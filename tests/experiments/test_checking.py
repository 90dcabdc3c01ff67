"""An experiment against the feeds it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.errors import SpecError
from tests.experiments.specs import ITEMS, LIKED, RATINGS, experiment, feeds, told


def test_fits(tmp_path: Path) -> None:
    assert experiment(LIKED, tmp_path, feeds(tmp_path)).sample == "ratings"


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        ("{hash: usr_id}", ("hash", "a column of the sample or a look-up", "'usr_id', which is none", "'user_id'?")),
        ("{hash: item.categry}", ("hash", "a column", "'item.categry'", "Did you mean 'item.category'?")),
        ("{hash: category}", ("hash", "a column", "'category'", "Did you mean 'item.category'?")),
        ("{id: place}", ("id", "an integer column", "'place' of type string", "Use hash: place")),
        ("{id: rating}", ("id", "an integer column", "'rating' of type float32", "Use hash: rating")),
        ("{id: tags}", ("id", "an integer column", "list<string>", "Use hash: tags")),
        ("{dense: place}", ("dense", "a number or bool column", "string", "Use hash: place")),
        ("{dense: tags}", ("dense", "a number or bool column", "list<string>", "Use hash: tags")),
        ("{dense: time, default: 1}", None),
        ("{hour_of: time}", ("hour_of", "event_time or a timestamp", "'time' of type int64", "")),
        ("{hour_of: event_time}", None),
        ("{day_of_week: item.released}", None),
        ("{hour_of: event_time, zone: Moon}", ("zone", "a time zone", "'Moon'", "")),
        ("{hour_of: event_time, zone: Asia/Shanghai}", None),
        ("{cross: [user_id, tags]}", ("cross", "a column that is no list", "'tags'", "")),
        ("{cross: [user_id, item.category]}", None),
        ("{hash: tags, last: 5}", None),
        ("{hash: place, last: 5}", ("last", "a list column", "'place' of type string", "Leave last out.")),
    ],
)
def test_features(tmp_path: Path, feature: str, expected: tuple[str, ...] | None) -> None:
    text = LIKED.replace("{id: user_id}", feature)
    if expected is None:
        experiment(text, tmp_path, feeds(tmp_path))
        return
    with pytest.raises(SpecError) as error:
        experiment(text, tmp_path, feeds(tmp_path))
    ((line, path, *texts),) = told(error.value)
    assert (line, path) == (7, f"features.user.{expected[0]}")
    for got, part in zip(texts, expected[1:], strict=True):
        assert part in got


@pytest.mark.parametrize(
    ("old", "new", "path", "parts"),
    [
        ("sample: ratings", "sample: ratngs", "sample", ("'ratngs'", "Did you mean 'ratings'?")),
        ("sample: ratings", "sample: items", "sample", ("a feed with event_time", "Look it up instead.")),
        ("feed: items", "feed: itmes", "lookups.item.feed", ("'itmes'", "Did you mean 'items'?")),
        ("feed: items", "feed: ratings", "lookups.item.feed", ("a feed with snapshot: true", "event_time")),
        ("on: item_id", "on: itm_id", "lookups.item.on", ("no column of 'ratings'", "Did you mean 'item_id'?")),
        ("on: item_id", "on: place", "lookups.item.on", ("int64, as the key 'item_id'", "'place' of type string")),
        ("column: rating", "column: ratng", "labels.liked.column", ("a column of 'ratings'", "Did you mean 'rating'?")),
        ("column: rating", "column: place", "labels.liked.column", ("a number or bool", "Write equals:")),
        ("column: rating", "column: tags", "labels.liked.column", ("a number or bool", "list<string>")),
        ("at_least: 4", "equals: good", "labels.liked.equals", ("a value of type float32", "'good'")),
        ("batch_rows: 64", "batch_rows: 63", "train.batch_rows", ("a multiple of the 4 partitions", "For example 60")),
        ("batch_rows: 64", "batch_rows: 2", "train.batch_rows", ("a multiple of the 4 partitions", "For example 4")),
        ("experiment: liked", "experiment: items", "experiment", ("a name that no feed has", "Rename one")),
    ],
)
def test_the_rest(tmp_path: Path, old: str, new: str, path: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as error:
        experiment(LIKED.replace(old, new), tmp_path, feeds(tmp_path))
    assert path in [problem.path for problem in error.value.problems]
    for part in parts:
        assert part in str(error.value)


def test_an_unknown_side_table_is_one_problem_not_one_a_feature(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        experiment(LIKED.replace("feed: items", "feed: itmes"), tmp_path, feeds(tmp_path))
    assert [problem.path for problem in error.value.problems] == ["lookups.item.feed"]


def test_a_table_with_two_keys_cannot_be_looked_up(tmp_path: Path) -> None:
    items = ITEMS.replace("key: [item_id]", "key: [item_id, category]")
    with pytest.raises(SpecError, match="one key column"):
        experiment(LIKED, tmp_path, feeds(tmp_path, RATINGS, items))


def test_label_of_text_and_of_bool(tmp_path: Path) -> None:
    text = LIKED.replace("column: rating, at_least: 4, range: [1, 5]", "column: place, equals: home")
    experiment(text, tmp_path, feeds(tmp_path))
    with pytest.raises(SpecError, match="no range for a text column"):
        experiment(text.replace("home", "home, range: [0, 1]"), tmp_path, feeds(tmp_path))
    ratings = RATINGS.replace("rating: float32", "rating: bool")
    plain = LIKED.replace("column: rating, at_least: 4, range: [1, 5]", "column: rating")
    experiment(plain, tmp_path, feeds(tmp_path, ratings, ITEMS))


def test_a_column_named_event_time_is_itself(tmp_path: Path) -> None:
    ratings = RATINGS.replace(" time: int64", " event_time: int64").replace("column: time", "column: event_time")
    text = LIKED.replace("{id: user_id}", "{hour_of: event_time}")
    with pytest.raises(SpecError, match="'event_time' of type int64"):
        experiment(text, tmp_path, feeds(tmp_path, ratings, ITEMS))


def test_all_at_once(tmp_path: Path) -> None:
    text = LIKED.replace("{id: user_id}", "{id: usr}").replace("item.price", "item.prise").replace("64", "63")
    with pytest.raises(SpecError) as error:
        experiment(text, tmp_path, feeds(tmp_path))
    assert [problem.line for problem in error.value.problems] == [7, 9, 11]
