"""Calibration: whether what a model predicts is what happens, from sums of sites."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.inference.histograms import ScoreHistogram
from fpdfp.inference.hypotheses import HypothesisTest, judge, wald_test
from fpdfp.inference.information import Information, add_up
from fpdfp.inference.intervals import wilson
from fpdfp.inference.table import Table, coefficient_table

#: A step may increase the deviance by this part of it, from rounding.
WORSE = 1e-12


@dataclass(frozen=True)
class Calibration:
    """Intercept and slope of the model's linear predictor in a model of the outcome: 0 and 1 if it is calibrated.

    Attributes
    ----------
    table
        Both, with standard errors and intervals.
    test
        Of the hypothesis that they are 0 and 1.
    exchanges
        How often sites were asked.
    """

    table: Table
    test: HypothesisTest
    exchanges: int

    @property
    def intercept(self) -> float:
        """Above 0 if events are more frequent than predicted, at a linear predictor of 0; NaN if unknown."""
        return float(self.table.coefficients[0]) if len(self.table.coefficients) > 1 else math.nan

    @property
    def slope(self) -> float:
        """Below 1 if predictions are too extreme, as after a fit to too few rows."""
        return float(self.table.coefficients[-1])

    def __str__(self) -> str:
        return f"{self.table}\n{self.test}"

    __repr__ = __str__


def calibrate(
    ask: Callable[[Array], Sequence[Information]],
    *,
    has_dispersion: bool = False,
    has_intercept: bool = True,
    start: Array | None = None,
    level: float = 0.95,
    tol: float = 1e-8,
    most: int = 25,
) -> Calibration:
    """Fit intercept and slope of a model's linear predictor η to outcomes, usually of rows that were not in its fit.

    Parameters
    ----------
    ask
        Returns the sums of all sites at ``[intercept, slope]``, of the model with the linear predictor
        intercept + slope · η: what :meth:`Information.of_rows` makes of the columns 1 and η, with the deviance. It is
        called once for each Newton step; a step that increases the deviance is halved.
    has_dispersion
        Whether the family has a dispersion.
    has_intercept
        Whether there is an intercept; hazards of Cox models have none, and then points and sums are of the slope alone.
    start
        Where to begin, by default at intercept 0 and slope 1.
    level
        Of confidence intervals.
    tol
        Ends the Newton steps: the largest change of intercept and slope.
    most
        The most exchanges.
    """
    names, ideal = (["intercept", "slope"], np.array([0.0, 1.0])) if has_intercept else (["slope"], np.ones(1))
    x, step, best = ideal if start is None else start, np.zeros(len(ideal)), 0.0
    for exchange in range(1, most + 1):
        total = add_up(list(ask(x + step)))
        if total.parameters != len(names):
            said = " and ".join(names)
            raise ArgumentError("ask", f"must return sums for {said}, got {total.parameters} coefficients")
        if math.isnan(total.deviance):
            raise ArgumentError("ask", "must return sums with the deviance")
        if total.deviance > best + WORSE * abs(best) and exchange > 1:
            step = step / 2.0
            continue
        x, best = x + step, total.deviance
        step = total.invert(names) @ total.score
        if np.abs(step).max() <= tol:
            table = coefficient_table(names, x, total, has_dispersion=has_dispersion, level=level)
            return Calibration(table, wald_test(table, names, ideal), exchange)
    raise ArgumentError("ask", f"leads to no intercept and slope in {most} exchanges: does η separate the outcomes?")


@dataclass(frozen=True)
class CalibrationTable:
    """Predicted and observed chances by groups of rows; ``print`` shows them.

    Attributes
    ----------
    rows
        Of each group.
    predicted, observed
        The mean chance, and the part of rows with an event.
    lower, upper
        Wilson's 95 % limits of the latter.
    """

    rows: Array
    predicted: Array
    observed: Array
    lower: Array
    upper: Array

    def hosmer_lemeshow(self, *, fitted: bool) -> HypothesisTest:
        """Test whether observed and predicted numbers differ by more than chance.

        Parameters
        ----------
        fitted
            Whether the model was fitted to these rows: then two degrees of freedom are lost.
        """
        df = len(self.rows) - 2 * bool(fitted)
        if df < 1:
            raise ArgumentError("fitted", f"leaves no degree of freedom for {len(self.rows)} groups")
        spread = self.predicted * (1.0 - self.predicted) / self.rows
        if not (spread > 0).all():
            raise ArgumentError("groups", "must have predicted chances other than 0 and 1 in each")
        statistic = float(((self.observed - self.predicted) ** 2 / spread).sum())
        return judge("Hosmer and Lemeshow", statistic, df, None)

    def frame(self) -> Any:
        """Return a data frame of pandas with a row for each group."""
        import pandas

        columns = {name: getattr(self, name) for name in ("rows", "predicted", "observed", "lower", "upper")}
        return pandas.DataFrame(columns)

    def __str__(self) -> str:
        return str(self.frame().to_string(index=False, float_format=lambda value: f"{value:.4g}"))

    __repr__ = __str__


def calibration_table(histogram: ScoreHistogram, groups: int = 10) -> CalibrationTable:
    """Return predicted and observed chances in groups of about the same number of rows, from small to large chances.

    Groups are made of whole cells of the sites, in the order of their mean chance.

    Parameters
    ----------
    histogram
        The sum over sites.
    groups
        The largest number; fewer where the cells of the histogram are too large.

    Examples
    --------
    >>> from fpdfp.inference import score_histogram
    >>> made = score_histogram([0.1, 0.2, 0.3, 0.8], [0, 0, 1, 1], [0.0, 0.25, 1.0])
    >>> calibration_table(made).observed.tolist()
    [0.0, 1.0]
    """
    if not isinstance(histogram, ScoreHistogram):
        raise ArgumentTypeError("histogram", f"must be a ScoreHistogram, got {_checks.kind(histogram)}")
    if not histogram.rows.sum():
        raise ArgumentError("histogram", "must have at least one row")
    full = histogram.weight > 0
    order = np.argsort((histogram.predicted[full] / histogram.weight[full]), kind="stable")
    counts = histogram.rows[full][order]
    # A cell belongs to the group in which its middle row is.
    middle = (np.cumsum(counts) - counts / 2.0) / counts.sum()
    group = np.minimum((middle * _checks.integer("groups", groups, at_least=1)).astype(np.int64), groups - 1)
    _, group = np.unique(group, return_inverse=True)
    rows, weight, events, chance = (
        np.bincount(group, column[full][order])
        for column in (histogram.rows, histogram.weight, histogram.positives, histogram.predicted)
    )
    observed = events / weight
    return CalibrationTable(rows, chance / weight, observed, *wilson(observed, rows))
