"""Proximal Newton steps for linear models with any g(Bx) that is finite, up to some thousand features.

f is replaced by a quadratic model, and model + g∘B is minimised without the data: for an l1 norm of sparse maps by
accelerated proximal gradient steps (`accelerated.py`), and where these are too many or g is another one, by an
augmented Lagrangian and semismooth Newton steps. So the data are read a few times in all, however many steps g∘B needs.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import scipy.sparse

from fpdfp._typing import Array
from fpdfp.bounds import Bound
from fpdfp.linops.base import LinOp
from fpdfp.losses._single import SingleForm
from fpdfp.penalties.base import Penalty
from fpdfp.pooled import accelerated
from fpdfp.pooled.data import TINY
from fpdfp.pooled.fit import START_TOL, Curvature, Fit, Found, Point, find_start
from fpdfp.pooled.lagrangian import DENSE_COLUMNS, DENSE_ENTRIES, GROWTH
from fpdfp.pooled.proxes import Prox, find_prox
from fpdfp.pooled.quadratic import solve_scaled
from fpdfp.pooled.rows import RowModel, Rows
from fpdfp.problem import Problem
from fpdfp.semismooth import Subproblem, as_matrix

#: Steps in all, with a part of the rows, and without progress; multipliers in each.
MAX_STEPS, MAX_ROUGH, PATIENCE, MULTIPLIERS = 60, 10, 5, 40
#: A model is minimised up to this part of what the step promises.
EXACT = 1e-3
#: A model of accelerated steps is minimised up to this part of the accuracy; where it is f itself, up to the second.
WITHIN, WITHIN_EXACT = 0.1, 0.9
#: A bound is computed once a step promises no more than so many times the tolerance.
NEAR = 30.0
#: B is a sparse matrix with no more than this part of its entries.
SPARSE = 0.1
#: So many rows for each feature there must be.
ROWS = 2
#: Up to so many features accelerated steps work with a Hessian.
WIDE = 5000
#: Accelerated steps for a model, and no more than it has coordinates.
MOST = 400
#: The smallest accuracy asked for, relative to gradients and to the objective.
ROUNDING = 1e-14


def has_newton_systems(linop: LinOp) -> bool:
    """Whether Newton systems are small enough to be factorised."""
    return linop.size_in <= DENSE_COLUMNS and linop.size_in * linop.size_out <= DENSE_ENTRIES


def is_composite(problem: Problem) -> bool:
    """Whether a problem is of this form and size."""
    linop, penalty = problem.linop, problem.penalty
    differentiable = type(penalty).conjugate_prox_derivative is not Penalty.conjugate_prox_derivative
    few = has_newton_systems(linop) or (linop.size_in <= WIDE and find_prox(linop, penalty) is not None)
    if not (isinstance(problem.losses, SingleForm) and penalty.finite and penalty.has_conjugate and differentiable):
        return False
    # With few rows there is little to save, and a model may be flat where f is.
    return few and int(problem.losses.sizes.sum()) >= ROWS * linop.size_in


def solve_composite(problem: Problem, tol: float, x: Array | None) -> Found:
    """Return the best point found."""
    if x is None:
        x = find_start(problem, problem.linop.size_in, lambda fit, start: Composite(fit, START_TOL).solve(start))
    return Composite(Fit(problem), tol).solve(x)


class Composite:
    """Solves one problem."""

    def __init__(self, fit: Fit, tol: float) -> None:
        self.fit, self.tol = fit, tol
        self.model = fit.problem.model
        self.curvature = Curvature(fit, fit.data, slice(None))
        self.prox = find_prox(self.model.linop, self.model.penalty)
        # Without a ridge a dual point must be feasible.
        self.exact = 1e-9 if fit.ridge.min() > 0 else 1e-2 * min(tol, 1e-6)
        self.quadratic = fit.losses.form == "quadratic"
        #: Steps that a model may take without a Hessian.
        self.by_rows = Rows.count_steps(fit)
        self.v = np.zeros(self.model.dual_shape)
        self.sigma = 0.0
        self.steps = 0

    @functools.cached_property
    def rows(self) -> Rows:
        """The rows, for models without a Hessian."""
        return Rows(self.fit)

    @functools.cached_property
    def matrix(self) -> Array:
        """The rows B e_1, B e_2, and so on of Bᵀ."""
        return as_matrix(self.model.linop, np.dtype(np.float64))

    @functools.cached_property
    def sparse(self) -> Any | None:
        """B as a sparse matrix, None where it has many entries."""
        rows = self.matrix.reshape(len(self.matrix), -1)
        return scipy.sparse.csr_array(rows.T) if np.count_nonzero(rows) <= SPARSE * rows.size else None

    def solve(self, x: Array) -> Found:
        """Return the best point found."""
        fit = self.fit
        # What steps by rows start from may be rounded as they are.
        lean = self.prox is not None and self.by_rows > 0 and not x.any()
        point, best = fit.at_zero() if lean else fit.at(x), None
        goal, promised, least = self.tol, np.inf, np.inf
        taken = stalled = 0
        while True:
            scale = fit.scale(point.value)
            over = taken == (MAX_ROUGH if fit.rough else MAX_STEPS) or stalled > PATIENCE
            close = over or promised <= NEAR * goal * scale
            if close and point.travel is None and not fit.rough:
                point = fit.at(point.x)
            if lean and not taken:
                slope = self.rows.back(point.slopes)
            else:
                slope, point = fit.back(point, fit.data)
            if taken and point.travel is not None and fit.ridge.min() > 0 and not (close or fit.rough):
                # It takes no more than to look at the rows once.
                bound = fit.bound(point, slope, self.v, quick=True)
                if bound.gap <= self.tol * scale:
                    return fit.conclude(point, slope, bound, self.steps)
            if close:
                bound = Bound(np.inf, self.v)
                if not fit.rough:
                    thorough = over or promised <= self.tol * scale
                    bound = fit.bound(point, slope, self.v, enough=self.tol * scale, thorough=thorough)
                found = fit.conclude(point, slope, bound, self.steps)
                best = found if best is None or found.bound.gap < best.bound.gap else best
                if bound.gap <= self.tol * scale or over or fit.rough:
                    return best
                goal = min(goal, promised / scale / NEAR)
            point, promised = self.step(point, slope, goal * scale)
            taken += 1
            stalled = 0 if promised < 0.5 * least else stalled + 1
            least = min(promised, least)

    def step(self, point: Point, slope: Array, accuracy: float) -> tuple[Point, float]:
        """Go towards where the model is least; return the new point, and by how much F was promised to decrease."""
        fit, model = self.fit, self.model
        gradient = slope + fit.ridge * point.x
        target = self.minimise_by_rows(point, gradient, accuracy)
        if target is None:
            self.curvature.move(point.curvatures)
            target = self.minimise(QuadraticModel(self.curvature.hessian, point.x, gradient), accuracy)
        penalties = [model.penalty.value(model.linop.apply(at)) for at in (target, point.x)]
        promised = float(gradient @ (target - point.x)) + penalties[0] - penalties[1]
        share, point = fit.search_line(point, fit.data, slice(None), target, promised)
        self.curvature.judge(promised, share)
        if self.curvature.slow:
            self.by_rows = 0
        return point, abs(promised)

    def minimise_by_rows(self, point: Point, gradient: Array, accuracy: float) -> Array | None:
        """Return where model + g∘B is least without making a Hessian, None where that would take longer."""
        if self.prox is None or not self.by_rows:
            return None
        self.steps += 1
        model = RowModel(self.rows, point, gradient)
        found = self.accelerate(model, self.prox, accuracy, self.by_rows, self.by_rows, point.value)
        if found.enough:
            return found.u
        self.by_rows = 0
        return None

    def minimise(self, smooth: QuadraticModel, accuracy: float) -> Array:
        """Return where model + g∘B is least; v is then the multiplier there."""
        model, u = self.model, smooth.centre
        scale = float(np.linalg.norm(smooth.slope)) or 1.0
        if self.prox is not None:
            self.steps += 1
            found = self.accelerate(smooth, self.prox, accuracy, min(MOST, len(u)))
            # Where there is no other way, an inexact step is better than none.
            if found.enough or not has_newton_systems(model.linop):
                return found.u
            self.prox, u = None, found.u
        start = model.penalty.value(model.linop.apply(smooth.centre))
        # Where f may be flat, a decreasing term keeps u near the last u: the proximal method of multipliers.
        size = float(np.trace(smooth.matrix)) / len(u)
        tau = 0.0 if self.fit.ridge.min() > 0 else 1e-8 * size
        if self.sigma == 0.0:
            self.sigma = self.guess_sigma(smooth, size)
        for k in range(MULTIPLIERS):
            within = max(0.1 * 10.0 ** (-1.5 * k), self.exact, ROUNDING) * scale
            u, young, length = self.multiply(smooth, u, tau * GROWTH**-k, within)
            decrease = start - model.penalty.value(model.linop.apply(u)) - smooth.value(u)
            if young <= max(EXACT * decrease, 0.01 * accuracy):
                break
            self.sigma *= GROWTH
        if length > self.exact * scale:
            u, _, _ = self.multiply(smooth, u, 0.0, max(self.exact, ROUNDING) * scale)
        return u

    def accelerate(
        self,
        smooth: accelerated.Model,
        prox: Prox,
        accuracy: float,
        most: int,
        likely: float = math.inf,
        objective: float = math.inf,
    ) -> accelerated.Minimum:
        """Minimise a model by accelerated steps; v is then the dual of what was found.

        Where the model is f itself, ``objective`` is F at its centre.
        """
        within = WITHIN if math.isinf(objective) else WITHIN_EXACT
        enough, ridge = max(within * accuracy, TINY), self.fit.ridge
        small = self.exact * float(np.linalg.norm(smooth.slope))
        ridge = np.where(ridge > 0, ridge, max(small**2, TINY) / (2.0 * enough))
        share = 0.0 if self.quadratic else EXACT
        model = self.model
        found = accelerated.minimise(
            smooth, model.linop, model.penalty, prox, self.v, ridge, enough, share, most, likely, objective
        )
        self.v = found.v
        return found

    def multiply(self, smooth: QuadraticModel, u: Array, tau: float, accuracy: float) -> tuple[Array, float, float]:
        """Minimise the augmented Lagrangian and take the new multiplier.

        Return the point, how far it and the multiplier are from fitting each other, and the length of the gradient.
        """
        model = self.model
        subproblem = Subproblem(
            smooth, model.penalty, model.linop, self.v, self.sigma, u, tau, self.matrix, self.sparse
        )
        u, self.v, steps, length = subproblem.minimise(u, accuracy)
        self.steps += steps
        image = model.linop.apply(u)
        young = model.penalty.value(image) + model.penalty.conjugate(self.v) - float(np.vdot(image, self.v))
        return u, young, length

    def guess_sigma(self, smooth: QuadraticModel, size: float) -> float:
        """Return a σ that makes the kinks of the augmented Lagrangian as wide as Bx is long.

        At the least point of the model alone, prox_{τ g*}(τBx) with a large τ shows how large the dual is.
        """
        linop = self.model.linop
        balanced = size / linop.squared_norm if size > 0 and linop.squared_norm > 0 else 1.0
        image = linop.apply(smooth.centre - solve_scaled(smooth.matrix, smooth.gradient(smooth.centre)))
        dual = self.model.penalty.conjugate_prox(balanced * image, balanced)
        sizes = float(np.linalg.norm(dual)), float(np.linalg.norm(image))
        ratio = sizes[0] / sizes[1] if min(sizes) > 0 else balanced
        return min(max(ratio, 1e-8 * balanced), balanced)


class QuadraticModel:
    """gᵀ(u − x) + ½ (u − x)ᵀH(u − x)."""

    def __init__(self, matrix: Array, centre: Array, slope: Array) -> None:
        self.matrix, self.centre, self.slope = matrix, centre, slope
        self.diagonal = np.diag(matrix)

    def value(self, u: Array) -> float:
        """Return the value."""
        away = u - self.centre
        return float(away @ (self.slope + 0.5 * (self.matrix @ away)))

    def gradient(self, u: Array) -> Array:
        """Return the gradient."""
        gradient: Array = self.slope + self.matrix @ (u - self.centre)
        return gradient

    def hessian(self, u: Array) -> Array | None:
        """Return H."""
        return self.matrix

    def hessian_product(self, u: Array, direction: Array) -> Array:
        """Return H times a direction."""
        product: Array = self.matrix @ direction
        return product
