"""Augmented Lagrangians minimised by semismooth Newton steps: for proxes, quadratic models and any other smooth f.

For min f(x) + g(y) subject to Bx = y, the augmented Lagrangian is minimised over y in closed form and over x by

    ψ(x) = f(x) + min_y g(y) + ⟨v, Bx − y⟩ + σ/2 ‖Bx − y‖²
    ∇ψ   = ∇f(x) + Bᵀ w,             w = prox_{σ g*}(v + σBx)
    ∂²ψ  ∋ ∇²f(x) + σ Bᵀ D B,        D a generalised Jacobian of prox_{σ g*} at v + σBx

Then v ← w, and σ grows. Both loops converge superlinearly.

X. Li, D. Sun and K.-C. Toh, "A highly efficient semismooth Newton augmented Lagrangian method for solving
lasso problems", SIAM J. Optim. 28 (2018).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import scipy.sparse

from fpdfp._array import norms
from fpdfp._numbers import one_thread
from fpdfp._typing import Array
from fpdfp.linops.base import LinOp, as_matrix
from fpdfp.quadratic.banded import Banded
from fpdfp.quadratic.dual import DualSteps
from fpdfp.quadratic.statement import Distance, Quadratic, Solution, Work

if TYPE_CHECKING:
    from fpdfp.problem import Model

#: Up to this size of x, and of B as a dense matrix, Newton systems are factorised; above, conjugate gradients.
DENSE_COLUMNS, DENSE_ENTRIES = 1500, 1 << 23
#: B is also a sparse matrix if it has no more than this part of its entries.
SPARSE = 0.1
#: By how much σ grows, and a term of proximity shrinks, with each multiplier.
GROWTH = 3.0
#: The most multipliers for a quadratic; it is minimised up to this part of its decrease, and gradients up to rounding.
MULTIPLIERS, EXACT, LEAST = 40, 1e-3, 1e-14
#: For a prox σ starts in units that suit a typical row of B, and grows by so much up to this many units; and the most
#: multipliers.
PROX_GROWTH, PROX_LARGEST, PROX_MULTIPLIERS = 10.0, 1e7, 14
MAX_NEWTON = 100
#: Steps of conjugate gradients for one direction.
MAX_CONJUGATE = 2000
#: What rounding can do to a sum, relative to its terms.
ROUNDING, TINY = 1e-13, 1e-300
#: Newton steps without progress after which the rest is taken for rounding.
STALLED = 5


#: Returns d with (I/t + σBᵀDB) d = r, given D, σ and r.
Directions = Callable[[Callable[[Array], Array], float, Array], Array]


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


class Multipliers:
    """The method of multipliers: each step minimises ψ(x) + τ/2 ‖x − c‖², with c where it starts, and takes w for v.

    ``matrix`` is Bᵀ as rows B e_1, B e_2, …, each of the shape of Bx; without it Newton systems are solved by conjugate
    gradients, or by ``directions``. ``sparse`` is B as a sparse matrix, where it has few entries. σ is chosen from
    outside, or by ``suit``.
    """

    def __init__(
        self, model: Model, v: Array, matrix: Array | None, sparse: Any = None, directions: Directions | None = None
    ) -> None:
        self.penalty, self.linop, self.v, self.matrix, self.sparse = model.penalty, model.linop, v, matrix, sparse
        self.directions = directions
        self.sigma = 0.0
        #: Newton steps so far.
        self.steps = 0

    @classmethod
    def of(cls, model: Model, v: Array) -> Multipliers:
        """Return one with B as a dense matrix, and as a sparse one where it has few entries."""
        matrix = as_matrix(model.linop, np.dtype(np.float64))
        rows = matrix.reshape(len(matrix), -1)
        few = np.count_nonzero(rows) <= SPARSE * rows.size
        return cls(model, v, matrix, scipy.sparse.csr_array(rows.T) if few else None)

    def step(self, smooth: Smooth, x: Array, tau: float, accuracy: float) -> tuple[Array, float]:
        """Take damped Newton steps until the gradient is short enough; return x and the gradient's length."""
        centre = x
        value, w, slope, _ = self._evaluate(smooth, x, centre, tau)
        length, stalled = float(np.linalg.norm(slope)), 0
        for _ in range(MAX_NEWTON):
            if length <= accuracy or stalled == STALLED:
                break
            self.steps += 1
            direction = self._find_direction(smooth, x, slope, tau)
            descent, damping = float(np.vdot(slope, direction)), 1.0
            while damping >= 1e-12:
                trial = x + damping * direction
                new_value, new_w, new_slope, rounding = self._evaluate(smooth, trial, centre, tau)
                new_length = float(np.linalg.norm(new_slope))
                # At the end ψ no longer distinguishes points; then a smaller gradient decides.
                if new_value <= value + 1e-4 * damping * descent or (
                    new_value <= value + rounding and new_length < length
                ):
                    break
                damping *= 0.5
            else:
                break
            # Where neither ψ nor the gradient shrinks any more, what is left is rounding.
            stalled = 0 if new_value < value - rounding or new_length < 0.5 * length else stalled + 1
            x, value, w, slope, length = trial, new_value, new_w, new_slope, new_length
        self.v = w
        return x, length

    def _evaluate(self, smooth: Smooth, x: Array, centre: Array, tau: float) -> tuple[float, Array, Array, float]:
        """Return the value, w, the gradient, and what rounding can do to the value."""
        sigma, away = self.sigma, x - centre
        shifted = self.v + sigma * self.linop.apply(x)
        w = self.penalty.conjugate_prox(shifted, sigma)
        y = self.penalty.project((shifted - w) / sigma)
        terms = (smooth.value(x), self.penalty.value(y), float(np.vdot(w, w)) / (2 * sigma))
        value = sum(terms) + tau / 2 * float(np.vdot(away, away))
        slope = smooth.gradient(x) + self.linop.adjoint(w) + tau * away
        return value, w, slope, ROUNDING * max(sum(map(abs, terms)), TINY)

    def _find_direction(self, smooth: Smooth, x: Array, slope: Array, tau: float) -> Array:
        """Solve (∇²f + τI + σBᵀDB) d = −∇ψ, by Cholesky or by conjugate gradients."""
        sigma, linop = self.sigma, self.linop
        derivative = self.penalty.conjugate_prox_derivative(self.v + sigma * linop.apply(x), sigma)
        if self.directions is not None:
            return self.directions(derivative, sigma, -slope)
        hessian = smooth.hessian(x) if self.matrix is not None else None
        if hessian is None or self.matrix is None:
            return _conjugate_gradients(
                lambda u: smooth.hessian_product(x, u) + tau * u + sigma * linop.adjoint(derivative(linop.apply(u))),
                -slope,
            )
        rows = self.matrix.reshape(len(hessian), -1)
        bent = derivative(self.matrix).reshape(rows.shape)
        system = hessian + sigma * (bent @ rows.T if self.sparse is None else (self.sparse.T @ bent.T).T)
        system[np.diag_indices_from(system)] += tau

        def raised(ridge: float) -> Array:
            own = system.copy()
            own[np.diag_indices_from(own)] += ridge
            return own

        size = float(np.trace(system)) / len(system) or 1.0
        return _solve_positive(raised, -slope.ravel(), size).reshape(slope.shape)

    def suit(self, image: Array, balanced: float) -> None:
        """Choose a σ that makes the kinks of ψ as wide as Bx is long, given Bx where f alone is about least.

        prox_{τ g*}(τBx) with a large τ shows how large the dual is: for a norm of weight μ it is about μ, and σ is to
        be about μ/|Bx|. ``balanced`` is the curvature of f in units of the curvature of ‖Bx‖².
        """
        dual = self.penalty.conjugate_prox(balanced * image, balanced)
        sizes = float(np.linalg.norm(dual)), float(np.linalg.norm(image))
        ratio = sizes[0] / sizes[1] if min(sizes) > 0 else balanced
        self.sigma = min(max(ratio, 1e-8 * balanced), balanced)


def newton_quadratic(
    multipliers: Multipliers, q: Quadratic, u: Array, accuracy: float, exact: float, *, flat: bool
) -> Array:
    """Return where q + g∘B is least, from u and the last multiplier.

    What is left to gain is at most a hundredth of ``accuracy``, or a part of what u has gained; the gradient is at most
    ``exact`` times that at the centre. Where q may be ``flat``, a decreasing term keeps u near the last u: the proximal
    method of multipliers.
    """
    penalty, linop = multipliers.penalty, multipliers.linop
    scale = float(np.linalg.norm(q.slope)) or 1.0
    start = penalty.value(linop.apply(q.centre))
    size = float(np.trace(q.matrix)) / len(u)
    tau = 1e-8 * size if flat else 0.0
    if multipliers.sigma == 0.0:
        image = linop.apply(q.centre - solve_scaled(q.matrix, q.slope))
        multipliers.suit(image, balance(size, linop))
    for k in range(MULTIPLIERS):
        u, length = multipliers.step(q, u, tau * GROWTH**-k, max(0.1 * 10.0 ** (-1.5 * k), exact, LEAST) * scale)
        image, v = linop.apply(u), multipliers.v
        value = penalty.value(image)
        young = value + penalty.conjugate(v) - float(np.vdot(image, v))
        if young <= max(EXACT * (start - value - q.value(u)), 0.01 * accuracy):
            break
        multipliers.sigma *= GROWTH
    if length > exact * scale:
        u, _ = multipliers.step(q, u, 0.0, max(exact, LEAST) * scale)
    return u


def newton_prox(steps: DualSteps, taken: int, matrix: Array | Banded) -> Solution:
    """Return the prox of a single y, from where dual steps ended, with B as a matrix or with systems of a band."""
    model, t, reach, y = steps.model, steps.t, steps.reach, steps.y[0].astype(np.float64)
    x, v = steps.u[0].astype(np.float64), steps.v[0].astype(np.float64)
    if isinstance(matrix, Banded):
        rows = matrix.squares
        multipliers = Multipliers(model, v, None, directions=functools.partial(matrix.find, t))
    else:
        rows = np.square(matrix.reshape(len(matrix), -1)).sum(axis=0)
        multipliers = Multipliers(model, v, matrix)
    unit = 1.0 / (t * float(np.median(rows[rows > 0])))
    # Where there is no gap, what is looked at grows with the root of the error.
    accuracy = 0.1 * steps.tol * (1.0 if steps.has_gap else steps.tol)
    least, only = np.inf, np.arange(1)
    with one_thread():
        for k in range(PROX_MULTIPLIERS):
            multipliers.sigma = unit * min(PROX_GROWTH**k, PROX_LARGEST)
            u = y - t * model.linop.adjoint(multipliers.v)
            allowed = reach[0] * norms(u[None])[0] + reach[1] * norms(steps.origin - u[None])[0]
            target = accuracy * allowed / t
            x, length = multipliers.step(Distance(y, t), x, 0.0, target)
            if length > max(target, least):  # rounding grows with σ: the multiplier before was better
                break
            least = min(least, length)
            if steps.look(steps.y, multipliers.v[None].astype(steps.v.dtype), only).all():
                return Solution(steps.u, steps.v, Work(taken + multipliers.steps))
    return Solution(steps.u, steps.v, Work(taken + multipliers.steps, 1))


def has_newton_systems(linop: LinOp) -> bool:
    """Whether Newton systems are small enough to be factorised."""
    return linop.size_in <= DENSE_COLUMNS and linop.size_in * linop.size_out <= DENSE_ENTRIES


def balance(curvature: float, linop: LinOp) -> float:
    """Return the σ with which σ‖Bx‖² curves as much as f does at most."""
    return curvature / linop.squared_norm if curvature > 0 and linop.squared_norm > 0 else 1.0


def solve_scaled(system: Array, right: Array) -> Array:
    """Solve a positive semidefinite system, scaled to a diagonal of ones since coordinates may have any units."""
    inverses = 1.0 / np.sqrt(np.maximum(np.diag(system), 1e-300))

    def scaled(ridge: float) -> Array:
        raised = system * inverses[:, None]
        raised *= inverses
        raised[np.diag_indices_from(raised)] = 1.0 + ridge
        turned: Array = raised.T  # the same, of which LAPACK needs no copy
        return turned

    solution: Array = _solve_positive(scaled, right * inverses, 1.0) * inverses
    return solution


def _solve_positive(raised: Callable[[float], Array], right: Array, size: float) -> Array:
    """Solve a positive semidefinite system, with as little regularisation as makes it definite.

    ``raised`` returns a copy of the system with a ridge; ``size`` is the mean of the diagonal.
    """
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    ridge = 0.0
    while True:
        try:
            factor = cho_factor(raised(ridge), overwrite_a=True)
            solution: Array = cho_solve(factor, right)
            if np.isfinite(solution).all():
                return solution
        except LinAlgError:
            pass
        ridge = max(10.0 * ridge, 1e-14 * size)


def _conjugate_gradients(product: Callable[[Array], Array], right: Array) -> Array:
    """Solve roughly; the requested residual shrinks with the right side, which keeps Newton superlinear."""
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
