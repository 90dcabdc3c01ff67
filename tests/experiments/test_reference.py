"""``docs/reference.md`` is true: its tables are made from the models, and every block of YAML in it loads.

After a change of the models: ``HEADRACE_WRITE_DOCS=1 python -m pytest tests/experiments/test_reference.py``.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from experiments import names
from experiments.errors import SpecError
from experiments.experiment import FEATURE_KINDS
from experiments.loading import load_experiment, load_feed
from experiments.publishing import feed_topics, view_topics
from experiments.schema import MODELS, models_of, written_default
from experiments.view import view_of
from tests.experiments import specs
from tests.experiments.specs import written

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference.md"
TABLE = re.compile(r"<!-- table: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)
KNOWN = {found.__name__: found for model in MODELS.values() for found in models_of(model)}
ELSEWHERE = {
    "Format",
    "Parquet",
    "Lookup",
    "Clip",
    "Scale",
    "TableOptimizer",
    "Lr",
    "DenseOptimizer",
    "CheckpointEvery",
}
"""Without a table of their own: one word, or shown in the text (see ``test_every_model_is_on_the_page``)."""


def default_of(model: type[BaseModel], name: str) -> str:
    field = model.model_fields[name]
    if field.is_required():
        return "required"
    value = written_default(model, name)
    if value is None or isinstance(value, dict):
        return ""
    return f"`{value if isinstance(value, str) and value.strip() else json.dumps(value)}`"


def table_of(model: type[BaseModel]) -> str:
    rows = []
    for name, field in model.model_fields.items():
        meaning = (field.description or _doc(field.annotation)).replace("|", "/")
        rows.append(f"| `{field.alias or name}` | {default_of(model, name)} | {meaning} |")
    return "\n".join(["| key | default | |", "|---|---|---|", *rows]) + "\n"


def _doc(annotation: object) -> str:
    text = (getattr(annotation, "__doc__", "") or "").strip().split("\n")[0]
    return text.rstrip(".")


def test_tables_are_those_of_the_models() -> None:
    text = PAGE.read_text(encoding="utf-8")
    made = TABLE.sub(lambda m: f"<!-- table: {m[1]} -->\n{table_of(KNOWN[m[1]])}<!-- end -->", text)
    if os.environ.get("HEADRACE_WRITE_DOCS") == "1":
        PAGE.write_text(made, encoding="utf-8")
    assert made == text, "run this test once with HEADRACE_WRITE_DOCS=1 and read what changed"


def test_every_model_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    shown = {match[1] for match in TABLE.finditer(text)}
    assert shown | ELSEWHERE >= KNOWN.keys()
    for name in ELSEWHERE & KNOWN.keys() - {"CheckpointEvery"}:
        for key in KNOWN[name].model_fields:
            assert re.search(rf"\b{key}\b", TABLE.sub("", text)), f"{name}.{key}"
    assert all(f"`{kind}`" in text for kind in FEATURE_KINDS)


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", ["reference.md", "concepts.md"])
def test_every_block_loads(tmp_path: Path, page: str) -> None:
    found = blocks(ROOT / "docs" / page)
    assert found
    for block in found:
        load = load_feed if block.startswith("feed:") else load_experiment
        load(written(block, tmp_path))


def test_the_blocks_of_reference_fit_each_other(tmp_path: Path) -> None:
    loaded = [load_feed(written(block, tmp_path)) for block in blocks(PAGE) if block.startswith("feed:")]
    feeds = {feed.feed: feed for feed in loaded}
    (liked,) = [block for block in blocks(PAGE) if block.startswith("experiment: liked")]
    assert load_experiment(written(liked, tmp_path), feeds).sample == "ratings"
    with pytest.raises(SpecError):
        load_experiment(written(liked.replace("user_id", "usr_id"), tmp_path), feeds)


def test_topics_and_groups_are_those_that_are_made(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8").split("## Topics and groups")[1]
    first = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    shown = {name for cell in first for name in re.findall(r"`([^`]+)`", cell)}
    made = {
        names.REGISTRY, names.splits("<feed>"), names.floor("<feed>"), names.progress("<feed>"), names.raw("<feed>"),
        names.late("<feed>"), names.joined("<view>"), names.side("<view>"), names.exp("<name>", 1).replace("v1", "v<n>"),
        *(names.dead_letters(name) for name in ("<feed>", "<view>", "<name>")),
        names.read_group("<feed>"), names.join_group("<view>"),
        *(group("<name>", 1).replace("v1", "v<n>") for group in (names.featurize_group, names.train_group)),
    }  # fmt: skip
    assert shown == made
    feeds = specs.feeds(tmp_path)
    view = view_of(specs.experiment(specs.LIKED, tmp_path, feeds), feeds)
    topics = {spec.name: spec.partitions for spec in (*feed_topics(feeds["ratings"]), *view_topics(view))}
    lines = [line.split("|") for line in text.splitlines() if line.startswith("| `")]
    said = {cells[1].strip(" `").partition(".")[0]: cells[2].strip() for cells in lines}
    for topic, partitions in topics.items():
        assert (partitions == 1) == (said[topic.partition(".")[0]] == "1"), topic
