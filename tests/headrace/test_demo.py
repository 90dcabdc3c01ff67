from __future__ import annotations

import pytest

from headrace.demo import COLUMNS, curve, demo_text, smoothed


def experiment(**values: object) -> dict[str, object]:
    return {
        "rows_trained": 100_000,
        "steps": 1563,
        "auc_second_half": 0.7496,
        "log_loss_second_half": 0.5876,
        "base_log_loss": 0.6874,
    } | values


def test_at_most_25_plain_lines() -> None:
    result = {
        "seconds": 31.4,
        "directory": "/tmp/headrace-demo-abcdefgh/movielens",
        "phases": [{"name": name, "seconds": 1.0} for name in ("a", "b", "c", "d")],
        "feeds": {name: {"used": 1, "files": 1} for name in ("ratings", "users", "items")},
        "experiments": {"deepfm": experiment(), "lr": experiment(auc_second_half=None)},
    }
    rising: list[float | None] = [0.5 + n / 300 for n in range(COLUMNS)]
    text = demo_text(result, {"deepfm": rising, "lr": [None, *rising[1:]]}, "headrace")
    lines = text.splitlines()
    assert len(lines) <= 25
    assert text.isascii()
    assert text.count("  headrace ") == 2
    assert f"cd {result['directory']}" in text
    assert max(map(len, lines)) <= 110
    assert "undefined" in text
    assert "0.6874" in text


@pytest.mark.parametrize("values", [[], [None, None], [0.5], [0.5, 0.5], [0.4, None, 0.9]])
def test_a_curve_of_anything(values: list[float | None]) -> None:
    lines = curve({"x": values})
    assert all(len(line) <= COLUMNS + 10 for line in lines)
    known = [value for value in values if value is not None]
    assert sum(line.count("*") for line in lines[1:]) == (len(values) - values.index(known[0]) if known else 0)


def test_a_rising_curve_rises() -> None:
    lines = curve({"x": [n / COLUMNS for n in range(COLUMNS)]})[1:-1]
    columns = [line.index("*") for line in lines if "*" in line]
    assert columns == sorted(columns, reverse=True)
    assert lines[0].startswith("0.9")


def test_smoothed() -> None:
    assert smoothed([1.0, 3.0, None, 5.0], 2) == [1.0, 2.0, 3.0, 5.0]
    assert smoothed([None], 5) == [None]
