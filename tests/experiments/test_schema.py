"""The JSON Schema accepts what the loader accepts: an editor must not mark a good file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from experiments.documents import parse_document
from experiments.schema import MODELS, models_of, schema_of
from tests.experiments.specs import ITEMS, LIKED, RATINGS

TEMPLATES = Path(__file__).parents[2] / "headrace/examples/templates"
FILES = sorted([*TEMPLATES.glob("*/feeds/*.yaml"), *TEMPLATES.glob("*/experiments/*.yaml")])
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}


def misfits(root: dict[str, Any], node: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """Where a value breaks a schema: the part of draft 2020-12 that our schemas use; anything else is an error here."""
    known = {
        "$schema", "$defs", "$ref", "title", "description", "default", "examples", "type", "properties", "required",
        "additionalProperties", "patternProperties", "minProperties", "maxProperties", "items", "prefixItems", "minItems",
        "maxItems", "enum", "const", "anyOf", "oneOf", "pattern", "minLength", "maxLength", "minimum", "maximum",
        "exclusiveMinimum", "exclusiveMaximum",
    }  # fmt: skip
    assert node.keys() <= known, node.keys() - known
    if "$ref" in node:
        return misfits(root, root["$defs"][node["$ref"].rpartition("/")[2]], value, path)
    found = [] if _plain(node, value) else [f"{path}: {value!r} against {node.get('type') or node}"]
    choices = [node[name] for name in ("anyOf", "oneOf") if name in node]
    found += [
        f"{path}: {value!r} fits no option"
        for options in choices
        if all(misfits(root, option, value, path) for option in options)
    ]
    if isinstance(value, dict):
        found += [f"{path}: misses {name}" for name in node.get("required", ()) if name not in value]
        for key, inner in value.items():
            child = _child(node, key)
            found += [f"{path}.{key} is unknown"] if child is None else misfits(root, child, inner, f"{path}.{key}")
    if isinstance(value, list):
        each = node.get("prefixItems") or [node.get("items", {})] * len(value)
        for index, (child, inner) in enumerate(zip(each, value, strict=False)):
            found += misfits(root, child, inner, f"{path}.{index}")
    return found


def _plain(node: dict[str, Any], value: Any) -> bool:
    kind = node.get("type")
    if (
        kind == "null"
        or (kind and not isinstance(value, TYPES[kind]))
        or (kind != "boolean" and kind and value is True)
    ):
        return kind == "null" and value is None
    size = len(value) if isinstance(value, str | list | dict) else value
    low = [node[name] for name in ("minLength", "minItems", "minProperties", "minimum") if name in node]
    high = [node[name] for name in ("maxLength", "maxItems", "maxProperties", "maximum") if name in node]
    return (
        all(size >= bound for bound in low)
        and all(size <= bound for bound in high)
        and ("exclusiveMinimum" not in node or value > node["exclusiveMinimum"])
        and ("exclusiveMaximum" not in node or value < node["exclusiveMaximum"])
        and ("enum" not in node or value in node["enum"])
        and ("const" not in node or value == node["const"])
        and ("pattern" not in node or bool(re.search(node["pattern"], value)))
    )


def _child(node: dict[str, Any], key: str) -> dict[str, Any] | None:
    if key in node.get("properties", {}):
        return node["properties"][key]
    for pattern, child in node.get("patternProperties", {}).items():
        if re.search(pattern, key):
            return child
    more = node.get("additionalProperties", True)
    return more if isinstance(more, dict) else {} if more else None


def kind_of(text: str) -> str:
    return "feed" if re.search("^feed:", text, re.MULTILINE) else "experiment"


@pytest.mark.parametrize(
    "text", [RATINGS, ITEMS, LIKED, *(path.read_text() for path in FILES)], ids=lambda text: text.strip()[:24]
)
def test_accepts_good_files(text: str) -> None:
    schema = schema_of(kind_of(text))
    assert misfits(schema, schema, parse_document(text, "spec.yaml").data) == []


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (RATINGS, "key:", "kee:"),
        (RATINGS, "int64,", "int46,"),
        (RATINGS, "parquet", "csv"),
        (RATINGS, "key:", "partitions: '4'\nkey:"),
        (LIKED, "{id: user_id}", "user_id"),
        (LIKED, "model: lr", "model: lrr"),
        (LIKED, "log1p", "log2p"),
        (LIKED, "at_least", "atleast"),
        (LIKED, "64", "0"),
    ],
)
def test_marks_mistakes(text: str, old: str, new: str) -> None:
    schema = schema_of(kind_of(text))
    assert misfits(schema, schema, parse_document(text.replace(old, new), "spec.yaml").data)


@pytest.mark.parametrize("kind", MODELS)
def test_is_what_editors_take(kind: str) -> None:
    schema = schema_of(kind)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == f"Headrace {kind}"
    json.dumps(schema, allow_nan=False)


def test_defaults_are_as_one_would_write_them() -> None:
    feed: Any = schema_of("feed")
    assert feed["properties"]["max_future"]["default"] == "5m"
    assert feed["properties"]["min_time"]["default"] == "1990-01-01T00:00:00Z"
    assert feed["$defs"]["Cuts"]["properties"]["every"]["default"] == "1m"
    for kind, model in MODELS.items():
        schema: Any = schema_of(kind)
        for found in models_of(model):
            properties = (
                schema["properties"] if found is model else _properties(schema["$defs"].get(found.__name__, {}))
            )
            for name, node in properties.items():
                if node.get("default") is not None:
                    assert misfits(schema, node, node["default"], f"{found.__name__}.{name}") == []


def _properties(node: dict[str, Any]) -> dict[str, Any]:
    for option in (node, *node.get("anyOf", ())):
        if "properties" in option:
            return option["properties"]
    return {}
