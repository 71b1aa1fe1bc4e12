"""Ordered classes: cumulative chances with proportional odds."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError
from fpdfp.losses._classes import ClassModel, Pairs, gram
from fpdfp.losses.base import Form

Link = Literal["logit", "probit"]


class Interval(NamedTuple):
    """−log(F(u) − F(l)) with its derivatives in the ends u and l of an interval."""

    value: Array
    upper: Array
    lower: Array
    upper_upper: Array
    lower_lower: Array
    upper_lower: Array


class Cumulative(abc.ABC):
    """A distribution function F."""

    @abc.abstractmethod
    def chances(self, z: Array) -> Array:
        """Return F(z)."""

    @abc.abstractmethod
    def quantiles(self, shares: Array) -> Array:
        """Return where F has some values."""

    @abc.abstractmethod
    def interval(self, upper: Array, lower: Array) -> Interval:
        """Return the loss of rows between two ends, of which the upper may be ∞ and the lower −∞."""


class Logit(Cumulative):
    """The logistic distribution: F(u) − F(l) = F(u) F(−l) (1 − exp(l − u)), so that nothing cancels."""

    def chances(self, z: Array) -> Array:
        from scipy.special import expit

        return np.asarray(expit(z))

    def quantiles(self, shares: Array) -> Array:
        from scipy.special import logit

        return np.asarray(logit(shares))

    def interval(self, upper: Array, lower: Array) -> Interval:
        from scipy.special import expit, log_expit

        gap = upper - lower
        value = -log_expit(upper) - log_expit(-lower) - np.log(-np.expm1(-gap))
        near = 1.0 / np.expm1(gap)
        both = near + near**2
        return Interval(
            np.where(gap > 0, value, np.inf), -expit(-upper) - near, expit(lower) + near,
            expit(upper) * expit(-upper) + both, expit(lower) * expit(-lower) + both, -both,
        )  # fmt: skip


class Probit(Cumulative):
    """The normal distribution; intervals above 0 are reflected, so that digits are kept."""

    def chances(self, z: Array) -> Array:
        from scipy.special import ndtr

        return np.asarray(ndtr(z))

    def quantiles(self, shares: Array) -> Array:
        from scipy.special import ndtri

        return np.asarray(ndtri(shares))

    def interval(self, upper: Array, lower: Array) -> Interval:
        from scipy.special import log_ndtr

        right = lower > 0
        most, least = log_ndtr(np.where(right, -lower, upper)), log_ndtr(np.where(right, -upper, lower))
        chance = most + np.log(-np.expm1(np.minimum(least - most, 0.0)))
        ends = [np.where(np.isfinite(end), end, 0.0) for end in (upper, lower)]
        at_upper, at_lower = (
            np.where(np.isfinite(given), np.exp(-0.5 * end**2 - 0.5 * np.log(2.0 * np.pi) - chance), 0.0)
            for given, end in zip((upper, lower), ends, strict=True)
        )
        return Interval(
            np.where(upper > lower, -chance, np.inf), -at_upper, at_lower, ends[0] * at_upper + at_upper**2,
            -ends[1] * at_lower + at_lower**2, -at_upper * at_lower,
        )  # fmt: skip


LINKS: dict[str, Cumulative] = {"logit": Logit(), "probit": Probit()}


class Ordinal(ClassModel):
    r"""Losses of ordered classes with proportional odds and a ridge, one for each client; x is a vector.

    .. math:: f_i(x) = -\frac{1}{n_i} \sum_j w_j \log\big( F(\theta_{y_j} - a_j^T b - o_j)
              - F(\theta_{y_j - 1} - a_j^T b - o_j) \big) + \frac{1}{2} \sum_m l_{2,m} b_m^2

    with thresholds :math:`-\infty = \theta_{-1} < \theta_0 < \dots < \theta_{K-1} = \infty` between K classes and F the
    logistic or the normal distribution function: a row is in one of the classes up to k with chance
    :math:`F(\theta_k - a_j^T b)`, as in ``polr`` of R's MASS. Rows need no intercept.

    x has the coefficients b, and then how much each threshold differs from :attr:`base`, so that x = 0 is in the
    domain. Losses are convex, and infinite where thresholds are not increasing: :class:`fpdfp.ProximalNewton` makes
    shorter steps there.

    Parameters
    ----------
    X
        The rows of all clients: a dense matrix or a SciPy sparse one.
    y
        Their classes, integers from 0 for the lowest.
    clients
        Which client holds each row: any labels, numbered in sorted order. None means one client.
    l2
        The weight of the ridge: a number, or one for each feature; thresholds have none.
    n_clients
        If given, ``clients`` must be integers below it, and each must hold a row.
    link
        ``"logit"`` or ``"probit"``.
    n_classes
        The number of classes; by default as many as ``y`` has. Needed where a class has no rows.
    weights, weight_scale
        As in :class:`Multinomial`.
    offset
        What is added to the linear form of each row.
    feature_names
        The names of the columns; by default those of a table. Sites of one federation must agree on them.

    References
    ----------
    P. McCullagh, "Regression models for ordinal data", J. R. Stat. Soc. B 42 (1980). J. W. Pratt, "Concavity of the log
    likelihood", JASA 76 (1981).

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.Ordinal(np.array([[1.0], [-1.0], [1.0], [1.0]]), [0, 1, 1, 2], l2=1e9)
    >>> losses
    Ordinal(logit, dense 4 × 1, 3 classes, 1 clients, l2=1e+09)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    >>> x = fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=50, tol=1e-10).x
    >>> losses.thresholds(x).round(4)  # a quarter is below the first, and three quarters below the second
    array([-1.0986,  1.0986])
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        clients: Any = None,
        l2: Any = 0.0,
        n_clients: int | None = None,
        *,
        link: Link = "logit",
        n_classes: int | None = None,
        weights: Any = None,
        weight_scale: float = 1.0,
        offset: Any = None,
        feature_names: Sequence[str] | None = None,
    ) -> None:
        _checks.choice("link", link, tuple(LINKS))
        self.link = link
        self._begin(X, y, clients, l2, n_clients, n_classes, weights, weight_scale, offset, feature_names)
        #: The thresholds at x = 0: those of classes with the same chance.
        self.base = base_of(self.link, self.n_classes)

    def __repr__(self) -> str:
        return super().__repr__().replace("Ordinal(", f"Ordinal({self.link}, ", 1)

    @property
    def family(self) -> str:
        return f"Ordinal({self.link})"

    @property
    def form(self) -> Form:
        return "other"

    def thresholds(self, x: Array) -> Array:
        """Return the thresholds between classes."""
        found: Array = self.base + x[self.n_features :]
        return found

    def _length(self, features: int) -> int:
        return features + self.n_classes - 1

    def predictors(self, x: Array, rows: slice = slice(None)) -> Array:
        z = np.asarray(self._rows.X[rows] @ x[: self.n_features], dtype=np.float64)
        if self._rows.shifts is not None:
            z = z + self._rows.shifts[rows]
        found: Array = self.thresholds(x) - z[:, None]
        return found

    def class_forms(self, x: Array, rows: slice = slice(None)) -> Array:
        z = self.predictors(x, rows)
        ends = np.concatenate([np.full((len(z), 1), -np.inf), z, np.full((len(z), 1), np.inf)], axis=1)
        with np.errstate(all="ignore"):
            return -LINKS[self.link].interval(ends[:, 1:], ends[:, :-1]).value

    def restrict(self, features: IntArray) -> Self:
        """Return the losses as functions of some entries of x: some features, and all thresholds."""
        kept, count = np.asarray(features), self.n_classes - 1
        if not np.array_equal(kept[kept >= self.n_features], np.arange(self.n_features, self.n_features + count)):
            raise ArgumentError("features", "must have all thresholds among them")
        return self._restrict_columns(kept[kept < self.n_features])

    def _entry_names(self, columns: Sequence[str]) -> list[str]:
        return [*columns, *(f"{k}|{k + 1}" for k in range(self.n_classes - 1))]

    @property
    def smooth(self) -> bool:
        return False

    def lipschitz(self) -> Array:
        return np.full(self.n_clients, np.inf)

    def _ridge_of(self) -> Array:
        return np.concatenate([self._ridge, np.zeros(self.n_classes - 1)])

    def _interval(self, z: Array, y: IntArray) -> Interval:
        rows = np.arange(len(y))
        whole = np.concatenate([np.full((len(y), 1), -np.inf), z, np.full((len(y), 1), np.inf)], axis=1)
        with np.errstate(all="ignore"):
            return LINKS[self.link].interval(whole[rows, y + 1], whole[rows, y])

    def _losses_of(self, z: Array, y: IntArray) -> Array:
        found = self._interval(z, y).value
        # Also thresholds between which there is no row must be in order.
        return np.where((np.diff(z, axis=1) > 0).all(axis=1), found, np.inf)

    def _slopes_of(self, z: Array, y: IntArray) -> Array:
        found, rows = self._interval(z, y), np.arange(len(y))
        slopes = np.zeros((len(y), self.n_classes + 1))
        slopes[rows, y + 1], slopes[rows, y] = found.upper, found.lower
        return slopes[:, 1:-1]

    def _bends_of(self, z: Array, y: IntArray) -> Pairs:
        found = self._interval(z, y)

        def bend(a: int, b: int) -> Array:
            # Threshold k is the upper end of class k, and the lower end of class k + 1.
            if a == b:
                return np.where(y == a, found.upper_upper, np.where(y == a + 1, found.lower_lower, 0.0))
            return np.where(y == max(a, b), found.upper_lower, 0.0) if abs(a - b) == 1 else np.zeros(len(y))

        return bend

    def _collect(self, X: Any, slopes: Array) -> Array:
        return np.concatenate([-(X.T @ slopes.sum(axis=1)), slopes.sum(axis=0)])

    def _collect_pairs(self, X: Any, bends: Pairs) -> Array:
        count, d = self.n_classes - 1, X.shape[1]
        out = np.zeros((d + count, d + count))
        whole = np.zeros(X.shape[0])
        for a in range(count):
            row = np.zeros(X.shape[0])
            for b in range(count):
                found = bends(a, b)
                out[d + a, d + b] = found.sum()
                row += found
            out[d + a, :d] = out[:d, d + a] = -(X.T @ row)
            whole += row
        out[:d, :d] = gram(X, whole)
        return out


def base_of(link: Link, classes: int) -> Array:
    """Return the thresholds between so many classes of the same chance.

    >>> base_of("logit", 2)
    array([0.])
    """
    return LINKS[link].quantiles(np.arange(1, classes) / classes)
