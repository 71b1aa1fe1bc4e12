"""ROC curves and the area under them, from histograms of scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.inference.histograms import ScoreHistogram, hold_one_number
from fpdfp.inference.intervals import by_log_odds

#: This many thresholds are looked at together.
BLOCK = 256
#: What rounding may add to the error of an area.
ROUNDING = 1e-12


@dataclass(frozen=True)
class RocCurve:
    """The ROC curve at the edges of the cells of a histogram, and the area under it.

    Attributes
    ----------
    thresholds
        Rows with at least this chance count as positive; from large to small.
    false_positive_rates, true_positive_rates
        At these, from 0 to 1; rows in a cell that a threshold divides are counted in proportion.
    area
        With ties within a cell counted as half.
    error
        The area of the scores themselves differs from :attr:`area` by at most this: half the part of the pairs that are
        in the same cell, or in cells that overlap.
    standard_error
        By DeLong, DeLong and Clarke-Pearson (1988) for the scores as binned; NaN with fewer than two rows of a kind.
    """

    thresholds: Array
    false_positive_rates: Array
    true_positive_rates: Array
    area: float
    error: float
    standard_error: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return confidence limits of the area, on the scale of log-odds, widened by :attr:`error`."""
        lower, upper = by_log_odds(self.area, self.standard_error, level)
        return max(lower - self.error, 0.0), min(upper + self.error, 1.0)

    def __str__(self) -> str:
        lower, upper = self.interval()
        return f"area under the ROC curve {self.area:.4f} ± {self.error:.2g} (95 % from {lower:.4f} to {upper:.4f})"

    __repr__ = __str__


def roc_curve(histogram: ScoreHistogram, effective: tuple[float, float] | None = None) -> RocCurve:
    """Return the ROC curve of the histogram of all sites.

    Parameters
    ----------
    histogram
        The sum over sites.
    effective
        With weights of rows: how many rows with an event, and without, are worth as much, (Σw)²/Σw², for the standard
        error. It is DeLong's for rows of weight 1, and with weights an approximation that takes them as independent of
        scores.

    Examples
    --------
    >>> from fpdfp.inference import score_histogram
    >>> roc_curve(score_histogram([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], [0.0, 0.3, 0.37, 0.5, 1.0])).area
    0.75
    """
    if not isinstance(histogram, ScoreHistogram):
        raise ArgumentTypeError("histogram", f"must be a ScoreHistogram, got {_checks.kind(histogram)}")
    area, error, spread = find_area(histogram, effective)
    positives, negatives = histogram.positives, histogram.negatives
    thresholds = np.unique([histogram.lower, histogram.upper])[::-1]
    rates = np.concatenate([
        _reached(histogram, thresholds[start : start + BLOCK]) @ np.stack([negatives, positives], axis=1)
        for start in range(0, len(thresholds), BLOCK)
    ]) / [negatives.sum(), positives.sum()]  # fmt: skip
    return RocCurve(thresholds, rates[:, 0], rates[:, 1], area, error, spread)


def find_area(histogram: ScoreHistogram, effective: tuple[float, float] | None = None) -> tuple[float, float, float]:
    """Return the area under the ROC curve, by how much binning can have changed it at most, and its standard error."""
    positives, negatives = histogram.positives, histogram.negatives
    events, others = float(positives.sum()), float(negatives.sum())
    if not events or not others:
        raise ArgumentError("histogram", f"must have rows with an event and without, got {events:g} and {others:g}")
    negatives_below, negatives_above = _beside(histogram, negatives)
    positives_below, positives_above = _beside(histogram, positives)
    # For each cell the part of the negatives below it, and of the positives above it; pairs in cells that are the same
    # or overlap may be in any order, and count as halves.
    below = (negatives_below + others - negatives_above) / (2.0 * others)
    above = (positives_above + events - positives_below) / (2.0 * events)
    area = float(positives @ below / events)
    unsure = others - negatives_above - negatives_below
    # Rows in a cell that holds a single number are tied, and half a pair is exact.
    unsure = unsure - np.where(hold_one_number(histogram.lower, histogram.upper), negatives, 0.0)
    error = max(float(positives @ unsure) / (2.0 * events * others), 0.0)
    # With one pair in a cell the area is off by just that much, and rounding decides.
    error += ROUNDING if error > ROUNDING else 0.0
    n, m = (events, others) if effective is None else effective
    spread = math.nan
    if n > 1 and m > 1:
        of_events = positives @ (below - area) ** 2 / events / (n - 1)
        of_others = negatives @ (above - area) ** 2 / others / (m - 1)
        spread = math.sqrt(of_events + of_others)
    return area, error, spread


def _reached(histogram: ScoreHistogram, thresholds: Array) -> Array:
    """Return which part of each cell is above each threshold; a cell without an end is not divided."""
    lower, upper = histogram.lower, histogram.upper
    finite = np.isfinite(lower) & np.isfinite(upper)
    with np.errstate(invalid="ignore"):
        part = (upper - thresholds[:, None]) / (upper - lower)
    whole = thresholds[:, None] <= lower
    return np.where(finite, np.clip(np.where(finite, part, 0.0), 0.0, 1.0), whole)


def _beside(histogram: ScoreHistogram, counts: Array) -> tuple[Array, Array]:
    """Return for each cell how many are in cells that are completely below it, and completely above it."""
    by_upper, by_lower = np.argsort(histogram.upper), np.argsort(histogram.lower)
    up_to = np.concatenate([[0.0], np.cumsum(counts[by_upper])])
    before = np.concatenate([[0.0], np.cumsum(counts[by_lower])])
    below = up_to[np.searchsorted(histogram.upper[by_upper], histogram.lower, side="right")]
    above = before[-1] - before[np.searchsorted(histogram.lower[by_lower], histogram.upper, side="left")]
    return below, above
