"""An independent high-accuracy solver, with a certificate of what it reached.

It shares nothing with the federated methods but the problem: the augmented Lagrangian of

    min f(x) + g(y)  subject to  Bx = y

is minimised over y in closed form and over x by a semismooth Newton method,

    ψ(x) = f(x) + min_y g(y) + ⟨v, Bx − y⟩ + σ/2 ‖Bx − y‖²
    ∇ψ   = ∇f(x) + Bᵀ w,             w = prox_{σ g*}(v + σBx)
    ∂²ψ  ∋ ∇²f(x) + σ Bᵀ D B,        D a generalised Jacobian of prox_{σ g*} at v + σBx

and then v ← w with a larger σ. Both loops converge superlinearly.

X. Li, D. Sun and K.-C. Toh, "A highly efficient semismooth Newton augmented Lagrangian method for solving
lasso problems", SIAM J. Optim. 28 (2018).
"""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import AccuracyWarning
from fpdfp.problem import Certificate, Problem

MAX_OUTER = 60
MAX_NEWTON = 100
#: Up to this size of x, and of B as a dense matrix, Newton systems are factorised; above, conjugate gradients.
DENSE_COLUMNS = 1500
DENSE_ENTRIES = 1 << 23
GROWTH = 3.0
#: Outer steps without halving the error after which rounding is taken to be the limit.
PATIENCE = 8


@dataclasses.dataclass(frozen=True)
class Reference:
    """A solution of high accuracy and its certificate.

    Attributes
    ----------
    x, v
        The solution and its dual.
    objective
        F(x); with constraints, g is taken at the point of its domain nearest to Bx, so that an x which is outside
        by ``certificate.violation`` may have an objective slightly below the minimum.
    certificate
        Duality gap where one is known, and the residual of Lemma 1.
    converged
        Whether the tolerance was reached.
    newton_steps
        Newton steps in all.
    seconds
        Time taken.
    """

    x: Array
    v: Array
    objective: float
    certificate: Certificate
    converged: bool
    newton_steps: int
    seconds: float

    def __str__(self) -> str:
        gap = self.certificate.relative_gap
        bound = f"relative gap {gap:.2g}" if gap is not None else f"residual {self.certificate.residual.norm:.2g}"
        return f"objective {self.objective:.15g}, {bound}, {self.newton_steps} Newton steps in {self.seconds:.2f} s"


def reference_solution(problem: Problem, tol: float = 1e-10, x0: Any = None) -> Reference:
    """Solve a problem to high accuracy, with all data in one place.

    Parameters
    ----------
    problem
        What to minimise; its penalty must know the derivative of its prox, as all of
        :mod:`fpdfp.penalties` do.
    tol
        The relative duality gap to reach; where no strong convexity of f is known, and where g has constraints,
        the residual ‖∇f(x) + Bᵀv‖ relative to ‖∇f(0)‖, and ‖Bx − y‖ relative to ‖Bx‖, with y in the domain of g.
    x0
        Where to start; zero by default.

    Returns
    -------
    Reference
        With a warning if the tolerance was not reached.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> losses = fpdfp.losses.LeastSquares(np.eye(3), [3.0, 2.8, 0.0])
    >>> best = fpdfp.reference_solution(fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(3)))
    >>> best.x.round(6)
    array([2.75, 2.75, 0.3 ])
    >>> best.converged, best.certificate.relative_gap < 1e-10
    (True, True)
    """
    if not isinstance(problem, Problem):
        raise TypeError(f"problem must be an fpdfp.Problem, got {type(problem).__name__}")
    tol = _checks.real("tol", tol, positive=True)
    shape, dtype = problem.model.shape, problem.model.dtype
    x = np.zeros(shape, dtype) if x0 is None else _checks.float_array("x0", x0, shape=shape, dtype=dtype)
    return _AugmentedLagrangian(problem, tol).solve(x)


class _AugmentedLagrangian:
    def __init__(self, problem: Problem, tol: float) -> None:
        self.problem = problem
        self.tol = tol
        self.mu = problem.strong_convexity
        self.newton_steps = 0
        linop = problem.linop
        #: Where f may be flat, x is held near the last x, less and less: the proximal method of multipliers.
        self.proximity = 0.0 if self.mu > 0 else 1e-2 * float(problem.lipschitz.mean())
        self.matrix: Array | None = None
        if linop.size_in <= DENSE_COLUMNS and linop.size_in * linop.size_out <= DENSE_ENTRIES:
            unit = np.eye(linop.size_in, dtype=problem.model.dtype).reshape(linop.size_in, *linop.in_shape)
            #: Bᵀ as rows B e_1, B e_2, …, each of the shape of Bx.
            self.matrix = linop.apply(unit)

    def solve(self, x: Array) -> Reference:
        started = time.perf_counter()
        problem = self.problem
        v = np.zeros(problem.model.dual_shape, dtype=x.dtype)
        scale = float(np.linalg.norm(problem.gradient(np.zeros_like(x)))) or 1.0
        x, sigma = self.start(x, scale)
        best_error, best, stalled = math.inf, (x, v), 0
        for outer in range(MAX_OUTER):
            accuracy = max(0.1 * scale * 10.0 ** (-1.5 * outer), self.gradient_tolerance(x, scale))
            x, w = self.minimise(_Subproblem(problem, v, sigma, x, self.proximity * GROWTH**-outer), x, accuracy)
            error = self.error(x, v, w, sigma, scale)
            v = w
            stalled = 0 if error < 0.5 * best_error else stalled + 1
            if error < best_error:
                best_error, best = error, (x, v)
            if error <= self.tol or stalled == PATIENCE:
                break
            sigma *= GROWTH
        x, v = best
        certificate = problem.certificate(x, v, dual_steps=0)
        converged = best_error <= self.tol
        if not converged:
            warnings.warn(
                f"reference_solution reached {best_error:.2g} instead of tol={self.tol:g}",
                AccuracyWarning,
                stacklevel=3,
            )
        seconds = time.perf_counter() - started
        return Reference(x, v, certificate.objective, certificate, converged, self.newton_steps, seconds)

    def start(self, x: Array, scale: float) -> tuple[Array, float]:
        """Return a first point and a σ that suits the sizes of v and Bx.

        From a rough minimiser of f alone, prox_{τ g*}(τBx) with a large τ shows how large the dual is: for a
        norm of weight μ it is about μ, and σ about μ/|Bx| makes the kinks of ψ as wide as Bx is long.
        """
        linop = self.problem.linop
        smoothness = float(self.problem.lipschitz.mean())
        balanced = smoothness / linop.squared_norm if smoothness > 0 and linop.squared_norm > 0 else 1.0
        zero = np.zeros(self.problem.model.dual_shape, dtype=x.dtype)
        x, _ = self.minimise(_Subproblem(self.problem, zero, 1e-9 * balanced, x, self.proximity), x, 0.1 * scale)
        image = linop.apply(x)
        dual = self.problem.penalty.conjugate_prox(balanced * image, balanced)
        sizes = float(np.linalg.norm(dual)), float(np.linalg.norm(image))
        ratio = sizes[0] / sizes[1] if min(sizes) > 0 else balanced
        return x, min(max(ratio, 1e-8 * balanced), balanced)

    def gradient_tolerance(self, x: Array, scale: float) -> float:
        """How small ‖∇ψ‖ must be for its part of the error to be within the tolerance."""
        if self.mu > 0:
            objective = abs(self.problem.evaluate(x)[0])
            return max(math.sqrt(0.2 * self.mu * self.tol * objective), 1e-15 * scale)
        return 0.5 * self.tol * scale

    def error(self, x: Array, v: Array, w: Array, sigma: float, scale: float) -> float:
        """The relative duality gap, or the relative residuals where no gap is known."""
        problem = self.problem
        if problem.penalty.finite and self.mu > 0:
            gap = problem.duality_gap(x, w)
            assert gap is not None
            return gap / max(abs(problem.objective(x)), 1e-300)
        stationarity = float(np.linalg.norm(problem.gradient(x) + problem.linop.adjoint(w))) / scale
        # Bx and the y that minimises the augmented Lagrangian differ by (w − v)/σ.
        mismatch = float(np.linalg.norm(w - v)) / sigma
        return max(stationarity, mismatch / max(float(np.linalg.norm(problem.linop.apply(x))), 1e-8))

    def minimise(self, subproblem: _Subproblem, x: Array, accuracy: float) -> tuple[Array, Array]:
        """Minimise ψ by damped Newton steps; return x and w."""
        value, w, slope = subproblem.evaluate(x)
        for _ in range(MAX_NEWTON):
            length = float(np.linalg.norm(slope))
            if length <= accuracy:
                break
            direction = subproblem.newton_direction(x, slope, self.matrix)
            self.newton_steps += 1
            descent = float(np.vdot(slope, direction))
            damping = 1.0
            while True:
                trial = x + damping * direction
                trial_value, trial_w, trial_slope = subproblem.evaluate(trial)
                # At the end ψ no longer tells points apart; then a smaller gradient decides.
                rounding = 1e-13 * max(abs(value), 1.0)
                if trial_value <= value + 1e-4 * damping * descent or (
                    trial_value <= value + rounding and float(np.linalg.norm(trial_slope)) < length
                ):
                    break
                damping *= 0.5
                if damping < 1e-12:
                    return x, w
            x, value, w, slope = trial, trial_value, trial_w, trial_slope
        return x, w


@dataclasses.dataclass(frozen=True)
class _Subproblem:
    """ψ(x) + τ/2 ‖x − c‖² for given v, σ, c and τ."""

    problem: Problem
    v: Array
    sigma: float
    centre: Array
    tau: float

    def evaluate(self, x: Array) -> tuple[float, Array, Array]:
        """Return the value, w and the gradient."""
        problem, sigma, away = self.problem, self.sigma, x - self.centre
        shifted = self.v + sigma * problem.linop.apply(x)
        w = problem.penalty.conjugate_prox(shifted, sigma)
        y = problem.penalty.project((shifted - w) / sigma)
        value = problem.smooth_value(x) + problem.penalty.value(y) + float(np.vdot(w, w)) / (2 * sigma)
        value += self.tau / 2 * float(np.vdot(away, away))
        return value, w, problem.gradient(x) + problem.linop.adjoint(w) + self.tau * away

    def newton_direction(self, x: Array, slope: Array, matrix: Array | None) -> Array:
        """Solve (∇²f + τI + σBᵀDB) d = −∇ψ, by Cholesky or by conjugate gradients."""
        problem, sigma = self.problem, self.sigma
        derivative = problem.penalty.conjugate_prox_derivative(self.v + sigma * problem.linop.apply(x), sigma)
        hessian = problem.losses.hessian(x, problem.weights) if matrix is not None else None
        if hessian is not None and matrix is not None:
            rows = matrix.reshape(len(hessian), -1)
            system = hessian + sigma * (derivative(matrix).reshape(rows.shape) @ rows.T)
            system[np.diag_indices_from(system)] += self.tau
            return _solve_positive(system, -slope.ravel()).reshape(slope.shape)

        def product(u: Array) -> Array:
            smooth = problem.losses.hessian_product(x, u, problem.weights) + self.tau * u
            curved: Array = sigma * problem.linop.adjoint(derivative(problem.linop.apply(u)))
            return smooth + curved

        return _conjugate_gradients(product, -slope)


def _solve_positive(system: Array, right: Array) -> Array:
    """Solve a positive semidefinite system, with as little regularisation as makes it definite."""
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    size = float(np.trace(system)) / len(system) or 1.0
    ridge = 0.0
    while True:
        try:
            factor = cho_factor(system + ridge * np.eye(len(system), dtype=system.dtype))
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
    for _ in range(10 * right.size):
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
