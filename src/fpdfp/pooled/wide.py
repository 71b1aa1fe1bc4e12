"""Primal-dual steps with exact proxes of f, for linear models with fewer rows than features and a large map B.

    x⁺ = prox_{τf}(x − τBᵀv),    v⁺ = prox_{σg*}(v + σB(2x⁺ − x)),    τσ‖B‖² ≤ 1

(A. Chambolle and T. Pock, "A first-order primal-dual algorithm for convex problems with applications to imaging", J.
Math. Imaging Vis. 40, 2011), each step made longer by RELAXED. The prox of f has one unknown for each row. With
A M⁻¹Aᵀ computed once it takes Newton steps of the size of the rows, and no product with the data but one with A and one
with Aᵀ. So how ill-conditioned the rows are does not matter, and B is only multiplied with.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
import scipy.linalg

from fpdfp._typing import Array
from fpdfp.losses.glm import SingleForm
from fpdfp.pooled.fit import TINY, Fit, Point
from fpdfp.pooled.lagrangian import RESIDUAL, Found, Reached
from fpdfp.problem import Problem
from fpdfp.quadratic.dual import DualSteps
from fpdfp.quadratic.newton import has_newton_systems
from fpdfp.quadratic.statement import Distance

#: Steps of the method are made longer by this; it converges below 2.
RELAXED = 1.8
#: The most rows: a Newton step of a prox takes as long as n³/3 multiplications.
MOST_ROWS = 3000
#: The most steps. When F is looked at first, and by how much the number of steps grows from one look to the next.
MOST, FIRST, LATER = 20_000, 20, 1.2
#: After a look at the gap the number of steps grows by as much as makes it small enough if it shrinks with this power
#: of that number, and by so much at least. On maps of 16³ and 32³ voxels the power is between 2 and 3, at the end more.
POWER, SOON = 4.0, 1.1
#: When σ is chosen anew for the first time: then after twice as many steps each, so often.
SUIT, SUITS = 10, 6
#: A prox of f is exact up to this part of the change of the linear forms since the last one, or up to rounding.
EXACT, ROUNDING = 0.01, 1e-14
#: A factorisation serves while errors shrink by this factor; the most Newton steps for one prox.
SHRINK, NEWTON = 0.3, 50
#: Accelerated dual steps that improve a dual point before it is looked at, and the weight of Bᵀv = −∇f(x) besides
#: ⟨Bx, v⟩ in them, in units of τ. On a map of 16³ voxels they make gaps 2 to 5 times smaller; more steps do not, and
#: with weights up to 1000 gaps are no smaller than without them.
POLISH, WEIGHT = 25, 1e6
#: Looks at the gap without halving it after which nothing more is expected.
PATIENCE = 8


def is_wide(problem: Problem) -> bool:
    """Whether a problem is of this form and size."""
    losses, linop, penalty = problem.losses, problem.linop, problem.penalty
    if linop.is_identity or has_newton_systems(linop) or not isinstance(losses, SingleForm):
        return False
    rows = int(losses.sizes.sum())
    return penalty.finite and penalty.has_conjugate and rows <= min(MOST_ROWS, linop.size_in)


class Pair(NamedTuple):
    """A point x and its dual v."""

    x: Array
    v: Array

    def move(self, target: Pair, share: float) -> Pair:
        """Go a share of the way to a target."""
        return Pair(self.x + share * (target.x - self.x), self.v + share * (target.v - self.v))


class RowProx:
    """prox_{τf} by Newton steps in the linear forms z of the rows.

    With M = I/τ + R, r = M⁻¹y/τ and G = AM⁻¹Aᵀ the prox of y is r − M⁻¹Aᵀs, s = cφ'(z), where z = Ar − Gs.
    """

    def __init__(self, fit: Fit) -> None:
        X = fit.data.X
        self.fit, self.X = fit, X if fit.data.sparse else X.astype(np.float64, copy=False)
        self.forms = np.zeros(len(fit.y))
        self.found = tuple(np.empty(len(fit.y)) for _ in range(3))
        self.even = float(fit.ridge.min()) == float(fit.ridge.max())
        self.gram = self.multiply_rows(np.ones(len(fit.ridge))) if self.even else np.zeros((0, 0))
        self.set(1.0)

    def multiply_rows(self, inverse: Array) -> Array:
        """Return A diag(m) Aᵀ."""
        if self.fit.data.sparse:
            product: Array = ((self.X * inverse) @ self.X.T).toarray()
            return product
        gram: Array = self.X @ (self.X * inverse).T
        return gram

    def set(self, tau: float) -> None:
        """Choose τ."""
        self.tau, self.inverse = tau, 1.0 / (1.0 / tau + self.fit.ridge)
        self.G = self.inverse[0] * self.gram if self.even else self.multiply_rows(self.inverse)
        self.factor: tuple[Array, Array] | None = None

    def apply(self, y: Array) -> Array:
        """Return the prox of y."""
        r = self.inverse / self.tau * y
        p, before = self.X @ r, self.forms
        z, last, rounding = before, math.inf, ROUNDING * float(np.linalg.norm(p))
        for _ in range(NEWTON):
            self.fit.look(slice(None), z, self.found)
            _, slopes, curvatures = self.found
            rest = z - p + self.G @ slopes
            length = float(np.linalg.norm(rest))
            # The first z is that of the last prox, which says nothing of how far this one is away.
            if last < math.inf and length <= max(EXACT * float(np.linalg.norm(z - before)), rounding):
                break
            if self.factor is None or length > SHRINK * last:
                self.factorise(curvatures)
            z, last = z - self.solve(rest), length
        self.forms = z
        x: Array = r - self.inverse * (self.X.T @ slopes)
        return x

    def factorise(self, curvatures: Array) -> None:
        """Factorise I + W½GW½, W the curvatures of the rows."""
        roots = np.sqrt(curvatures)
        system = roots[:, None] * self.G * roots
        system[np.diag_indices_from(system)] += 1.0
        self.factor = scipy.linalg.cho_factor(system, lower=True, overwrite_a=True)[0], roots

    def solve(self, rest: Array) -> Array:
        """Return d with (I + GW) d = rest."""
        assert self.factor is not None
        lower, roots = self.factor
        inside = scipy.linalg.cho_solve((lower, True), roots * rest)
        direction: Array = rest - self.G @ (roots * inside)
        return direction


class Wide:
    """Solves one problem."""

    def __init__(self, problem: Problem, tol: float) -> None:
        self.fit, self.tol = Fit(problem), tol
        self.problem, self.model = problem, problem.model
        self.norm = math.sqrt(problem.linop.squared_norm) or 1.0
        self.prox = RowProx(self.fit)
        self.sigma = 1.0

    def solve(self, x: Array) -> Found:
        """Return the best point found."""
        start = pair = Pair(x.astype(np.float64), np.zeros(self.model.dual_shape))
        self.choose_first(pair.x)
        best: Found | None = None
        look, suit, value, least, stalled = FIRST, SUIT, math.inf, math.inf, 0
        for step in range(1, MOST + 1):
            target = self.step(pair)
            pair = pair.move(target, RELAXED)
            if step == suit and suit < SUIT * 2**SUITS:
                suit *= 2
                self.choose(Pair(target.x - start.x, target.v - start.v))
            if step < min(look, MOST):
                continue
            look = round(LATER * step)
            point = self.fit.at(target.x)
            gained, value = value - point.value, point.value
            # The gap of the last look was at least what was gained since.
            if gained > self.tol * self.fit.scale(value) and step < MOST:
                continue
            found = self.certify(point, target.v, step)
            error = found.reached.error
            best = found if best is None or error < best.reached.error else best
            stalled = 0 if error < 0.5 * least else stalled + 1
            least = min(error, least)
            if found.reached.enough or stalled == PATIENCE:
                break
            if math.isfinite(error):
                look = math.ceil(step * max(SOON, (error / found.reached.goal) ** (1.0 / POWER)))
        assert best is not None
        return best

    def step(self, pair: Pair) -> Pair:
        """Return where one step leads that is not made longer."""
        linop = self.problem.linop
        x = self.prox.apply(pair.x - self.prox.tau * linop.adjoint(pair.v))
        image = linop.apply(2.0 * x - pair.x)
        return Pair(x, self.problem.penalty.conjugate_prox(pair.v + self.sigma * image, self.sigma))

    def choose_first(self, x: Array) -> None:
        """Choose σ for an x as long as a step to the least f along its gradient, and the largest v."""
        fit = self.fit
        point = fit.at(x)
        slope, point = fit.back(point, fit.data)
        bent = float(point.curvatures @ np.square(fit.data.times(slope)))
        length = float(np.linalg.norm(slope)) ** 3 / bent if bent > 0 else 1.0
        image = self.problem.linop.apply(slope)
        dual = self.problem.penalty.conjugate_prox(image / TINY**0.5, 1.0)
        self.choose(Pair(np.array([length]), dual))

    def choose(self, way: Pair) -> None:
        """Choose σ and τ so that x and v take equally many steps for their ways."""
        lengths = float(np.linalg.norm(way.x)), float(np.linalg.norm(way.v))
        if min(lengths) > 0.0:
            self.sigma = lengths[1] / (lengths[0] * self.norm)
        self.prox.set(1.0 / (self.sigma * self.norm**2))

    def certify(self, point: Point, v: Array, steps: int) -> Found:
        """Return a point with its certificate, from a dual point that dual steps for x as it is improve."""
        fit = self.fit
        slope, point = fit.back(point, fit.data)
        # With a ridge the best weight is known: the gap has a term ‖∇f(x) + Bᵀv‖²/2R.
        t = min(WEIGHT * self.prox.tau, 1.0 / max(float(fit.ridge.min()), TINY))
        y = (point.x - t * (slope + fit.ridge * point.x))[None]
        polished = DualSteps(self.model, Distance(y, t), v[None], 0.0, (1.0, 1.0), origin=y).run(POLISH)
        enough = self.tol * fit.scale(point.value)
        bound = fit.bound(point, slope, polished.v[0], enough=enough)
        found = fit.conclude(point, slope, bound, steps, self.tol)
        return found if math.isfinite(bound.gap) else found._replace(reached=self.compare_residual(point, slope, v))

    def compare_residual(self, point: Point, slope: Array, v: Array) -> Reached:
        """Return how far x and v are from optimal where no gap is known."""
        model, fit = self.model, self.fit
        image = model.linop.apply(point.x)
        rest = slope + fit.ridge * point.x + model.linop.adjoint(v)
        apart = model.fenchel_gap(image, v) / fit.scale(point.value)
        error = max(float(np.linalg.norm(rest)) / self.steepness, apart)
        return Reached("residual", error, min(self.tol, RESIDUAL))

    @functools.cached_property
    def steepness(self) -> float:
        """The length of the gradient of f at 0."""
        fit = self.fit
        return max(float(np.linalg.norm(fit.back(fit.zero, fit.data)[0])), TINY)
