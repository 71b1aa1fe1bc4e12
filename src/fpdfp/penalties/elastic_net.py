"""The elastic net with a box: everything that has a weight and limits entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._array import beside, namespace
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.penalties.base import Penalty, Zero, describe
from fpdfp.penalties.box import Box
from fpdfp.penalties.l1 import L1


class ElasticNet(Penalty):
    """g(y) = Σ_j w_j |y_j| + Σ_j r_j y_j² / 2, for lower ≤ y ≤ upper.

    Every entry has a closed prox, with all three parts together.

    Parameters
    ----------
    l1, l2
        The weights w and r: numbers, or one for each entry; at least 0.
    lower, upper
        Numbers or arrays; infinite for no limit.

    Examples
    --------
    >>> import numpy as np
    >>> ElasticNet(0.5, 1.0).prox(np.array([2.5, -0.2, -1.5]), 1.0)
    array([ 1. ,  0. , -0.5])
    >>> ElasticNet(0.5, 1.0, upper=0.25).prox(np.array([2.5, -0.2, -1.5]), 1.0)
    array([ 0.25,  0.  , -0.5 ])
    """

    separable = True

    def __init__(self, l1: Any = 0.0, l2: Any = 0.0, lower: Any = -np.inf, upper: Any = np.inf) -> None:
        self.l1, self.l2 = _checks.weights("l1", l1), _checks.weights("l2", l2)
        self._box = Box(lower, upper)
        self.lower, self.upper = self._box.lower, self._box.upper
        self.finite = bool(np.isinf(self.lower).all() and np.isinf(self.upper).all())

    def bind(self, shape: Shape) -> ElasticNet:
        for name, weight in (("l1", self.l1), ("l2", self.l2)):
            if weight.shape not in ((), shape):
                raise ValueError(f"{name} must be one number or have the shape {shape} of Bx, got {weight.shape}")
        self._box.bind(shape)
        return self

    def restrict(self, features: IntArray) -> ElasticNet:
        """Return the penalty of some entries."""
        parts = (self.l1, self.l2, self.lower, self.upper)
        return ElasticNet(*(one if np.ndim(one) == 0 else one[..., features] for one in parts))

    def rescale(self, factors: Array) -> ElasticNet:
        return ElasticNet(self.l1 * factors, self.l2 * factors**2, self.lower / factors, self.upper / factors)

    def without_ridge(self) -> Penalty:
        """Return the same with r = 0: no penalty if nothing is left, and an l1 norm if there are no limits."""
        if not self.finite:
            return ElasticNet(self.l1, 0.0, self.lower, self.upper)
        return L1(self.l1) if self.l1.any() else Zero()

    def value(self, y: Array) -> float:
        inside = self._box.value(y)
        return inside + float((beside(self.l1, y) * abs(y) + 0.5 * beside(self.l2, y) * y * y).sum())

    def prox(self, y: Array, t: Any) -> Array:
        # In one dimension the prox with limits is that without them, cut off.
        xp, reach = namespace(y), t * beside(self.l1, y)
        shrunk: Array = (y - xp.minimum(xp.maximum(y, -reach), reach)) / (1.0 + t * beside(self.l2, y))
        return self.project(shrunk.astype(y.dtype, copy=False))

    def project(self, y: Array) -> Array:
        return self._box.project(y)

    def conjugate(self, v: Array) -> float:
        """Return Σ_j max_y v_j y − g_j(y): at the end of the slope, at a limit, or at infinity."""
        xp, rounding = namespace(v), 8 * float(np.finfo(v.dtype).eps)
        l1, l2 = beside(self.l1, v), beside(self.l2, v)
        rest = v - xp.minimum(xp.maximum(v, -l1 * (1.0 + rounding)), l1 * (1.0 + rounding))
        # Where there is no ridge the slope does not end.
        endless = xp.where(rest > 0, np.inf, -np.inf)
        best = xp.where(rest == 0, 0.0, xp.where(l2 > 0, rest / xp.where(l2 > 0, l2, 1.0), endless))
        best = xp.minimum(xp.maximum(best, beside(self.lower, v)), beside(self.upper, v))
        if not bool(xp.isfinite(best).all()):
            return np.inf
        return float((v * best - l1 * abs(best) - 0.5 * l2 * best * best).sum())

    def conjugate_prox(self, y: Array, sigma: Any) -> Array:
        # Without limits and ridge it is cut off exactly at the weights: nothing is subtracted from y.
        xp, reach = namespace(y), beside(self.l1, y)
        cut = xp.minimum(xp.maximum(y, -reach), reach)
        over = y - cut
        kept = over * (sigma / (sigma + beside(self.l2, y)))
        if not self.finite:
            kept = xp.minimum(xp.maximum(kept, sigma * beside(self.lower, y)), sigma * beside(self.upper, y))
        rest: Array = cut + (over - kept)
        return rest.astype(y.dtype, copy=False)

    def subgradient(self, y: Array) -> Array:
        slope: Array = beside(self.l1, y) * namespace(y).sign(y) + beside(self.l2, y) * y
        return slope.astype(y.dtype, copy=False)

    def conjugate_prox_derivative(self, y: Array, sigma: float) -> Callable[[Array], Array]:
        z, t = y / sigma, 1.0 / sigma
        shrunk = (z - np.clip(z, -t * self.l1, t * self.l1)) / (1.0 + t * self.l2)
        # At 0 only where the weight makes it so.
        moves = (abs(z) > t * self.l1) | (self.l1 == 0)
        moves = moves & (shrunk >= self.lower) & (shrunk <= self.upper) & (self.lower < self.upper)
        rest = (1.0 - moves / (1.0 + t * self.l2)).astype(y.dtype)
        return lambda u: rest * u

    def _parameters(self) -> str:
        limits = "" if self.finite else f", {self._box._parameters()}"
        return f"{describe(self.l1)}, {describe(self.l2)}{limits}"
