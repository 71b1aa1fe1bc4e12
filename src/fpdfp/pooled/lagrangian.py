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
from fpdfp.errors import ArgumentError
from fpdfp.linops.base import as_matrix
from fpdfp.losses.linear import LinearModel
from fpdfp.penalties import L1, ElasticNet
from fpdfp.problem import Certificate, Problem
from fpdfp.quadratic.newton import (
    GROWTH,
    MAX_CONJUGATE,
    Multipliers,
    Smooth,
    balance,
    has_newton_systems,
    solve_scaled,
)

MAX_OUTER = 60
#: Outer steps without halving the error after which rounding is taken to be the limit.
PATIENCE = 12
#: The smallest accuracy requested, relative to gradients.
ROUNDING = 1e-15
#: A residual that no gap goes with must be at least as small as this, relative to the gradient at 0.
RESIDUAL = 1e-6
#: From this ratio of sizes on the units are changed, for which the data are copied.
APART = 100.0
#: An entry of Bx may be outside of its limits by this many units of the last place of the terms it is the sum of.
UNITS = 64.0
#: Changes of x by conjugate gradients are exact up to this part.
EXACT = 1e-14
#: Objectives that differ by no more than this part are the same up to rounding.
APEX = 1e-12
#: Curvatures below this part of the largest, and numbers below the other, are taken to be as large.
FLAT, TINY = 1e-24, 1e-300
#: Corrections of an x that is outside. Each makes entries that are outside equal to their limits; others may leave
#: theirs then, so that it takes a few.
CORRECTIONS = 10


class Reached(NamedTuple):
    """A measure compared with the tolerance: its name, its size, and its limit."""

    name: str
    error: float
    goal: float

    @property
    def enough(self) -> bool:
        """Whether it is small enough."""
        return self.error <= self.goal


class Found(NamedTuple):
    """The end of the steps, the certificate there, the measure reached, and the number of steps."""

    x: Array
    v: Array
    certificate: Certificate
    reached: Reached
    steps: int


class Iterate(NamedTuple):
    """A point and its dual with a certificate, its relative error, and the largest violation of a constraint.

    The violation of each entry of Bx is in units of what rounding can do to it.
    """

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
        """Return what is compared with its goal: constraints that are violated, the gap, or the residual without one.

        No objective of a point that violates constraints says anything: it may be far below the minimum.
        """
        gap = self.certificate.relative_gap
        if self.violation > 1.0:
            return Reached("violation of constraints", self.violation, 1.0)
        return Reached("residual", self.residual, goal) if gap is None else Reached("duality gap", gap, tol)

    def is_better(self, other: Iterate) -> bool:
        """Whether it alone satisfies the constraints, or has less of what is known of both: gaps, or else residuals.

        A gap as large as F says no more than that F* is not negative.
        """
        if (self.violation > 1.0) != (other.violation > 1.0):
            return self.violation <= 1.0
        if self.gap >= self.certificate.scale or other.gap >= other.certificate.scale:
            return self.residual < other.residual
        return self.gap < other.gap


def solve_alike(problem: Problem, tol: float, x: Array | None) -> Found:
    """Return the best point that an augmented Lagrangian finds, in units that suit it."""
    x = find_finite(problem) if x is None else x
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


def find_finite(problem: Problem) -> Array:
    """Return 0, or a point where f is finite if it is not there: the least of the models that fits start from."""
    x = np.zeros(problem.model.shape, problem.model.dtype)
    losses = problem.losses
    if np.isfinite(problem.evaluate(x)[0]) or not isinstance(losses, LinearModel):
        return x
    for level in (False, True):
        models = losses.start_model(np.arange(problem.n_clients), level=level)
        if models is None:
            break
        slope, matrix = (np.tensordot(problem.weights, one, axes=1) for one in models)
        # The ridge would draw linear predictors towards 0, where the losses are infinite.
        matrix[np.diag_indices_from(matrix)] -= float(problem.weights.sum()) * losses._ridge
        x = -solve_scaled(matrix, slope).astype(x.dtype)
        if np.isfinite(problem.evaluate(x)[0]):
            return x
    raise ArgumentError(
        "x0", "must be a point where the losses are finite: at 0 they are not, nor where fits usually start"
    )


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
        self.origin = find_finite(problem)
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
        """An estimate of the largest curvature of f: its Lipschitz constant, or the Hessian's norm at 0."""
        problem = self.problem
        known = float(problem.lipschitz.mean())
        if np.isfinite(known):
            return known
        hessian = problem.losses.hessian(self.origin, problem.weights)
        found = 1.0 if hessian is None else float(np.linalg.norm(hessian, 2))
        return found if np.isfinite(found) else 1.0

    def solve(self, x: Array) -> Found:
        """Return the best point found."""
        problem, multipliers = self.problem, self.multipliers
        scale = float(np.linalg.norm(problem.gradient(self.origin))) or 1.0
        x = start = self.start(x, scale)
        best: Iterate | None = None
        least, stalled = (math.inf, math.inf), 0
        for outer in range(MAX_OUTER):
            # A gap may be too large though the residual is small, as where nearly nothing of F is left.
            least_slope = self.gradient_tolerance(x, scale) if least[1] > self.goal else ROUNDING * scale
            accuracy = max(0.1 * scale * 10.0 ** (-1.5 * outer), least_slope)
            v = multipliers.v
            x, _ = multipliers.step(self.smooth, x, self.proximity * GROWTH**-outer, accuracy)
            w = multipliers.v
            now = self.judge(x, w, float(np.linalg.norm(w - v)) / multipliers.sigma, scale, start)
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
        """The limit of ‖∇ψ‖ for its part of the error to be within the tolerance."""
        if self.mu > 0:
            objective = abs(self.problem.evaluate(x)[0])
            return max(math.sqrt(0.2 * self.mu * self.tol * objective), ROUNDING * scale)
        return 0.5 * self.goal * scale

    def judge(self, x: Array, v: Array, apart: float, scale: float, start: Array) -> Iterate:
        """Return a point that satisfies the constraints, if one is found near x, and its dual, with a certificate.

        ``apart`` is ‖Bx − y‖ for the y that minimises the augmented Lagrangian; ``scale`` is the scale of gradients. Bx
        may be nearly 0 at the solution, so it is compared with what it was at the start as well.
        """
        problem, linop, violation = self.problem, self.problem.linop, 0.0
        if not problem.penalty.finite:
            if linop.is_identity:
                x = problem.penalty.project(x)
                v = problem.dual_step(x, v, problem.gradient(x))
            else:
                x, violation = self.correct(x, np.maximum(np.abs(x), np.abs(start)))
        certificate = problem.certificate(x, v, dual_steps=0)
        size = max(*(float(np.linalg.norm(linop.apply(one))) for one in (x, start)), 1e-8)
        stationarity = float(np.linalg.norm(problem.gradient(x) + linop.adjoint(v))) / scale
        return Iterate(x, v, certificate, max(stationarity, apart / size), violation)

    def find_rounding(self, sizes: Array) -> Array:
        """Return what rounding can do to each entry of Bx, for entries of x of these sizes."""
        matrix, linop = self.multipliers.matrix, self.problem.linop
        unit = float(np.finfo(self.problem.model.dtype).eps)
        if matrix is None:
            return np.full(linop.out_shape, unit * math.sqrt(linop.squared_norm) * float(sizes.max()))
        return unit * np.tensordot(sizes.ravel(), np.abs(matrix), axes=1)

    def correct(self, x: Array, sizes: Array) -> tuple[Array, float]:
        """Return a point near x with Bx in the domain of g, and by how much it is outside, in units of what is allowed.

        Entries of Bx that are outside become equal to their limits, or a rounding more than that, by the least change
        of x in the metric of the diagonal of the Hessian. ``sizes`` are the sizes of the entries of x along the way.
        """
        penalty, linop = self.problem.penalty, self.problem.linop
        rounding, lengths = self.find_rounding(sizes), self.find_lengths(x)
        allowed, outside = np.maximum(UNITS * rounding, TINY), np.zeros(rounding.shape, bool)
        best, least = x, math.inf
        for _ in range(CORRECTIONS):
            image = linop.apply(x)
            missing = penalty.project(image) - image
            violation = float((np.abs(missing) / allowed).max(initial=0.0))
            if violation < least:
                best, least = x, violation
            if violation == 0.0:
                break
            outside |= missing != 0
            x = x + self.solve_entries(missing + 2.0 * np.sign(missing) * rounding, outside, lengths).astype(x.dtype)
        if 0.0 < least <= 1.0:
            # The domain may be a cone with nothing but its apex, which steps reach up to rounding.
            zero = np.zeros_like(best)
            values = [self.problem.evaluate(one) for one in (zero, best)]
            if values[0][1] == 0.0 and abs(values[0][0] - values[1][0]) <= APEX * abs(values[1][0]):
                return zero, 0.0
        return best, least

    def find_lengths(self, x: Array) -> Array:
        """Return changes of each entry of x that change f about alike; all the same where that is not known."""
        hessian = None if self.multipliers.matrix is None else self.smooth.hessian(x)
        if hessian is None:
            return np.ones(x.shape)
        curved = np.diag(hessian)
        lengths: Array = 1.0 / np.sqrt(np.maximum(curved, FLAT * max(float(curved.max()), TINY)))
        return lengths.reshape(x.shape)

    def solve_entries(self, wanted: Array, entries: Array, lengths: Array) -> Array:
        """Return the least change of x, in units of some lengths, that changes some entries of Bx as wanted."""
        linop, matrix = self.problem.linop, self.multipliers.matrix
        if matrix is not None:
            rows = matrix.reshape(lengths.size, -1)[:, entries.ravel()].T * lengths.ravel()
            found = np.linalg.lstsq(rows, wanted[entries], rcond=None)[0]
        else:
            from scipy.sparse.linalg import LinearOperator, lsmr

            some = LinearOperator(
                (int(entries.sum()), lengths.size),
                matvec=lambda u: linop.apply(lengths * u.reshape(lengths.shape))[entries],
                rmatvec=lambda w: (lengths * linop.adjoint(_spread(w, entries))).ravel(),
                dtype=np.float64,
            )
            found = lsmr(some, wanted[entries], atol=EXACT, btol=EXACT, conlim=0.0, maxiter=MAX_CONJUGATE)[0]
        change: Array = lengths * found.reshape(lengths.shape)
        return change


def _spread(some: Array, where: Array) -> Array:
    """Return an array with some entries, and zeros elsewhere."""
    whole = np.zeros(where.shape)
    whole[where] = some
    return whole


class _SmoothPart:
    """f of a problem, with all data in one place."""

    def __init__(self, problem: Problem) -> None:
        self.value, self.gradient = problem.smooth_value, problem.gradient
        self._losses, self._weights = problem.losses, problem.weights

    def hessian(self, x: Array) -> Array | None:
        return self._losses.hessian(x, self._weights)

    def hessian_product(self, x: Array, direction: Array) -> Array:
        return self._losses.hessian_product(x, direction, self._weights)
