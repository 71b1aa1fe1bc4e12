"""Penalties that are sums over entries: the l1 norm, bounds, and both with a ridge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from fpdfp import _checks
from fpdfp._array import beside, namespace
from fpdfp._typing import Array, IntArray, Sent, Shape
from fpdfp.errors import ArgumentError
from fpdfp.penalties.base import Penalty, Zero, check_fits, clip, describe, shrink_within

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

    sent: ClassVar[Sent] = {"weight": float | Array}

    separable = True

    def __init__(self, weight: Any) -> None:
        array = _checks.weights("weight", weight)
        self.weight = float(array) if array.ndim == 0 else array

    def bind(self, shape: Shape) -> L1:
        check_fits("weight", self.weight, shape)
        return self

    def restrict(self, features: IntArray) -> L1:
        """Return the norm of some features, along the last axis of y."""
        return self if isinstance(self.weight, float) else L1(self.weight[..., features])

    def rescale(self, factors: Array) -> L1:
        return L1(self.weight * factors)

    def value(self, y: Array) -> float:
        return float((beside(self.weight, y) * abs(y)).sum())

    def prox(self, y: Array, t: Any) -> Array:
        # A difference, so that zeros have no sign: messages exclude zeros.
        reach = t * beside(self.weight, y)
        shrunk: Array = y - clip(y, -reach, reach)
        return shrunk.astype(y.dtype, copy=False)

    def conjugate(self, v: Array) -> float:
        rounding = 1.0 + 8 * np.finfo(v.dtype).eps
        return 0.0 if bool((abs(v) <= beside(self.weight * rounding, v)).all()) else np.inf

    def conjugate_scale(self, v: Array) -> float:
        return shrink_within(abs(v), beside(self.weight, v))

    def conjugate_prox(self, y: Array, sigma: Any) -> Array:
        weight = beside(self.weight, y)
        return clip(y, -weight, weight).astype(y.dtype, copy=False)

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


class Box(Penalty):
    """The indicator of lower ≤ y ≤ upper, entry by entry.

    Parameters
    ----------
    lower, upper
        Numbers or arrays; infinite for no bound.

    Examples
    --------
    >>> import numpy as np
    >>> Box(0.0, 1.0).prox(np.array([-1.0, 0.5, 3.0]), 1.0)
    array([0. , 0.5, 1. ])
    >>> Box(0.0, 1.0).conjugate(np.array([-1.0, 2.0]))
    2.0
    """

    sent: ClassVar[Sent] = {"lower": np.ndarray, "upper": np.ndarray}

    finite = False
    separable = True

    def __init__(self, lower: Any = -np.inf, upper: Any = np.inf) -> None:
        accepted = "a number, infinite for no bound, or an array of such numbers"
        self.lower = _checks.numbers("lower", lower, accepted, infinite=True)
        self.upper = _checks.numbers("upper", upper, accepted, infinite=True)
        shapes = self.lower.shape, self.upper.shape
        if () not in shapes and shapes[0] != shapes[1]:
            raise ArgumentError("lower", f"and upper must have one shape as arrays, got {shapes[0]} and {shapes[1]}")
        lower, upper = np.broadcast_arrays(self.lower, self.upper)
        wrong = (lower > upper) | (lower == np.inf) | (upper == -np.inf)
        if wrong.any():
            pair = f"{lower[wrong][0]:g} and {upper[wrong][0]:g}"
            raise ArgumentError(
                "lower", f"must not exceed upper, and some finite value must lie between them, got {pair}"
            )

    def bind(self, shape: Shape) -> Box:
        check_fits("lower", self.lower, shape)
        check_fits("upper", self.upper, shape)
        return self

    def rescale(self, factors: Array) -> Box:
        return Box(self.lower / factors, self.upper / factors)

    def value(self, y: Array) -> float:
        # In the precision of y, so that what project gives is inside.
        lower, upper = beside(self.lower.astype(y.dtype), y), beside(self.upper.astype(y.dtype), y)
        return 0.0 if bool(((y >= lower) & (y <= upper)).all()) else np.inf

    def prox(self, y: Array, t: Any) -> Array:
        return self.project(y)

    def project(self, y: Array) -> Array:
        return clip(y, beside(self.lower, y), beside(self.upper, y)).astype(y.dtype, copy=False)

    def conjugate(self, v: Array) -> float:
        # At v = 0 the supremum of v·y is 0 even where the box is unbounded.
        active = np.where(v > 0, beside(self.upper, v), beside(self.lower, v))
        return float((v * np.where(v == 0, 0.0, active)).sum())

    def conjugate_prox(self, y: Array, sigma: Any) -> Array:
        # Scaled bounds instead of a scaled argument: inside the box the result is exactly zero.
        rest: Array = y - clip(y, sigma * beside(self.lower, y), sigma * beside(self.upper, y))
        return rest.astype(y.dtype, copy=False)

    def conjugate_prox_derivative(self, y: Array, sigma: float) -> Callable[[Array], Array]:
        scaled = y / sigma
        outside = ((scaled < self.lower) | (scaled > self.upper) | (self.lower == self.upper)).astype(y.dtype)
        return lambda u: outside * u

    def _parameters(self) -> str:
        return ", ".join("…" if bound.ndim else f"{float(bound):g}" for bound in (self.lower, self.upper))


class NonNegative(Box):
    """The indicator of y ≥ 0.

    >>> import numpy as np
    >>> NonNegative().prox(np.array([-1.0, 2.0]), 1.0)
    array([0., 2.])
    """

    sent: ClassVar[Sent] = {}

    def __init__(self) -> None:
        super().__init__(lower=0.0)

    def _parameters(self) -> str:
        return ""


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

    sent: ClassVar[Sent] = dict.fromkeys(("l1", "l2", "lower", "upper"), np.ndarray)

    separable = True

    def __init__(self, l1: Any = 0.0, l2: Any = 0.0, lower: Any = -np.inf, upper: Any = np.inf) -> None:
        self.l1, self.l2 = _checks.weights("l1", l1), _checks.weights("l2", l2)
        self._box = Box(lower, upper)
        self.lower, self.upper = self._box.lower, self._box.upper
        self.finite = bool(np.isinf(self.lower).all() and np.isinf(self.upper).all())

    def bind(self, shape: Shape) -> ElasticNet:
        check_fits("l1", self.l1, shape)
        check_fits("l2", self.l2, shape)
        self._box.bind(shape)
        return self

    def restrict(self, features: IntArray) -> ElasticNet:
        """Return the penalty of some entries."""
        parts = (self.l1, self.l2, self.lower, self.upper)
        return ElasticNet(*(one if np.ndim(one) == 0 else one[..., features] for one in parts))

    def rescale(self, factors: Array) -> ElasticNet:
        return ElasticNet(self.l1 * factors, self.l2 * factors**2, self.lower / factors, self.upper / factors)

    def without_ridge(self) -> Penalty:
        """Return the same with r = 0: no penalty if nothing is left, and an l1 norm without limits."""
        if not self.finite:
            return ElasticNet(self.l1, 0.0, self.lower, self.upper)
        return L1(self.l1) if self.l1.any() else Zero()

    def value(self, y: Array) -> float:
        inside = self._box.value(y)
        return inside + float((beside(self.l1, y) * abs(y) + 0.5 * beside(self.l2, y) * y * y).sum())

    def prox(self, y: Array, t: Any) -> Array:
        # In one dimension the prox with limits is that without them, cut off.
        reach = t * beside(self.l1, y)
        shrunk: Array = (y - clip(y, -reach, reach)) / (1.0 + t * beside(self.l2, y))
        return self.project(shrunk.astype(y.dtype, copy=False))

    def project(self, y: Array) -> Array:
        return self._box.project(y)

    def conjugate(self, v: Array) -> float:
        """Return Σ_j max_y v_j y − g_j(y): at the end of the slope, at a limit, or at infinity."""
        xp, rounding = namespace(v), 8 * float(np.finfo(v.dtype).eps)
        l1, l2 = beside(self.l1, v), beside(self.l2, v)
        rest = v - clip(v, -l1 * (1.0 + rounding), l1 * (1.0 + rounding))
        # Where there is no ridge the slope does not end.
        endless = xp.where(rest > 0, np.inf, -np.inf)
        best = xp.where(rest == 0, 0.0, xp.where(l2 > 0, rest / xp.where(l2 > 0, l2, 1.0), endless))
        best = clip(best, beside(self.lower, v), beside(self.upper, v))
        if not bool(xp.isfinite(best).all()):
            return np.inf
        return float((v * best - l1 * abs(best) - 0.5 * l2 * best * best).sum())

    def conjugate_prox(self, y: Array, sigma: Any) -> Array:
        # Without limits and ridge it is cut off exactly at the weights: nothing is subtracted from y.
        reach = beside(self.l1, y)
        cut = clip(y, -reach, reach)
        over = y - cut
        kept = over * (sigma / (sigma + beside(self.l2, y)))
        if not self.finite:
            kept = clip(kept, sigma * beside(self.lower, y), sigma * beside(self.upper, y))
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
