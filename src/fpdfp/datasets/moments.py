"""Means and covariances that clients sum without moving their rows."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray


@dataclasses.dataclass(frozen=True)
class Moments:
    r"""What a client tells of its rows: their number, their mean, and their scatter about that mean.

    .. math:: n, \qquad m = \tfrac1n \sum_j a_j, \qquad S = \sum_j (a_j - m)(a_j - m)^T

    They are sufficient for the covariance of all rows together: ``+`` merges those of two clients, by the update of
    Chan, Golub and LeVeque, which does not lose digits where means are large.

    References
    ----------
    T. F. Chan, G. H. Golub and R. J. LeVeque, "Algorithms for computing the sample variance: analysis and
    recommendations", The American Statistician 37 (1983).

    Examples
    --------
    >>> import numpy as np
    >>> here, there = np.array([[1.0, 0.0], [3.0, 2.0]]), np.array([[5.0, 1.0]])
    >>> (Moments.of(here) + Moments.of(there)).covariance.round(6)
    array([[2.666667, 0.666667],
           [0.666667, 0.666667]])
    >>> np.cov(np.concatenate([here, there]), rowvar=False, bias=True).round(6)
    array([[2.666667, 0.666667],
           [0.666667, 0.666667]])
    """

    count: int
    mean: Array
    scatter: Array

    @classmethod
    def of(cls, X: Any) -> Moments:
        """Return the moments of rows, dense or sparse."""
        from threadpoolctl import threadpool_limits

        count = X.shape[0]
        # With one thread BLAS rounds the same way on any number of cores.
        with threadpool_limits(1, user_api="blas"):
            if hasattr(X, "tocsr"):
                mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
                second = (X.T @ X).toarray().astype(np.float64)
                return cls(count, mean, second - count * np.outer(mean, mean))
            dense = np.asarray(X, dtype=np.float64)
            mean = dense.mean(axis=0)
            centred = dense - mean
            return cls(count, mean, centred.T @ centred)

    @classmethod
    def of_clients(cls, X: Any, clients: IntArray) -> list[Moments]:
        """Return the moments of each client's rows, in the order of client numbers."""
        order = np.argsort(clients, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(clients[order])) + 1)
        return [cls.of(X[rows]) for rows in parts]

    def __add__(self, other: Moments) -> Moments:
        if len(self.mean) != len(other.mean):
            raise ValueError(f"moments must be of as many features, got {len(self.mean)} and {len(other.mean)}")
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + other.count / count * apart
        scatter = self.scatter + other.scatter + self.count * other.count / count * np.outer(apart, apart)
        return Moments(count, mean, scatter)

    @classmethod
    def total(cls, parts: list[Moments]) -> Moments:
        """Return the moments of all clients together, merged in the order given."""
        return functools.reduce(lambda a, b: a + b, parts)

    @property
    def covariance(self) -> Array:
        """The covariance, with 1/n."""
        covariance: Array = self.scatter / self.count
        return covariance

    @property
    def numbers(self) -> int:
        """How many numbers a client sends: the number of rows, a mean, and the lower triangle of the scatter."""
        d = len(self.mean)
        return 1 + d + d * (d + 1) // 2


def check_rows(X: Any) -> Any:
    """Return rows of features as a CSR array or a dense float64 one; refuse what is not finite."""
    if hasattr(X, "tocsr"):
        rows = X.tocsr()
        _checks.finite("the stored entries of X", np.asarray(rows.data, dtype=np.float64))
        return rows
    return _checks.float_array("X", X, dtype=np.float64)
