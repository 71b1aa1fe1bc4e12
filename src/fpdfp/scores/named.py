"""The scores by their names: means over rows, concordance, and the partial likelihood of times of events."""

from __future__ import annotations

import abc
import math
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, ArgumentTypeError
from fpdfp.losses.cox import Cox
from fpdfp.scores.auc import AUC
from fpdfp.scores.base import NOTHING, Estimate, Score, as_family, log_chances, outcome_of, read_rows, read_weights
from fpdfp.survival import Concordance, Times
from fpdfp.survival.concordance import DIGITS


class MeanScore(Score):
    """The weighted mean over rows of a number for each.

    Sums are the rows of positive weight w, and Σw, Σwv, Σw², Σw²v, Σw²v² over them, v the number of a row. The standard
    error is √(n/(n − 1) Σw²(v − v̄)²)/Σw.
    """

    def sums(self, eta: Array, y: Any, weights: Array | None, family: Any) -> Array:
        classes = outcome_of(family) == "classes"
        z, targets, w = read_rows(eta, y, weights, classes=classes)
        used = w > 0
        z, targets, w = z[used], targets[used], w[used]
        v = self._classes(log_chances(z), _codes(targets, z.shape[1])) if classes else self._rows(z, targets, family)
        squares = w**2
        return np.array([len(w), w.sum(), (w * v).sum(), squares.sum(), (squares * v).sum(), (squares * v**2).sum()])

    def finish(self, sums: Array) -> Estimate:
        n, weight, total, squares, crossed, moments = map(float, sums)
        if not weight > 0:
            return NOTHING
        mean = total / weight
        if n < 2 or not math.isfinite(mean):
            return Estimate(mean, 0.0, math.nan)
        left = max(moments - 2.0 * mean * crossed + mean**2 * squares, 0.0)
        return Estimate(mean, 0.0, math.sqrt(n / (n - 1.0) * left) / weight)

    @abc.abstractmethod
    def _rows(self, z: Array, y: Array, family: Any) -> Array:
        """The number of each row with one linear predictor."""

    def _classes(self, logarithms: Array, y: Array) -> Array:
        """The number of each row of several classes, given the logarithms of their chances."""
        raise NotImplementedError


class Deviance(MeanScore):
    """The mean unit deviance: of classes −2 log of the chance of a row's class, of numbers the family's."""

    name, greater_is_better, outcomes = "deviance", False, ("binary", "numbers", "classes")

    def _rows(self, z: Array, y: Array, family: Any) -> Array:
        known = as_family(family)
        return 2.0 * known.functions.value(z, y, known.parameters)

    def _classes(self, logarithms: Array, y: Array) -> Array:
        return -2.0 * logarithms[np.arange(len(y)), y]


class Brier(MeanScore):
    """The mean squared distance of chances from what happened, of several classes summed over these.

    A share of successes counts as a given number of rows with an event, and a given number of without.
    """

    name, greater_is_better, outcomes = "brier", False, ("binary", "classes")

    def _rows(self, z: Array, y: Array, family: Any) -> Array:
        chance = as_family(family).mean(z)
        return np.asarray(y * (1.0 - chance) ** 2 + (1.0 - y) * chance**2)

    def _classes(self, logarithms: Array, y: Array) -> Array:
        left = np.exp(logarithms)
        left[np.arange(len(y)), y] -= 1.0
        return np.asarray(np.square(left).sum(axis=1))


class Accuracy(MeanScore):
    """The share of rows whose most probable class is theirs; at a chance of one half the first of two classes."""

    name, greater_is_better, outcomes = "accuracy", True, ("binary", "classes")

    def _rows(self, z: Array, y: Array, family: Any) -> Array:
        return np.where(as_family(family).mean(z) > 0.5, y, 1.0 - y)

    def _classes(self, logarithms: Array, y: Array) -> Array:
        return np.asarray(logarithms.argmax(axis=1) == y, dtype=np.float64)


class SquaredError(MeanScore):
    """The mean squared distance of outcomes from their prediction."""

    name, greater_is_better, outcomes = "mse", False, ("numbers",)

    def _rows(self, z: Array, y: Array, family: Any) -> Array:
        return np.asarray(np.square(y - as_family(family).mean(z)))


class AbsoluteError(MeanScore):
    """The mean distance of outcomes from their prediction."""

    name, greater_is_better, outcomes = "mae", False, ("numbers",)

    def _rows(self, z: Array, y: Array, family: Any) -> Array:
        return np.asarray(np.abs(y - as_family(family).mean(z)))


def _codes(y: Array, classes: int) -> Array:
    """Return the numbers of classes; refuse other values."""
    codes = y.astype(np.int64)
    if (codes != y).any() or (len(codes) and not 0 <= codes.min() <= codes.max() < classes):
        raise ArgumentError("y", f"must be numbers of classes from 0 to {classes - 1}")
    return codes


class TimeScore(Score):
    """A score of risks; rows of different strata or sites are not compared."""

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
        """Return the counts of pairs from the sums."""
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


KINDS: tuple[type[Score], ...] = (
    Deviance, Brier, Accuracy, AUC, SquaredError, AbsoluteError, PartialDeviance, ConcordanceScore,
)  # fmt: skip


def names_for(family: Any) -> tuple[str, ...]:
    """Return the names of the scores of a family.

    >>> names_for("binomial"), names_for("poisson")
    (('deviance', 'brier', 'accuracy', 'auc'), ('deviance', 'mse', 'mae'))
    """
    return tuple(kind.name for kind in KINDS if outcome_of(family) in kind.outcomes)


def by_name(name: str, family: Any) -> Score:
    """Return a score.

    Parameters
    ----------
    name
        ``"deviance"``, ``"brier"``, ``"accuracy"``, ``"auc"``, ``"mse"``, ``"mae"`` or ``"concordance"``.
    family
        One of :mod:`fpdfp.families` or its name, or ``"multinomial"``, ``"ordinal"`` or ``"cox"``.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> score = fpdfp.scores.by_name("brier", "binomial")
    >>> north = score.sums(np.array([0.5, -1.0, 2.0]), np.array([1, 0, 1]), None, "binomial")
    >>> south = score.sums(np.array([0.0, 0.3]), np.array([1, 0]), None, "binomial")
    >>> round(score.finish(north + south).value, 4)
    0.1618
    """
    accepted = names_for(family)
    if not isinstance(name, str) or name not in accepted:
        shown = family if isinstance(family, str) else family.name
        raise ArgumentError("name", f"must be one of {', '.join(accepted)} for the family {shown}, got {name!r}")
    return next(kind for kind in KINDS if kind.name == name and outcome_of(family) in kind.outcomes)()
