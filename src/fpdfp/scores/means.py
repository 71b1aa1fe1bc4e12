"""Scores that are means over rows: the deviance, Brier's score, accuracy, squared and absolute errors."""

from __future__ import annotations

import abc
import math
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.scores.base import NOTHING, Estimate, Score, as_family, log_chances, outcome_of, read_rows


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
    """The mean unit deviance: of classes −2 log of the chance of a row's class, of numbers that of the family."""

    name, greater_is_better, outcomes = "deviance", False, ("binary", "numbers", "classes")

    def _rows(self, z: Array, y: Array, family: Any) -> Array:
        known = as_family(family)
        return 2.0 * known.functions.value(z, y, known.parameters)

    def _classes(self, logarithms: Array, y: Array) -> Array:
        return -2.0 * logarithms[np.arange(len(y)), y]


class Brier(MeanScore):
    """The mean squared distance of chances from what happened, of several classes summed over these.

    A share of successes counts as so many rows with an event, and so many without.
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
    """Return the numbers of classes; refuse what is none."""
    codes = y.astype(np.int64)
    if (codes != y).any() or (len(codes) and not 0 <= codes.min() <= codes.max() < classes):
        raise ArgumentError("y", f"must be numbers of classes from 0 to {classes - 1}")
    return codes
