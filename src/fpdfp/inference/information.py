"""The sums of a site that inference needs, at the coefficients of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, ArgumentTypeError

#: A Hessian with ones on the diagonal and an eigenvalue below this has columns that determine one another.
SINGULAR = 1e-13


@dataclass(frozen=True)
class Information:
    """The sums of one site, or of several: they add up with ``+`` and ``sum``.

    Let η be the linear predictor, μ the mean, μ′ its derivative in η, V the variance function, a a row, w its weight.
    Then the score of a row is s = w (y − μ) μ′/V(μ) a. It is the gradient of the row's log-likelihood times the
    dispersion.

    Parameters
    ----------
    rows
        The rows that were used.
    weight
        The sum of their weights.
    log_likelihood
        At dispersion 1; of Cox models the partial one. NaN if unknown.
    deviance
        The sum of the unit deviances times the weights.
    pearson
        Σ w (y − μ)²/V(μ); NaN if it has no meaning.
    score
        Σ s, shape (p,).
    hessian
        Σ w μ′²/V a aᵀ, shape (p, p): the expected information times the dispersion, without a penalty.
    meat
        Σ s sᵀ, shape (p, p), for robust errors. None if the site does not send it.
    null_deviance
        The deviance of the model with the intercept alone. None if it was not requested.

    Examples
    --------
    >>> north = Information(5, 5.0, -3.0, 6.0, 5.5, np.zeros(1), np.array([[2.0]]))
    >>> both = north + north
    >>> both.rows, both.hessian.tolist()
    (10, [[4.0]])
    """

    rows: int
    weight: float
    log_likelihood: float
    deviance: float
    pearson: float
    score: Array
    hessian: Array
    meat: Array | None = None
    null_deviance: float | None = None

    def __post_init__(self) -> None:
        _checks.integer("rows", self.rows, at_least=0)
        score = _checks.float_array("score", self.score, dtype=np.float64)
        if score.ndim != 1:
            raise ArgumentError("score", f"must have one entry for each coefficient, got shape {score.shape}")
        square = (len(score), len(score))
        object.__setattr__(self, "score", score)
        object.__setattr__(self, "hessian", _checks.float_array("hessian", self.hessian, shape=square))
        if self.meat is not None:
            object.__setattr__(self, "meat", _checks.float_array("meat", self.meat, shape=square))

    @classmethod
    def of_rows(
        cls,
        X: Any,
        slopes: Array,
        curvatures: Array,
        *,
        weight: float,
        log_likelihood: float = np.nan,
        deviance: float = np.nan,
        pearson: float = np.nan,
        null_deviance: float | None = None,
        robust: bool = True,
    ) -> Information:
        """Return the sums over rows of a matrix, dense or sparse, which has a column of ones if there is an intercept.

        Parameters
        ----------
        X
            The rows, shape (n, p).
        slopes, curvatures
            w (y − μ) μ′/V(μ) and w μ′²/V(μ) of each row.
        weight, log_likelihood, deviance, pearson, null_deviance
            As above.
        robust
            Whether to make the sum for robust errors.
        """
        matrix = X.tocsr() if hasattr(X, "tocsr") else _checks.float_array("X", X, dtype=np.float64)
        slopes = _checks.float_array("slopes", slopes, shape=(matrix.shape[0],), dtype=np.float64)
        curvatures = _checks.float_array("curvatures", curvatures, shape=(matrix.shape[0],), dtype=np.float64)
        return cls(
            rows=matrix.shape[0],
            weight=float(weight),
            log_likelihood=float(log_likelihood),
            deviance=float(deviance),
            pearson=float(pearson),
            score=matrix.T @ slopes,
            hessian=_gram(matrix, curvatures),
            meat=_gram(matrix, slopes**2) if robust else None,
            null_deviance=null_deviance,
        )

    def __add__(self, other: Information) -> Information:
        if not isinstance(other, Information):
            return NotImplemented
        if len(self.score) != len(other.score):
            raise ValueError(f"models of {len(self.score)} and of {len(other.score)} coefficients do not add up")
        return Information(
            rows=self.rows + other.rows,
            weight=self.weight + other.weight,
            log_likelihood=self.log_likelihood + other.log_likelihood,
            deviance=self.deviance + other.deviance,
            pearson=self.pearson + other.pearson,
            score=self.score + other.score,
            hessian=self.hessian + other.hessian,
            meat=None if self.meat is None or other.meat is None else self.meat + other.meat,
            null_deviance=None
            if self.null_deviance is None or other.null_deviance is None
            else self.null_deviance + other.null_deviance,
        )

    def __radd__(self, other: object) -> Information:
        if other == 0:  # where sum() begins
            return self
        return NotImplemented

    @property
    def parameters(self) -> int:
        """The number of coefficients."""
        return len(self.score)

    def change(self, matrix: Array) -> Information:
        """Return the sums for the coefficients T z, where the present ones are z.

        This takes sums of standardised features back to features as they were given.

        Parameters
        ----------
        matrix
            T, of shape (p, p).

        Examples
        --------
        A feature in metres has a coefficient a thousand times as large as the feature in millimetres:

        >>> site = Information(5, 5.0, -3.0, 6.0, 5.5, np.array([1.0]), np.array([[2.0]]))
        >>> site.change(np.array([[1000.0]])).hessian.tolist()
        [[2e-06]]
        """
        matrix = _checks.float_array("matrix", matrix, shape=(self.parameters, self.parameters), dtype=np.float64)
        try:
            back = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            raise ArgumentError("matrix", "must be invertible") from None
        return replace(
            self,
            score=back.T @ self.score,
            hessian=_symmetric(back.T @ self.hessian @ back),
            meat=None if self.meat is None else _symmetric(back.T @ self.meat @ back),
        )

    def take(self, columns: Sequence[int]) -> Information:
        """Return the sums of some coefficients, in a given order: also a way to reorder them.

        If some are excluded, the sums belong to the model with the others unchanged.
        """
        chosen = np.asarray(columns, dtype=np.int64)
        square = np.ix_(chosen, chosen)
        meat = None if self.meat is None else self.meat[square]
        return replace(self, score=self.score[chosen], hessian=self.hessian[square], meat=meat)

    def dispersion(self) -> float:
        """Return Pearson's estimate, Σ w (y − μ)²/V(μ) / (n − p).

        >>> Information(5, 5.0, -3.0, 6.0, 5.5, np.zeros(1), np.array([[2.0]])).dispersion()
        1.375
        """
        if self.rows <= self.parameters:
            raise ArgumentError(
                "rows",
                f"must be more than the {self.parameters} coefficients to estimate the dispersion, got {self.rows}",
            )
        return self.pearson / (self.rows - self.parameters)

    def invert(self, names: Sequence[str] | None = None) -> Array:
        """Return the inverse of the Hessian.

        Columns that determine one another have none and are refused by ``names``.
        """
        return invert(self.hessian, names)


def as_sites(sites: Information | Sequence[Information]) -> list[Information]:
    """Return the sums of the sites as a list; a single one covers all."""
    found = [sites] if isinstance(sites, Information) else list(sites)
    if not found:
        raise ArgumentError("sites", "must have the sums of at least one site")
    for one in found:
        if not isinstance(one, Information):
            raise ArgumentTypeError("sites", f"must be Information, or a list of it, got {_checks.kind(one)}")
    return found


def add_up(sites: Information | Sequence[Information]) -> Information:
    """Return the sums over all sites."""
    first, *others = as_sites(sites)
    return sum(others, first)


def invert(matrix: Array, names: Sequence[str] | None = None) -> Array:
    """Return the inverse of a positive definite matrix; refuse one in which columns determine one another, by name.

    >>> invert(np.array([[2.0, 0.0], [0.0, 4.0]])).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    names = [f"column {j}" for j in range(len(matrix))] if names is None else names
    diagonal = np.diag(matrix)
    if not (diagonal > 0).all():
        empty = [names[j] for j in np.flatnonzero(~(diagonal > 0)).tolist()]
        raise ArgumentError("hessian", f"has no information on {', '.join(empty)}: exclude it, or use a penalty")
    scale = 1.0 / np.sqrt(diagonal)
    values, vectors = np.linalg.eigh(matrix * np.outer(scale, scale))
    if values[0] < SINGULAR * len(matrix):
        weights = np.abs(vectors[:, 0])
        involved = [names[j] for j in np.flatnonzero(weights > 1e-4 * weights.max()).tolist()]
        raise ArgumentError(
            "hessian",
            f"is singular: {', '.join(involved)} determine one another, so their coefficients have no standard errors; "
            "leave one of them out",
        )
    return _symmetric((vectors / values) @ vectors.T * np.outer(scale, scale))


def _gram(matrix: Any, weights: Array) -> Array:
    """Return Σ w a aᵀ over the rows of a matrix."""
    if hasattr(matrix, "multiply"):
        return np.asarray((matrix.T @ matrix.multiply(weights[:, None]).tocsr()).toarray())
    return _symmetric(matrix.T @ (matrix * weights[:, None]))


def _symmetric(matrix: Array) -> Array:
    """Take off what rounding made different in the two halves."""
    halved: Array = (matrix + matrix.T) / 2.0
    return halved
