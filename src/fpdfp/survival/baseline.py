"""Baseline hazards after a fit of Cox's model, and the survival curves of new rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.survival.counts import check_grid
from fpdfp.survival.curves import Scale, confidence


@dataclasses.dataclass(frozen=True)
class Baseline:
    """The cumulative hazard of a row whose features and offset are zero, in one stratum of one site.

    Attributes
    ----------
    times
        Times.
    hazard
        The cumulative hazard up to each.
    variance
        Its variance if coefficients were known.
    means
        The integral of the mean of the rows at risk, one row for each time: with it errors of coefficients enter.
    events
        How many events there are up to each time, since the one before.
    """

    times: Array
    hazard: Array
    variance: Array
    means: Array
    events: Array

    def __post_init__(self) -> None:
        count = len(self.times)
        shapes = [self.hazard.shape, self.variance.shape, self.events.shape, self.means.shape[:1]]
        if shapes != [(count,)] * 4 or self.means.ndim != 2:
            raise ArgumentError("hazard", f"must have a value for each of the {count} times, got shapes {shapes}")
        if (np.diff(self.times) <= 0).any() or (np.diff(self.hazard, prepend=0.0) < 0).any():
            raise ArgumentError("times and hazard", "must not decrease")

    @classmethod
    def of(cls, times: Array, hazard: Array, variance: Array, means: Array, events: Array) -> Baseline:
        """Return the baseline from what its parts grow by at each time."""
        return cls(times, np.cumsum(hazard), np.cumsum(variance), np.cumsum(means, axis=0), events)

    def at(self, times: Any) -> Baseline:
        """Return the cumulative hazard at other times, the value of the step function there.

        >>> whole = Baseline.of(np.array([1.0, 2.0]), np.array([0.1, 0.2]), np.zeros(2), np.zeros((2, 1)), np.ones(2))
        >>> whole.at([1.5, 4.0]).hazard
        array([0.1, 0.3])
        """
        grid = check_grid(times)
        place = np.searchsorted(self.times, grid, "right")

        def values(steps: Array) -> Array:
            return np.concatenate([np.zeros((1, *steps.shape[1:])), steps])[place]

        events = np.diff(values(np.cumsum(self.events)), prepend=0.0)
        return Baseline(grid, values(self.hazard), values(self.variance), values(self.means), events)

    def coarsen(self, least: int) -> Baseline:
        """Return the hazard at fewer times, such that at least a given number of events are between any two of them.

        >>> steps = np.full(5, 0.1)
        >>> fine = Baseline.of(np.arange(1.0, 6.0), steps, steps, np.zeros((5, 1)), np.ones(5))
        >>> fine.coarsen(2).times
        array([2., 5.])
        """
        least = _checks.integer("least", least, at_least=0)
        ends: list[int] = []
        waiting = 0.0
        for k, count in enumerate(self.events):
            waiting += float(count)
            if waiting and waiting >= least:
                ends.append(k)
                waiting = 0.0
        if waiting:
            if not ends:
                raise ArgumentError("times", f"must have at least {least} events, got {int(waiting)} in a stratum")
            ends[-1] = int(np.flatnonzero(self.events)[-1])
        kept = np.array(ends, dtype=np.int64)
        events = np.diff(np.cumsum(self.events)[kept], prepend=0.0)
        return Baseline(self.times[kept], self.hazard[kept], self.variance[kept], self.means[kept], events)

    def survival(self, linear: Any) -> Array:
        """Return the probability of no event up to each time, a row for each linear form aᵀx + o."""
        z = _checks.float_array("linear", linear, dtype=np.float64)
        curves: Array = np.exp(-np.exp(z)[..., None] * self.hazard)
        return curves

    def curves(
        self,
        X: Any,
        coefficients: Any,
        covariance: Any = None,
        *,
        offset: Any = 0.0,
        level: float = 0.95,
        scale: Scale = "log",
    ) -> SurvivalCurves:
        """Return the curves of rows X, with confidence intervals if the covariance of the coefficients is given.

        The variance of the logarithm of a curve is the variance of the hazard plus qᵀVq, with V the covariance of the
        coefficients and q the derivative of the logarithm in them.
        """
        rows = _checks.float_array("X", X, dtype=np.float64)
        x = _checks.float_array("coefficients", coefficients, dtype=np.float64, shape=(rows.shape[1],))
        z = rows @ x + offset
        curves = self.survival(z)
        if covariance is None:
            return SurvivalCurves(self.times, curves)
        V = _checks.float_array("covariance", covariance, dtype=np.float64, shape=(rows.shape[1],) * 2)
        q = rows[:, None, :] * self.hazard[:, None] - self.means
        variance = self.variance + np.einsum("rti,ij,rtj->rt", q, V, q)
        errors = np.exp(z)[:, None] * np.sqrt(np.maximum(variance, 0.0))
        return SurvivalCurves(self.times, curves, *confidence(curves, errors, level, scale))

    def unscale(self, x: Array, centre: Array, scale: Array) -> Baseline:
        """Return the hazard for features as they were before the centre was subtracted and they were scaled."""
        factor = float(np.exp(-(centre / scale) @ x))
        means = self.means * scale + self.hazard[:, None] * centre
        return Baseline(self.times, factor * self.hazard, factor**2 * self.variance, factor * means, self.events)


@dataclasses.dataclass(frozen=True)
class SurvivalCurves:
    """Curves of several rows.

    Attributes
    ----------
    times
        Times.
    survival
        The probability of no event up to each, a row of the array for each row.
    lower, upper
        The ends of confidence intervals; None if not available.
    """

    times: Array
    survival: Array
    lower: Array | None = None
    upper: Array | None = None
