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
#: A residual that no gap goes with must be at least as small as this, relative to the gradient at 0.
RESIDUAL = 1e-6


class Found(NamedTuple):
    """Where the steps ended, the certificate there, the error to compare with the tolerance, and how many steps."""

    x: Array
    v: Array
    certificate: Certificate
    error: float
    steps: int


class AugmentedLagrangian:
    """Solves one problem."""

    def __init__(self, problem: Problem, tol: float) -> None:
        self.problem = problem
        self.tol = tol
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
        best_error, best, stalled = math.inf, (x, v), 0
        for outer in range(MAX_OUTER):
            accuracy = max(0.1 * scale * 10.0 ** (-1.5 * outer), self.gradient_tolerance(x, scale))
            x, w = self.minimise(x, v, sigma, self.proximity * GROWTH**-outer, accuracy)
            error = self.error(x, v, w, sigma, scale)
            v = w
            stalled = 0 if error < 0.5 * best_error else stalled + 1
            if error < best_error:
                best_error, best = error, (x, v)
            if error <= self.tol or stalled == PATIENCE:
                break
            sigma *= GROWTH
        x, v = best
        return Found(x, v, problem.certificate(x, v, dual_steps=0), best_error, self.newton_steps)

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
            return max(math.sqrt(0.2 * self.mu * self.tol * objective), 1e-15 * scale)
        return 0.5 * min(self.tol, RESIDUAL) * scale

    def error(self, x: Array, v: Array, w: Array, sigma: float, scale: float) -> float:
        """The relative duality gap and the relative violation; where no gap is known, the relative residuals."""
        problem = self.problem
        certificate = problem.certificate(x, w, dual_steps=0)
        size = max(float(np.linalg.norm(problem.linop.apply(x))), 1e-8)
        if certificate.relative_gap is not None:
            return max(certificate.relative_gap, certificate.violation / size)
        stationarity = float(np.linalg.norm(problem.gradient(x) + problem.linop.adjoint(w))) / scale
        # Bx and the y that minimises the augmented Lagrangian differ by (w − v)/σ.
        return max(stationarity, float(np.linalg.norm(w - v)) / sigma / size)


class _SmoothPart:
    """f of a problem, with all data in one place."""

    def __init__(self, problem: Problem) -> None:
        self.value, self.gradient = problem.smooth_value, problem.gradient
        self._losses, self._weights = problem.losses, problem.weights

    def hessian(self, x: Array) -> Array | None:
        return self._losses.hessian(x, self._weights)

    def hessian_product(self, x: Array, direction: Array) -> Array:
        return self._losses.hessian_product(x, direction, self._weights)
