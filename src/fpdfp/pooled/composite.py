"""Proximal Newton steps for linear models with any g(Bx) that is finite, up to some thousand features.

f is replaced by a quadratic model, and model + g∘B is minimised without the data (`fpdfp/quadratic`). So the data are
read a few times in all, however many steps g∘B needs.
"""

from __future__ import annotations

import functools

import numpy as np

from fpdfp._typing import Array
from fpdfp.bounds import Bound
from fpdfp.losses.glm import SingleForm
from fpdfp.penalties.base import Penalty
from fpdfp.pooled.fit import START_TOL, Curvature, Fit, Point, Rows, find_start
from fpdfp.pooled.lagrangian import Found
from fpdfp.problem import Problem
from fpdfp.quadratic.accelerated import find_prox
from fpdfp.quadratic.newton import EXACT, has_newton_systems
from fpdfp.quadratic.solve import Successive
from fpdfp.quadratic.statement import Quadratic

#: Steps in all, with a part of the rows, and without progress.
MAX_STEPS, MAX_ROUGH, PATIENCE = 60, 10, 5
#: Where a model is f itself, it is minimised up to this part of the accuracy.
WITHIN = 0.9
#: This many rows for each feature there must be.
ROWS = 2
#: Up to this many features accelerated steps work with a Hessian.
WIDE = 5000


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
        # Without a ridge a dual point must be feasible.
        exact = 1e-9 if fit.ridge.min() > 0 else 1e-2 * min(tol, 1e-6)
        self.models = Successive(self.model, fit.ridge, exact, 0.0 if fit.losses.form == "quadratic" else EXACT)
        #: Steps that a model may take without a Hessian.
        self.by_rows = Rows.count_steps(fit)

    @functools.cached_property
    def rows(self) -> Rows:
        """The rows, for models without a Hessian."""
        return Rows(self.fit)

    def solve(self, x: Array) -> Found:
        """Return the best point found."""
        fit = self.fit
        # What steps by rows start from may be rounded unchanged.
        lean = self.models.prox is not None and self.by_rows > 0 and not x.any()
        point, best = fit.at(x), None
        goal, promised, least = self.tol, np.inf, np.inf
        taken = stalled = 0
        while True:
            scale = fit.scale(point.value)
            over = taken == (MAX_ROUGH if fit.rough else MAX_STEPS) or stalled > PATIENCE
            close = over or promised <= goal * scale
            if close and point.travel is None and not fit.rough:
                point = fit.at(point.x)
            if lean and not taken:
                slope = self.rows.back(point.slopes)
            else:
                slope, point = fit.back(point, fit.data)
            if taken and point.travel is not None and fit.ridge.min() > 0 and not (close or fit.rough):
                # It takes no more than to look at the rows once.
                bound = fit.bound(point, slope, self.models.v, quick=True)
                if bound.gap <= self.tol * scale:
                    return fit.conclude(point, slope, bound, self.models.steps, self.tol)
            if close:
                bound = Bound(np.inf, self.models.v)
                if not fit.rough:
                    bound = fit.bound(point, slope, self.models.v, enough=self.tol * scale, thorough=True)
                found = fit.conclude(point, slope, bound, self.models.steps, self.tol)
                best = found if best is None or found.reached.error < best.reached.error else best
                if bound.gap <= self.tol * scale or over or fit.rough:
                    return best
                goal = min(goal, promised / scale)
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
            target = self.models.minimise(Quadratic(self.curvature.hessian, point.x, gradient), accuracy)
        penalties = [model.penalty.value(model.linop.apply(at)) for at in (target, point.x)]
        promised = float(gradient @ (target - point.x)) + penalties[0] - penalties[1]
        share, point = fit.search_line(point, fit.data, slice(None), target, promised)
        self.curvature.judge(promised, share)
        if self.curvature.slow:
            self.by_rows = 0
        return point, abs(promised)

    def minimise_by_rows(self, point: Point, gradient: Array, accuracy: float) -> Array | None:
        """Return where model + g∘B is least without making a Hessian, None where that would take longer."""
        if self.models.prox is None or not self.by_rows:
            return None
        q, most = self.rows.model(point.x, gradient), self.by_rows
        found = self.models.accelerate(q, WITHIN * accuracy, most, likely=most, objective=point.value)
        if not found.work.unsolved:
            return found.u
        self.by_rows = 0
        return None
