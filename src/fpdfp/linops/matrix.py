"""A matrix, dense or sparse."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.linops.base import LinOp


class Matrix(LinOp):
    """B given by its entries: a dense array or any SciPy sparse matrix.

    >>> import numpy as np
    >>> B = Matrix(np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]))
    >>> B.apply(np.array([3.0, 2.0, 0.0]))
    array([1., 2.])
    >>> B.adjoint(np.array([1.0, 2.0]))
    array([ 1.,  1., -2.])
    """

    def __init__(self, matrix: Any, *, name: str = "matrix") -> None:
        if hasattr(matrix, "tocsr"):
            import scipy.sparse

            _checks.sparse_matrix(name, matrix)
            self.sparse = True
            self.matrix = scipy.sparse.csr_array(matrix, dtype=_float(matrix.dtype), copy=True)
            _checks.sparse_indices(name, self.matrix)
            self.matrix.sum_duplicates()
            _checks.finite(f"the stored entries of {name}", self.matrix.data)
        else:
            self.sparse = False
            self.matrix = _checks.own_array(name, matrix)
        if self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise ArgumentError(name, f"must be a matrix with rows and columns, got shape {self.matrix.shape}")
        rows, columns = self.matrix.shape
        self.in_shape, self.out_shape = (columns,), (rows,)

    def apply(self, x: Array) -> Array:
        self.batch_of(x, self.in_shape, "x")
        return _multiply(self.matrix, x)

    def adjoint(self, v: Array) -> Array:
        self.batch_of(v, self.out_shape, "v")
        return _multiply(self._transpose, v)

    @functools.cached_property
    def _transpose(self) -> Any:
        return self.matrix.T.tocsr() if self.sparse else np.ascontiguousarray(self.matrix.T)

    def dual_step(self, *step: Any) -> None:
        """Do what :func:`fpdfp._kernels.matrix.dual_step_csr` does, with this sparse matrix."""
        there, back = self.matrix, self._transpose
        _kernels().dual_step_csr(
            there.data, there.indices, there.indptr, back.data, back.indices, back.indptr, *step
        )  # fmt: skip

    def _squared_norm(self) -> float:
        from fpdfp.linops.norm import squared_norm_bound

        return squared_norm_bound(self.matrix)


def _float(dtype: Any) -> Any:
    return dtype if dtype in (np.float32, np.float64) else np.float64


@functools.cache
def _kernels() -> ModuleType:
    """Return the kernels: imported when first needed, and once, since even to find an imported module takes a while."""
    from fpdfp._kernels import matrix

    return matrix


def _multiply(matrix: Any, x: Array) -> Array:
    """Multiply each vector of ``x`` on its own: the bits do not depend on how many there are."""
    kernels = _kernels()
    vectors = np.ascontiguousarray(x).reshape(-1, matrix.shape[1])
    out: Array = kernels.multiply(matrix, vectors, x.dtype if x.dtype.kind == "f" else matrix.dtype)
    return out.reshape(*x.shape[:-1], matrix.shape[0])
