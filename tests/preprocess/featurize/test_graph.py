from __future__ import annotations

import pytest

from experiments.view import view_of
from preprocess.featurize.graph import Hash, Plan, compile_plan
from preprocess.featurize.ops import seed_of
from streams.errors import Usage
from tests.preprocess.featurize.samples import experiment, feed

COLUMNS = {"x": "int64", "f": "float64", "s": "string", "when": "timestamp", "l": "list<string>"}


def plan(features: dict[str, object], **columns: str) -> Plan:
    spec = experiment(features)
    return compile_plan(spec, view_of(spec, {"s": feed(COLUMNS | columns)}))


def test_an_operation_used_twice_is_computed_once() -> None:
    made = plan(
        {
            "a": {"hash": "x"},
            "b": {"hash": "x", "table": "a"},
            "c": {"cross": ["x", "s"], "table": "a"},
            "d": {"cross": ["s", "x"], "table": "a"},
            "e": {"hash": "x", "table": "e"},
        }
    )
    assert set(made.hashes) == {Hash("x", seed_of("a")), Hash("s", seed_of("a")), Hash("x", seed_of("e"))}
    assert len(made.hashes) == 3
    assert len(made.picks) == 4
    assert made.tables == ((0, 0, 1, 2, 3),)
    assert made.columns == ("s", "x")


def test_event_time_is_the_time_of_the_row_unless_a_column_has_its_name() -> None:
    assert plan({"h": {"hour_of": "event_time"}}).columns == ("__time",)
    assert plan({"h": {"hour_of": "event_time"}}, event_time="timestamp").columns == ("event_time",)


def test_only_columns_in_use_are_read() -> None:
    made = plan({"a": {"id": "x"}, "d": {"dense": "f"}})
    assert set(made.needed) == {"x", "f", "label.y", "__time", "__file", "__row"}
    assert len(made.needed) == 6


@pytest.mark.parametrize(
    "feature",
    [
        {"id": "s"},
        {"id": "f"},
        {"id": "nothing"},
        {"cross": ["x", "l"]},
        {"dense": "s"},
        {"dense": "when"},
        {"hour_of": "x"},
        {"day_of_week": "l"},
    ],
)
def test_a_column_that_does_not_fit_is_named(feature: dict[str, object]) -> None:
    with pytest.raises(Usage) as caught:
        plan({"mine": feature})
    assert "features.mine" in caught.value.where
    assert "x" in caught.value.do


def test_a_zone_that_does_not_exist_is_named() -> None:
    with pytest.raises(Usage, match="Mars/Olympus"):
        plan({"h": {"hour_of": "when", "zone": "Mars/Olympus"}})
