"""Whatever a file holds: a model, or a ``SpecError`` of one screen. Never a traceback."""

from __future__ import annotations

import copy
import json
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from experiments.checking import problems_of
from experiments.documents import parse_document
from experiments.errors import SpecError
from experiments.experiment import Experiment
from experiments.feed import Feed
from experiments.loading import _build
from experiments.view import canonical, content_hash, view_of
from tests.experiments.specs import ITEMS, LIKED, RATINGS

BOUNDED = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

WORDS = st.sampled_from(
    ["id", "hash", "cross", "dense", "feed", "item", "item.price", "user_id", "ratings", "items", "parquet", "off", "on", "60s",
     "200 steps", "earliest", "1990-01-01", "log1p", "clip", "scale", "lr", "deepfm", "int64", "list<string>", "from", "type",
     "columns", "rating", "event_time", "[key]", "Clip", "literal", "__time", "", " ", "a.b", "Word"]
)  # fmt: skip
SCALARS = st.one_of(
    WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.integers(-2, 5), st.just(2**70)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=8,
)


def loaded(text: str, model: type[Feed] | type[Experiment], kind: str) -> Feed | Experiment | None:
    try:
        return _build(parse_document(text, "spec.yaml"), model, kind)
    except SpecError as error:
        told = error
    assert 0 < len(str(told)) < 40_000
    assert len(str(told).splitlines()) < 60
    assert all(problem.expected and problem.got for problem in told.problems), told
    return None


def check(text: str) -> None:
    feeds = {}
    for base in (RATINGS, ITEMS):
        feed = _build(parse_document(base, "f"), Feed, "feed")
        feeds[feed.feed] = feed
    for model, kind in ((Feed, "feed"), (Experiment, "experiment")):
        built = loaded(text, model, kind)
        if built is None:
            continue
        json.dumps(canonical(built), allow_nan=False)
        assert model.model_validate(canonical(built)) == built, "the registry must give back what was published"
        if isinstance(built, Experiment) and not problems_of(built, feeds):
            content_hash(view_of(built, feeds).content())


@BOUNDED
@given(st.text(max_size=80))
def test_any_text(text: str) -> None:
    check(text)


@BOUNDED
@given(st.text(alphabet="{}[]:,-&*!|>'\"%@`#? \n\tab01.~<=", max_size=60))
def test_text_made_of_yaml(text: str) -> None:
    check(text)


@BOUNDED
@given(VALUES)
def test_any_value(value: Any) -> None:
    check(yaml.safe_dump(value))


@BOUNDED
@given(st.sampled_from([RATINGS, ITEMS, LIKED]), st.integers(0, 200), VALUES, st.booleans())
def test_one_place_of_a_good_spec_replaced(text: str, place: int, value: Any, removed: bool) -> None:
    data = copy.deepcopy(yaml.load(text, yaml.BaseLoader))
    spots = list(_spots(data))
    parent, key = spots[place % len(spots)]
    if removed:
        del parent[key]
    else:
        parent[key] = value
    check(yaml.safe_dump(data))


@BOUNDED
@given(st.sampled_from([RATINGS, ITEMS, LIKED]), st.integers(0, 600), st.text(max_size=3), st.integers(0, 3))
def test_a_few_characters_of_a_good_spec_replaced(text: str, at: int, new: str, cut: int) -> None:
    at %= len(text)
    check(text[:at] + new + text[at + cut :])


def _spots(data: Any) -> Any:
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(items):
        yield data, key
        yield from _spots(value)
