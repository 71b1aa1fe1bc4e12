"""Kaplan–Meier curves with Greenwood's errors."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.survival.counts import RiskCounts

#: The scale on which confidence intervals are symmetric.
Scale = Literal["log", "log-log", "plain"]
SCALES: tuple[Scale, ...] = ("log", "log-log", "plain")


@dataclasses.dataclass(frozen=True)
class SurvivalCurve:
    """The probability of no event up to each time.

    Attributes
    ----------
    times
        The times at which rows leave.
    at_risk, events, censored
        How many rows there are at each.
    survival
        The probability of no event up to each time, this one included.
    log_error
        The standard error of the logarithm of it (Greenwood); infinite where the probability is 0.
    lower, upper
        The ends of confidence intervals at each time.
    level
        The level of these.
    least, largest
        Between these the curve of the exact times lies, where rows leave between the times; else None.
    """

    times: Array
    at_risk: Array
    events: Array
    censored: Array
    survival: Array
    log_error: Array
    lower: Array
    upper: Array
    level: float = 0.95
    least: Array | None = None
    largest: Array | None = None

    @property
    def error(self) -> Array:
        """The standard error of the probability."""
        with np.errstate(invalid="ignore"):
            return np.where(self.survival > 0, self.survival * self.log_error, np.nan)

    def at(self, times: Any) -> Array:
        """Return the probability of no event up to given times.

        >>> from fpdfp.survival import RiskCounts, Times, kaplan_meier
        >>> curve = kaplan_meier(RiskCounts.of(Times.of([1.0, 2.0, 3.0, 4.0], [1, 0, 1, 1])))
        >>> curve.at([0.5, 1.0, 3.5])
        array([1.   , 0.75 , 0.375])
        """
        wanted = _checks.float_array("times", times, dtype=np.float64)
        found: Array = np.append(1.0, self.survival)[np.searchsorted(self.times, wanted, "right")]
        return found

    def quantile(self, share: float = 0.5) -> tuple[float, float, float]:
        """Return the first time at which the probability is at most 1 − share, and the ends of its interval.

        NaN where the curve or an end does not fall so far. Where the curve is exactly 1 − share for some time, this is
        the middle of that time, as in R.
        """
        below = 1.0 - _checks.share("share", share)
        return tuple(_first_below(self.times, one, below) for one in (self.survival, self.lower, self.upper))  # type: ignore[return-value]

    @property
    def median(self) -> float:
        """The time up to which half have an event; NaN where fewer have."""
        return self.quantile(0.5)[0]

    def restricted_mean(self, until: float) -> tuple[float, float]:
        """Return the mean time without an event up to a time, the area below the curve, and its standard error."""
        end = _checks.real("until", until, positive=True)
        inside = self.times < end
        knots = np.concatenate([[0.0], self.times[inside], [end]])
        heights = np.append(1.0, self.survival[inside])
        areas = np.diff(knots) * heights
        after = np.cumsum(areas[::-1])[::-1][1:]  # the area from each time on
        n, d = self.at_risk[inside], self.events[inside]
        terms = np.divide(d, n * (n - d), out=np.zeros_like(n), where=(d > 0) & (n > d))
        return float(areas.sum()), float(np.sqrt((after**2 * terms).sum()))

    def frame(self) -> Any:
        """Return the curve as a data frame of pandas."""
        import pandas as pd

        names = ("times", "at_risk", "events", "censored", "survival", "error", "lower", "upper")
        bounds = () if self.least is None else ("least", "largest")
        return pd.DataFrame({name: getattr(self, name) for name in (*names, *bounds)}).rename(columns={"times": "time"})


def kaplan_meier(counts: RiskCounts, *, level: float = 0.95, scale: Scale = "log") -> SurvivalCurve:
    """Return the curve of Kaplan and Meier for the rows of all groups.

    Where rows leave between the times of the counts it is a life table. Of those who leave an interval without
    an event, or enter in it, half are at risk, q = d/(n − (c + e)/2) (Cutler and Ederer 1958).

    Parameters
    ----------
    counts
        How many are at risk at which times, of one site or the sum of several.
    level
        The level of confidence intervals.
    scale
        The scale on which they are symmetric: ``"log"`` as R does by default, ``"log-log"`` or ``"plain"``.

    Examples
    --------
    >>> from fpdfp.survival import RiskCounts, Times
    >>> north = RiskCounts.of(Times.of([1.0, 2.0, 4.0], [1, 0, 1]))
    >>> south = RiskCounts.of(Times.of([2.0, 3.0], [1, 0]))
    >>> kaplan_meier(north + south).survival
    array([0.8, 0.6, 0.6, 0. ])
    """
    if not 0 < _checks.real("level", level) < 1:
        raise ValueError(f"level must be between 0 and 1, got {level:g}")
    _checks.choice("scale", scale, SCALES)
    whole = counts.merge_groups().halve()
    some = whole.left[0] > 0
    n, d, c = whole.exposed[0][some], whole.events[0][some], whole.censored[0][some]
    survival = np.cumprod(np.where(n > d, 1.0 - d / n, 0.0))
    with np.errstate(divide="ignore"):
        error = np.sqrt(np.cumsum(np.where(d > 0, d / (n * np.maximum(n - d, 0.0)), 0.0)))
    lower, upper = confidence(survival, error, level, scale)
    return SurvivalCurve(whole.times[some], whole.at_risk[0][some], d, c, survival, error, lower, upper, float(level))


def bound_survival(late: RiskCounts, early: RiskCounts) -> tuple[Array, Array]:
    """Return numbers between which the curve of exact times lies, at each time of the counts.

    All rows are there from the start. They leave at the earliest as ``early`` says and at the latest as ``late`` does,
    at the same times; within one interval they leave in any order. The curve is a product over events of 1 − 1/r, r
    those
    at risk. It is least if events are as late as can be and all others have left as early as can be, and largest the
    other way round.

    >>> from fpdfp.survival import RiskCounts, Times
    >>> counts = RiskCounts.of(Times.of([0.5, 0.6, 1.5, 2.0], [1, 0, 1, 0]), times=[1.0, 2.0])
    >>> least, largest = bound_survival(counts, counts)
    >>> least.round(3), largest.round(3)
    (array([0.667, 0.   ]), array([0.75 , 0.375]))
    """
    late, early = late.merge_groups(), early.merge_groups()
    hidden = 1.0 if late.rounded or late.delayed or early.rounded else 0.0  # else the order within a time is known
    left_early, left_late = np.cumsum(early.left[0]), np.cumsum(late.left[0])
    # Fewest at risk: who leaves early has left, and so have those of the interval who have no event.
    fewest = late.start - (left_early - early.left[0]) - hidden * early.censored[0]
    most = late.start - (left_late - late.left[0])
    sooner, later = np.cumsum(early.events[0]), np.cumsum(late.events[0])
    least, largest = np.ones(len(sooner)), np.ones(len(sooner))
    for k in range(len(sooner)):
        events = np.diff(np.append(later[:k], sooner[k]), prepend=0.0)
        least[k] = _product(fewest[: k + 1], events)
        events = np.diff(np.minimum(sooner[: k + 1], later[k]), prepend=0.0)
        largest[k] = _product(most[: k + 1], events)
    return least, largest


def _product(at_risk: Array, events: Array) -> float:
    """Return Π (r − d)/r over the times with events; 0 where there are no more at risk than have events."""
    some = events > 0
    if (at_risk[some] <= events[some]).any():
        return 0.0
    return float(np.prod(1.0 - events[some] / at_risk[some]))


def confidence(survival: Array, log_error: Array, level: float, scale: Scale) -> tuple[Array, Array]:
    """Return confidence intervals of probabilities, from the errors of their logarithms; NaN where they are 0."""
    from scipy.special import ndtri

    z = float(ndtri(0.5 + level / 2.0))
    known = (survival > 0) & np.isfinite(log_error)
    s, error = np.where(known, survival, 0.5), np.where(known, log_error, 0.0)
    if scale == "plain":
        lower, upper = s - z * s * error, s + z * s * error
    elif scale == "log":
        lower, upper = s * np.exp(-z * error), s * np.exp(z * error)
    else:
        inside = s < 1
        steep = np.where(inside, error / np.where(inside, -np.log(s), 1.0), 0.0)
        lower, upper = s ** np.exp(z * steep), s ** np.exp(-z * steep)
    return np.where(known, np.maximum(lower, 0.0), np.nan), np.where(known, np.minimum(upper, 1.0), np.nan)


def _first_below(times: Array, curve: Array, height: float) -> float:
    """Return the first time at which a curve is below a height, or the middle of the time at which it is there."""
    tolerance = 1e-9
    reached = np.flatnonzero(curve <= height + tolerance)
    if not reached.size:
        return float("nan")
    first = int(reached[0])
    if abs(curve[first] - height) > tolerance:
        return float(times[first])
    below = np.flatnonzero(curve < height - tolerance)
    return float((times[first] + times[below[0]]) / 2.0) if below.size else float(times[first])
