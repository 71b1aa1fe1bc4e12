"""An augmented Lagrangian method for f(x) + g(Bx) of any form, by the steps of `fpdfp/quadratic/newton.py`.

It has one σ, one term of proximity and one length of gradients for all coordinates, which suit none of them where a
column is 1e5 times as large as another. So features of very different sizes are brought to units in which they are
alike. These are powers of two, so that nothing is rounded: the objective, the limits and the bound of the gap are the
same numbers.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.losses.linear import LinearModel
from fpdfp.penalties import L1, ElasticNet
from fpdfp.problem import Certificate, Problem
from fpdfp.quadratic.newton import GROWTH, Multipliers, Smooth, as_matrix, balance, has_newton_systems

MAX_OUTER = 60
#: Outer steps without halving the error after which rounding is taken to be the limit.
PATIENCE = 12
#: The smallest accuracy asked for, relative to gradients.
ROUNDING = 1e-15
#: A residual that no gap goes with must be at least as small as this, relative to the gradient at 0.
RESIDUAL = 1e-6
#: From this ratio of sizes on the units are changed, for which the data are copied.
APART = 100.0


class Reached(NamedTuple):
    """What is compared with the tolerance: its name, how large it is, and how small it must be."""

    name: str
    error: float
    goal: float

    @property
    def enough(self) -> bool:
        """Whether it is small enough."""
        return self.error <= self.goal


class Found(NamedTuple):
    """Where the steps ended, the certificate there, what was reached of the tolerance, and how many steps."""

    x: Array
    v: Array
    certificate: Certificate
    reached: Reached
    steps: int


class Iterate(NamedTuple):
    """A point and its dual with a certificate, and two relative errors: of optimality, and of constraints."""

    x: Array
    v: Array
    certificate: Certificate
    residual: float
    violation: float

    @property
    def gap(self) -> float:
        """The duality gap; infinity where none is known."""
        return math.inf if self.certificate.gap is None else self.certificate.gap

    def compare(self, tol: float, goal: float) -> Reached:
        """Return what of a gap, constraints and, where no gap is known, the residual is farthest from its goal."""
        gap = self.certificate.relative_gap
        if gap is None:
            return Reached("residual", self.residual, goal)
        if self.violation > max(gap, tol):
            return Reached("violation of constraints", self.violation, tol)
        return Reached("duality gap", gap, tol)

    def is_better(self, other: Iterate) -> bool:
        """Whether it has less of what is known of both: gaps beside the same scale, or else residuals.

        A gap as large as F says no more than that F* is not negative.
        """
        if self.gap >= self.certificate.scale or other.gap >= other.certificate.scale:
            return self.residual < other.residual
        scale = min(self.certificate.scale, other.certificate.scale)
        return max(self.gap / scale, self.violation) < max(other.gap / scale, other.violation)


def solve_alike(problem: Problem, tol: float, x: Array) -> Found:
    """Return the best point that an augmented Lagrangian finds, in units that suit it."""
    factors = find_factors(problem)
    penalty = None if factors is None else problem.penalty.rescale(np.broadcast_to(factors, problem.model.shape))
    if factors is None or penalty is None:
        return AugmentedLagrangian(problem, tol).solve(x)
    assert isinstance(problem.losses, LinearModel)
    alike = problem.with_losses(problem.losses.rescale(factors), penalty)
    found = AugmentedLagrangian(alike, tol).solve((x / factors).astype(x.dtype))
    x, *duals = (one.astype(x.dtype) for one in (found.x * factors, found.v / factors, found.certificate.v / factors))
    violation = problem.evaluate(x)[1]  # a length, in the units of x
    residual = problem.residual(x, duals[0])
    certificate = found.certificate._replace(v=duals[1], residual=residual, violation=violation)
    return found._replace(x=x, v=duals[0], certificate=certificate)


def find_factors(problem: Problem) -> Array | None:
    """Return what to divide each feature by; None where they are alike, or cannot be changed."""
    losses = problem.losses
    if not (problem.linop.is_identity and isinstance(losses, LinearModel) and losses.shape[-1] == losses.n_features):
        return None
    # Classes that all move alike are held by weights of x alone, which would be of very different sizes then.
    if len(losses.shape) > 1 and isinstance(problem.penalty, L1 | ElasticNet):
        return None
    squares = losses._column_squares(problem.weights) + float(problem.weights.sum()) * losses._ridge
    # A column of zeros without a ridge has no size.
    sizes = np.sqrt(np.where(squares > 0, squares, 1.0))
    if sizes.max() < APART * sizes.min():
        return None
    factors: Array = np.exp2(-np.round(np.log2(sizes)))
    return factors


class AugmentedLagrangian:
    """Solves one problem."""

    def __init__(self, problem: Problem, tol: float) -> None:
        self.problem = problem
        self.tol = tol
        #: What a residual must be below where no gap is known.
        self.goal = min(tol, max(RESIDUAL, 100.0 * float(np.finfo(problem.model.dtype).eps)))
        self.mu = problem.strong_convexity
        self.smooth: Smooth = problem.losses.pooled(problem.weights) or _SmoothPart(problem)
        #: If f may be flat, a decreasing term keeps x near the last x: the proximal method of multipliers. For
        #: features on very different scales, L does not show the relevant curvature, so the term is very small.
        self.proximity = 0.0 if self.mu > 0 else 1e-8 * self._smoothness
        dtype = problem.model.dtype
        matrix = as_matrix(problem.linop, dtype) if has_newton_systems(problem.linop) else None
        self.multipliers = Multipliers(problem.model, np.zeros(problem.model.dual_shape, dtype), matrix)

    @functools.cached_property
    def _smoothness(self) -> float:
        """About the largest curvature of f: where there is no Lipschitz constant, that of its Hessian at zero."""
        problem = self.problem
        known = float(problem.lipschitz.mean())
        if np.isfinite(known):
            return known
        zero = np.zeros(problem.model.shape, dtype=problem.model.dtype)
        hessian = problem.losses.hessian(zero, problem.weights)
        found = 1.0 if hessian is None else float(np.linalg.norm(hessian, 2))
        return found if np.isfinite(found) else 1.0

    def solve(self, x: Array) -> Found:
        """Return the best point found."""
        problem, multipliers = self.problem, self.multipliers
        scale = float(np.linalg.norm(problem.gradient(np.zeros_like(x)))) or 1.0
        x = self.start(x, scale)
        size = float(np.linalg.norm(problem.linop.apply(x)))
        best: Iterate | None = None
        least, stalled = (math.inf, math.inf), 0
        for outer in range(MAX_OUTER):
            # A gap may be too large though the residual is small, as where nearly nothing of F is left.
            least_slope = self.gradient_tolerance(x, scale) if least[1] > self.goal else ROUNDING * scale
            accuracy = max(0.1 * scale * 10.0 ** (-1.5 * outer), least_slope)
            v = multipliers.v
            x, _ = multipliers.step(self.smooth, x, self.proximity * GROWTH**-outer, accuracy)
            w = multipliers.v
            now = self.judge(x, w, float(np.linalg.norm(w - v)) / multipliers.sigma, scale, size)
            stalled = 0 if now.gap < 0.5 * least[0] or now.residual < 0.5 * least[1] else stalled + 1
            least = min(now.gap, least[0]), min(now.residual, least[1])
            if best is None or now.is_better(best):
                best = now
            if now.compare(self.tol, self.goal).enough:
                best = now
                break
            if stalled == PATIENCE:
                break
            multipliers.sigma *= GROWTH
        assert best is not None
        return Found(best.x, best.v, best.certificate, best.compare(self.tol, self.goal), multipliers.steps)

    def start(self, x: Array, scale: float) -> Array:
        """Return a rough minimiser of f alone, for which σ is chosen."""
        multipliers, linop = self.multipliers, self.problem.linop
        zero, balanced = multipliers.v, balance(self._smoothness, linop)
        multipliers.sigma = 1e-9 * balanced
        x, _ = multipliers.step(self.smooth, x, self.proximity, 0.1 * scale)
        multipliers.v = zero
        multipliers.suit(linop.apply(x), balanced)
        return x

    def gradient_tolerance(self, x: Array, scale: float) -> float:
        """How small ‖∇ψ‖ must be for its part of the error to be within the tolerance."""
        if self.mu > 0:
            objective = abs(self.problem.evaluate(x)[0])
            return max(math.sqrt(0.2 * self.mu * self.tol * objective), ROUNDING * scale)
        return 0.5 * self.goal * scale

    def judge(self, x: Array, v: Array, apart: float, scale: float, size: float) -> Iterate:
        """Return a point, where B is the identity the nearest one of the domain of g and its dual, with a certificate.

        ``apart`` is ‖Bx − y‖ for the y that minimises the augmented Lagrangian; ``scale`` is that of gradients. Bx may
        be nearly 0 at the solution, so it is compared with ``size``, what it was at the start, as well.
        """
        problem = self.problem
        if problem.linop.is_identity and not problem.penalty.finite:
            x = problem.penalty.project(x)
            v = problem.dual_step(x, v, problem.gradient(x))
        certificate = problem.certificate(x, v, dual_steps=0)
        size = max(float(np.linalg.norm(problem.linop.apply(x))), size, 1e-8)
        stationarity = float(np.linalg.norm(problem.gradient(x) + problem.linop.adjoint(v))) / scale
        return Iterate(x, v, certificate, max(stationarity, apart / size), certificate.violation / size)


class _SmoothPart:
    """f of a problem, with all data in one place."""

    def __init__(self, problem: Problem) -> None:
        self.value, self.gradient = problem.smooth_value, problem.gradient
        self._losses, self._weights = problem.losses, problem.weights

    def hessian(self, x: Array) -> Array | None:
        return self._losses.hessian(x, self._weights)

    def hessian_product(self, x: Array, direction: Array) -> Array:
        return self._losses.hessian_product(x, direction, self._weights)
