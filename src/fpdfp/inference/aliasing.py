"""Columns that others determine: which coefficients are excluded, as R does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray

#: A column of which less than this part, squared, is its own is determined by those before it.
OWN = 1e-11


class Alias(NamedTuple):
    """Which coefficients are estimated, which are excluded, and what those excluded are made of.

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
