"""The rows of all clients as one matrix, of which a solver looks at some columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray

#: Rows that are multiplied at a time where they must be widened or weighted first.
ROWS = 4096
#: Partial sums of a Gram matrix of sparse rows.
PARTS = 8
#: So that nothing is divided by 0.
TINY = 1e-300


class Columns:
    """Some columns of a matrix of rows, dense or CSR, in the precision that they have; products are in float64."""

    def __init__(self, X: Any) -> None:
        self.X = X
        self.sparse = not isinstance(X, np.ndarray)
        self._wide = X.dtype == np.float64

    def select(self, columns: IntArray) -> Columns:
        """Return some of the columns: a copy, unless that is all of them."""
        if len(columns) == self.X.shape[1] and (columns[:-1] < columns[1:]).all():
            return self
        return Columns(self.X[:, columns] if self.sparse else np.take(self.X, columns, axis=1, mode="clip"))

    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        """Yield rows in float64, a few at a time."""
        for first in range(0, self.X.shape[0], ROWS):
            rows = slice(first, first + ROWS)
            yield rows, self.X[rows].astype(np.float64)

    def times(self, x: Array) -> Array:
        """Return Ax."""
        if self._wide:
            product: Array = self.X @ x
            return product
        return np.concatenate([block @ x for _, block in self._blocks()])

    def back(self, slopes: Array) -> Array:
        """Return Aᵀs."""
        if self._wide:
            product: Array = self.X.T @ slopes
            return product
        total = np.zeros(self.X.shape[1])
        for rows, block in self._blocks():
            total += block.T @ slopes[rows]
        return total

    def gram(self, weights: Array, stride: int, units: Array | None = None) -> Array:
        """Return Σ_j w_j a_j a_jᵀ over every so many-th row, as large as that over all rows would be.

        With units, about the sizes of the columns, dense rows are multiplied in float32, in about half the time.
        """
        size = self.X.shape[1]
        X, some = self.X[::stride], np.ascontiguousarray(weights[::stride])
        total = np.zeros((size, size))
        if self.sparse:
            from fpdfp._kernels import matrix

            parts = np.zeros((PARTS if size <= 512 else 1, size, size))
            matrix.weighted_gram_csr(X.data, X.indices, X.indptr, some, parts, total)
        else:
            roots, factors = np.sqrt(some), None if units is None else 1.0 / units
            for first in range(0, len(X), ROWS):
                block = X[first : first + ROWS] * roots[first : first + ROWS, None]
                if factors is not None:
                    block = (block * factors).astype(np.float32)
                total += block.T @ block
            if units is not None:
                total *= np.outer(units, units)
        return total if stride == 1 else total * (weights.sum() / max(some.sum(), TINY))
