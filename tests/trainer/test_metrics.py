from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

from trainer.metrics import Meter, auc_exact, skewed, summary, windows


def scored(rows: int, seed: int = 0, decimals: int = 7) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = np.round(rng.beta(1, 4, rows), decimals).astype(np.float32)
    return (rng.random(rows) < scores).astype(np.float32), scores


def meter_of(labels: np.ndarray, scores: np.ndarray, size: int = 10_000) -> Meter:
    meter = Meter()
    for start in range(0, len(labels), size):
        meter.add(labels[start : start + size], scores[start : start + size])
    return meter


@pytest.mark.parametrize("rows", [2, 3, 10, 1_000, 50_000])
@pytest.mark.parametrize("decimals", [1, 2, 7])
def test_against_sklearn(rows: int, decimals: int) -> None:
    labels, scores = scored(rows, rows, decimals)
    labels[0], labels[1] = 0, 1
    expected = roc_auc_score(labels, scores)
    assert auc_exact(labels, scores) == pytest.approx(expected, abs=1e-12)
    meter = meter_of(labels, scores, 777)
    assert meter.auc == pytest.approx(expected, abs=1e-5 if rows > 1000 else 1e-3)
    assert meter.log_loss == pytest.approx(
        log_loss(labels, np.clip(scores, 1e-7, 1 - 1e-7).astype(np.float64)), rel=1e-9
    )
    base = np.full(rows, labels.mean(dtype=np.float64))
    assert meter.base_log_loss == pytest.approx(log_loss(labels, base), rel=1e-6)
    assert meter.normalized_entropy == pytest.approx(meter.log_loss / meter.base_log_loss)
    assert meter.calibration == pytest.approx(scores.sum(dtype=np.float64) / labels.sum())


def test_ties_count_half() -> None:
    assert auc_exact(np.array([0, 1], np.float32), np.array([0.5, 0.5], np.float32)) == 0.5
    assert meter_of(np.array([0, 1], np.float32), np.array([0.5, 0.5], np.float32)).auc == 0.5


def test_small_probabilities_are_told_apart() -> None:
    """Bins are even in the logit: click rates of 1 in 10,000 do not fall into one bin."""
    rng = np.random.default_rng(3)
    scores = (rng.random(50_000) * 2e-4).astype(np.float32)
    labels = (rng.random(50_000) < scores * 200).astype(np.float32)
    assert meter_of(labels, scores).auc == pytest.approx(auc_exact(labels, scores), abs=1e-5)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_extreme_scores(label: float) -> None:
    labels = np.array([label, 1 - label], np.float32)
    meter = meter_of(labels, np.array([1.0, 0.0], np.float32))
    assert meter.auc == label
    assert meter.log_loss is not None
    assert math.isfinite(meter.log_loss)


def test_halves_and_windows() -> None:
    labels, scores = scored(25_001)
    times = np.arange(25_001)
    cuts = [0, 1, 9_999, 12_500, 12_600, 25_001]
    parts = [(times[a:b], labels[a:b], scores[a:b]) for a, b in itertools.pairwise(cuts)]
    values = summary(parts, 25_001, 0)
    half = meter_of(labels[12_500:], scores[12_500:])
    assert values["auc_second_half"] == half.auc
    assert values["log_loss_second_half"] == pytest.approx(half.log_loss, rel=1e-12)
    assert values["auc"] == meter_of(labels, scores).auc
    got = list(windows(parts))
    assert [(w["row"], w["rows"], w["time_us"]) for w in got] == [
        (0, 10_000, 9_999), (10_000, 10_000, 19_999), (20_000, 5_001, 25_000)]  # fmt: skip
    assert got[1]["auc"] == meter_of(labels[10_000:20_000], scores[10_000:20_000]).auc


def test_dropped_rows_make_metrics_null() -> None:
    labels, scores = scored(100)
    part = [(np.arange(100), labels, scores)]
    whole, half, neither = summary(part, 100, 0), summary(part, 150, 50), summary(part, 300, 200)
    assert whole["auc"] is not None
    assert (half["auc"], half["log_loss"], half["calibration"]) == (None, None, None)
    assert half["auc_second_half"] is not None
    assert neither["auc_second_half"] is None


def test_windows_of_a_kept_tail() -> None:
    labels, scores = scored(25)
    got = list(windows([(np.arange(25), labels, scores)], first=15, size=10))
    assert [(w["row"], w["rows"]) for w in got] == [(15, 5), (20, 10), (30, 10)]


def test_skew() -> None:
    hour = 3_600_000_000
    assert skewed(np.array([0, 1, 5, 2 * hour]), hour + 5) == 2
    assert skewed(np.array([0]), -(2**62)) == 0
