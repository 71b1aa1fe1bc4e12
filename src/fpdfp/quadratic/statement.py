"""The values of the inner problem min q(u) + g(Bu): the quadratic q, the accuracy, and what was found."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array


class Distance(NamedTuple):
    """q(u) = ‖u − y‖²/2t: the prox of g∘B at y, or over a leading client axis the proxes at each y."""

    y: Array
    t: float

    def value(self, u: Array) -> float:
        """Return q(u), for one y."""
        return float(np.vdot(u - self.y, u - self.y)) / (2.0 * self.t)

    def gradient(self, u: Array) -> Array:
        """Return ∇q(u)."""
        gradient: Array = (u - self.y) / self.t
        return gradient

    def hessian(self, u: Array) -> Array:
        """Return I/t."""
        return np.eye(u.size) / self.t

    def hessian_product(self, u: Array, direction: Array) -> Array:
        """Return I/t times a direction."""
        product: Array = direction / self.t
        return product


class Quadratic(NamedTuple):
    """q(u) = ⟨s, u − c⟩ + ½ (u − c)ᵀH(u − c), with H a dense matrix; solvers start from c."""

    matrix: Array
    centre: Array
    slope: Array

    @classmethod
    def of(cls, matrix: Array, linear: Array, centre: Array) -> Quadratic:
        """Return ½ uᵀHu + ⟨linear, u⟩, up to a constant."""
        return cls(matrix, centre, matrix @ centre + linear)

    @property
    def diagonal(self) -> Array:
        """The diagonal of H."""
        return np.diag(self.matrix)

    def value(self, u: Array) -> float:
        """Return q(u)."""
        away = u - self.centre
        return float(away @ (self.slope + 0.5 * (self.matrix @ away)))

    def gradient(self, u: Array) -> Array:
        """Return ∇q(u)."""
        gradient: Array = self.slope + self.matrix @ (u - self.centre)
        return gradient

    def hessian(self, u: Array) -> Array:
        """Return H."""
        return self.matrix

    def hessian_product(self, u: Array, direction: Array) -> Array:
        """Return H times a direction."""
        product: Array = self.matrix @ direction
        return product


class Products(NamedTuple):
    """The same q with H known by its diagonal and by products."""

    multiply: Callable[[Array], Array]
    diagonal: Array
    centre: Array
    slope: Array

    def gradient(self, u: Array) -> Array:
        """Return ∇q(u)."""
        return self.slope + self.multiply(u - self.centre)


@dataclasses.dataclass(frozen=True)
class InnerSolve:
    """The accuracy of problems inside a round.

    Parameters
    ----------
    tol
        The relative accuracy of a prox u of y. Errors of proximal steps add up from step to step, so FedMiD's are at
        most tol ‖y − u‖ from the true prox. The problems of dual averaging do not, and there it is tol (‖u‖ + s‖y −
        u‖), with s the share of one local step in ‖y − u‖. For g finite everywhere this is certain up to rounding (in
        float32 a tol below about √(1e-7 ‖y‖/‖y − u‖) requests more than there is); for constraints it is an estimate.
    max_steps
        When to give up; the history counts what was not solved.

    Examples
    --------
    >>> InnerSolve(tol=1e-2)
    InnerSolve(tol=0.01, max_steps=1000)
    """

    tol: float = 1e-3
    max_steps: int = 1000

    def __post_init__(self) -> None:
        tol = _checks.real("tol", self.tol, positive=True)
        if tol >= 1:
            raise ValueError(f"tol must be below 1, got {tol:g}")
        object.__setattr__(self, "tol", tol)
        object.__setattr__(self, "max_steps", _checks.integer("max_steps", self.max_steps, at_least=1))


def check_inner(inner: InnerSolve | None) -> None:
    """Refuse what is neither None nor an InnerSolve."""
    if inner is not None and not isinstance(inner, InnerSolve):
        raise TypeError(f"inner must be an InnerSolve or None, got {_checks.kind(inner)}")


class Work(NamedTuple):
    """The cost of inner solves: their steps, and the number that ended before reaching their tolerance."""

    steps: int = 0
    unsolved: int = 0

    def __add__(self, other: tuple[int, ...]) -> Work:  # type: ignore[override]
        if not any(other):
            return self  # as in most rounds
        steps, unsolved = other
        return Work(self.steps + steps, self.unsolved + unsolved)


class Solution(NamedTuple):
    """The approximate minimum of q + g∘B, its dual v with ∇q(u) + Bᵀv ≈ 0, and the work."""

    u: Array
    v: Array
    work: Work
