"""Names of files and packages."""

from __future__ import annotations

import importlib.util
import sys
import tomllib

from setuptools import find_packages

from tests.layout.source import ROOT, STAGES, imported, sources


def test_no_file_is_a_heap() -> None:
    heaps = {"utils", "util", "common", "helpers", "misc"}
    assert [str(s.path) for s in sources() if heaps & {part.removesuffix(".py") for part in s.path.parts}] == []


def test_no_file_has_the_name_of_a_library() -> None:
    """A file ``redis.py`` hides the library where somebody starts a script beside it."""
    libraries = {name.split(".")[0] for source in sources() for name, _ in imported(source.tree)} - set(STAGES)
    libraries |= set(sys.stdlib_module_names) | {"redis", "kafka", "torch", "hdfs", "polars", "duckdb"}
    wrong = [str(s.path) for s in sources() if s.path.stem in libraries and not s.path.stem.startswith("__")]
    assert wrong == []


def test_the_wheel_holds_the_stages_and_nothing_else() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    packages = set(find_packages(str(ROOT), include=options["include"]))
    assert {package.split(".")[0] for package in packages} == set(STAGES)
    folders = {".".join(source.path.parent.parts) for source in sources()}
    assert folders <= packages, "a folder of sources lacks its __init__.py"


def test_each_stage_is_imported_from_here() -> None:
    for stage in STAGES:
        spec = importlib.util.find_spec(stage)
        assert spec is not None
        assert spec.origin == str(ROOT / stage / "__init__.py")


def test_stages_have_no_way_in_of_their_own() -> None:
    assert [str(s.path) for s in sources() if s.path.name == "__main__.py"] == ["headrace/__main__.py"]


def test_each_stage_has_a_readme_of_one_screen() -> None:
    lines = {stage: len((ROOT / stage / "README.md").read_text().splitlines()) for stage in STAGES}
    assert {stage: count for stage, count in lines.items() if count > 70} == {}
