"""SciPy LinearOperators, and so PyLops operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._array import namespace
from fpdfp._typing import Array, Shape
from fpdfp.errors import ArgumentError
from fpdfp.linops.base import LinOp


class Wrapped(LinOp):
    """B given by ``matvec`` and ``rmatvec``, as in SciPy's ``LinearOperator`` and PyLops.

    Parameters
    ----------
    operator
        The operator, acting on vectors. It is called, not copied: what changes its results changes a problem.
    in_shape, out_shape
        The shapes of arguments and results; vectors by default.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> Wrapped(aslinearoperator(np.array([[1.0, 2.0]]))).apply(np.array([3.0, 4.0]))
    array([11.])
    """

    def __init__(self, operator: Any, in_shape: Shape | None = None, out_shape: Shape | None = None) -> None:
        dtype = getattr(operator, "dtype", None)
        if dtype is not None and np.dtype(dtype).kind == "c":
            raise TypeError(f"a linear map must be real, got an operator of dtype {dtype}")
        rows, columns = operator.shape
        self.operator = operator
        self.in_shape = (columns,) if in_shape is None else tuple(in_shape)
        self.out_shape = (rows,) if out_shape is None else tuple(out_shape)
        for name, shape, size in (("in_shape", self.in_shape, columns), ("out_shape", self.out_shape, rows)):
            if int(np.prod(shape)) != size:
                raise ArgumentError(name, f"must have {size} entries, which is the operator's size, got {shape}")

    def apply(self, x: Array) -> Array:
        return self._each(self.operator.matvec, x, self.in_shape, self.out_shape, "x")

    def adjoint(self, v: Array) -> Array:
        return self._each(self.operator.rmatvec, v, self.out_shape, self.in_shape, "v")

    def _each(self, product: Any, array: Array, shape: Shape, result_shape: Shape, name: str) -> Array:
        if self.batch_of(array, shape, name) is None:
            return self._one(product, array, result_shape)
        out: Array = namespace(array).empty((len(array), *result_shape), dtype=array.dtype)
        for i, row in enumerate(array):
            out[i] = self._one(product, row, result_shape)
        return out

    def _one(self, product: Any, array: Array, result_shape: Shape) -> Array:
        result = namespace(array).asarray(product(array.ravel()))
        if result.dtype.kind == "c":  # an operator may declare a wrong dtype
            raise TypeError(f"a linear map must be real, but {type(self.operator).__name__} gives complex numbers")
        shaped: Array = result.reshape(result_shape).astype(array.dtype, copy=False)
        return shaped
