"""Imports point upstream, and only at contracts."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.layout.source import ROOT, STAGES, Source, imported, sources


def wrong_imports(source: Source) -> list[str]:
    """What a file imports of our packages and may not."""
    own = STAGES.index(source.stage)
    wrong = []
    for name, line in imported(source.tree):
        stage = name.partition(".")[0]
        if name.startswith("."):
            wrong.append(f"{source.path}:{line} relative import {name}")
        elif stage in STAGES and source.stage != "headrace" and stage != source.stage:
            upstream = STAGES.index(stage) < own
            open_to_all = stage in ("streams", "experiments") or name.split(".")[1:2] == ["contracts"]
            if not (upstream and open_to_all):
                wrong.append(f"{source.path}:{line} imports {name}")
    return wrong


@pytest.mark.parametrize("stage", STAGES)
def test_direction(stage: str) -> None:
    assert [line for source in sources() if source.stage == stage for line in wrong_imports(source)] == []


@pytest.mark.parametrize(
    ("path", "text", "fine"),
    [
        ("ingest/x.py", "from streams.packed import pack", True),
        ("ingest/x.py", "from preprocess.contracts import Config", False),
        ("preprocess/x.py", "from ingest.contracts import T_END", True),
        ("preprocess/x.py", "from ingest import contracts", True),
        ("preprocess/x.py", "from ingest.plan import Plan", False),
        ("preprocess/x.py", "import ingest.contractsx", False),
        ("streams/x.py", "def f():\n    import experiments.names", False),
        ("trainer/x.py", "import headrace", False),
        ("trainer/x.py", "from .loop import Trainer", False),
        ("headrace/x.py", "from trainer.loop import Trainer", True),
    ],
)
def test_the_rule_itself(path: str, text: str, fine: bool) -> None:
    source = Source(ROOT.joinpath(path).relative_to(ROOT), ast.parse(text), 1)
    assert (wrong_imports(source) == []) == fine


def test_only_the_trainer_knows_torch() -> None:
    found = [
        f"{source.path}:{line}"
        for source in sources()
        if source.stage not in ("trainer", "headrace")
        for name, line in imported(source.tree)
        if name.split(".")[0] == "torch"
    ]
    assert found == []


def test_everything_before_the_trainer_loads_without_torch() -> None:
    modules = [source.module for source in sources() if source.stage not in ("trainer", "headrace")]
    code = f"import importlib, sys\nfor m in {modules!r}: importlib.import_module(m)\nsys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr or "torch was imported"


def test_status_and_supervisor_load_without_torch_and_numba() -> None:
    code = (
        "import sys, headrace.running, headrace.status, headrace.result, headrace.cli.status, trainer.status\n"
        "import trainer.checkpoint.verify\n"
        "sys.exit(', '.join({'torch', 'numba'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
