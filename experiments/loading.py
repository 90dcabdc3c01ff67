"""Spec files → models, with errors that name file, line, path, and the nearest right word."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from experiments.documents import Document, Path_, read_document
from experiments.errors import Problem, SpecError
from experiments.experiment import Experiment
from experiments.feed import Feed

M = TypeVar("M", bound=BaseModel)


def load_feed(path: Path) -> Feed:
    """Read a feed file. Raises ``SpecError``."""
    return _build(read_document(path), Feed, "feed")


def load_experiment(path: Path, feeds: Mapping[str, Feed] | None = None) -> Experiment:
    """Read an experiment file; with ``feeds`` it is also checked against them. Raises ``SpecError``."""
    document = read_document(path)
    experiment = _build(document, Experiment, "experiment")
    if feeds is not None:
        from experiments.checking import problems_of

        if found := problems_of(experiment, feeds):
            raise SpecError([_placed(document, *problem) for problem in found])
    return experiment


def load_feeds(folder: Path) -> dict[str, Feed]:
    """All feeds of a folder (``*.yaml``, ``*.yml``), by name. Raises ``SpecError`` with the problems of all files."""
    feeds: dict[str, Feed] = {}
    files: dict[str, Path] = {}
    problems: list[Problem] = []
    for path in sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]):
        try:
            feed = load_feed(path)
        except SpecError as error:
            problems += error.problems
            continue
        if feed.feed in feeds:
            taken = f"{feed.feed!r}, which {files[feed.feed]} has too"
            problems.append(Problem(str(path), 1, "feed", "a name of its own", taken))
        feeds[feed.feed], files[feed.feed] = feed, path
    if problems:
        raise SpecError(problems)
    return feeds


def nearest(word: str, words: Iterable[str]) -> str:
    """``"Did you mean 'x'?"``, or an empty string if nothing is near."""
    found = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return f"Did you mean {found[0]!r}?" if found else ""


def _build(document: Document, model: type[M], kind: str) -> M:
    other = {"feed": "experiment", "experiment": "feed"}[kind]
    if kind not in document.data:
        got = f"{'an' if other == 'experiment' else 'a'} {other}" if other in document.data else "no such key"
        hint = nearest(kind, document.data) or nearest(next(iter(document.data), ""), [kind])
        raise SpecError([Problem(document.file, 1, "", f"the key {kind}: NAME", got, hint)])
    try:
        return model.model_validate(document.data)
    except ValidationError as error:
        raise SpecError(_problems(document, model, error)) from None


def _problems(document: Document, model: type[BaseModel], error: ValidationError) -> list[Problem]:
    found: dict[Path_, Problem] = {}
    items = [(_document_path(document, item), item) for item in error.errors(include_url=False)]
    unknown = {path for path, item in items if item["type"] == "extra_forbidden"}
    for path, item in items:
        typos = [str(key[-1]) for key in unknown if key[:-1] == path[:-1]]
        if item["type"] == "missing" and difflib.get_close_matches(str(path[-1]), typos, n=1, cutoff=0.6):
            continue  # the unknown key beside it says so already
        if path not in found:
            found[path] = _problem(document, model, path, item)
    return sorted(found.values(), key=lambda problem: problem.line)


TEXTS = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "a text",
    "dict_type": "keys and values",
    "model_type": "keys and values",
    "tuple_type": "a list such as [a, b]",
    "greater_than": "a number above {gt:g}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt:g}",
    "less_than_equal": "a number of at most {le}",
    "too_short": "at least {min_length} entry",
    "too_long": "at most {max_length} entry",
    "string_too_short": "a text of at least {min_length} character",
    "string_too_long": "a text of at most {max_length} character",
}
"""What pydantic's kinds of errors expect, in plain words."""

EXAMPLES = {
    "labels": "For example labels: {click: {column: clicked}}. A label is what the model learns to predict.",
    "features": "For example features: {user: {hash: user_id}}",
    "columns": "For example columns: {user_id: int64}",
    "files": 'For example files: {url: data/clicks, match: "*.csv"}',
    "format": "For example format: parquet",
    "key": "For example key: [user_id]",
    "model": "For example model: {deepfm: {mlp: [128, 64]}}",
}
"""What to write where a key has no value that fits."""


def _problem(document: Document, model: type[BaseModel], path: Path_, item: ErrorDetails) -> Problem:
    kind, context, value = item["type"], item.get("ctx") or {}, item.get("input")
    last = str(path[-1]) if path else ""
    do, got = EXAMPLES.get(last, ""), _shown(value)
    word = _value_at(document.data, path)
    if kind == "extra_forbidden" and isinstance(word, str) and word != value:
        known = _keys_at(model, path)  # as csv in format: csv, which was read as format: {csv: {}}
        expected, got, do = f"one of {', '.join(known)}", repr(word), nearest(word, known) or do
    elif kind == "extra_forbidden":
        known = _keys_at(model, path[:-1])
        expected, got = f"one of {', '.join(known)}" if known else "a known key", f"the key {last!r}"
        do = nearest(last, known)
    elif kind == "missing":
        expected, got = f"the key {last!r}", "nothing"
    elif kind == "misfit":
        expected, got, meant = context["expected"], context["got"], context["words"]
        do = nearest(meant[0], meant[1:]) if meant else do
    elif kind == "value_error":
        expected = str(context["error"]).removeprefix("expected ").rpartition(", got ")[0]
    elif kind == "literal_error":
        words = re.findall("'([^']*)'", str(context["expected"]))
        lists = ", or a list<…> of one of them" if any(word.startswith("list<") for word in words) else ""
        expected = f"one of {', '.join(word for word in words if not (lists and word.startswith('list<')))}{lists}"
        do = nearest(str(value), words)
    elif kind == "string_pattern_mismatch" and path[:1] == ("columns",):
        expected, got = "a column's name without dots, spaces, or two underscores in front", repr(last)
        do = f"Choose another and write {{from: {got}, type: …}}"
    elif kind == "string_pattern_mismatch":
        expected = "a name: a letter, then letters, digits, - or _, at most 64"
        got = repr(last) if isinstance(value, dict) or item["loc"][-1] == "[key]" else got
    else:
        expected = TEXTS[kind].format(**context) if kind in TEXTS else item["msg"].removeprefix("Input should be ")
        got = f"{context['actual_length']}" if kind in ("too_short", "too_long") else got
        do = "Put it in quotes." if kind == "string_type" and isinstance(value, int | float) else do
        if kind == "model_type" and path[:1] == ("features",) and isinstance(value, str):
            do = f"For example {{id: {value}}}, or {{hash: {value}}} for a text"
    return _placed(document, path, expected, got, do)


def _placed(document: Document, path: Path_, expected: str, got: str, do: str = "") -> Problem:
    return Problem(document.file, document.line_of(path), ".".join(map(str, path)), expected, got, do)


def _document_path(document: Document, item: ErrorDetails) -> Path_:
    """Pydantic's location without the names of union members, which are not in the document."""
    location = (*item["loc"], *(item.get("ctx") or {}).get("at", ()))
    path: list[str | int] = []
    value: object = document.data
    for part in location:
        inside = part in value if isinstance(value, dict) else isinstance(value, list) and part in range(len(value))
        if inside:
            value = value[part]  # type: ignore[index]
            path.append(part)
    missing = item["type"] == "missing"
    return (*path, location[-1]) if missing else tuple(path)


def _value_at(data: object, path: Path_) -> object:
    for part in path:
        data = data.get(part) if isinstance(data, dict) else data[part] if isinstance(data, list) else None  # type: ignore[index]
    return data


Schema = dict[str, Any]


def _keys_at(model: type[BaseModel], path: Path_) -> list[str]:
    """Keys that the model allows at a path, by walking its JSON schema."""
    root = model.model_json_schema(by_alias=True)
    nodes = list(_options(root, root))
    for part in path:
        nodes = [option for node in nodes for child in _children(node, part) for option in _options(root, child)]
    return list(dict.fromkeys(key for node in nodes for key in node.get("properties", {})))


def _options(root: Schema, node: Schema) -> Iterator[Schema]:
    """A node, its reference followed, and everything it may be instead."""
    if reference := node.get("$ref"):
        yield from _options(root, root["$defs"][str(reference).rpartition("/")[2]])
        return
    yield node
    for option in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _options(root, option)


def _children(node: Schema, part: str | int) -> list[Schema]:
    if isinstance(part, int):
        return [node["items"]] if isinstance(node.get("items"), dict) else []
    if part in node.get("properties", {}):
        return [node["properties"][part]]
    others = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")]
    return [child for child in others if isinstance(child, dict)]


def _shown(value: object) -> str:
    """A value of a document as it would be written there."""
    if value is None:
        return "nothing"
    text = repr(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:79] + "…"
