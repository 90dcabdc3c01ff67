"""JSON Schema (2020-12) of specs, for editors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from experiments.experiment import Experiment
from experiments.feed import Feed, Spec

MODELS: dict[str, type[Spec]] = {"feed": Feed, "experiment": Experiment}


def schema_of(kind: str) -> dict[str, object]:
    """The schema of ``feed`` or ``experiment``. Raises ``KeyError`` for another word."""
    model = MODELS[kind]
    schema = model.model_json_schema(by_alias=True, mode="validation")
    objects = {str(node.get("title")): node for node in _objects(schema)}
    for found in models_of(model):
        properties = objects.get(found.__name__, {}).get("properties", {})  # those written as a text have none
        for name, field in found.model_fields.items():
            node = properties.get(field.alias or name, {})
            if "default" in node:
                node["default"] = written_default(found, name)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": f"Headrace {kind}"}


def models_of(model: type[BaseModel]) -> list[type[BaseModel]]:
    """A model and all that lie inside it, in the order of their fields."""
    found: dict[type[BaseModel], None] = {model: None}
    for field in model.model_fields.values():
        for inner in _inside(field.annotation):
            found |= dict.fromkeys(models_of(inner))
    return list(found)


def written_default(model: type[BaseModel], name: str) -> Any:
    """The default of a field as a document would write it: ``"60s"``, not microseconds."""
    default = model.model_fields[name].get_default(call_default_factory=True)
    only = model.model_construct(**{name: default})
    (value,) = only.model_dump(mode="json", include={name}).values()
    return value


def _inside(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in getattr(annotation, "__args__", ()):
        yield from _inside(argument)


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    """All objects with properties inside a schema."""
    if isinstance(node, dict):
        if "properties" in node:
            yield node
        for child in node.values():
            yield from _objects(child)
    elif isinstance(node, list):
        for child in node:
            yield from _objects(child)
