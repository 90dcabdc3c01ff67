"""Spec files → models, with errors that name file, line, path, and the nearest right word."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

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
    for item in error.errors(include_url=False):
        path = _document_path(document, item["loc"])
        if path not in found:
            found[path] = _problem(document, model, path, item)
    return list(found.values())


def _problem(document: Document, model: type[BaseModel], path: Path_, item: object) -> Problem:
    assert isinstance(item, dict)
    kind, context, value = item["type"], item.get("ctx") or {}, item.get("input")
    do = ""
    if kind == "extra_forbidden":
        known = _keys_at(model, path[:-1])
        expected, got = f"one of {', '.join(known)}" if known else "a known key", f"the key {str(path[-1])!r}"
        do = nearest(str(path[-1]), known)
    elif kind == "missing":
        expected, got = f"the key {path[-1]!r}", "nothing"
        present = _value_at(document.data, path[:-1])
        near = (
            difflib.get_close_matches(str(path[-1]), list(present), n=1, cutoff=0.6)
            if isinstance(present, dict)
            else []
        )
        do = f"Write {path[-1]!r} instead of {near[0]!r}." if near else ""
    elif kind == "value_error":
        expected, _, got = str(context.get("error", item["msg"])).removeprefix("expected ").rpartition(", got ")
        expected, got = (expected, got) if expected else (got, _shown(value))
    elif kind == "literal_error":
        expected, got = str(context["expected"]), _shown(value)
        do = nearest(str(value), [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")])
    elif kind == "string_pattern_mismatch":
        expected, got = "a name: a letter, then letters, digits, - or _, at most 64", _shown(value)
    else:
        expected, got = str(item["msg"]).removeprefix("Input should be "), _shown(value)
    return _placed(document, path, expected, got, do)


def _placed(document: Document, path: Path_, expected: str, got: str, do: str = "") -> Problem:
    return Problem(document.file, document.line_of(path), ".".join(map(str, path)), expected, got, do)


def _document_path(document: Document, location: tuple[str | int, ...]) -> Path_:
    """Pydantic's location without the names of union members, which are not in the document."""
    path: list[str | int] = []
    value: object = document.data
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if isinstance(value, dict) and (part in value or (last and isinstance(part, str) and not part[:1].isupper())):
            value = value.get(part)  # type: ignore[call-overload]
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            continue
        path.append(part)
    return tuple(path)


def _value_at(data: object, path: Path_) -> object:
    for part in path:
        data = data[part] if isinstance(data, dict | list) else None  # type: ignore[index,call-overload]
    return data


Schema = dict[str, Any]


def _keys_at(model: type[BaseModel], path: Path_) -> list[str]:
    """Keys that the model allows at a path, by walking its JSON schema."""
    schema = model.model_json_schema(by_alias=True)
    nodes = [schema]
    for part in path:
        nodes = [child for node in nodes for child in _children(schema, node, part)]
    keys: dict[str, None] = {}
    for node in nodes:
        keys |= dict.fromkeys(_resolved(schema, node).get("properties", {}))
    return list(keys)


def _children(root: Schema, node: Schema, part: str | int) -> list[Schema]:
    node = _resolved(root, node)
    out = []
    for option in [node, *node.get("anyOf", [])]:
        option = _resolved(root, option)
        child = option.get("properties", {}).get(part) if isinstance(part, str) else option.get("items")
        if child is None:
            child = next(iter(option.get("patternProperties", {}).values()), option.get("additionalProperties"))
        if isinstance(child, dict):
            out += [child, *child.get("anyOf", [])]
    return out


def _resolved(root: Schema, node: Schema) -> Schema:
    reference = node.get("$ref")
    if isinstance(reference, str):
        return root["$defs"][reference.rpartition("/")[2]]
    return node


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
