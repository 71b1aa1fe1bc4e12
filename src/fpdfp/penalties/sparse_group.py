"""The penalty of the sparse group lasso."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._array import beside
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.penalties.base import Penalty
from fpdfp.penalties.group import GroupL12
from fpdfp.penalties.l1 import L1


class SparseGroup(Penalty):
    """g(y) = Σ_j w_j |y_j| + Σ_g c_g ‖y_g‖: zeros of whole groups, and within groups.

    Its prox is that of the l1 norm followed by that of the group norm.

    Parameters
    ----------
    weight
        The weight w of the l1 norm: one for all entries, or one for each.
    group_weight
        The weight c of the group norm: one for all groups, or one for each.
    groups
        The label of each entry's group; groups are numbered in sorted order.

    References
    ----------
    N. Simon, J. Friedman, T. Hastie and R. Tibshirani, "A sparse-group lasso", J. Comput. Graph. Stat. 22 (2013).

    Examples
    --------
    >>> import numpy as np
    >>> SparseGroup(1.0, 2.5, groups=["a", "a", "b"]).prox(np.array([4.0, 5.0, 3.0]), 1.0)
    array([1.5, 2. , 0. ])
    """

    def __init__(self, weight: Any, group_weight: Any, groups: Any) -> None:
        norms = _checks.weights("group_weight", group_weight)  # an error of GroupL12 would name its own argument
        self._l1, self._norms = L1(weight), GroupL12(norms, groups=groups)
        self.weight, self.group_weight, self.groups = self._l1.weight, self._norms.weight, self._norms.groups

    def bind(self, shape: Shape) -> SparseGroup:
        self._l1.bind(shape)
        self._norms.bind(shape)
        return self

    def restrict(self, features: IntArray) -> SparseGroup:
        """Return the penalty of some entries."""
        norms = self._norms.restrict(features)
        return SparseGroup(self._l1.restrict(features).weight, norms.weight, groups=norms.groups)

    def value(self, y: Array) -> float:
        return self._l1.value(y) + self._norms.value(y)

    def prox(self, y: Array, t: float) -> Array:
        return self._norms.prox(self._l1.prox(y, t), t)

    def conjugate(self, v: Array) -> float:
        # The sum of both sets: what is left of v after the l1 norm's part must be within the balls of groups.
        ball, weights = beside(self.group_weight, v), self._norms._norms(np.broadcast_to(self.weight, v.shape))
        allowed = ball + 32 * np.finfo(v.dtype).eps * (ball + beside(weights, v))
        return 0.0 if bool((self._norms._norms(self._l1.prox(v, 1.0)) <= allowed).all()) else np.inf

    def conjugate_prox(self, y: Array, sigma: float) -> Array:
        both: Array = self._l1.conjugate_prox(y, sigma) + self._norms.conjugate_prox(self._l1.prox(y, 1.0), sigma)
        return both

    def subgradient(self, y: Array) -> Array:
        total: Array = self._l1.subgradient(y) + self._norms.subgradient(y)
        return total

    def conjugate_prox_derivative(self, y: Array, sigma: float) -> Callable[[Array], Array]:
        # σ prox_{g/σ}(y/σ) = soft(y) − P(soft(y)), with soft that of the l1 norm, and P the projection on the balls.
        clip = self._l1.conjugate_prox_derivative(y, sigma)
        ball = self._norms.conjugate_prox_derivative(self._l1.prox(y, 1.0), sigma)

        def derivative(u: Array) -> Array:
            kept = u - clip(u)
            change: Array = u - (kept - ball(kept))
            return change

        return derivative

    def _parameters(self) -> str:
        return f"{self._l1._parameters()}, {self._norms._parameters()}"
