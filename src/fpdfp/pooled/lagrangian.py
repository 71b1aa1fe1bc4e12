"""An augmented Lagrangian method for g(Bx) of any form.

The augmented Lagrangian of

    min f(x) + g(y)  subject to  Bx = y

is minimised by a semismooth Newton method (`fpdfp/semismooth.py`), and then v ← w with a larger σ. Both loops converge
superlinearly.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.problem import Certificate, Problem
from fpdfp.semismooth import Smooth, Subproblem, as_matrix

MAX_OUTER = 60
#: Up to this size of x, and of B as a dense matrix, Newton systems are factorised; above, conjugate gradients.
DENSE_COLUMNS = 1500
DENSE_ENTRIES = 1 << 23
GROWTH = 3.0
#: Outer steps without halving the error after which rounding is taken to be the limit.
PATIENCE = 12
#: The smallest accuracy asked for, relative to gradients.
ROUNDING = 1e-15
#: A residual that no gap goes with must be at least as small as this, relative to the gradient at 0.
RESIDUAL = 1e-6


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


class AugmentedLagrangian:
    """Solves one problem."""

    def __init__(self, problem: Problem, tol: float) -> None:
        self.problem = problem
        self.tol = tol
        #: What a residual must be below where no gap is known.
        self.goal = min(tol, max(RESIDUAL, 100.0 * float(np.finfo(problem.model.dtype).eps)))
        self.mu = problem.strong_convexity
        self.newton_steps = 0
        self.smooth: Smooth = problem.losses.pooled(problem.weights) or _SmoothPart(problem)
        linop = problem.linop
        #: If f may be flat, a decreasing term keeps x near the last x: the proximal method of multipliers. For
        #: features on very different scales, L does not show the relevant curvature, so the term is very small.
        self.proximity = 0.0 if self.mu > 0 else 1e-8 * self._smoothness
        self.matrix: Array | None = None
        if linop.size_in <= DENSE_COLUMNS and linop.size_in * linop.size_out <= DENSE_ENTRIES:
            self.matrix = as_matrix(linop, problem.model.dtype)

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
        problem = self.problem
        v = np.zeros(problem.model.dual_shape, dtype=x.dtype)
        scale = float(np.linalg.norm(problem.gradient(np.zeros_like(x)))) or 1.0
        x, sigma = self.start(x, scale)
        size = float(np.linalg.norm(problem.linop.apply(x)))
        best: Iterate | None = None
        least, stalled = (math.inf, math.inf), 0
        for outer in range(MAX_OUTER):
            # A gap may be too large though the residual is small, as where nearly nothing of F is left.
            least_slope = self.gradient_tolerance(x, scale) if least[1] > self.goal else ROUNDING * scale
            accuracy = max(0.1 * scale * 10.0 ** (-1.5 * outer), least_slope)
            x, w = self.minimise(x, v, sigma, self.proximity * GROWTH**-outer, accuracy)
            now = self.judge(x, w, float(np.linalg.norm(w - v)) / sigma, scale, size)
            v = w
            stalled = 0 if now.gap < 0.5 * least[0] or now.residual < 0.5 * least[1] else stalled + 1
            least = min(now.gap, least[0]), min(now.residual, least[1])
            if best is None or now.is_better(best):
                best = now
            if now.compare(self.tol, self.goal).enough:
                best = now
                break
            if stalled == PATIENCE:
                break
            sigma *= GROWTH
        assert best is not None
        return Found(best.x, best.v, best.certificate, best.compare(self.tol, self.goal), self.newton_steps)

    def start(self, x: Array, scale: float) -> tuple[Array, float]:
        """Return a first point and a σ that suits the sizes of v and Bx.

        From a rough minimiser of f alone, prox_{τ g*}(τBx) with a large τ shows how large the dual is: for a
        norm of weight μ it is about μ, and σ about μ/|Bx| makes the kinks of ψ as wide as Bx is long.
        """
        linop = self.problem.linop
        smoothness = self._smoothness
        balanced = smoothness / linop.squared_norm if smoothness > 0 and linop.squared_norm > 0 else 1.0
        zero = np.zeros(self.problem.model.dual_shape, dtype=x.dtype)
        x, _ = self.minimise(x, zero, 1e-9 * balanced, self.proximity, 0.1 * scale)
        image = linop.apply(x)
        dual = self.problem.penalty.conjugate_prox(balanced * image, balanced)
        sizes = float(np.linalg.norm(dual)), float(np.linalg.norm(image))
        ratio = sizes[0] / sizes[1] if min(sizes) > 0 else balanced
        return x, min(max(ratio, 1e-8 * balanced), balanced)

    def minimise(self, x: Array, v: Array, sigma: float, proximity: float, accuracy: float) -> tuple[Array, Array]:
        """Minimise the augmented Lagrangian from x; return x and w."""
        model = self.problem.model
        subproblem = Subproblem(self.smooth, model.penalty, model.linop, v, sigma, x, proximity, self.matrix)
        x, w, steps, _ = subproblem.minimise(x, accuracy)
        self.newton_steps += steps
        return x, w

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
