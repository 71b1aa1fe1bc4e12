"""Scores of risks for times of events: concordance, and the partial likelihood."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentTypeError
from fpdfp.losses.cox import Cox
from fpdfp.scores.base import NOTHING, Estimate, Score, read_weights
from fpdfp.survival import Concordance, Times
from fpdfp.survival.concordance import DIGITS


class TimeScore(Score):
    """A score of risks; rows of different strata are not compared, and neither are those of different sites."""

    outcomes = ("times",)

    def sums(self, eta: Array, y: Any, weights: Array | None, family: Any, *, strata: Any = None) -> Array:
        """Return sums over rows; ``strata`` is the stratum of each, None for one."""
        times, strata = (y[0], y[1]) if isinstance(y, tuple) and not isinstance(y, Times) else (y, strata)
        if not isinstance(times, Times):
            raise ArgumentTypeError("y", f"must be fpdfp.survival.Times, got {_checks.kind(y)}")
        risk = _checks.float_array("eta", eta, shape=times.time.shape, dtype=np.float64)
        return self._sums(risk, times, read_weights(weights, len(risk)), strata)

    def _sums(self, risk: Array, times: Times, weights: Array, strata: Any) -> Array:
        raise NotImplementedError


class ConcordanceScore(TimeScore):
    """Harrell's concordance (:class:`fpdfp.survival.Concordance`), of pairs of rows of the same site and stratum."""

    name, greater_is_better = "concordance", True

    def _sums(self, risk: Array, times: Times, weights: Array, strata: Any) -> Array:
        found = Concordance.of(times, np.round(risk, DIGITS), strata=strata, weights=weights)
        return np.array([found.concordant, found.discordant, found.tied, *found.squares, found.rows])

    def finish(self, sums: Array) -> Estimate:
        found = self.pairs_of(sums)
        return Estimate(found.index, 0.0, found.error) if found.pairs else NOTHING

    def pairs_of(self, sums: Array) -> Concordance:
        """Return what the sums say of pairs."""
        concordant, discordant, tied = map(float, sums[:3])
        return Concordance(concordant, discordant, tied, np.asarray(sums[3:6]), int(sums[6]))


class PartialDeviance(TimeScore):
    """Minus twice the partial log-likelihood for each event, with ties as Efron has them; it has no standard error."""

    name, greater_is_better = "deviance", False

    def _sums(self, risk: Array, times: Times, weights: Array, strata: Any) -> Array:
        if not times.event.any():
            return np.zeros(2)
        losses = Cox(risk[:, None], times.time, times.event, entry=times.entry, strata=strata, weights=weights)
        found = losses.sums_at(np.ones(1), np.arange(1), robust=False)
        assert found is not None
        return np.array([float(found.numbers[0, 3]), float(weights[times.event].sum())])

    def finish(self, sums: Array) -> Estimate:
        deviance, events = map(float, sums)
        return Estimate(deviance / events, 0.0, math.nan) if events else NOTHING
