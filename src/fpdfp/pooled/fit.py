"""f with the rows of all clients in one place, quadratic models of it, and steps towards where these are least.

    f(x) = Σ_j c_j φ(a_jᵀx, y_j) + ½ Σ_k R_k x_k²

The linear forms a_jᵀx of a point are kept, so that values need no product with the data, and a line search only one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fpdfp._blas import one_thread
from fpdfp._typing import Array
from fpdfp.bounds import Bound, Search
from fpdfp.losses._duals import EPS, RowDuals
from fpdfp.losses._single import SingleForm
from fpdfp.pooled.data import NEAR, TINY, Columns
from fpdfp.problem import Problem

#: How much the second derivatives may have changed since the Hessian was computed, in the mean.
STALE = 0.1
#: By how much a step must shrink what the next one can do; else the Hessian is computed again, or from more rows.
SLOW = 0.1
#: The Hessian of dense rows is that of a part of them, of at least OVER·p rows, p the coordinates worked on: it takes
#: less time than a product with the data.
PART, OVER = 8, 200
#: Steps that promise less than this part of the objective show more of rounding than of the Hessian.
CLEAR = 1e-11
#: From so many coordinates on, the Hessian of dense rows is at first computed in float32.
SINGLE = 64
#: Columns as large as this, or one over it, get units of their own there.
EXTREME = 1e12
#: What rounding does to a sum, relative to its terms.
ROUNDING = 1e-14
#: Shortenings of a step.
HALVINGS = 30
#: From LARGE times as many rows on, so many rows, or so many for each coordinate at least, give a start: they determine
#: the solution up to about this part of the objective. Of many more rows, MORE times as many give the next start.
LARGE, START_ROWS, START_OVER, START_TOL, MORE = 8, 10_000, 50, 1e-3, 10


class Point(NamedTuple):
    """x, its linear forms, F(x), and the derivatives of f in the linear form of each row.

    ``travel`` is the sum of the sizes of all that was added up for the forms, and None where x is not in the precision
    of the data. ``product`` is a matrix and its product with the slopes, where that is known.
    """

    x: Array
    forms: Array
    value: float
    slopes: Array
    curvatures: Array
    travel: Array | None
    product: tuple[Any, Array] | None


class Found(NamedTuple):
    """Where the steps ended, and what is known there.

    F, the bound of F − F* and what it is compared with, ∇f, one over a bound of its Lipschitz constant, and the number
    of steps.
    """

    x: Array
    objective: float
    bound: Bound
    scale: float
    gradient: Array
    step: float
    steps: int


class Fit:
    """f, and F = f + g∘B; with a stride, for every so many-th row."""

    def __init__(self, problem: Problem, stride: int = 1) -> None:
        assert isinstance(problem.losses, SingleForm)
        self.problem, self.losses = problem, problem.losses
        X, y = self.losses._rows[:2]
        self.rough = stride > 1
        self.data = Columns(X[::stride] if self.rough else X)
        self.y = y[::stride].astype(np.float64, copy=False)
        weights = self.losses._row_weights(problem.weights)
        self.c = weights[::stride] * (weights.sum() / weights[::stride].sum()) if self.rough else weights
        self.ridge = float(problem.weights.sum()) * self.losses._ridge
        #: Σ_j c_j a_jk² of each coordinate.
        self.squares = self.losses._column_squares(problem.weights)

    def at(self, x: Array) -> Point:
        """Return a point, in the precision of the data, with its linear forms."""
        x = x.astype(self.losses.dtype).astype(np.float64)
        return self._move(x, np.zeros(len(self.y)), self.data, x, np.abs(x))

    def at_zero(self) -> Point:
        """Return x = 0, which takes no product with the data."""
        x, forms, found = np.zeros(len(self.ridge)), np.zeros(len(self.y)), np.empty((3, len(self.y)))
        self._look(slice(None), forms, tuple(found))
        return Point(x, forms, self.evaluate(x, found[0]), found[1], found[2], np.zeros(len(x)), None)

    def evaluate(self, x: Array, losses: Array) -> float:
        """Return F, from φ of each row."""
        model = self.problem.model
        smooth = float(self.c @ losses) + 0.5 * float((self.ridge * x) @ x)
        return smooth + model.penalty.value(model.linop.apply(x))

    def _move(self, x: Array, forms: Array, data: Columns, change: Array, travel: Array | None) -> Point:
        """Return the point x: its forms are those given and the image of a change of some coordinates.

        Dense rows are read once for the image and for the product with the slopes there.
        """
        moved, found = np.empty_like(forms), tuple(np.empty_like(forms) for _ in range(3))
        product = None
        if data.sparse:
            np.add(forms, data.times(change) if change.any() else 0.0, out=moved)
            self._look(slice(None), moved, found)
        else:
            product, moves, change = np.zeros(data.X.shape[1]), bool(change.any()), data.spread(change)
            with one_thread():
                for rows, block in data.blocks(max(64, NEAR // data.X.shape[1])):
                    np.add(forms[rows], block @ change if moves else 0.0, out=moved[rows])
                    self._look(rows, moved, found)
                    product += found[1][rows] @ block
        known = None if product is None else (data.X, product)
        return Point(x, moved, self.evaluate(x, found[0]), found[1], found[2], travel, known)

    def _look(self, rows: slice, forms: Array, found: tuple[Array, ...]) -> None:
        """Write φ and its weighted derivatives for some rows."""
        from fpdfp._kernels.rows import look_at

        look_at(self.losses.kind, forms[rows], self.y[rows], self.c[rows], *(one[rows] for one in found))

    def back(self, point: Point, data: Columns) -> tuple[Array, Point]:
        """Return Aᵀs of some columns, s the slopes, and the point, which keeps the product."""
        if point.product is None or point.product[0] is not data.X:
            point = point._replace(product=(data.X, data.back(point.slopes)))
        assert point.product is not None
        return data.pick(point.product[1]), point

    def scale(self, value: float) -> float:
        """Return what gaps are compared with, as certificates do."""
        return max(abs(value), 0.0 if self.rough else self._least, TINY)

    @functools.cached_property
    def _least(self) -> float:
        zero = np.zeros(len(self.ridge))
        return EPS * abs(self.evaluate(zero, self.losses._phi(np.zeros(len(self.y)), self.y)))

    def bound(
        self,
        point: Point,
        slope: Array,
        v: Array,
        *,
        enough: float = 0.0,
        thorough: bool = False,
        quick: bool = False,
    ) -> Bound:
        """Return a bound of F(x) − F* from a dual point, for the gradient of f without its ridge.

        One that is ``enough`` is not improved, nor is any with ``quick``; with ``thorough`` the Hessian is looked at
        otherwise.
        """
        problem = self.problem
        duals = RowDuals(self.losses, point.x, problem.weights, point.forms, slope, point.travel)
        image = problem.linop.apply(point.x)
        search = Search(problem.model, problem._feasibility, duals, point.x, image, image)
        first = Bound(np.inf, v) if search.free.any() else search.bound(v)
        if quick or first.gap <= enough:
            return first
        found = search.best([v], 0, thorough=False)
        return search.best([v], 0, thorough=True) if thorough and found.gap > enough else found

    def conclude(self, point: Point, slope: Array, bound: Bound, steps: int) -> Found:
        """Return what was found at a point."""
        lipschitz = self.losses.curvature * float(self.squares.sum()) + float(self.ridge.max())
        step = 1.0 / lipschitz if lipschitz > 0 else 1.0
        gradient = slope + self.ridge * point.x
        return Found(point.x, point.value, bound, self.scale(point.value), gradient, step, steps)

    def search_line(
        self, point: Point, data: Columns, coordinates: Any, target: Array, promised: float
    ) -> tuple[float, Point]:
        """Go as far towards a target for some coordinates as F decreases enough; return how far, and the point."""
        x, wide = point.x, self.losses.dtype == np.float64
        change = target - x[coordinates]
        share = 1.0
        for _ in range(HALVINGS):
            trial = x.copy()
            # The very target, not a sum that rounds: coordinates that become 0 must be 0.
            trial[coordinates] = target if share == 1.0 else x[coordinates] + share * change
            # Steps and sums are rounded; what many of them add up to is allowed for.
            travel = None
            if wide and point.travel is not None:
                travel = point.travel + np.abs(trial)
                travel[coordinates] += np.abs(share * change)
            after = self._move(trial, point.forms, data, share * change, travel)
            if after.value <= point.value + 1e-4 * share * min(promised, 0.0) + ROUNDING * abs(point.value):
                return share, after
            share *= 0.5
        return 0.0, point


def find_units(squares: Array) -> Array | None:
    """Return the sizes of columns, given their squares, where single precision might not hold products of them."""
    units = np.sqrt(np.where(squares > 0, squares, 1.0))
    return units if max(units.max(initial=1.0), 1.0 / units.min(initial=1.0)) > EXTREME else None


class Curvature:
    """The Hessian of f on some coordinates: that of the present point, or of one near it, or of a part of the rows.

    It decides how fast steps converge, not where to.
    """

    def __init__(self, fit: Fit, data: Columns, coordinates: Any) -> None:
        rows, count = data.X.shape[0], data.count
        self.data, self._quadratic = data, fit.losses.form == "quadratic"
        self._ridge, squares = fit.ridge[coordinates], fit.squares[coordinates]
        self._units = find_units(squares)
        # Sparse rows are cheap, and a part of them may miss a rare feature.
        self._stride = 1 if data.sparse else max(1, rows // max(rows // PART, OVER * count))
        self._single = not data.sparse and count >= SINGLE and rows >= 4 * count
        self._curvatures: Array | None = None
        self._promised = np.inf
        #: Whether the last step did little of what the one before had left.
        self.slow = False
        self.hessian: Array = np.zeros((0, 0))

    def move(self, curvatures: Array) -> bool:
        """Go to a point, given by the curvatures of its rows; return whether the Hessian is another one now."""
        before = self._curvatures
        if before is not None:
            changed = float(np.abs(curvatures - before).sum()) > STALE * float(before.sum())
            if not changed and not self.slow:
                return False
            if not changed:
                if self._stride == 1 and not self._single and np.array_equal(curvatures, before):
                    return False
                self._stride, self._single = max(1, self._stride // 4), False
        units = self._units if self._single else None
        self.hessian = self.data.gram(curvatures, self._stride, single=self._single, units=units)
        self.hessian[np.diag_indices_from(self.hessian)] += self._ridge
        self._curvatures, self._promised, self.slow = curvatures, np.inf, False
        return True

    def learn(self, step: Array, change: Array) -> bool:
        """Correct a Hessian of other rows or of another point along a step, by what the gradient has changed (BFGS).

        Return whether it did.
        """
        image = self.hessian @ step
        bend, seen = float(step @ image), float(step @ change)
        exact = self._quadratic and self._stride == 1 and not self._single
        if exact or not (bend > 0 and seen > 0):
            return False
        self.hessian += np.outer(change, change) / seen - np.outer(image, image) / bend
        return True

    def judge(self, promised: float, share: float) -> None:
        """Take note of what a step promised, and of how much of it was taken."""
        self.slow = -promised > SLOW * self._promised or share < 1.0
        self._promised = -promised


def find_start(problem: Problem, most: int, solve: Callable[[Fit, Array], Found | None]) -> Array:
    """Return the solution of a part of the rows where there are many, else zero.

    ``most`` is how many coordinates are thought to matter at most.
    """
    start = np.zeros(problem.model.shape)
    rows, count = int(problem.losses.sizes.sum()), max(START_ROWS, START_OVER * min(start.size, most))
    while rows // count >= LARGE:
        found = solve(Fit(problem, rows // count), start)
        start = start if found is None else found.x
        count *= MORE
    return start
