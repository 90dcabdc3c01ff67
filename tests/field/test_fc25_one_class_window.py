"""A window with one class, or with a score that is NaN, has no AUC: null, never NaN, 0, 0.5 or an abort."""

from __future__ import annotations

import json

import numpy as np
import pytest

from trainer.metrics import Meter, auc_exact, summary, windows


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_is_undefined(label: float) -> None:
    labels, scores = np.full(20, label, np.float32), np.linspace(0.1, 0.9, 20, dtype=np.float32)
    (window,) = windows([(np.arange(20), labels, scores)])
    assert auc_exact(labels, scores) is None
    assert window["auc"] is None
    assert window["healthy"] is True
    assert window["log_loss"] is not None
    assert window["normalized_entropy"] is None, "the base rate says it all already"
    assert (window["calibration"] is None) == (label == 0.0)


def test_window_between_good_ones() -> None:
    labels = np.concatenate([np.tile([0, 1], 5), np.zeros(10), np.tile([0, 1], 5)]).astype(np.float32)
    scores = np.linspace(0.1, 0.9, 30, dtype=np.float32)
    got = list(windows([(np.arange(30), labels, scores)], size=10))
    assert [w["auc"] is None for w in got] == [False, True, False]


def test_nan_score_raises_the_flag() -> None:
    labels, scores = np.array([0, 1, 1], np.float32), np.array([0.2, np.nan, 0.7], np.float32)
    (window,) = windows([(np.arange(3), labels, scores)])
    assert auc_exact(labels, scores) is None
    assert window["healthy"] is False
    assert {window[name] for name in ("auc", "log_loss", "normalized_entropy", "calibration")} == {None}
    json.dumps(window, allow_nan=False)


def test_no_rows_at_all() -> None:
    empty = np.zeros(0, np.float32)
    assert auc_exact(empty, empty) is None
    values = summary([], 0, 0)
    assert values.pop("healthy") is True
    assert set(values.values()) == {None}
    assert Meter().as_dict()["auc"] is None
    assert list(windows([])) == []
