"""Bounds on every entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._array import beside, namespace
from fpdfp._typing import Array, Shape
from fpdfp.errors import ArgumentError
from fpdfp.penalties.base import Penalty


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
        for name, bound in (("lower", self.lower), ("upper", self.upper)):
            if bound.shape not in ((), shape):
                raise ArgumentError(name, f"must be one number or have the shape {shape} of Bx, got {bound.shape}")
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
        xp = namespace(y)
        clipped: Array = xp.minimum(xp.maximum(y, beside(self.lower, y)), beside(self.upper, y))
        return clipped.astype(y.dtype, copy=False)

    def conjugate(self, v: Array) -> float:
        # At v = 0 the supremum of v·y is 0 even where the box is unbounded.
        active = np.where(v > 0, beside(self.upper, v), beside(self.lower, v))
        return float((v * np.where(v == 0, 0.0, active)).sum())

    def conjugate_prox(self, y: Array, sigma: Any) -> Array:
        # Scaled bounds instead of a scaled argument: inside the box the result is exactly zero.
        xp = namespace(y)
        lower, upper = sigma * beside(self.lower, y), sigma * beside(self.upper, y)
        rest: Array = y - xp.minimum(xp.maximum(y, lower), upper)
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

    def __init__(self) -> None:
        super().__init__(lower=0.0)

    def _parameters(self) -> str:
        return ""
