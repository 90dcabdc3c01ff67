"""JSON Schema (2020-12) of specs, for editors."""

from __future__ import annotations

from experiments.experiment import Experiment
from experiments.feed import Feed, Spec

MODELS: dict[str, type[Spec]] = {"feed": Feed, "experiment": Experiment}


def schema_of(kind: str) -> dict[str, object]:
    """The schema of ``feed`` or ``experiment``. Raises ``KeyError`` for another word."""
    schema = MODELS[kind].model_json_schema(by_alias=True, mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"Headrace {kind}"} | schema
