"""The interface of penalties, and no penalty."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from fpdfp._array import namespace
from fpdfp._typing import Array, Sent, Shape
from fpdfp.errors import ArgumentError

#: Bisection steps for the scale of a dual point.
HALVINGS = 52


class Penalty(abc.ABC):
    r"""A proper convex function g with a cheap prox.

    ``prox`` and ``conjugate_prox`` also accept arrays with a leading client axis. Moreau's identity

    .. math:: \mathrm{prox}_{\sigma g^*}(y) = y - \sigma\, \mathrm{prox}_{g/\sigma}(y / \sigma)

    gives one from the other, so a new penalty needs only ``value``, ``prox`` and ``conjugate``.
    """

    #: Whether g is finite everywhere; if not, iterates may violate a constraint before they converge.
    finite: bool = True
    #: Whether ``conjugate`` is known; if not, certificates have residuals and no duality gap.
    has_conjugate: bool = True
    #: Whether every entry has its own prox, so that ``t`` and ``sigma`` may also be arrays like y.
    separable: bool = False

    def bind(self, shape: Shape) -> Penalty:
        """Return this penalty for arrays of a shape; raise an error for a shape that does not fit."""
        return self

    def rescale(self, factors: Array) -> Penalty | None:
        """Return y ↦ g(s y) for positive factors s, one for each entry; None where it is not known."""
        return None

    @abc.abstractmethod
    def value(self, y: Array) -> float:
        """Return g(y); infinity outside the domain."""

    @abc.abstractmethod
    def prox(self, y: Array, t: Any) -> Array:
        """Return argmin_u g(u) + ‖u − y‖²/2t."""

    @abc.abstractmethod
    def conjugate(self, v: Array) -> float:
        """Return g*(v) = sup_y ⟨v, y⟩ − g(y); infinity outside its domain.

        Points are in the domain up to rounding.
        """

    def conjugate_scale(self, v: Array) -> float:
        """Return the largest s ≤ 1 with s v in the domain of g*, up to rounding; 0 is in it where g is bounded below.

        The default is a bisection, which needs only that the domain is convex.
        """
        if math.isfinite(self.conjugate(v)):
            return 1.0
        inside, outside = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = 0.5 * (inside + outside)
            inside, outside = (middle, outside) if math.isfinite(self.conjugate(middle * v)) else (inside, middle)
        return inside

    def conjugate_prox(self, y: Array, sigma: Any) -> Array:
        """Return argmin_u g*(u) + ‖u − y‖²/2σ."""
        moreau: Array = y - sigma * self.prox(y / sigma, 1.0 / sigma)
        return moreau

    def project(self, y: Array) -> Array:
        """Return the point of the domain of g nearest to y."""
        return y

    def settle(self, y: Array, v: Array) -> Array:
        """Return y with the zeros that follow from v ∈ ∂g(y); by default y itself.

        For proxes that are computed by dual steps, which leave rounding in y.
        """
        return y

    def subgradient(self, y: Array) -> Array:
        """Return an element of ∂g(y), also over a leading client axis; needed by subgradient methods."""
        raise NotImplementedError(f"{type(self).__name__} has no subgradient")

    def conjugate_prox_derivative(self, y: Array, sigma: float) -> Callable[[Array], Array]:
        """Return an element of the generalised Jacobian of ``conjugate_prox`` at y, as a symmetric map.

        The map also accepts arrays with leading axes. It is needed by ``fpdfp.minimize``; methods of the
        package also run without it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no derivative of its prox")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._parameters()})"

    def _parameters(self) -> str:
        return ""


def describe(weight: Any) -> str:
    """Return a weight as text, or the shape of an array of weights."""
    return f"{float(weight):g}" if getattr(weight, "ndim", 0) == 0 else f"weights of shape {weight.shape}"


def check_fits(name: str, array: Any, shape: Shape) -> None:
    """Raise an error unless there is one number, or one for each entry of Bx."""
    if np.shape(array) not in ((), shape):
        raise ArgumentError(name, f"must be one number or have the shape {shape} of Bx, got {np.shape(array)}")


def clip(y: Array, lower: Any, upper: Any) -> Array:
    """Return y cut off at limits, which are numbers or arrays on the same device."""
    xp = namespace(y)
    clipped: Array = xp.minimum(xp.maximum(y, lower), upper)
    return clipped


def shrink_within(sizes: Array, bounds: Any) -> float:
    """Return the largest s ≤ 1 for which s times no size is above its bound, up to rounding.

    >>> import numpy as np
    >>> shrink_within(np.array([0.0, 1.0, 4.0]), np.array([0.0, 2.0, 1.0]))
    0.25
    """
    xp = namespace(sizes)
    beyond = sizes > bounds
    shares = xp.where(beyond, bounds / xp.where(beyond, sizes, 1.0), 1.0)
    return float(shares.min()) if shares.size else 1.0


class Zero(Penalty):
    """g = 0; its conjugate is the indicator of {0}, so the dual variable stays zero."""

    sent: ClassVar[Sent] = {}

    separable = True

    def rescale(self, factors: Array) -> Zero:
        return self

    def value(self, y: Array) -> float:
        return 0.0

    def prox(self, y: Array, t: Any) -> Array:
        return y

    def conjugate(self, v: Array) -> float:
        return 0.0 if not np.any(v) else np.inf

    def conjugate_prox(self, y: Array, sigma: Any) -> Array:
        return y * 0.0

    def subgradient(self, y: Array) -> Array:
        return y * 0.0

    def conjugate_prox_derivative(self, y: Array, sigma: float) -> Callable[[Array], Array]:
        return lambda u: u * 0.0
