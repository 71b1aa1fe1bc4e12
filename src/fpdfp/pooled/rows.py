"""Quadratic models of f by products with the rows themselves, in place of a Hessian.

Accelerated steps that are few take less time so than it takes to make a Hessian. Dense rows are multiplied in float32:
like a Hessian that is not exact, it decides how fast steps converge, not where to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp._blas import one_thread
from fpdfp._typing import Array
from fpdfp.pooled.data import NEAR
from fpdfp.pooled.fit import Fit, Point, find_units

#: A Hessian takes as long as to multiply all rows forth and back once for so many features, or, where rows are sparse,
#: for so many entries of a row.
DENSE_STEP, SPARSE_STEP = 25, 6
#: Fewer steps than this lead nowhere.
FEW = 10


class Rows:
    """The rows of f, where it is quadratic."""

    def __init__(self, fit: Fit) -> None:
        X = fit.data.X
        self.fit, self.sparse = fit, fit.data.sparse
        self.X: Any = X if self.sparse else X.astype(np.float32, copy=False)
        self.weights = fit.c.astype(self.X.dtype)

    @staticmethod
    def count_steps(fit: Fit) -> int:
        """Return how many steps take no longer than to make a Hessian; 0 where they are too few."""
        X = fit.data.X
        if fit.losses.form != "quadratic" or find_units(fit.squares) is not None:
            return 0
        steps = X.nnz / (SPARSE_STEP * X.shape[0]) if fit.data.sparse else X.shape[1] / DENSE_STEP
        return int(steps) if steps >= FEW else 0

    def multiply(self, u: Array) -> Array:
        """Return the Hessian times u, without the ridge."""
        u = u.astype(self.X.dtype, copy=False)
        return self._back(lambda rows, block: self.weights[rows] * (block @ u))

    def back(self, slopes: Array) -> Array:
        """Return Aᵀs."""
        slopes = slopes.astype(self.X.dtype, copy=False)
        return self._back(lambda rows, block: slopes[rows])

    def _back(self, slopes: Callable[[slice, Any], Array]) -> Array:
        """Return Aᵀs, given s for some rows."""
        if self.sparse:
            product: Array = self.X.T @ slopes(slice(None), self.X)
            return product
        total, count = np.zeros(self.X.shape[1]), max(64, 2 * NEAR // self.X.shape[1])
        with one_thread():
            for first in range(0, len(self.X), count):
                rows = slice(first, first + count)
                total += slopes(rows, self.X[rows]) @ self.X[rows]
        return total


class RowModel:
    """gᵀ(u − x) + ½ (u − x)ᵀH(u − x) at a point x, with products by the rows."""

    def __init__(self, rows: Rows, point: Point, slope: Array) -> None:
        fit = rows.fit
        self.rows, self.centre, self.slope, self.ridge = rows, point.x, slope, fit.ridge
        self.diagonal = fit.losses.curvature * fit.squares + fit.ridge

    def gradient(self, u: Array) -> Array:
        """Return the gradient."""
        away = u - self.centre
        gradient: Array = self.slope + self.rows.multiply(away) + self.ridge * away
        return gradient
