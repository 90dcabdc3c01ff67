"""A running tree: versions come and go, a signal drains it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest


def headrace(project: Path, *args: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "headrace", "-C", str(project), *map(str, args), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def until(found: Callable[[], Any], limit_s: float = 90.0) -> Any:
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.2)
    raise AssertionError("it did not happen in time")


def roles(pid: int) -> set[str]:
    """What the children of a tree run: ``ingest``, ``train ctr.v1``."""
    found = set()
    for child in psutil.Process(pid).children():
        try:
            line = child.cmdline()
        except psutil.NoSuchProcess:
            continue
        args = line[line.index("run") + 1 :] if "run" in line else []
        found.add(" ".join(arg for arg in args[:3] if not arg.startswith("--") and not arg.isdigit()))
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = tmp_path / "p"
    command = [sys.executable, "-m", "headrace", "init", str(path), "--example", "shop"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return path


@pytest.mark.slow
def test_versions_come_and_go_and_a_signal_drains(project: Path) -> None:
    (spec, *_) = sorted((project / "experiments").glob("*.yaml"))
    name = headrace(project, "publish", spec)["published"][-1]["name"]
    with (project / "out").open("w") as out, (project / "err").open("w") as err:
        tree = subprocess.Popen(
            [sys.executable, "-m", "headrace", "-C", str(project), "run", "all"], stdout=out, stderr=err
        )
    try:
        until(lambda: roles(tree.pid) == {"ingest", "preprocess", f"train {name}.v1"})
        until(lambda: headrace(project, "status")["feeds"])
        text = spec.read_text()
        spec.write_text(text.replace("batch_rows: ", "seed: 7\n  batch_rows: ", 1))
        assert headrace(project, "publish", spec)["published"][-1]["version"] == 2
        until(lambda: roles(tree.pid) == {"ingest", "preprocess", f"train {name}.v2"})
        until(lambda: any(e["rows_trained"] for e in headrace(project, "status")["experiments"].values()))
        tree.send_signal(signal.SIGTERM)
        assert tree.wait(20) == 143
    finally:
        tree.kill()
        tree.wait()
    assert (project / "out").read_text() == ""
    trained = headrace(project, "status")["experiments"][name]
    assert trained["version"] == 2
    result = headrace(project, "run", "all", "--until-end")
    assert result["experiments"][name]["rows_waiting"] == 0
    assert result["experiments"][name]["rows_trained"] >= trained["rows_trained"] > 0
    assert set(result) == {"feeds", "experiments", "seconds"}


def test_a_role_waits_for_what_it_needs_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "headrace.yaml").write_text("# nothing\n")
    role = subprocess.Popen(
        [sys.executable, "-m", "headrace", "-C", str(tmp_path), "run", "preprocess"], stderr=subprocess.PIPE, text=True
    )
    assert role.stderr is not None
    try:
        assert "http://127.0.0.1:" in role.stderr.readline()
        assert "publish" in role.stderr.readline()
        role.send_signal(signal.SIGINT)
        assert role.wait(15) == 130
    finally:
        role.kill()
        role.wait()
        role.stderr.close()
