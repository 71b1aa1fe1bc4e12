"""Semismooth Newton steps for augmented Lagrangians: what the reference solver and the inner solves share.

For min f(x) + g(y) subject to Bx = y, the augmented Lagrangian is minimised over y in closed form and over x by

    ψ(x) = f(x) + min_y g(y) + ⟨v, Bx − y⟩ + σ/2 ‖Bx − y‖²
    ∇ψ   = ∇f(x) + Bᵀ w,             w = prox_{σ g*}(v + σBx)
    ∂²ψ  ∋ ∇²f(x) + σ Bᵀ D B,        D a generalised Jacobian of prox_{σ g*} at v + σBx

X. Li, D. Sun and K.-C. Toh, "A highly efficient semismooth Newton augmented Lagrangian method for solving
lasso problems", SIAM J. Optim. 28 (2018).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from fpdfp._typing import Array
from fpdfp.linops.base import LinOp
from fpdfp.penalties.base import Penalty

MAX_NEWTON = 100
#: Steps of conjugate gradients for one direction.
MAX_CONJUGATE = 2000
#: What rounding can do to a sum, relative to its terms.
ROUNDING, TINY = 1e-13, 1e-300
#: Newton steps without progress after which the rest is taken for rounding.
STALLED = 5


class Smooth(Protocol):
    """The smooth part f."""

    def value(self, x: Array) -> float:
        """Return f(x)."""

    def gradient(self, x: Array) -> Array:
        """Return ∇f(x)."""

    def hessian(self, x: Array) -> Array | None:
        """Return ∇²f(x) as a matrix, None where it is not available."""

    def hessian_product(self, x: Array, direction: Array) -> Array:
        """Return ∇²f(x) times a direction."""


class Point(NamedTuple):
    """Where ψ is about least: x, its multiplier w, the Newton steps that led there, and the length of the gradient."""

    x: Array
    w: Array
    steps: int
    length: float


@dataclasses.dataclass(frozen=True)
class Subproblem:
    """ψ(x) + τ/2 ‖x − c‖² for given v, σ, c and τ.

    ``matrix`` is Bᵀ as rows B e_1, B e_2, …, each of the shape of Bx; without it Newton systems are solved by conjugate
    gradients. ``sparse`` is B as a sparse matrix, where it has few entries.
    """

    smooth: Smooth
    penalty: Penalty
    linop: LinOp
    v: Array
    sigma: float
    centre: Array
    tau: float
    matrix: Array | None
    sparse: Any = None

    def evaluate(self, x: Array) -> tuple[float, Array, Array, float]:
        """Return the value, w, the gradient, and what rounding can do to the value."""
        sigma, away = self.sigma, x - self.centre
        shifted = self.v + sigma * self.linop.apply(x)
        w = self.penalty.conjugate_prox(shifted, sigma)
        y = self.penalty.project((shifted - w) / sigma)
        terms = (self.smooth.value(x), self.penalty.value(y), float(np.vdot(w, w)) / (2 * sigma))
        value = sum(terms) + self.tau / 2 * float(np.vdot(away, away))
        slope = self.smooth.gradient(x) + self.linop.adjoint(w) + self.tau * away
        return value, w, slope, ROUNDING * max(sum(map(abs, terms)), TINY)

    def minimise(self, x: Array, accuracy: float) -> Point:
        """Take damped Newton steps until the gradient is at most so long."""
        value, w, slope, rounding = self.evaluate(x)
        stalled = 0
        for steps in range(MAX_NEWTON):
            length = float(np.linalg.norm(slope))
            if length <= accuracy:
                return Point(x, w, steps, length)
            direction = self.newton_direction(x, slope)
            descent = float(np.vdot(slope, direction))
            damping = 1.0
            while True:
                trial = x + damping * direction
                trial_value, trial_w, trial_slope, rounding = self.evaluate(trial)
                # At the end ψ no longer tells points apart; then a smaller gradient decides.
                if trial_value <= value + 1e-4 * damping * descent or (
                    trial_value <= value + rounding and float(np.linalg.norm(trial_slope)) < length
                ):
                    break
                damping *= 0.5
                if damping < 1e-12:
                    return Point(x, w, steps + 1, length)
            # Where neither ψ nor the gradient shrinks any more, what is left is rounding.
            shrinks = trial_value < value - rounding or float(np.linalg.norm(trial_slope)) < 0.5 * length
            stalled = 0 if shrinks else stalled + 1
            x, value, w, slope = trial, trial_value, trial_w, trial_slope
            if stalled == STALLED:
                break
        return Point(x, w, steps + 1, float(np.linalg.norm(slope)))

    def newton_direction(self, x: Array, slope: Array) -> Array:
        """Solve (∇²f + τI + σBᵀDB) d = −∇ψ, by Cholesky or by conjugate gradients."""
        sigma, linop = self.sigma, self.linop
        derivative = self.penalty.conjugate_prox_derivative(self.v + sigma * linop.apply(x), sigma)
        hessian = self.smooth.hessian(x) if self.matrix is not None else None
        if hessian is not None and self.matrix is not None:
            rows = self.matrix.reshape(len(hessian), -1)
            bent = derivative(self.matrix).reshape(rows.shape)
            system = hessian + sigma * (bent @ rows.T if self.sparse is None else (self.sparse.T @ bent.T).T)
            system[np.diag_indices_from(system)] += self.tau
            return _solve_positive(system, -slope.ravel()).reshape(slope.shape)

        def product(u: Array) -> Array:
            smooth = self.smooth.hessian_product(x, u) + self.tau * u
            curved: Array = sigma * linop.adjoint(derivative(linop.apply(u)))
            return smooth + curved

        return _conjugate_gradients(product, -slope)


def as_matrix(linop: LinOp, dtype: np.dtype[np.floating]) -> Array:
    """Return Bᵀ as rows B e_1, B e_2, …, each of the shape of Bx."""
    unit = np.eye(linop.size_in, dtype=dtype).reshape(linop.size_in, *linop.in_shape)
    return linop.apply(unit)


def _solve_positive(system: Array, right: Array) -> Array:
    """Solve a positive semidefinite system, with as little regularisation as makes it definite."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    size = float(np.trace(system)) / len(system) or 1.0
    ridge = 0.0
    while True:
        try:
            raised = system if ridge == 0.0 else system + ridge * np.eye(len(system), dtype=system.dtype)
            factor = cho_factor(raised)
            solution: Array = cho_solve(factor, right)
            if np.isfinite(solution).all():
                return solution
        except LinAlgError:
            pass
        ridge = max(10 * ridge, 1e-14 * size)


def _conjugate_gradients(product: Callable[[Array], Array], right: Array) -> Array:
    """Solve roughly; the residual asked for shrinks with the right side, which keeps Newton superlinear."""
    solution = np.zeros_like(right)
    residual = right.copy()
    direction = residual
    square = float(np.vdot(residual, residual))
    target = square * min(0.1, square**0.5) ** 2
    for _ in range(min(10 * right.size, MAX_CONJUGATE)):
        image = product(direction)
        curvature = float(np.vdot(direction, image))
        if curvature <= 0:
            break
        length = square / curvature
        solution = solution + length * direction
        residual = residual - length * image
        following = float(np.vdot(residual, residual))
        if following <= target:
            break
        direction = residual + following / square * direction
        square = following
    return solution if solution.any() else right
