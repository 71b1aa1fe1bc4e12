"""A diagonal preconditioner."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._array import Constant, namespace
from fpdfp._typing import Array
from fpdfp.linops import Diagonal
from fpdfp.precondition.base import Preconditioner


class Scaling(Preconditioner):
    """P = diag(1/h): every coordinate has its own step.

    Parameters
    ----------
    curvature
        h, the curvature of f along each coordinate, all positive.
    rows
        How many rows x has, each with the curvature h; by default x has the shape of h.

    Examples
    --------
    >>> import numpy as np
    >>> Scaling(np.array([4.0, 1.0])).factor.apply(np.ones(2))
    array([0.5, 1. ])
    """

    def __init__(self, curvature: Any, rows: int | None = None) -> None:
        values = _checks.float_array("curvature", curvature, dtype=np.float64)
        if (values <= 0).any():
            raise ValueError("curvature must be positive in every coordinate")
        self._roots = np.sqrt(values).astype(np.float32).astype(np.float64)  # as it is sent
        self._copies = Constant(self._roots)
        shape = values.shape if rows is None else (_checks.integer("rows", rows, at_least=1), *values.shape)
        self.factor = Diagonal(np.broadcast_to(1.0 / self._roots, shape))

    def coordinates(self, x: Array) -> Array:
        roots = self._roots if namespace(x) is np else self._copies.like(x)
        u: Array = (roots * x).astype(x.dtype, copy=False)
        return u

    def gradient(self, slope: Array) -> Array:
        return self.coordinates(slope)

    @property
    def numbers(self) -> Array:
        return self._roots.astype(np.float32)
