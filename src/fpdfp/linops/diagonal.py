"""A diagonal map."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._array import Constant, namespace
from fpdfp._typing import Array
from fpdfp.linops.base import LinOp


class Diagonal(LinOp):
    """Multiplication of every entry by its own factor.

    >>> import numpy as np
    >>> Diagonal([1.0, -2.0]).apply(np.ones(2))
    array([ 1., -2.])
    """

    def __init__(self, factors: Any) -> None:
        self.factors = _checks.own_array("factors", factors)
        if self.factors.size == 0:
            raise ValueError("factors must have at least one entry")
        self.in_shape = self.out_shape = self.factors.shape
        self._copies = Constant(self.factors)

    def apply(self, x: Array) -> Array:
        self.batch_of(x, self.in_shape, "x")
        product: Array = (self.beside(x) * x).astype(x.dtype, copy=False)
        return product

    def beside(self, x: Array) -> Array:
        """Return the factors for arithmetic with an array: beside one on the GPU they are there too."""
        return self.factors if namespace(x) is np else self._copies.like(x)

    def adjoint(self, v: Array) -> Array:
        return self.apply(v)

    def _squared_norm(self) -> float:
        return float(np.max(np.abs(self.factors))) ** 2
