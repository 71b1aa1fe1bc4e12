"""ROC curves and the area under them, from histograms of scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.inference.histograms import ScoreHistogram
from fpdfp.inference.table import Table


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
        if not 0.0 < self.area < 1.0 or math.isnan(self.standard_error):
            return max(self.area - self.error, 0.0), min(self.area + self.error, 1.0)
        odds = math.log(self.area / (1.0 - self.area))
        variance = (self.standard_error / (self.area * (1.0 - self.area))) ** 2
        limits = Table(["area"], np.array([odds]), np.array([[variance]]), level=level).intervals()[0]
        lower, upper = (1.0 / (1.0 + np.exp(-limits))).tolist()
        return max(lower - self.error, 0.0), min(upper + self.error, 1.0)

    def __str__(self) -> str:
        lower, upper = self.interval()
        return f"area under the ROC curve {self.area:.4f} ± {self.error:.2g} (95 % from {lower:.4f} to {upper:.4f})"

    __repr__ = __str__


def roc_curve(histogram: ScoreHistogram) -> RocCurve:
    """Return the ROC curve of the histogram of all sites.

    Parameters
    ----------
    histogram
        The sum of those of the sites.

    Examples
    --------
    >>> from fpdfp.inference import score_histogram
    >>> roc_curve(score_histogram([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], [0.0, 0.3, 0.37, 0.5, 1.0])).area
    0.75
    """
    if not isinstance(histogram, ScoreHistogram):
        raise ArgumentTypeError("histogram", f"must be a ScoreHistogram, got {_checks.kind(histogram)}")
    positives, negatives = histogram.positives, histogram.negatives
    events, others = positives.sum(), negatives.sum()
    if not events or not others:
        raise ArgumentError("histogram", f"must have rows with an event and without, got {events:g} and {others:g}")
    negatives_below, negatives_above = _beside(histogram, negatives)
    positives_below, positives_above = _beside(histogram, positives)
    # For each cell the part of the negatives below it, and of the positives above it; pairs in cells that are the same
    # or overlap may be in any order, and count as halves.
    below = (negatives_below + others - negatives_above) / (2.0 * others)
    above = (positives_above + events - positives_below) / (2.0 * events)
    area = float(positives @ below / events)
    spread = math.nan
    if events > 1 and others > 1:
        of_events = positives @ (below - area) ** 2 / (events - 1) / events
        of_others = negatives @ (above - area) ** 2 / (others - 1) / others
        spread = math.sqrt(of_events + of_others)
    thresholds = np.unique([histogram.lower, histogram.upper])[::-1]
    reached = (histogram.upper - thresholds[:, None]) / (histogram.upper - histogram.lower)
    reached = np.clip(reached, 0.0, 1.0)
    return RocCurve(
        thresholds=thresholds,
        false_positive_rates=reached @ negatives / others,
        true_positive_rates=reached @ positives / events,
        area=area,
        error=float(positives @ (others - negatives_above - negatives_below) / (2.0 * events * others)),
        standard_error=spread,
    )


def _beside(histogram: ScoreHistogram, counts: Array) -> tuple[Array, Array]:
    """Return for each cell how many are in cells that are wholly below it, and wholly above it."""
    by_upper, by_lower = np.argsort(histogram.upper), np.argsort(histogram.lower)
    up_to = np.concatenate([[0.0], np.cumsum(counts[by_upper])])
    before = np.concatenate([[0.0], np.cumsum(counts[by_lower])])
    below = up_to[np.searchsorted(histogram.upper[by_upper], histogram.lower, side="right")]
    above = before[-1] - before[np.searchsorted(histogram.lower[by_lower], histogram.upper, side="left")]
    return below, above
