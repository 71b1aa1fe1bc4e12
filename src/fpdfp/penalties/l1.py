"""The l1 norm, plain or weighted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._array import beside, namespace
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.penalties.base import Penalty, describe, shrink_within

#: Dual points are inside their bounds that are at most this part of them.
INSIDE = 1.0 - 1e-9


class L1(Penalty):
    """The weighted l1 norm, g(y) = Σ_j w_j |y_j|.

    Its conjugate is the indicator of |v_j| ≤ w_j, whose prox clips.

    Parameters
    ----------
    weight
        One weight for all entries, or an array with a weight for each; at least 0.

    Examples
    --------
    >>> import numpy as np
    >>> L1(0.5).prox(np.array([2.0, -0.2, -1.0]), 1.0)
    array([ 1.5,  0. , -0.5])
    >>> L1([0.0, 1.0, 2.0]).value(np.ones(3))
    3.0
    """

    separable = True

    def __init__(self, weight: Any) -> None:
        array = _checks.weights("weight", weight)
        self.weight = float(array) if array.ndim == 0 else array

    def bind(self, shape: Shape) -> L1:
        if isinstance(self.weight, np.ndarray) and self.weight.shape != shape:
            raise ValueError(f"weight must be one number or have the shape {shape} of Bx, got {self.weight.shape}")
        return self

    def restrict(self, features: IntArray) -> L1:
        """Return the norm of some features, along the last axis of y."""
        return self if isinstance(self.weight, float) else L1(self.weight[..., features])

    def rescale(self, factors: Array) -> L1:
        return L1(self.weight * factors)

    def value(self, y: Array) -> float:
        return float((beside(self.weight, y) * abs(y)).sum())

    def prox(self, y: Array, t: Any) -> Array:
        # A difference, so that zeros have no sign: messages leave out zeros.
        xp, reach = namespace(y), t * beside(self.weight, y)
        shrunk: Array = y - xp.minimum(xp.maximum(y, -reach), reach)
        return shrunk.astype(y.dtype, copy=False)

    def conjugate(self, v: Array) -> float:
        rounding = 1.0 + 8 * np.finfo(v.dtype).eps
        return 0.0 if bool((abs(v) <= beside(self.weight * rounding, v)).all()) else np.inf

    def conjugate_scale(self, v: Array) -> float:
        return shrink_within(abs(v), beside(self.weight, v))

    def conjugate_prox(self, y: Array, sigma: Any) -> Array:
        xp = namespace(y)
        weight = beside(self.weight, y)
        clipped: Array = xp.minimum(xp.maximum(y, -weight), weight)
        return clipped.astype(y.dtype, copy=False)

    def settle(self, y: Array, v: Array) -> Array:
        # Strictly inside its bounds v allows no other y than zero.
        inside = abs(v) < beside(self.weight * INSIDE, v)
        settled: Array = namespace(y).where(inside, y.dtype.type(0), y)
        return settled

    def subgradient(self, y: Array) -> Array:
        signs: Array = beside(self.weight, y) * namespace(y).sign(y)
        return signs.astype(y.dtype, copy=False)

    def conjugate_prox_derivative(self, y: Array, sigma: float) -> Callable[[Array], Array]:
        free = ((abs(y) <= self.weight) & (np.asarray(self.weight) > 0)).astype(y.dtype)
        return lambda u: free * u

    def _parameters(self) -> str:
        return describe(self.weight)
