r"""Releases: sums over rows with noise, each of which has a price μ.

A row (a, y) adds at most the *sensitivity* S to a sum, in Euclidean norm, since no row is longer than the radius R:

==============  =======================================================  =============================
release         sum                                                      sensitivity
==============  =======================================================  =============================
``moments``     Σ aaᵀ                                                    R²
``gradient``    Σ ∇ℓ(⟨a, x⟩, y) a, logistic loss                          R
``hessian``     Σ ℓ″(⟨a, x⟩, y) aaᵀ, logistic loss                        R²/4
``statistics``  logistic: Σ aaᵀ and Σ ya; squares: Σ (a, y)(a, y)ᵀ       R² and R, scaled to the same; R²
==============  =======================================================  =============================

Symmetric matrices are sent as their lower triangle, entries off the diagonal times √2, so that the norm of what is sent
is the Frobenius norm. Sums are rounded to integers with the step S/2²⁰. Rounding moves two sums apart by at most
√d steps more, so the sensitivity of the integers is 2²⁰ + √d, and this is what noise is drawn for.

Noise of the sum. Where replies are masked, each of N sites draws the variance σ²/(N − c). So the noise of the others
protects a site's rows even if c sites share all they know with each other and the analyst. Without masks each draws
σ².
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, Refusal
from fpdfp.privacy.noise import LARGEST, Stream, discrete_gaussian_noise

Kind = Literal["moments", "gradient", "hessian", "statistics"]
Loss = Literal["logistic", "squares"]
LongRows = Literal["drop", "scale"]
KINDS, LOSSES, LONG_ROWS = get_args(Kind), get_args(Loss), get_args(LongRows)
#: Steps of the integers in one sensitivity.
GRID = 1 << 20
#: The most entries of x, and the largest: products with rows must be finite, or an error would tell of rows.
FEATURES, LARGEST_ENTRY = 10_000, 1e100


@dataclasses.dataclass(frozen=True)
class Release:
    """One sum over rows that is requested.

    Parameters
    ----------
    kind
        Which sum.
    mu
        Its price: the sum is μ-Gaussian-differentially private.
    loss
        ``"logistic"``, with y of −1 and 1, or ``"squares"``.
    long_rows
        What happens to rows longer than the radius: ``"drop"``, or ``"scale"`` to the radius, which predicts better
        where many are longer, and is biased.
    x
        The point of a gradient or a Hessian.
    middle, reach
        With squares: what is subtracted from outcomes, and what they are divided by, since they are part of rows.

    Examples
    --------
    >>> Release("gradient", 0.1, "squares", x=np.zeros(2))
    Traceback (most recent call last):
      ...
    fpdfp.errors.ArgumentError: kind must be 'moments' or 'statistics' with squares, whose gradients have no bound, \
got 'gradient'
    """

    kind: Kind
    mu: float
    loss: Loss = "logistic"
    long_rows: LongRows = "drop"
    x: Array | None = None
    middle: float = 0.0
    reach: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.middle) and 0 < self.reach < math.inf):
            raise ArgumentError("reach", f"must be positive, and middle finite, got {self.reach}, {self.middle}")
        if self.loss == "logistic" and (self.middle, self.reach) != (0.0, 1.0):
            raise ArgumentError("reach", "must be 1, and middle 0, for a logistic loss")
        for name, allowed in (("kind", KINDS), ("loss", LOSSES), ("long_rows", LONG_ROWS)):
            if getattr(self, name) not in allowed:
                raise ArgumentError(name, f"must be one of {allowed}, got {getattr(self, name)!r}")
        if not 1e-6 <= self.mu <= 100:  # NaN fails every comparison
            raise ArgumentError("mu", f"must be between 1e-6 and 100, got {self.mu}")
        if self.loss == "squares" and self.kind in ("gradient", "hessian"):
            raise ArgumentError(
                "kind", "must be 'moments' or 'statistics' with squares, whose gradients have no bound, "
                f"got {self.kind!r}",
            )  # fmt: skip
        if (self.x is not None) != (self.kind in ("gradient", "hessian")):
            raise ArgumentError("x", f"must be given for a gradient or a Hessian alone, and kind is {self.kind!r}")
        if self.x is not None and (
            self.x.ndim != 1 or not (np.abs(self.x) <= LARGEST_ENTRY).all() or len(self.x) > FEATURES
        ):
            raise ArgumentError(
                "x", f"must be a vector of at most {FEATURES} numbers of at most {LARGEST_ENTRY:g} in size"
            )

    def length(self, features: int) -> int:
        """Return how many integers are sent."""
        triangle = features * (features + 1) // 2
        if self.kind == "gradient":
            return features
        if self.kind == "statistics":
            return triangle + features + (self.loss == "squares")
        return triangle

    def sensitivity(self, radius: float) -> float:
        """Return by how much one row changes the sum at most."""
        if self.kind == "gradient":
            return radius
        if self.kind == "hessian":
            return radius**2 / 4
        # Σ ya is sent times R, so that both parts have the sensitivity R²
        return radius**2 * (math.sqrt(2) if self.kind == "statistics" and self.loss == "logistic" else 1.0)

    def scale(self, features: int, shares: int = 1) -> int:
        """Return the standard deviation of one site's noise, in steps."""
        sensitivity = GRID + math.sqrt(self.length(features))
        # relative 2⁻⁵⁰ for the rounding errors of this line
        return min(math.ceil(sensitivity / self.mu / math.sqrt(shares) * (1 + 2**-50)), LARGEST)

    def standard_deviation(self, radius: float, features: int, sites: int, shares: int) -> float:
        """Return the noise of each entry of the sum over sites."""
        step = self.sensitivity(radius) / GRID
        return step * self.scale(features, shares) * math.sqrt(sites)


class Rows(NamedTuple):
    """Rows no longer than the radius: columns and outcomes."""

    X: Array
    y: Array


def bounded(X: Array, y: Array, radius: float, loss: Loss, long_rows: LongRows) -> Rows:
    """Return the rows that count: none is longer than the radius, and none says anything about another row.

    With squares the outcome is part of the row. Rows with a missing value are dropped.

    >>> bounded(np.array([[3.0, 4.0], [0.6, 0.8]]), np.array([1.0, -1.0]), 2.0, "logistic", "drop").X
    array([[0.6, 0.8]])
    >>> bounded(np.array([[3.0, 4.0], [0.6, 0.8]]), np.array([1.0, -1.0]), 2.0, "logistic", "scale").X
    array([[1.2, 1.6],
           [0.6, 0.8]])
    """
    if not (math.isfinite(radius) and radius > 0):
        raise ArgumentError("radius", f"must be positive, got {radius}")
    finite = np.isfinite(X).all(axis=1) & np.isfinite(y)
    X, y = X[finite].astype(np.float64), y[finite].astype(np.float64)
    if loss == "logistic" and not np.isin(y, (-1.0, 1.0)).all():
        raise ArgumentError("y", "must be −1 or 1 for a logistic loss")
    squares = loss == "squares"
    norms = np.sqrt((X**2).sum(axis=1) + (y**2 if squares else 0.0))
    if long_rows == "drop":
        kept = norms <= radius
        return Rows(X[kept], y[kept])
    factor = np.minimum(1.0, radius / np.maximum(norms, 1e-300))
    return Rows(X * factor[:, None], y * factor if squares else y)


def exact_sum(release: Release, rows: Rows, radius: float) -> Array:
    """Return the sum over rows without noise, as it is sent."""
    X, y = rows
    if release.x is not None and len(release.x) != X.shape[1]:
        raise Refusal(f"x must have an entry for each of {X.shape[1]} columns, got {len(release.x)}")
    if release.kind == "gradient":
        gradient: Array = -(y * logistic_function(-y * (X @ release.x))) @ X
        return gradient
    if release.kind == "hessian":
        p = logistic_function(X @ release.x)
        return lower_triangle((X * (p * (1 - p))[:, None]).T @ X)
    if release.kind == "moments":
        return lower_triangle(X.T @ X)
    if release.loss == "squares":
        joint = np.column_stack([X, y])
        return lower_triangle(joint.T @ joint)
    return np.concatenate([lower_triangle(X.T @ X), radius * (y @ X)])


def add_noise(release: Release, total: Array, radius: float, features: int, stream: Stream, shares: int = 1) -> Any:
    """Return a site's sum as integers with its noise: what leaves the site.

    Parameters
    ----------
    release, total
        What was requested, and the sum without noise.
    radius, features
        Of the rows.
    stream
        Words that are used for this release alone.
    shares
        Over how many sites the variance is shared out: N − c where replies are masked, else 1.
    """
    if total.shape != (release.length(features),):
        raise ValueError(f"total must have {release.length(features)} entries, got {total.shape}")
    integers = np.rint(total / (release.sensitivity(radius) / GRID))
    if not (np.abs(integers) < 2.0**55).all():
        raise Refusal("a sum of this site is too large for integers of 64 bits")
    noise = discrete_gaussian_noise(stream, release.scale(features, shares), len(total))
    return integers.astype(np.int64) + noise


def read_sum(release: Release, integers: Any, radius: float) -> Array:
    """Return the noisy sum over sites as numbers."""
    numbers: Array = integers * (release.sensitivity(radius) / GRID)
    return numbers


def lower_triangle(matrix: Array) -> Array:
    """Return a symmetric matrix as a vector of the same norm.

    >>> lower_triangle(np.array([[1.0, 2.0], [2.0, 3.0]]))
    array([1.        , 2.82842712, 3.        ])
    """
    i, j = np.tril_indices(len(matrix))
    vector: Array = matrix[i, j] * np.where(i == j, 1.0, math.sqrt(2))
    return vector


def full_matrix(vector: Array, features: int) -> Array:
    """Undo :func:`lower_triangle`."""
    i, j = np.tril_indices(features)
    matrix = np.zeros((features, features))
    matrix[i, j] = matrix[j, i] = vector / np.where(i == j, 1.0, math.sqrt(2))
    return matrix


def logistic_function(z: Array) -> Array:
    """Return 1/(1 + exp(−z))."""
    from scipy.special import expit

    return np.asarray(expit(z))
