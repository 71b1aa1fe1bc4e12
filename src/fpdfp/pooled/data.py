"""The rows of all clients as one matrix, of which a solver looks at some columns."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray

#: Rows that are multiplied at a time where they must be widened or weighted first.
ROWS = 4096
#: Numbers of a dense matrix that are multiplied forth and back while they are near the processor.
NEAR = 1 << 18
#: Partial sums of a Gram matrix of sparse rows, and how many entries it takes to make them worth their while.
PARTS, ENTRIES = 8, 1 << 22
#: Of sparse rows up to this part of the columns are copied at once.
FEW = 0.5
#: Of dense rows they are copied once so many times all entries have been multiplied in vain.
WASTE = 0.5
#: So that nothing is divided by 0.
TINY = 1e-300


class Columns:
    """Some columns of a matrix of rows, dense or CSR, in the precision that they have; products are in float64.

    They are looked at in their place, where products are those of all columns, or are a copy.
    """

    def __init__(self, X: Any, columns: IntArray | None = None) -> None:
        self.X, self.columns = X, columns
        self.sparse = not isinstance(X, np.ndarray)
        self.count = X.shape[1] if columns is None else len(columns)
        self._wide = X.dtype == np.float64
        self._waste = 0.0

    def select(self, columns: IntArray) -> Columns:
        """Return some of the columns: in their place, or a copy where that takes less time than to multiply all."""
        if len(columns) == self.X.shape[1] and (columns[:-1] < columns[1:]).all():
            return self
        some = Columns(self.X, columns)
        return some.copy() if self.sparse and some.count <= FEW * self.X.shape[1] else some

    def copy(self) -> Columns:
        """Return a copy of these columns alone."""
        if self.columns is None:
            return self
        if not self.sparse:
            return Columns(np.take(self.X, self.columns, axis=1, mode="clip"))
        from fpdfp._kernels.columns import take_columns

        X = self.X
        place = self._find(X.indices.dtype)
        data, indices, indptr = np.empty_like(X.data), np.empty_like(X.indices), np.empty_like(X.indptr)
        entries = take_columns(X.data, X.indices, X.indptr, place, data, indices, indptr)
        return Columns(type(X)((data[:entries], indices[:entries], indptr), shape=(X.shape[0], self.count)))

    def settle(self) -> Columns:
        """Take note of a product with all columns of dense rows; return these, or a copy once that pays."""
        if self.sparse or self.columns is None:
            return self
        self._waste += 1.0 - self.count / self.X.shape[1]
        return self.copy() if self._waste >= WASTE else self

    def _find(self, dtype: Any) -> IntArray:
        """Return where each column of X is among these, −1 for one that is not."""
        place = np.full(self.X.shape[1], -1, dtype)
        place[slice(None) if self.columns is None else self.columns] = np.arange(self.count)
        return place

    def blocks(self, rows: int = ROWS) -> Iterator[tuple[slice, Any]]:
        """Yield the rows of a dense matrix in float64, so many at a time."""
        for first in range(0, self.X.shape[0], rows):
            some = slice(first, first + rows)
            yield some, self.X[some].astype(np.float64, copy=False)

    def times(self, x: Array) -> Array:
        """Return Ax."""
        x = self.spread(x)
        if self.sparse or self._wide:
            product: Array = self.X @ x
            return product
        return np.concatenate([block @ x for _, block in self.blocks()])

    def spread(self, x: Array) -> Array:
        """Return x with a 0 for every other column of X."""
        if self.columns is None:
            return x
        whole = np.zeros(self.X.shape[1])
        whole[self.columns] = x
        return whole

    def back(self, slopes: Array) -> Array:
        """Return Aᵀs with all columns of X, of which ``pick`` takes these."""
        if self.sparse or self._wide:
            product: Array = self._turned @ slopes
            return product
        total = np.zeros(self.X.shape[1])
        for rows, block in self.blocks():
            total += slopes[rows] @ block
        return total

    @functools.cached_property
    def _turned(self) -> Any:
        """Xᵀ: SciPy looks at all of a matrix when it turns one."""
        return self.X.T

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

            place = self._find(np.int64)
            parts = np.zeros((PARTS if size <= 512 and X.nnz >= ENTRIES else 1, size, size))
            matrix.weighted_gram_csr(X.data, X.indices, X.indptr, some, place, parts, total)
        else:
            dtype = np.dtype(np.float32 if single else np.float64)
            roots, factors = np.sqrt(some).astype(dtype)[:, None], None if units is None else 1.0 / units
            room = np.empty((min(ROWS, len(X)), size), dtype)
            for first in range(0, len(X), ROWS):
                rows = X[first : first + ROWS]
                if self.columns is not None:
                    rows = np.take(rows, self.columns, axis=1, mode="clip")
                block = room[: len(rows)]
                block[:] = rows if factors is None else rows * factors
                block *= roots[first : first + ROWS]
                total += block.T @ block
            if units is not None:
                total *= np.outer(units, units)
        return total if stride == 1 else total * (weights.sum() / max(some.sum(), TINY))
