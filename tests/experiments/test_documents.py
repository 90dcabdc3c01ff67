from __future__ import annotations

import time
from pathlib import Path

import pytest

from experiments import documents
from experiments.documents import read_document
from experiments.errors import SpecError
from tests.experiments.specs import parse


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True), ("False", False), ("on", "on"), ("off", "off"), ("yes", "yes"), ("no", "no"), ("n", "n"),
        ("1", 1), ("-17", -17), ("50_000_000", 50_000_000), ("18446744073709551615", 2**64 - 1), ("0", 0),
        ("1e-3", 0.001), ("1E3", 1000.0), ("1.5", 1.5), (".5", 0.5), ("-2.", -2.0), ("1_000.5", 1000.5),
        ("007", "007"), ("0x1F", "0x1F"), ("0o17", "0o17"), ("1_", "1_"), ("1:30", "1:30"), ("68fd1e64", "68fd1e64"),
        ("2024-05-01", "2024-05-01"), (".inf", ".inf"), (".nan", ".nan"), ("NaN", "NaN"), ("inf", "inf"),
        ("~", None), ("null", None), ("", None), ('"1"', "1"), ("'true'", "true"), ("2h", "2h"), ("=", "="), ("<<", "<<"),
    ],
)  # fmt: skip
def test_plain_values(text: str, value: object) -> None:
    got = parse(f"key: {text}\nother: 1").data["key"]
    assert got == value
    assert type(got) is type(value)


def test_on_is_a_key_not_true() -> None:
    assert parse("lookups: {item: {feed: items, on: item_id}}").data == {
        "lookups": {"item": {"feed": "items", "on": "item_id"}}
    }


def test_lines_of_keys_items_and_what_is_not_there() -> None:
    document = parse("a:\n  b: 1\n  c:\n    - x\n    - y: 2\n")
    assert document.line_of(()) == 1
    assert document.line_of(("a", "c")) == 3
    assert document.line_of(("a", "c", 1, "y")) == 5
    assert document.line_of(("a", "c", 1, "z", "q")) == 5
    assert document.line_of(("q",)) == 1


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        ("", 0, "an empty file"),
        ("# only a comment\n", 0, "an empty file"),
        ("- a\n- b\n", 1, "a list"),
        ("hello", 1, "a value"),
        ("a: 1\nb: 2\na: 3\n", 3, "it also stands in line 1"),
        ("a: {x: 1,\n  x: 2}\n", 2, "the key 'x' once"),
        ("a: &b 1\n", 1, "anchor"),
        ("b: 1\na: *b\n", 2, "alias"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "tag"),
        ("a: !!str 5\n", 1, "tag"),
        ("a: 1\n---\nb: 2\n", 2, "expected valid YAML"),
        ("a: [1, 2\n", 2, "valid YAML"),
        ("a:\n\tb: 1\n", 2, "Indent with spaces"),
        ("a: 'open\n", 2, "valid YAML"),
        ("? [a, b]\n: 1\n", 1, "a word as key"),
        ("a: \x00\n", 0, "valid YAML"),
        ("a: " + "9" * 5000, 1, "5000 digits"),
        ("b:\n  a: 1e999", 2, "a finite number"),
        ("a: -1e999", 1, "a finite number"),
        ("a: " + "[" * 30 + "]" * 30, 1, "at most 20 levels"),
        ("a: " + "[" * 100_000, 1, "at most 20 levels"),
        ("a: [" + "[]," * 60_000 + "]", 1, "at most 50000 values"),
        ("a: [" + "1," * 60_000 + "]", 1, "at most 50000 values"),
    ],
)
def test_refused(text: str, line: int, part: str) -> None:
    with pytest.raises(SpecError) as error:
        parse(text)
    (problem,) = error.value.problems
    assert part in str(problem)
    assert problem.line == line
    assert len(str(error.value)) < 1000


def test_a_bomb_of_aliases_never_grows() -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefghi", "bcdefghij", strict=True)
    )
    began = time.monotonic()
    with pytest.raises(SpecError, match="anchor"):
        parse(bomb)
    assert time.monotonic() - began < 2


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(documents.MAX_BYTES + 1)
    with pytest.raises(SpecError, match="1048577 bytes"):
        read_document(path)


@pytest.mark.parametrize(("content", "part"), [(b"a: \xff\xfe\n", "UTF-8"), (b"\xef\xbb\xbffeed: x\n", "")])
def test_encodings(tmp_path: Path, content: bytes, part: str) -> None:
    path = tmp_path / "spec.yaml"
    path.write_bytes(content)
    if part:
        with pytest.raises(SpecError, match=part):
            read_document(path)
    else:
        assert read_document(path).data == {"feed": "x"}, "a byte order mark is no part of the key"


def test_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="no such file"):
        read_document(tmp_path / "none.yaml")
    with pytest.raises(SpecError, match="a folder"):
        read_document(tmp_path)
