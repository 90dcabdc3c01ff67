"""One screen that says what came, what was expected, where, and what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.errors import SHOWN, SpecError
from experiments.loading import load_feed, load_feeds
from tests.experiments.specs import ITEMS, LIKED, RATINGS, experiment, feed, told, written

Told = tuple[int, str, str, str, str]


def problems(text: str, folder: Path) -> list[Told]:
    load = feed if text.lstrip().startswith("feed") else experiment
    with pytest.raises(SpecError) as error:
        load(text, folder)
    return told(error.value)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("key: [user_id]", "kee: [user_id]", (7, "kee", "key", "the key 'kee'", "Did you mean 'key'?")),
        ("user_id: int64,", "user_id: int46,", (5, "columns.user_id", "int64", "'int46'", "Did you mean 'int64'?")),
        ("key: [user_id]", "key: [usr_id]", (7, "key", "a column", "'usr_id'", "Did you mean 'user_id'?")),
        ("key: [user_id]", "key: user_id", (7, "key", "a list", "'user_id'", "For example key: [user_id]")),
        ("key: [user_id]", "key: [tags]", (7, "key", "no list", "list<string>", "")),
        ("key: [user_id]", "key: [user_id, user_id]", (7, "key", "each column once", "user_id, user_id", "")),
        ("{column: time}", "{column: tim}", (6, "event_time", "a column", "'tim'", "Did you mean 'time'?")),
        ("{column: time}", "{column: place}", (6, "event_time.column", "timestamp", "'place' of type string", "")),
        ("{column: time}", "{column: rating}", (6, "event_time.column", "float64", "'rating' of type float32", "")),
        ("{column: time}", "{column: time, zone: Mars}", (6, "event_time.zone", "UTC or Asia", "'Mars'", "")),
        ("{column: time}", "{column: time, unit: sec}", (6, "event_time.unit", "one of s, ms", "'sec'", "")),
        ("event_time: {column: time}\n", "", (2, "", "snapshot: true", "neither", "")),
        ("event_time:", "snapshot: true\nevent_time:", (2, "", "snapshot: true", "both", "")),
        ("format: parquet", "format: parqet", (4, "format", "parquet", "'parqet'", "Did you mean 'parquet'?")),
        ("format: parquet", "format: {}", (4, "format", "one format", "none", "For example format: parquet")),
        ("format: parquet", "format: {delimited: {sep: ''}}", (4, "format.delimited.sep", "at least 1", "''", "")),
        ("format: parquet", "format: {delimited: {sep: é}}", (4, "format.delimited.sep", "ASCII", "'é'", "")),
        ("format: parquet", "format: {delimited: {quote: ','}}", (4, "format.delimited.quote", "than sep", "','", "")),
        ("format: parquet", "format: {delimited: {sep: ' '}}", (4, "format.delimited", "list_sep", "' '", "")),
        ("format: parquet", "format: {delimited: {header: on}}", (4, "format.delimited.header", "true or", "'on'", "")),
        ("place: string", "place.x: string", (5, "columns.place.x", "without dots", "'place.x'", "write {from: 'pla")),
        ("place: string", "__time: string", (5, "columns.__time", "two underscores", "'__time'", "Choose another")),
        ("key:", "partitions: 0\nkey:", (7, "partitions", "at least 1", "0", "")),
        ("key:", "partitions: true\nkey:", (7, "partitions", "a whole number", "true", "")),
        ("key:", "partitions: '4'\nkey:", (7, "partitions", "a whole number", "'4'", "")),
        ("key:", "partitions: 4.5\nkey:", (7, "partitions", "a whole number", "4.5", "")),
        ("key:", "cuts: {every: 0s}\nkey:", (7, "cuts.every", "positive", "'0s'", "")),
        ("key:", "cuts: {every: }\nkey:", (7, "cuts.every", "60s", "nothing", "")),
        ("key:", "disorder: 5\nkey:", (7, "disorder", "with a unit", "5", "")),
        ("key:", "disorder: 40000d\nkey:", (7, "disorder", "at most 36500d", "'40000d'", "")),
        ("key:", "min_time: yesterday\nkey:", (7, "min_time", "a date like", "'yesterday'", "")),
        ("feed: ratings", "feed: 7up", (2, "feed", "a name: a letter", "'7up'", "")),
        ("feed: ratings", "feed: true", (2, "feed", "a text", "true", "Put it in quotes.")),
        ("files: {url: data/ratings}", "files: data", (3, "files", "keys and values", "'data'", "For example files:")),
        ("{url: data/ratings}", "{uri: data}", (3, "files.uri", "url, match", "the key 'uri'", "Did you mean 'url'?")),
        ("{url: data/ratings}", "{match: '*'}", (3, "files.url", "the key 'url'", "nothing", "")),
    ],
)
def test_one_mistake_in_a_feed(tmp_path: Path, old: str, new: str, expected: Told) -> None:
    assert old in RATINGS
    check(problems(RATINGS.replace(old, new), tmp_path), expected)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("sample:", "sampel:", (3, "sampel", "sample", "the key 'sampel'", "Did you mean 'sample'?")),
        ("sample: ratings\n", "", (2, "sample", "the key 'sample'", "nothing", "")),
        ("{id: user_id}", "user_id", (7, "features.user", "keys and values", "'user_id'", "For example {id: user_id}")),
        ("{id: user_id}", "{hsah: user_id}", (7, "features.user.hsah", "hash", "'hsah'", "Did you mean 'hash'?")),
        ("{id: user_id}", "{}", (7, "features.user", "exactly one of id", "none", "")),
        ("{id: user_id}", "{id: a, hash: b}", (7, "features.user", "exactly one", "id, hash", "")),
        (
            "{id: user_id}",
            "{id: a, ops: [log1p]}",
            (7, "features.user.ops", "id, last, pool, table", "ops in a id", ""),
        ),
        ("{id: user_id}", "{cross: [a]}", (7, "features.user.cross", "at least 2", "1", "")),
        ("{id: user_id}", "{id: a, last: 0}", (7, "features.user.last", "at least 1", "0", "")),
        ("{id: user_id}", "{id: a, pool: max}", (7, "features.user.pool", "one of mean, sum", "'max'", "")),
        ("log1p", "lgo1p", (9, "features.price.ops.1", "log1p", "'lgo1p'", "Did you mean 'log1p'?")),
        ("{clip: [0, 100]}", "{clip: [0]}", (9, "features.price.ops.0.clip", "[low, high]", "[0]", "")),
        ("{clip: [0, 100]}", "{clip: [3, 1]}", (9, "features.price.ops.0.clip", "[low, high]", "[3.0, 1.0]", "")),
        ("{clip: [0, 100]}", "{clip: [0, .inf]}", (9, "features.price.ops.0.clip.1", "a number", "'.inf'", "")),
        ("{clip: [0, 100]}", "{clop: 1}", (9, "features.price.ops.0", "{clip: [low, high]}", '{"clop": 1}', "")),
        ("range: [1, 5]", "range: [5, 1]", (4, "labels.liked.range", "[low, high]", "[5.0, 1.0]", "")),
        ("range: [1, 5]", "equals: 1", (4, "labels.liked", "at_least or equals", "both", "")),
        ("at_least: 4", "equals: [4]", (4, "labels.liked.equals", "a number, a text", "[4]", "")),
        ("at_least: 4", "at_least: .nan", (4, "labels.liked.at_least", "a number", "'.nan'", "")),
        ("at_least: 4", "at_least: true", (4, "labels.liked.at_least", "a number", "true", "")),
        ("model: lr", "model: deepfn", (10, "model", "deepfm", "'deepfn'", "Did you mean 'deepfm'?")),
        ("model: lr", "model: {}", (10, "model", "one model", "none", "For example model:")),
        ("model: lr", "model: {lr: {}, deepfm: {}}", (10, "model", "one model", "deepfm, lr", "")),
        ("model: lr", "model: {deepfm: {mlp: [0]}}", (10, "model.deepfm.mlp.0", "at least 1", "0", "")),
        ("model: lr", "model: {deepfm: {mlp: 64}}", (10, "model.deepfm.mlp", "a list", "64", "")),
        ("model:", "tables: {usr: {}}\nmodel:", (10, "tables.usr", "user", "'usr'", "Did you mean 'user'?")),
        ("model:", "tables: {user: {dim: 1.5}}\nmodel:", (10, "tables.user.dim", "a whole number", "1.5", "")),
        ("model:", "tables: {user: {optimizer: adam}}\nmodel:", (10, "tables.user.optimizer", "rowwise", "'adam'", "")),
        ("{batch_rows: 64}", "{batch_rows: 0}", (11, "train.batch_rows", "at least 1", "0", "")),
        ("{batch_rows: 64}", "{checkpoint_every: 0 steps}", (11, "train.checkpoint_every", "1 step", "'0 steps'", "")),
        ("{batch_rows: 64}", "{checkpoint_every: soon}", (11, "train.checkpoint_every", "200 steps", "'soon'", "")),
        ("model:", "start: tomorrow\nmodel:", (10, "start", "a date like", "'tomorrow'", "")),
        ("model:", "start: 2024-05-01 12:00\nmodel:", (10, "start", "T12:00:00+08:00", "'2024-05-01 12:00'", "")),
    ],
)
def test_one_mistake_in_an_experiment(tmp_path: Path, old: str, new: str, expected: Told) -> None:
    assert old in LIKED
    check(problems(LIKED.replace(old, new), tmp_path), expected)


def check(found: list[Told], expected: Told) -> None:
    assert len(found) == 1, found
    line, path, *texts = found[0]
    assert (line, path) == expected[:2]
    for got, part in zip(texts, expected[2:], strict=True):
        assert part in got, (texts, part)
        assert "Input should" not in got


@pytest.mark.parametrize(
    "labels", ["labels: {}", "labels:", "labels: []", "", "labels: {a: {column: x}, b: {column: y}}"]
)
def test_exactly_one_label(tmp_path: Path, labels: str) -> None:
    (found,) = problems(
        LIKED.replace("labels: {liked: {column: rating, at_least: 4, range: [1, 5]}}", labels), tmp_path
    )
    assert found[1] == "labels"
    assert "A label is what the model learns to predict" in found[4]


def test_all_problems_of_a_file_on_one_screen(tmp_path: Path) -> None:
    bad = "".join(f"  f{n}: {{hsah: user_id}}\n" for n in range(40))
    with pytest.raises(SpecError) as error:
        experiment(LIKED.replace("features:\n", "features:\n" + bad), tmp_path)
    lines = str(error.value).splitlines()
    assert lines[0] == "40 problems:"
    assert lines[-1] == "  … and 30 more"
    assert len(lines) <= 2 + 3 * SHOWN
    assert len(error.value.problems) == 40
    assert error.value.exit_code == 2


def test_where_is_file_line_and_path(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as error:
        feed(RATINGS.replace("int64, item", "int46, item"), tmp_path)
    assert error.value.where == f"{tmp_path / 'spec.yaml'}:5 (columns.user_id)"
    assert error.value.as_dict()["do"] == "Did you mean 'int64'?"


@pytest.mark.parametrize(
    ("text", "load", "part"),
    [
        (LIKED, feed, "expected the key feed: NAME, got an experiment"),
        (RATINGS, experiment, "expected the key experiment: NAME, got a feed"),
        ("experimnt: x\n", experiment, "Did you mean 'experimnt'?"),
        ("name: x\n", feed, "got no such key"),
    ],
)
def test_wrong_kind_of_file(tmp_path: Path, text: str, load: object, part: str) -> None:
    with pytest.raises(SpecError) as error:
        load(text, tmp_path)  # type: ignore[operator]
    assert part in str(error.value)


def test_a_word_is_short_for_a_mapping(tmp_path: Path) -> None:
    long = RATINGS.replace("format: parquet", "format: {parquet: {}}").replace("int64", "{type: int64}")
    assert feed(long, tmp_path) == feed(RATINGS, tmp_path)
    short = experiment(LIKED, tmp_path)
    assert experiment(LIKED.replace("model: lr", "model: {lr: {}}"), tmp_path) == short


def test_off_in_both_yamls_and_a_blank_is_neither(tmp_path: Path) -> None:
    off = [feed(RATINGS + f"cuts: {{every: {word}}}\n", tmp_path).cuts.every for word in ("off", "false", "'off'")]
    assert off == [None, None, None]


def test_a_folder_of_feeds(tmp_path: Path) -> None:
    assert load_feeds(tmp_path / "none") == {}
    for name, text in (("a.yaml", RATINGS), ("b.yml", ITEMS), ("c.txt", "feed: [")):
        (tmp_path / name).write_text(text)
    assert sorted(load_feeds(tmp_path)) == ["items", "ratings"]
    assert load_feed(tmp_path / "a.yaml") == load_feeds(tmp_path)["ratings"]
    (tmp_path / "d.yaml").write_text(RATINGS)
    (tmp_path / "e.yaml").write_text(ITEMS.replace("parquet", "parket"))
    with pytest.raises(SpecError) as error:
        load_feeds(tmp_path)
    assert [Path(problem.file).name for problem in error.value.problems] == ["d.yaml", "e.yaml"]
    assert "a.yaml has too" in str(error.value)


def test_text_and_numbers_of_an_equals_label(tmp_path: Path) -> None:
    for text, value in (("1", 1.0), ("true", True), ("'yes'", "yes"), ("on", "on"), ("007", "007")):
        label = experiment(LIKED.replace("at_least: 4, range: [1, 5]", f"equals: {text}"), tmp_path).labels["liked"]
        assert label.equals == value
        assert type(label.equals) is type(value)


def test_written_is_utf8(tmp_path: Path) -> None:
    path = written(RATINGS.replace("data/ratings", "données"), tmp_path)
    assert load_feed(path).files.url == "données"
