"""f with the rows of all clients in one place, quadratic models of it, and steps towards where these are least.

    f(x) = Σ_j c_j φ(a_jᵀx, y_j) + ½ Σ_k R_k x_k²

The linear forms a_jᵀx of a point are kept, so that values need no product with the data, and a line search only one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from fpdfp._numbers import one_thread
from fpdfp._typing import Array, IntArray
from fpdfp.bounds import Bound, Search
from fpdfp.losses.base import EPS, Losses
from fpdfp.losses.glm import GLM, SingleForm
from fpdfp.losses.linear import RowDuals
from fpdfp.pooled.lagrangian import Found, Reached
from fpdfp.problem import Certificate, Problem
from fpdfp.quadratic.statement import Products

#: Columns of a Gram matrix that one product has: enough for BLAS to be as fast as with all of them.
PANEL = 512
#: Rows that are multiplied at a time where they must be widened or weighted first.
ROWS = 4096
#: Numbers of a dense matrix that are multiplied forth and back while they are near the processor.
NEAR = 1 << 18
#: Partial sums of a Gram matrix of sparse rows, and how many entries it takes to make them worth their while.
PARTS, ENTRIES = 8, 1 << 22
#: So that nothing is divided by 0.
TINY = 1e-300
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
#: But not where sums of squares are as large as this, or as small as one over it: float32 ends at about 1e±38, and
#: entries, products and sums of them are to be within.
LARGEST = 1e24
#: What rounding does to a sum, relative to its terms.
ROUNDING = 1e-14
#: Shortenings of a step.
HALVINGS = 30
#: From LARGE times as many rows on, so many rows, or this many for each coordinate at least, give a start: they
#: determine the solution up to about this part of the objective. Of many more rows, MORE times as many give the next
#: start.
LARGE, START_ROWS, START_OVER, START_TOL, MORE = 8, 10_000, 50, 1e-3, 10
#: A Hessian takes as long as to multiply all rows forth and back once for this many features, or, where rows are
#: sparse, for this many entries of a row.
DENSE_STEP, SPARSE_STEP = 25, 6
#: Fewer steps than this lead nowhere.
FEW_STEPS = 10


class Columns:
    """Some columns of a matrix of rows, dense or CSR, in the precision that they have; products are in float64.

    They are a copy, or, of dense rows, looked at in their place, where products use all columns.
    """

    def __init__(self, X: Any, columns: IntArray | None = None) -> None:
        self.X, self.columns = X, columns
        self.sparse = not isinstance(X, np.ndarray)
        self.count = X.shape[1] if columns is None else len(columns)
        self._wide = X.dtype == np.float64

    def select(self, columns: IntArray) -> Columns:
        """Return some of the columns: of dense rows in their place, since a product with all columns is needed soon."""
        if len(columns) == self.X.shape[1] and (columns[:-1] < columns[1:]).all():
            return self
        some = Columns(self.X, columns)
        return some.copy() if self.sparse else some

    def copy(self) -> Columns:
        """Return a copy of these columns alone."""
        if self.columns is None:
            return self
        if not self.sparse:
            return Columns(np.take(self.X, self.columns, axis=1, mode="clip"))
        from fpdfp._kernels.matrix import take_columns

        X = self.X
        place = np.full(X.shape[1], -1, X.indices.dtype)
        place[self.columns] = np.arange(self.count)
        data, indices, indptr = np.empty_like(X.data), np.empty_like(X.indices), np.empty_like(X.indptr)
        entries = take_columns(X.data, X.indices, X.indptr, place, data, indices, indptr)
        return Columns(type(X)((data[:entries], indices[:entries], indptr), shape=(X.shape[0], self.count)))

    def blocks(self, rows: int = ROWS) -> Iterator[tuple[slice, Any]]:
        """Yield the rows of a dense matrix in float64, some at a time."""
        for first in range(0, self.X.shape[0], rows):
            some = slice(first, first + rows)
            yield some, self.X[some].astype(np.float64, copy=False)

    def times(self, x: Array) -> Array:
        """Return Ax."""
        x = self.spread(x)
        if self.sparse or self._wide:
            product: Array = self.X @ x
            return product
        return np.concatenate([block @ x for _, block in self.blocks()])

    def spread(self, x: Array) -> Array:
        """Return x with a 0 for every other column of X."""
        if self.columns is None:
            return x
        whole = np.zeros(self.X.shape[1])
        whole[self.columns] = x
        return whole

    def back(self, slopes: Array) -> Array:
        """Return Aᵀs with all columns of X, of which ``pick`` takes these."""
        if self.sparse or self._wide:
            product: Array = self._turned @ slopes
            return product
        total = np.zeros(self.X.shape[1])
        for rows, block in self.blocks():
            total += slopes[rows] @ block
        return total

    @functools.cached_property
    def _turned(self) -> Any:
        """Xᵀ: SciPy looks at all of a matrix when it turns one."""
        return self.X.T

    def pick(self, product: Array) -> Array:
        """Return the entries of these columns."""
        return product if self.columns is None else product[self.columns]

    def gram(self, weights: Array, stride: int, *, single: bool = False) -> Array:
        """Return Σ_j w_j a_j a_jᵀ over every that many-th row, as large as that over all rows would be.

        With ``single`` dense rows are multiplied in float32, in about half the time.
        """
        size = self.count
        # even of every row SciPy would make a copy
        X, some = self.X if stride == 1 else self.X[::stride], np.ascontiguousarray(weights[::stride])
        total = np.zeros((size, size))
        if self.sparse:
            from fpdfp._kernels import matrix

            parts = np.zeros((PARTS if size <= 512 and X.nnz >= ENTRIES else 1, size, size))
            matrix.weighted_gram_csr(X.data, X.indices, X.indptr, some, np.arange(size), parts, total)
        else:
            dtype = np.dtype(np.float32 if single else np.float64)
            roots = np.sqrt(some).astype(dtype)[:, None]
            room = np.empty((min(ROWS, len(X)), size), dtype)
            for first in range(0, len(X), ROWS):
                rows = X[first : first + ROWS]
                if self.columns is not None:
                    rows = np.take(rows, self.columns, axis=1, mode="clip")
                block = room[: len(rows)]
                block[:] = rows
                block *= roots[first : first + ROWS]
                add_gram(block, total)
        return total if stride == 1 else total * (weights.sum() / max(some.sum(), TINY))


def add_gram(block: Array, total: Array) -> None:
    """Add AᵀA to a matrix, some columns at a time, several of these at once.

    Each product has one thread of BLAS: with more, bits would depend on their number.
    """
    from fpdfp._kernels.jit import count_threads

    size = len(total)
    starts = range(0, size, PANEL)

    def add(first: int) -> None:
        own, after = slice(first, first + PANEL), slice(first + PANEL, size)
        columns = block[:, own]
        total[own, own] += columns.T @ columns
        product = columns.T @ block[:, after]
        total[own, after] += product
        total[after, own] += product.T

    workers = min(len(starts), count_threads())
    with one_thread(), ThreadPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        list(map(add, starts) if pool is None else pool.map(add, starts))


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


def has_rows(losses: Losses) -> bool:
    """Whether losses are sums over rows of a convex function of one linear form, with a known conjugate."""
    return isinstance(losses, SingleForm) or (isinstance(losses, GLM) and losses.has_duals)


class Fit:
    """f, and F = f + g∘B; with a stride, for every that many-th row."""

    def __init__(self, problem: Problem, stride: int = 1) -> None:
        assert isinstance(problem.losses, SingleForm | GLM)
        self.problem, self.losses = problem, problem.losses
        X, y = self.losses._rows[:2]
        self.rough = stride > 1
        self.data = Columns(X[::stride] if self.rough else X)
        self.y = y[::stride].astype(np.float64, copy=False)
        weights = self.losses._row_weights(problem.weights)
        self.c = weights[::stride] * (weights.sum() / weights[::stride].sum()) if self.rough else weights
        self.ridge = float(problem.weights.sum()) * self.losses._ridge
        self.feasibility = problem._feasibility
        self._derivatives = self.losses.distribution.derivatives(self.y) if isinstance(self.losses, GLM) else None
        #: The linear forms of x = 0: offsets, where there are some.
        self.offsets = self.losses._shift(np.zeros(len(y)))[::stride]
        #: Σ_j c_j a_jk² of each coordinate.
        self.squares = self.losses._column_squares(problem.weights)

    @functools.cached_property
    def by_column(self) -> Any:
        """Sparse rows, by column."""
        return self.data.X.tocsc()

    def at(self, x: Array) -> Point:
        """Return a point, in the precision of the data, with its linear forms."""
        if not x.any():
            return self.zero
        x = x.astype(self.losses.dtype).astype(np.float64)
        return self._move(x, self.offsets, self.data, x, np.abs(x))

    @functools.cached_property
    def zero(self) -> Point:
        """The point 0, which takes no product with the data."""
        x, found = np.zeros(len(self.ridge)), np.empty((3, len(self.y)))
        self.look(slice(None), self.offsets, tuple(found))
        return Point(x, self.offsets, self.evaluate(x, found[0]), found[1], found[2], np.zeros(len(x)), None)

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
            self.look(slice(None), moved, found)
        else:
            product, moves, change = np.zeros(data.X.shape[1]), bool(change.any()), data.spread(change)
            with one_thread():
                for rows, block in data.blocks(max(64, NEAR // data.X.shape[1])):
                    np.add(forms[rows], block @ change if moves else 0.0, out=moved[rows])
                    self.look(rows, moved, found)
                    product += found[1][rows] @ block
        known = None if product is None else (data.X, product)
        return Point(x, moved, self.evaluate(x, found[0]), found[1], found[2], travel, known)

    def look(self, rows: slice, forms: Array, found: tuple[Array, ...]) -> None:
        """Write φ and its weighted derivatives for some rows."""
        from fpdfp._kernels.rows import look_at

        if self._derivatives is not None:
            values, slopes, curvatures = (one[rows] for one in found)
            values[:], slope, second = self._derivatives(rows, forms[rows])
            np.multiply(self.c[rows], slope, out=slopes)
            np.multiply(self.c[rows], second, out=curvatures)
            return
        assert isinstance(self.losses, SingleForm)
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
        return EPS * abs(self.zero.value)

    @functools.cached_property
    def curvature(self) -> float:
        """A bound of φ'', or else its mean at x = 0."""
        known = float(self.losses.curvature)
        return known if np.isfinite(known) else float(self.zero.curvatures.sum() / self.c.sum())

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
        search = Search(problem.model, self.feasibility, duals, point.x, image, image)
        first = Bound(np.inf, v) if search.free.any() else search.bound(v)
        if quick or first.gap <= enough:
            return first
        found = search.best([v], 0, thorough=False)
        return search.best([v], 0, thorough=True) if thorough and found.gap > enough else found

    def conclude(self, point: Point, slope: Array, bound: Bound, steps: int, tol: float) -> Found:
        """Return what was found at a point, with its certificate."""
        problem, scale = self.problem, self.scale(point.value)
        x, v = point.x.astype(problem.model.dtype), bound.v.astype(problem.model.dtype)
        lipschitz = self.curvature * float(self.squares.sum()) + float(self.ridge.max())
        step, gradient = 1.0 / lipschitz if lipschitz > 0 else 1.0, slope + self.ridge * point.x
        residual = problem.residual(x, v, gradient=gradient, step=step)
        gap = bound.gap if np.isfinite(bound.gap) else None
        certificate = Certificate(point.value, gap, residual, 0.0, v, scale)
        return Found(x, v, certificate, Reached("duality gap", bound.gap / scale, tol), steps)

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


def fits_single(squares: Array) -> bool:
    """Whether single precision holds products of columns, given their sums of squares."""
    positive = squares[squares > 0]
    return bool(positive.max(initial=1.0) < LARGEST and positive.min(initial=1.0) > 1.0 / LARGEST)


class Curvature:
    """The Hessian of f on some coordinates: at the present point, at one near it, or from a part of the rows.

    It decides how fast steps converge, not where to.
    """

    def __init__(self, fit: Fit, data: Columns, coordinates: Any) -> None:
        rows, count = data.X.shape[0], data.count
        self.data, self._quadratic = data, fit.losses.form == "quadratic"
        self._ridge, squares = fit.ridge[coordinates], fit.squares[coordinates]
        # Sparse rows are cheap, and a part of them may miss a rare feature.
        self._stride = 1 if data.sparse else max(1, rows // max(rows // PART, OVER * count))
        self._single = not data.sparse and count >= SINGLE and rows >= 4 * count and fits_single(squares)
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
        self.hessian = self.data.gram(curvatures, self._stride, single=self._single)
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


class Rows:
    """The rows of a quadratic f, for products with them in place of a Hessian.

    Accelerated steps that are few take less time so than it takes to make a Hessian. Dense rows are multiplied in
    float32: like a Hessian that is not exact, it decides how fast steps converge, not where to.
    """

    def __init__(self, fit: Fit) -> None:
        X = fit.data.X
        self.fit, self.sparse = fit, fit.data.sparse
        self.X: Any = X if self.sparse else X.astype(np.float32, copy=False)
        self.weights = fit.c.astype(self.X.dtype)

    @staticmethod
    def count_steps(fit: Fit) -> int:
        """Return how many steps take no longer than to make a Hessian; 0 where they are too few."""
        X = fit.data.X
        if fit.losses.form != "quadratic" or not fits_single(fit.squares):
            return 0
        steps = X.nnz / (SPARSE_STEP * X.shape[0]) if fit.data.sparse else X.shape[1] / DENSE_STEP
        return int(steps) if steps >= FEW_STEPS else 0

    def model(self, x: Array, slope: Array) -> Products:
        """Return f around x, up to a constant."""
        fit = self.fit
        diagonal = fit.losses.curvature * fit.squares + fit.ridge
        return Products(lambda u: self.multiply(u) + fit.ridge * u, diagonal, x, slope)

    def multiply(self, u: Array) -> Array:
        """Return the Hessian times u, without the ridge."""
        u = u.astype(self.X.dtype, copy=False)
        return self._back(lambda rows, block: self.weights[rows] * (block @ u))

    def back(self, slopes: Array) -> Array:
        """Return Aᵀs."""
        slopes = slopes.astype(self.X.dtype, copy=False)
        return self._back(lambda rows, block: slopes[rows])

    def _back(self, slopes: Callable[[slice, Any], Array]) -> Array:
        """Return Aᵀs, given s for some rows."""
        if self.sparse:
            product: Array = self.X.T @ slopes(slice(None), self.X)
            return product
        total, count = np.zeros(self.X.shape[1]), max(64, 2 * NEAR // self.X.shape[1])
        with one_thread():
            for first in range(0, len(self.X), count):
                rows = slice(first, first + count)
                total += slopes(rows, self.X[rows]) @ self.X[rows]
        return total
