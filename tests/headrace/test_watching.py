"""``status --watch`` as a program and as a person see it."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.headrace.chain import chain_in


@pytest.fixture
def project(tmp_path: Path) -> Path:
    with chain_in(tmp_path / "p") as chain:
        chain.publish("ctr")
    return tmp_path / "p"


def command(project: Path, *args: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "-C", str(project), "status", "--watch", "--interval", "0.2", *args]


def test_one_object_a_line_until_ctrl_c(project: Path) -> None:
    watch = subprocess.Popen(command(project, "--json"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watch.stdout is not None
    found = [json.loads(watch.stdout.readline()) for _ in range(3)]
    watch.send_signal(signal.SIGINT)
    rest, err = watch.communicate(timeout=15)
    assert (watch.returncode, err) == (0, "")
    assert all(set(value["experiments"]) == {"ctr"} for value in found)
    for line in rest.splitlines():
        json.loads(line)


def test_plain_lines_without_a_terminal(project: Path) -> None:
    watch = subprocess.Popen(command(project), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watch.stdout is not None
    lines: list[str] = []
    while sum(line.startswith("project ") for line in lines) < 2:
        lines.append(watch.stdout.readline())
    watch.send_signal(signal.SIGINT)
    rest, err = watch.communicate(timeout=15)
    assert (watch.returncode, err) == (0, "")
    assert "\x1b" not in "".join(lines) + rest


def test_a_terminal_is_drawn_on_in_place_and_given_back(project: Path) -> None:
    ours, theirs = pty.openpty()
    watch = subprocess.Popen(
        command(project), stdin=theirs, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm"}
    )
    os.close(theirs)
    seen, end_s, asked = b"", time.monotonic() + 30, False
    while time.monotonic() < end_s:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                data = os.read(ours, 1 << 16)
            except OSError:
                break
            if not data:
                break
            seen += data
        if seen.count(b"experiment ctr") >= 2 and not asked:
            asked = True
            watch.send_signal(signal.SIGINT)
    assert watch.wait(15) == 0
    os.close(ours)
    assert b"\x1b[?1049h" in seen
    assert seen.rstrip().endswith(b"\x1b[?25h") or b"\x1b[?1049l" in seen.rpartition(b"experiment ctr")[2]
    assert b"Traceback" not in seen
