"""Quality of scores that were made before training on the row. Undefined is ``None``, never NaN or a made-up 0.5.

Arrays: ``labels_N`` and ``scores_N`` float32; a label counts as positive above 0.5. Scores are probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from preprocess.contracts import Float32, Int64

Part = tuple[Int64, Float32, Float32]
"""Event times, labels, scores of consecutive rows in trained order."""

BINS = 65_536
LOGIT_RANGE = 16.0
CLIP = 1e-7
WINDOW_ROWS = 10_000
PIECE_ROWS = 131_072
"""Rows that are worked on at once: about 10 MB."""


def auc_exact(labels_N: Float32, scores_N: Float32) -> float | None:
    """Area under the ROC curve by sorting, ties as halves (Mann-Whitney); the reference. ``None`` with one class only, no
    row, or a score that is NaN."""
    positive_N = labels_N > 0.5
    positives = int(positive_N.sum())
    negatives = len(labels_N) - positives
    if not positives or not negatives or np.isnan(scores_N).any():
        return None
    _, inverse, counts = np.unique(scores_N, return_inverse=True, return_counts=True)
    middle_rank = np.cumsum(counts) - (counts - 1) / 2
    ranks = float(middle_rank[inverse[positive_N]].sum())
    return (ranks - positives * (positives + 1) / 2) / (positives * negatives)


@dataclass(slots=True)
class Meter:
    """Sums over rows, from which all metrics follow; rows may come in parts of any size.

    AUC is by 65,536 bins of equal width of the logit in ±16: scores in one bin count as tied, so it differs from
    ``auc_exact`` by less than 1e-4 in the worst mixtures and by about 1e-7 usually.
    """

    rows: int = 0
    nan_scores: int = 0
    positives: int = 0
    loss_sum: float = 0.0
    label_sum: float = 0.0
    score_sum: float = 0.0
    _bins: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, BINS), np.int64))

    def add(self, labels_N: Float32, scores_N: Float32) -> None:
        """Count rows."""
        for start in range(0, len(labels_N), PIECE_ROWS):
            self._add(labels_N[start : start + PIECE_ROWS], scores_N[start : start + PIECE_ROWS])

    def _add(self, labels_N: Float32, scores_N: Float32) -> None:
        self.rows += len(labels_N)
        bad_N = np.isnan(scores_N)
        if bad_N.any():
            self.nan_scores += int(bad_N.sum())
            labels_N, scores_N = labels_N[~bad_N], scores_N[~bad_N]
        labels = labels_N.astype(np.float64)
        scores = np.clip(scores_N.astype(np.float64), CLIP, 1 - CLIP)
        yes, no = np.log(scores), np.log1p(-scores)
        self.loss_sum -= float((labels * yes + (1 - labels) * no).sum())
        self.label_sum += float(labels.sum())
        self.score_sum += float(scores_N.sum(dtype=np.float64))
        bins = np.clip((yes - no + LOGIT_RANGE) * (BINS / (2 * LOGIT_RANGE)), 0, BINS - 1).astype(np.int64)
        positive_N = labels > 0.5
        self.positives += int(positive_N.sum())
        self._bins[1] += np.bincount(bins[positive_N], minlength=BINS)
        self._bins[0] += np.bincount(bins[~positive_N], minlength=BINS)

    @property
    def auc(self) -> float | None:
        """Area under the ROC curve."""
        negatives = self.rows - self.nan_scores - self.positives
        if not self.positives or not negatives or self.nan_scores:
            return None
        below = np.cumsum(self._bins[0]) - self._bins[0]
        won = float((self._bins[1] * (below + self._bins[0] / 2)).sum())
        return won / (self.positives * negatives)

    @property
    def log_loss(self) -> float | None:
        """Mean of −log of the probability given to what happened; probabilities clipped to [1e-7, 1 − 1e-7]."""
        return self.loss_sum / self.rows if self.rows and not self.nan_scores else None

    @property
    def base_log_loss(self) -> float | None:
        """Log loss of always saying the share of positive rows: what a model must beat."""
        if not self.rows or self.nan_scores:
            return None
        rate = self.label_sum / self.rows
        return -sum(p * math.log(p) for p in (rate, 1 - rate) if p > 0)

    @property
    def normalized_entropy(self) -> float | None:
        """``log_loss / base_log_loss`` (He et al. 2014): below 1 is better than the base rate."""
        loss, base = self.log_loss, self.base_log_loss
        return loss / base if loss is not None and base else None

    @property
    def calibration(self) -> float | None:
        """Sum of scores over sum of labels: 1 is right, above says too much."""
        return self.score_sum / self.label_sum if self.label_sum and not self.nan_scores else None

    def as_dict(self) -> dict[str, float | int | None]:
        """All metrics by name; ``healthy`` is false where a score was NaN."""
        return {
            "auc": self.auc,
            "log_loss": self.log_loss,
            "base_log_loss": self.base_log_loss,
            "normalized_entropy": self.normalized_entropy,
            "calibration": self.calibration,
            "healthy": not self.nan_scores,
        }


def joined(parts: Sequence[Part]) -> Part:
    """Consecutive parts (at least one) as one; new memory."""
    times, labels, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    return times, labels, scores


def pieces(parts: Iterable[Part], first: int, size: int = PIECE_ROWS) -> Iterator[Part]:
    """The same rows, cut at multiples of ``size`` of the row number, where ``first`` is that of the first row.

    Sums of floats depend on where they are cut. So what is computed from these pieces depends on the rows alone, not on how
    they came: in which steps, files, or before and after which checkpoint.
    """
    waiting: list[Part] = []
    at = first
    for times_N, labels_N, scores_N in parts:
        start = 0
        while start < len(times_N):
            stop = min(len(times_N), start + size - at % size)
            waiting.append((times_N[start:stop], labels_N[start:stop], scores_N[start:stop]))
            at += stop - start
            start = stop
            if at % size == 0:
                yield joined(waiting)
                waiting.clear()
    if waiting:
        yield joined(waiting)


def summary(parts: Iterable[Part], rows: int, first: int) -> dict[str, float | int | None]:
    """Metrics over the life of a version.

    Args:
        parts: the scored rows that are kept, in trained order.
        rows: scored over the life; the second half are rows [rows // 2, rows).
        first: number of the first row kept; above 0 the metrics of the whole life are ``None``, and those of the second
            half if it is not kept whole.
    """
    meter, half = Meter(), Meter()
    at = first
    for _, labels_N, scores_N in pieces(parts, first):
        meter.add(labels_N, scores_N)
        skip = max(0, rows // 2 - at)
        if skip < len(labels_N):
            half.add(labels_N[skip:], scores_N[skip:])
        at += len(labels_N)
    assert at == rows, (at, rows)
    values: dict[str, float | int | None] = meter.as_dict() if first == 0 else dict.fromkeys(Meter().as_dict())
    values["healthy"] = not meter.nan_scores
    for name in ("auc", "log_loss"):
        values[f"{name}_second_half"] = getattr(half, name) if first <= rows // 2 else None
    return values


def windows(parts: Iterable[Part], first: int = 0, size: int = WINDOW_ROWS) -> Iterator[dict[str, float | int | None]]:
    """Metrics of each ``size`` rows in trained order: ``row`` (number of its first row), ``rows``, ``time_us`` (largest
    event time) and those of ``Meter.as_dict``. The last one may be shorter. Windows start at multiples of ``size``, the
    first one at ``first``."""
    start = first
    for times_N, labels_N, scores_N in pieces(parts, first, size):
        meter = Meter()
        meter.add(labels_N, scores_N)
        yield {"row": start, "rows": meter.rows, "time_us": int(times_N.max()), **meter.as_dict()}
        start += len(times_N)


def skewed(times_B: Int64, newest_us: int, by_us: int = 3_600_000_000) -> int:
    """Rows of a step that are scored after a row more than ``by_us`` newer was trained."""
    return int((times_B < newest_us - by_us).sum())
