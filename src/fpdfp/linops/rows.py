"""One matrix for every row of x."""

from __future__ import annotations

from typing import Any

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.linops.base import LinOp
from fpdfp.linops.matrix import Matrix


class EachRow(LinOp):
    """The same matrix applied to every row of an x of shape (rows, d).

    Attributes
    ----------
    one
        The map of one row.

    Examples
    --------
    >>> import numpy as np
    >>> sums = EachRow([[1.0, 1.0, 1.0]], rows=2)
    >>> sums
    EachRow((2, 3) → (2, 1))
    >>> sums.apply(np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 4.0]]))
    array([[6.],
           [4.]])
    """

    def __init__(self, matrix: Any, rows: int) -> None:
        self.one = Matrix(matrix)
        count = _checks.integer("rows", rows, at_least=1)
        self.in_shape, self.out_shape = (count, *self.one.in_shape), (count, *self.one.out_shape)

    def apply(self, x: Array) -> Array:
        self.batch_of(x, self.in_shape, "x")
        # The rows of all clients go where Matrix has its client axis.
        return self.one.apply(x.reshape(-1, *self.one.in_shape)).reshape(*x.shape[:-1], *self.one.out_shape)

    def adjoint(self, v: Array) -> Array:
        self.batch_of(v, self.out_shape, "v")
        return self.one.adjoint(v.reshape(-1, *self.one.out_shape)).reshape(*v.shape[:-1], *self.one.in_shape)

    def _squared_norm(self) -> float:
        return self.one.squared_norm
