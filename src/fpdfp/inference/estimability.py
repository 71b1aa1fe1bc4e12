"""Likelihoods without a maximum: outcomes that some combination of columns separates.

Along such a combination the log-likelihood grows for ever, like :math:`-a e^{-t}`, and with it the coefficients.
Newton's method makes a step of the same length in each round there, though what is left to gain, a, comes down by e
each time, until it is below any tolerance. Where there is a maximum, steps become short as well. So a fit is suspect
where a further Newton step still promises a gain of about the tolerance; and it is separated if ten such steps at once
gain something. At a maximum, where the likelihood is nearly quadratic, they would lose forty times the promise.

And columns that others determine: which coefficients are excluded, as R does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray

#: How many Newton steps are taken at once.
FAR = 10.0
#: The part of the tolerance that a step must promise to be suspect.
SUSPECT = 1e-3
#: Eigenvalues of the information below this, in coordinates with a diagonal of ones, are taken for 0.
FLAT = 1e-13
#: A coefficient that changes by this part of itself in a step is one that grows.
GROWS = 1e-4
#: Rows of less information, on average, have been fitted exactly.
NOTHING = 1e-10


class Step(NamedTuple):
    """A Newton step, and twice what it promises that the log-likelihood grows by."""

    step: Array
    promise: float

    def is_suspect(self, likelihood: float, weight: float, tol: float) -> bool:
        """Whether the step promises too much for a fit to a tolerance, given minus the log-likelihood at its start."""
        return self.promise > SUSPECT * tol * max(likelihood, NOTHING * weight)

    def separates(self, here: float, far: float) -> bool:
        """Whether FAR steps at once gain, or lose too little for a maximum; given deviances."""
        return bool(np.isfinite(far)) and far - here < FAR * self.promise

    def growing(self, x: Array) -> list[int]:
        """Return which coefficients grow."""
        return np.flatnonzero(np.abs(self.step) > GROWS * np.abs(x)).tolist()


def newton_step(score: Array, hessian: Array) -> Step:
    """Return the Newton step from the sums of all sites, excluding directions without information.

    >>> newton_step(np.array([0.5]), np.array([[0.25]]))
    Step(step=array([2.]), promise=1.0)
    """
    scale = 1.0 / np.sqrt(np.where(np.diag(hessian) > 0, np.diag(hessian), 1.0))
    values, vectors = np.linalg.eigh(hessian * np.outer(scale, scale))
    curved = values > FLAT * max(float(values[-1]), 0.0)
    step = scale * (vectors[:, curved] @ ((vectors[:, curved].T @ (scale * score)) / values[curved]))
    return Step(step, float(score @ step))


#: A column of which less than this part, squared, is its own is determined by those before it.
OWN = 1e-11


class Alias(NamedTuple):
    """Estimated and excluded coefficients, and the columns that make up the excluded ones.

    Attributes
    ----------
    kept, left
        The places of both, increasing.
    combination
        Shape (kept, left): the columns excluded are the kept ones times this.
    """

    kept: IntArray
    left: IntArray
    combination: Array

    def move(self, coefficients: Array) -> Array:
        """Return coefficients with the same predictions and zeros where coefficients are excluded."""
        moved = np.zeros_like(coefficients)
        moved[self.kept] = coefficients[self.kept] + self.combination @ coefficients[self.left]
        return moved


def find_alias(hessian: Array, order: Sequence[int]) -> Alias | None:
    """Return which columns are combinations of earlier ones, in an order; None where none is.

    ``hessian`` is Σ w a aᵀ over rows a with positive weights.

    >>> rows = np.array([[1.0, 0.0, 1.0], [1.0, 1.0, 2.0], [1.0, 2.0, 3.0]])
    >>> alias = find_alias(rows.T @ rows, [0, 1, 2])
    >>> alias.left.tolist(), alias.combination.round(6).tolist()
    ([2], [[1.0], [1.0]])
    """
    size = len(hessian)
    diagonal = np.diag(hessian)
    scale = np.where(diagonal > 0, 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
    scaled = hessian * np.outer(scale, scale)
    kept: list[int] = []
    factor = np.zeros((size, size))  # rows of the Cholesky factor of those kept, in their order
    for j in order:
        cross = np.zeros(0)
        if kept:
            cross = np.linalg.solve(factor[: len(kept), : len(kept)], scaled[kept, j])
        own = scaled[j, j] - float(cross @ cross)
        if not own > OWN:
            continue
        factor[len(kept), : len(kept)], factor[len(kept), len(kept)] = cross, np.sqrt(own)
        kept.append(j)
    if len(kept) == size:
        return None
    some = np.sort(np.array(kept, dtype=np.int64))
    left = np.setdiff1d(np.arange(size), some)
    combination = np.linalg.solve(scaled[np.ix_(some, some)], scaled[np.ix_(some, left)])
    back = np.where(scale[left] > 0, 1.0 / np.where(scale[left] > 0, scale[left], 1.0), 0.0)
    return Alias(some, left, scale[some][:, None] * combination * back)
