"""The rows of all clients as one matrix, of which a solver looks at some columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray

#: Rows that are multiplied at a time where they must be widened or weighted first.
ROWS = 4096
#: Partial sums of a Gram matrix of sparse rows, and how many entries it takes to make them worth their while.
PARTS, ENTRIES = 8, 1 << 22
#: So that nothing is divided by 0.
TINY = 1e-300


class Columns:
    """Some columns of a matrix of rows, dense or CSR, in the precision that they have; products are in float64.

    Of a dense matrix they are a copy. Of a sparse one they are looked up where they are used, since a copy takes
    longer than several products.
    """

    def __init__(self, X: Any, columns: IntArray | None = None) -> None:
        self.X, self.columns = X, columns
        self.sparse = not isinstance(X, np.ndarray)
        self.count = X.shape[1] if columns is None else len(columns)
        self._wide = X.dtype == np.float64

    def select(self, columns: IntArray) -> Columns:
        """Return some of the columns."""
        if len(columns) == self.X.shape[1] and (columns[:-1] < columns[1:]).all():
            return self
        return Columns(self.X, columns) if self.sparse else self.extract(columns)

    def extract(self, columns: IntArray) -> Columns:
        """Return a copy of some of the columns."""
        return Columns(self.X[:, columns] if self.sparse else np.take(self.X, columns, axis=1, mode="clip"))

    def blocks(self, rows: int = ROWS) -> Iterator[tuple[slice, Any]]:
        """Yield the rows of a dense matrix in float64, so many at a time."""
        for first in range(0, self.X.shape[0], rows):
            some = slice(first, first + rows)
            yield some, self.X[some].astype(np.float64, copy=False)

    def times(self, x: Array) -> Array:
        """Return Ax."""
        if self.columns is not None:
            whole = np.zeros(self.X.shape[1])
            whole[self.columns] = x
            x = whole
        if self.sparse or self._wide:
            product: Array = self.X @ x
            return product
        return np.concatenate([block @ x for _, block in self.blocks()])

    def back(self, slopes: Array) -> Array:
        """Return Aᵀs with all columns of X, of which ``pick`` takes these."""
        if self.sparse or self._wide:
            product: Array = self.X.T @ slopes
            return product
        total = np.zeros(self.X.shape[1])
        for rows, block in self.blocks():
            total += slopes[rows] @ block
        return total

    def pick(self, product: Array) -> Array:
        """Return the entries of these columns."""
        return product if self.columns is None else product[self.columns]

    def gram(self, weights: Array, stride: int, *, single: bool = False, units: Array | None = None) -> Array:
        """Return Σ_j w_j a_j a_jᵀ over every so many-th row, as large as that over all rows would be.

        With ``single`` dense rows are multiplied in float32, in about half the time; units, about the sizes of the
        columns, are for columns whose squares it might not hold.
        """
        size = self.count
        # even of every row SciPy would make a copy
        X, some = self.X if stride == 1 else self.X[::stride], np.ascontiguousarray(weights[::stride])
        total = np.zeros((size, size))
        if self.sparse:
            from fpdfp._kernels import matrix

            place = np.full(X.shape[1], -1)
            place[slice(None) if self.columns is None else self.columns] = np.arange(size)
            parts = np.zeros((PARTS if size <= 512 and X.nnz >= ENTRIES else 1, size, size))
            matrix.weighted_gram_csr(X.data, X.indices, X.indptr, some, place, parts, total)
        else:
            dtype = np.dtype(np.float32 if single else np.float64)
            roots, factors = np.sqrt(some).astype(dtype)[:, None], None if units is None else 1.0 / units
            room = np.empty((min(ROWS, len(X)), size), dtype)
            for first in range(0, len(X), ROWS):
                rows = X[first : first + ROWS]
                block = room[: len(rows)]
                block[:] = rows if factors is None else rows * factors
                block *= roots[first : first + ROWS]
                total += block.T @ block
            if units is not None:
                total *= np.outer(units, units)
        return total if stride == 1 else total * (weights.sum() / max(some.sum(), TINY))
