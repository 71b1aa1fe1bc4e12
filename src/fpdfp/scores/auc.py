r"""The area under the ROC curve, from histograms of the linear predictor.

Let cell b of the linear predictor have :math:`p_b` of P events and :math:`n_b` of N other rows. Pairs of an event and
another row in different cells are in the order of their cells. Pairs in the same cell count one half, so the area is
off by at most :math:`\frac12 \sum_b p_b n_b/(PN)`, which is :attr:`Estimate.bound`. Cells that hold a single number
add nothing to it: their rows are tied, and half is right.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.inference.histograms import ScoreHistogram, check_edges, hold_one_number
from fpdfp.inference.roc import find_area
from fpdfp.scores.base import NOTHING, Estimate, Score, log_chances, outcome_of, read_rows

#: Cells of equal width between −REACH and REACH, and one beyond each end.
REACH, CELLS = 8.0, 1024
#: A bound that is small enough, and how many edges are added to come there.
TOLERANCE, ADDED = 1e-3, 2048
#: The log-odds of chances that are 0 or 1 up to rounding.
LARGE = 1e300


class AUC(Score):
    """The area under the ROC curve, ties counted one half; of several classes the mean of each against all others.

    Sums are the weight of events and of other rows in each cell, and the sums of squares of both weights. The standard
    error is DeLong's for the binned predictor (with weights see :func:`fpdfp.inference.roc_curve`); of several classes
    the mean over them, which is not too small.

    Parameters
    ----------
    edges
        The edges between cells, by default 1,025 from −8 to 8. For any predictor there are edges for which the bound is
        at most 1e-3. :meth:`refine` finds them, as a rule in one further exchange. It takes more where many rows have
        the same prediction, until that has a cell of its own.

    Examples
    --------
    >>> import numpy as np
    >>> score = AUC()
    >>> sums = score.sums(np.array([-2.0, -0.5, -0.4, 1.5]), np.array([0, 0, 1, 1]), None, "binomial")
    >>> score.finish(sums).value, score.finish(sums).bound
    (1.0, 0.0)
    """

    name, greater_is_better, outcomes = "auc", True, ("binary", "classes")

    def __init__(self, edges: Any = None) -> None:
        usual = np.linspace(-REACH, REACH, CELLS + 1)
        self.edges = usual if edges is None else check_edges(edges)
        if not np.isfinite(self.edges).all():
            raise ArgumentError("edges", "must be finite: what is beyond them has cells of its own")

    def __repr__(self) -> str:
        return f"AUC({len(self.edges) + 1} cells)"

    def sums(self, eta: Array, y: Any, weights: Array | None, family: Any) -> Array:
        classes = outcome_of(family) == "classes"
        z, targets, w = read_rows(eta, y, weights, classes=classes)
        if not classes:
            return self._count(z, targets, w)
        logarithms = log_chances(z)
        with np.errstate(divide="ignore"):
            odds = np.clip(logarithms - np.log(-np.expm1(logarithms)), -LARGE, LARGE)
        parts = [self._count(odds[:, k], (targets == k).astype(np.float64), w) for k in range(z.shape[1])]
        return np.concatenate(parts)

    def _count(self, z: Array, y: Array, w: Array) -> Array:
        """Return the sums of two classes."""
        if len(y) and not 0.0 <= y.min() <= y.max() <= 1.0:
            raise ArgumentError("y", "must be 0 or 1, or shares from 0 to 1")
        cell, count = np.searchsorted(self.edges, z, side="right"), len(self.edges) + 1
        both = (w * y, w * (1.0 - y))
        squares = [float((one**2).sum()) for one in both]
        return np.concatenate([*(np.bincount(cell, one, count) for one in both), squares])

    def _split(self, sums: Array) -> Array:
        """Return the sums of each class against the others, a row for each."""
        length = 2 * (len(self.edges) + 1) + 2
        given = _checks.float_array("sums", sums, dtype=np.float64)
        if given.ndim != 1 or len(given) % length or not len(given):
            raise ArgumentError("sums", f"must be of this score: {length} numbers for each class, got {given.shape}")
        return given.reshape(-1, length)

    @property
    def _cells(self) -> tuple[Array, Array]:
        return np.concatenate([[-np.inf], self.edges]), np.concatenate([self.edges, [np.inf]])

    def finish(self, sums: Array) -> Estimate:
        found = [self._finish(one) for one in self._split(sums)]
        # NaN of a class that no row has, or all, is that of the mean.
        return Estimate(*(float(np.mean(column)) for column in zip(*found, strict=True)))

    def _finish(self, sums: Array) -> Estimate:
        count = len(self.edges) + 1
        positives, negatives, squares = sums[:count], sums[count:-2], sums[-2:]
        if not positives.any() or not negatives.any():
            return NOTHING
        whole = positives + negatives
        histogram = ScoreHistogram(*self._cells, positives, negatives, np.zeros(count), whole)
        effective = (positives.sum() ** 2 / squares[0], negatives.sum() ** 2 / squares[1])
        return Estimate(*find_area(histogram, effective))

    def refine(self, sums: Array) -> Self | None:
        """Return the score with more cells where many pairs share one; None if the bound is at most 1e-3.

        The cells with the most pairs are divided, into the more parts the more pairs they have. Half of the new edges
        are evenly spaced, and half divide the numbers that float64 has there: so every cell comes down to one number in
        few steps, wherever it is.
        """
        bound = self.finish(sums).bound
        if not bound > TOLERANCE:
            return None
        parts, count = self._split(sums), len(self.edges) + 1
        positives, negatives = parts[:, :count], parts[:, count:-2]
        pairs = (positives * negatives / (positives.sum(axis=1) * negatives.sum(axis=1))[:, None]).mean(axis=0) / 2.0
        lower, upper = self._cells
        pairs = np.where(hold_one_number(lower, upper), 0.0, pairs)
        # Those that are left as they are have a quarter of the tolerance together.
        order = np.argsort(-pairs, kind="stable")
        kept = pairs.sum() - np.cumsum(pairs[order])
        heavy = order[: int(np.searchsorted(-kept, -TOLERANCE / 4.0)) + 1]
        shares = np.sqrt(pairs[heavy])
        extra = np.ceil(ADDED * shares / shares.sum()).astype(np.int64)
        added = [divide(lower[b], upper[b], int(n)) for b, n in zip(heavy.tolist(), extra, strict=True)]
        edges = np.unique(np.concatenate([self.edges, *added]))
        return type(self)(edges) if len(edges) > len(self.edges) else None


def exact_area(eta: Array, y: Array, weights: Array | None) -> Estimate:
    """Return the area of rows in one place, by sorting; y may be shares.

    >>> exact_area(np.array([0.1, 0.4, 0.35, 0.4]), np.array([0, 0, 1, 1]), None)[:2]
    (0.625, 0.0)
    """
    w = np.ones(len(y)) if weights is None else weights
    both = (w * y, w * (1.0 - y))
    if not both[0].any() or not both[1].any():
        return NOTHING
    numbers, place = np.unique(eta, return_inverse=True)
    positives, negatives = (np.bincount(place, one) for one in both)
    with np.errstate(over="ignore"):
        upper = np.nextafter(numbers, np.inf)
    effective = [float(one.sum() ** 2 / (one**2).sum()) for one in both]
    histogram = ScoreHistogram(numbers, upper, positives, negatives, np.zeros(len(numbers)), positives + negatives)
    return Estimate(*find_area(histogram, (effective[0], effective[1])))


def divide(lower: float, upper: float, count: int) -> Array:
    """Return numbers inside a cell: some evenly spaced, and some evenly among the numbers that float64 has there.

    >>> divide(0.0, 1.0, 2).tolist()
    [1.118751109680031e-154, 0.5]
    """
    half = max(count // 2, 1)
    first, last = (int(one) for one in _order_of(np.array([lower, upper])))
    steps = np.array([first + (last - first) * j // (half + 1) for j in range(1, half + 1)], dtype=np.int64)
    found = _number_at(steps)
    if np.isfinite([lower, upper]).all():
        found = np.concatenate([found, lower + (upper - lower) * (np.arange(1, half + 1) / (half + 1))])
    inside: Array = np.unique(found[(found > lower) & (found < upper)])
    return inside


def _order_of(numbers: Array) -> IntArray:
    """Return integers in the order of numbers, one more for each next number of float64."""
    bits = (numbers + 0.0).view(np.int64)  # the zero without a sign
    return np.where(bits >= 0, bits, np.iinfo(np.int64).min - bits)


def _number_at(order: IntArray) -> Array:
    """Return the numbers of these integers."""
    bits = np.where(order >= 0, order, np.iinfo(np.int64).min - order)
    return bits.view(np.float64)
