"""Means and covariances that clients sum without moving their rows."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._numbers import one_thread
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError

#: Rows that are centred at a time.
ROWS = 4096


@dataclasses.dataclass(frozen=True)
class Moments:
    r"""Moments of a client's rows: their number, their mean, and their scatter about that mean.

    .. math:: n, \qquad m = \tfrac1n \sum_j a_j, \qquad S = \sum_j (a_j - m)(a_j - m)^T

    With weights n is their sum, and each term of a sum has its weight. Moments are sufficient for the covariance of all
    rows together: ``+`` merges the moments of two clients, by the update of Chan, Golub and LeVeque, which does not
    lose digits where means are large. Where variances are all that is wanted, ``scatter`` is its diagonal.

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

    count: float
    mean: Array
    scatter: Array

    @classmethod
    def of(cls, X: Any, *, weights: Array | None = None, diagonal: bool = False) -> Moments:
        """Return the moments of rows, dense or sparse; with ``diagonal`` the diagonal of the scatter alone."""
        X = check_rows(X)
        rows, d = X.shape
        own = None if weights is None else _checks.float_array("weights", weights, dtype=np.float64, shape=(rows,))
        count = rows if own is None else float(own.sum())
        if own is not None and (own.min() < 0 or not count > 0):
            raise ArgumentError("weights", "must be at least 0 for all rows, and positive for some")
        if diagonal and hasattr(X, "tocsr"):
            return cls._of_sparse_columns(X.tocsc(), own, count)
        mean = np.asarray(X.mean(axis=0) if own is None else own @ X / count, dtype=np.float64).ravel()
        scatter = np.zeros(d if diagonal else (d, d))
        # Blocks of centred rows: the difference of second moments and means would lose digits where means are large.
        with one_thread():
            for first in range(0, rows, ROWS):
                some = X[first : first + ROWS]
                centred = (some.toarray() if hasattr(some, "tocsr") else np.asarray(some, dtype=np.float64)) - mean
                if own is not None:
                    centred *= np.sqrt(own[first : first + ROWS])[:, None]
                scatter += np.square(centred).sum(axis=0) if diagonal else centred.T @ centred
        return cls(count, mean, scatter)

    @classmethod
    def _of_sparse_columns(cls, X: Any, weights: Array | None, count: float) -> Moments:
        """Mean and scatter of each column, without filling in the zeros."""
        d = X.shape[1]
        column = np.repeat(np.arange(d), np.diff(X.indptr))
        own = np.ones(len(column)) if weights is None else weights[X.indices]
        stored = np.bincount(column, own, minlength=d)
        mean = np.bincount(column, own * X.data, minlength=d) / count
        centred = np.bincount(column, own * np.square(X.data - mean[column]), minlength=d)
        return cls(count, mean, centred + np.maximum(count - stored, 0.0) * mean**2)

    @classmethod
    def of_clients(
        cls, X: Any, clients: IntArray, *, weights: Array | None = None, diagonal: bool = False
    ) -> list[Moments]:
        """Return the moments of each client's rows, in the order of client numbers."""
        X = check_rows(X)
        _, clients = _checks.labels("clients", clients)
        if clients.shape != X.shape[:1]:
            raise ValueError(f"clients must have one entry for each of the {X.shape[0]} rows of X, got {clients.shape}")
        order = np.argsort(clients, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(clients[order])) + 1)
        own = [None if weights is None else np.asarray(weights)[rows] for rows in parts]
        return [cls.of(X[rows], weights=one, diagonal=diagonal) for rows, one in zip(parts, own, strict=True)]

    def __add__(self, other: Moments) -> Moments:
        if self.scatter.shape != other.scatter.shape:
            raise ValueError(
                f"moments must have the same number of features, got {len(self.mean)} and {len(other.mean)}"
            )
        count = self.count + other.count
        apart = other.mean - self.mean
        mean = self.mean + other.count / count * apart
        between = np.square(apart) if self.scatter.ndim == 1 else np.outer(apart, apart)
        return Moments(count, mean, self.scatter + other.scatter + self.count * other.count / count * between)

    @classmethod
    def total(cls, parts: list[Moments]) -> Moments:
        """Return the moments of all clients together, merged in the order given."""
        if not parts:
            raise ValueError("parts must hold the moments of at least one client, got none")
        return functools.reduce(lambda a, b: a + b, parts)

    @property
    def covariance(self) -> Array:
        """The covariance, with 1/n."""
        covariance: Array = self.scatter / self.count
        return covariance

    @property
    def variance(self) -> Array:
        """The variance of each feature, with 1/n."""
        variance: Array = (self.scatter if self.scatter.ndim == 1 else np.diag(self.scatter)) / self.count
        return variance

    @property
    def numbers(self) -> int:
        """The count of numbers that a client sends: the number of rows, a mean, the lower triangle of the scatter."""
        d = len(self.mean)
        return 1 + d + (d if self.scatter.ndim == 1 else d * (d + 1) // 2)


def check_rows(X: Any) -> Any:
    """Return rows of features as a CSR array or a dense float64 one; refuse what is not finite."""
    if hasattr(X, "tocsr"):
        rows = X.tocsr().astype(np.float64)
        rows.sum_duplicates()
        _checks.finite("the stored entries of X", rows.data)
    else:
        rows = _checks.float_array("X", X, dtype=np.float64)
    if rows.ndim != 2 or 0 in rows.shape:
        raise ArgumentError("X", f"must have rows and columns, got shape {rows.shape}")
    return rows
