"""The README shows what the demo really prints: the same lines, and figures that are the same but for the machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.flow.project import headrace

README = Path(__file__).parents[2] / "README.md"
NUMBER = re.compile(r"\d[\d,]*\.?\d*")
QUALITY = re.compile(r"AUC (\d\.\d+) .*log loss (\d\.\d+) \(base rate (\d\.\d+)\)")


def shape(line: str) -> str:
    """A line without what differs between runs: numbers, folders, the points of the curve."""
    if "|" in line:
        return "curve"
    return NUMBER.sub("N", re.sub(r"\S*/\S*( -m headrace)?", "PATH", line)).strip()


@pytest.mark.slow
def test_demo_prints_what_the_readme_shows(tmp_path: Path) -> None:
    shown = README.read_text().partition("<!-- demo:begin -->")[2].partition("<!-- demo:end -->")[0]
    shown_lines = shown.strip().strip("`").strip("\n").splitlines()
    done = headrace("demo", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip("\n").splitlines()
    assert len(lines) <= 25
    assert all(len(line) <= 132 for line in lines if "/" not in line)
    assert [shape(line) for line in lines] == [shape(line) for line in shown_lines]
    got, want = QUALITY.findall(done.stdout), QUALITY.findall(shown)
    assert len(got) == len(want) == 2
    for got_model, want_model in zip(got, want, strict=True):
        for a, b in zip(got_model, want_model, strict=True):
            assert float(a) == pytest.approx(float(b), abs=0.005)
