"""Proximal Newton steps on working sets, for linear models with B = I and a weighted sum of norms of blocks.

    F(x) = Σ_j c_j φ(a_jᵀx, y_j) + ½ Σ_k R_k x_k² + Σ_G w_G ‖x_G‖

with blocks of one coordinate for the l1 norm. Most blocks are 0 at the solution. Only some are worked on, those that
are not 0 and those whose optimality condition is violated most, and on these f is replaced by a quadratic model. The
model is minimised exactly (`quadratic.py`); the line search needs no more products with the data. Its Hessian may be
that of an earlier point, or of a part of the rows: it decides how fast the steps converge, not where to.

A block with ‖(Aᵀcθ)_G‖ + ‖A_G‖ √(2Lε) < w_G, where θ is a dual point with duality gap ε and φ'' ≤ L, is 0 at every
solution, and is not looked at again until the end: O. Fercoq, A. Gramfort and J. Salmon, "Mind the duality gap: safer
rules for the lasso", ICML 2015.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.bounds import Bound, Search
from fpdfp.losses._duals import EPS, RowDuals
from fpdfp.losses._single import SingleForm
from fpdfp.penalties import L1, GroupL12, Zero
from fpdfp.pooled.data import Columns
from fpdfp.pooled.quadratic import Blocks, Quadratic
from fpdfp.problem import Problem

#: Up to so many coordinates all are worked on. Else at first so many blocks, and never more coordinates than the last.
ALL, FEW, MOST = 160, 64, 3000
#: Steps in all, on one working set, and rounds without progress.
MAX_STEPS, MAX_INNER, PATIENCE = 400, 12, 6
#: How much the second derivatives may have changed since the Hessian was computed, in the mean.
STALE = 0.1
#: By how much a step must shrink what the next one can do; else the Hessian is computed again, or from more rows.
SLOW = 0.1
#: The Hessian is that of SHARE·n/p of the n rows, p the coordinates worked on, which takes about as long as two
#: products with the data, and of at least OVER·p rows.
SHARE, OVER = 60, 30
#: From so many coordinates on, the Hessian of dense rows is at first computed in float32.
SINGLE = 64
#: What rounding does to a sum, relative to its terms, and to a sum of squares of gradients.
ROUNDING, TINY = 1e-14, 1e-300
#: Shortenings of a step.
HALVINGS = 30
#: From LARGE times as many rows on, so many rows, or so many for each coordinate worked on at least, give a start: they
#: determine the solution up to about this part of the objective. So many steps are taken at most.
LARGE, START_ROWS, START_OVER, START_TOL, MAX_ROUGH = 4, 10_000, 50, 1e-3, 15
#: Screening waits for a duality gap of this part of the objective.
SCREEN = 0.3


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


class Live(NamedTuple):
    """Blocks that screening has left, their columns of the data, and where the blocks' coordinates are in these."""

    blocks: Blocks
    data: Columns
    place: IntArray


@dataclasses.dataclass
class Set:
    """A working set: which blocks of the live ones, these blocks, their columns, and the model of f on them.

    The Hessian is that of every ``stride``-th row, in float32 if ``single``.
    """

    chosen: IntArray
    blocks: Blocks
    data: Columns
    stride: int
    single: bool
    quadratic: Quadratic | None = None
    #: The second derivatives with which the Hessian was computed, and what the last step promised.
    curvatures: Array | None = None
    promised: float = np.inf
    slow: bool = False


def find_blocks(problem: Problem) -> Blocks | None:
    """Return the blocks of the penalty, None for a problem of another form."""
    penalty, losses = problem.penalty, problem.losses
    if not (isinstance(losses, SingleForm) and problem.linop.is_identity):
        return None
    count = losses.n_features
    if isinstance(penalty, L1 | Zero):
        weight = penalty.weight if isinstance(penalty, L1) else 0.0
        return Blocks(np.arange(count), np.arange(count + 1), np.broadcast_to(np.float64(weight), (count,)).copy())
    if isinstance(penalty, GroupL12) and penalty.axis is None and penalty.groups.ndim == 1:
        starts = np.append(penalty._starts, count)
        return Blocks(penalty._order, starts, np.broadcast_to(np.float64(penalty.weight), (len(starts) - 1,)).copy())
    return None


def find_start(problem: Problem, blocks: Blocks) -> Array:
    """Return the solution of a part of the rows where there are many, else zero."""
    losses = problem.losses
    rows, count = int(losses.sizes.sum()), len(blocks.coordinates)
    stride = rows // max(START_ROWS, START_OVER * min(count, ALL))
    zero = np.zeros(count)
    if stride < LARGE or losses.form == "quadratic":
        return zero
    found = WorkingSets(problem, blocks, START_TOL, stride).solve(zero)
    return zero if found is None else found.x


class WorkingSets:
    """Solves one problem; with a stride, that of every so many-th row, to find a good start."""

    def __init__(self, problem: Problem, blocks: Blocks, tol: float, stride: int = 1) -> None:
        assert isinstance(problem.losses, SingleForm)
        self.problem, self.losses, self.blocks, self.tol = problem, problem.losses, blocks, tol
        X, y, _, _ = self.losses._rows
        self.rough = stride > 1
        self.y = y[::stride].astype(np.float64, copy=False)
        weights = self.losses._row_weights(problem.weights)
        self.c = weights[::stride]
        if self.rough:
            self.c = self.c * (weights.sum() / self.c.sum())
        self.ridge = float(problem.weights.sum()) * self.losses._ridge
        #: Σ_j c_j a_jk² of each coordinate.
        self.squares = self.losses._column_squares(problem.weights)
        self.whole = Live(blocks, Columns(X[::stride]), blocks.coordinates)
        self.live = self.whole
        self.set: Set | None = None
        self.steps = 0
        self.least = EPS * self.evaluate(np.zeros(len(self.ridge)), np.zeros(len(self.y)))

    def solve(self, x: Array) -> Found | None:
        """Return the best point found; None where too many coordinates are not 0 for this way."""
        x = x.astype(np.float64)
        forms, exact = self.whole.data.times(x), True
        value = self.evaluate(x, forms)
        goal, least, stalled, nearest = self.tol, np.inf, 0, x
        best: Found | None = None
        while True:
            live = self.live
            slope = live.data.back(self.slopes(forms))
            gradient = self.sort(x, slope)
            error = self.estimate_gap(live.blocks, x, gradient, value)
            stalled = 0 if error < 0.5 * least else stalled + 1
            if error < least:
                least, nearest = error, x
            close = error <= goal * self.scale(value)
            over = self.steps >= MAX_STEPS or stalled > PATIENCE
            if self.rough and (close or over or self.steps >= MAX_ROUGH):
                return self.conclude(x, value, slope, Bound(np.inf, -slope))
            if close or over:
                if not (exact and live is self.whole):
                    x = nearest if over else x
                    # What was left out, and what many steps have added up, is looked at before anything is claimed.
                    self.live, self.set = self.whole, self.set if live is self.whole else None
                    x = x.astype(self.problem.model.dtype).astype(np.float64)
                    forms, exact = self.whole.data.times(x), True
                    value, least = self.evaluate(x, forms), 2.0 * least
                    continue
                found = self.conclude(x, value, slope, self.bound(x, forms, slope))
                if best is None or found.bound.gap < best.bound.gap:
                    best = found
                if found.bound.gap <= self.tol * found.scale or over:
                    return best
                goal *= 0.1
            elif not self.rough and error <= SCREEN * value and self.screen(x, forms, slope):
                continue
            if not self.choose(x, gradient):
                return None
            x, forms, value = self.descend(x, forms, value, gradient, max(0.3 * goal * value, 0.1 * error))
            exact = False

    def conclude(self, x: Array, value: float, slope: Array, bound: Bound) -> Found:
        """Return what was found at a point."""
        lipschitz = self.losses.curvature * float(self.squares.sum()) + float(self.ridge.max())
        step = 1.0 / lipschitz if lipschitz > 0 else 1.0
        return Found(x, value, bound, self.scale(value), slope + self.ridge * x, step, self.steps)

    def scale(self, value: float) -> float:
        """Return what gaps are compared with, as certificates do."""
        return max(abs(value), self.least, TINY)

    def slopes(self, forms: Array) -> Array:
        """Return the derivative of f in the linear form of each row."""
        slopes: Array = self.c * self.losses._slopes(forms, self.y)
        return slopes

    def sort(self, x: Array, slope: Array) -> Array:
        """Return the gradient of f on the live blocks, sorted by block."""
        coordinates = self.live.blocks.coordinates
        gradient: Array = slope[self.live.place] + self.ridge[coordinates] * x[coordinates]
        return gradient

    def evaluate(self, x: Array, forms: Array) -> float:
        """Return F."""
        smooth = float(self.c @ self.losses._phi(forms, self.y)) + 0.5 * float((self.ridge * x) @ x)
        return smooth + self.blocks.value(x[self.blocks.coordinates])

    def estimate_gap(self, blocks: Blocks, x: Array, gradient: Array, value: float) -> float:
        """Return about what the duality gap will be, from the optimality conditions of some blocks."""
        own = x[blocks.coordinates]
        residuals, norms = blocks.residuals(own, gradient), blocks.norms(own)
        seen = blocks.weights > 0
        ridge = np.minimum.reduceat(self.ridge[blocks.coordinates], blocks.starts[:-1])
        squares = np.add.reduceat(self.squares[blocks.coordinates], blocks.starts[:-1])
        curved = np.maximum(ridge, np.where(seen, 0.0, ridge + self.losses.curvature * squares))
        quadratic = residuals**2 / np.where(curved > 0, 2.0 * curved, 1.0)
        # Without curvature the dual point is scaled until it is feasible.
        free = (curved == 0) & (norms == 0)
        excess = float((residuals / (blocks.weights + residuals + TINY))[free & seen].max(initial=0.0))
        along = np.where(seen, norms * residuals, 0.0)
        return float(along.sum()) + float(np.where(seen & (norms > 0) | free, 0.0, quadratic).sum()) + excess * value

    def bound(self, x: Array, forms: Array, slope: Array) -> Bound:
        """Return the bound of F(x) − F*; coordinates that screening left out count as 0."""
        whole = slope
        if self.live is not self.whole:
            whole = np.zeros(len(x))
            whole[self.live.blocks.coordinates] = slope
        problem = self.problem
        duals = RowDuals(self.losses, x, problem.weights, forms, whole)
        search = Search(problem.model, problem._feasibility, duals, x, x, x)
        nearest = problem.penalty.conjugate_prox(-(whole + self.ridge * x), 1.0)
        return search.best([nearest], 0, thorough=False)

    def screen(self, x: Array, forms: Array, slope: Array) -> bool:
        """Leave out blocks that are 0 at every solution, once they are half of what is left; return whether it did."""
        live = self.live
        if len(live.blocks.coordinates) <= ALL:
            return False
        bound = self.bound(x, forms, slope)
        if not np.isfinite(bound.gap) or bound.q is None:
            return False
        coordinates = live.blocks.coordinates
        radius = np.sqrt(2.0 * self.losses.curvature * bound.gap)
        reach = radius * np.sqrt(np.add.reduceat(self.squares[coordinates], live.blocks.starts[:-1]))
        norms = live.blocks.norms(bound.q[coordinates])
        kept = np.flatnonzero((norms + reach >= live.blocks.weights) | (live.blocks.norms(x[coordinates]) > 0))
        if 2 * len(kept) > len(norms):
            return False
        blocks = live.blocks.select(kept)
        columns = live.data.select(live.place[np.isin(coordinates, blocks.coordinates)])
        self.live, self.set = Live(blocks, columns, np.arange(len(blocks.coordinates))), None
        return True

    def choose(self, x: Array, gradient: Array) -> bool:
        """Choose what to work on; return False where that would be too much."""
        live = self.live
        blocks = live.blocks
        own = x[blocks.coordinates]
        needed = (blocks.norms(own) > 0) | (blocks.weights == 0)
        residuals = blocks.residuals(own, gradient)
        violated = np.flatnonzero(~needed & (residuals > 0))
        if len(blocks.coordinates) <= ALL:
            chosen = np.arange(len(needed))
        else:
            room = max(FEW, 2 * int(needed.sum()))
            if len(violated) > room:
                squares = np.add.reduceat(self.squares[blocks.coordinates], blocks.starts[:-1])[violated]
                gains = residuals[violated] ** 2 / np.maximum(squares, TINY)
                violated = violated[np.argpartition(gains, -room)[-room:]]
            wanted = needed.copy()
            wanted[violated] = True
            if self.set is not None and len(self.set.chosen) <= 2 * room:
                wanted[self.set.chosen] = True
            chosen = np.flatnonzero(wanted)
        if self.set is not None and np.isin(chosen, self.set.chosen).all():
            return True
        own_blocks = blocks.select(chosen)
        rows, p = live.data.X.shape[0], len(own_blocks.coordinates)
        if p > MOST:
            return False
        place = live.place[_positions(blocks, chosen)]
        # Sparse rows are cheap, and a part of them may miss a rare feature.
        stride = 1 if live.data.sparse else max(1, rows // max(SHARE * rows // p, OVER * p))
        single = not live.data.sparse and p >= SINGLE and rows >= 4 * p
        self.set = Set(chosen, own_blocks, live.data.select(place), stride, single)
        return True

    def descend(
        self, x: Array, forms: Array, value: float, gradient: Array, accuracy: float
    ) -> tuple[Array, Array, float]:
        """Take steps on the working set until its part of the error is small; return x, the linear forms and F."""
        working = self.set
        assert working is not None
        blocks, data = working.blocks, working.data
        coordinates = blocks.coordinates
        ridge, slope = self.ridge[coordinates], gradient[_positions(self.live.blocks, working.chosen)]
        for _ in range(MAX_INNER):
            self.steps += 1
            own = x[coordinates]
            target = self.model(working, forms, ridge).minimise(own, slope)
            promised = float(slope @ (target - own)) + blocks.value(target) - blocks.value(own)
            share, x, forms, value = self.search_line(x, forms, value, working, target, min(promised, 0.0))
            working.slow = -promised > SLOW * working.promised or share < 1.0
            working.promised = -promised
            if share == 0.0 or len(working.chosen) == len(self.live.blocks.weights):
                break
            slope = data.back(self.slopes(forms)) + ridge * x[coordinates]
            if self.estimate_gap(blocks, x, slope, value) <= accuracy:
                break
        return x, forms, value

    def search_line(
        self, x: Array, forms: Array, value: float, working: Set, target: Array, promised: float
    ) -> tuple[float, Array, Array, float]:
        """Go as far towards the target as F decreases enough; return how far, the point, its linear forms and F."""
        coordinates = working.blocks.coordinates
        change = target - x[coordinates]
        image = working.data.times(change)
        share = 1.0
        for _ in range(HALVINGS):
            trial, moved = x.copy(), forms + share * image
            # The very target, not a sum that rounds: coordinates that become 0 must be 0.
            trial[coordinates] = target if share == 1.0 else x[coordinates] + share * change
            after = self.evaluate(trial, moved)
            if after <= value + 1e-4 * share * promised + ROUNDING * abs(value):
                return share, trial, moved, after
            share *= 0.5
        return 0.0, x, forms, value

    def model(self, working: Set, forms: Array, ridge: Array) -> Quadratic:
        """Return the quadratic model, with the Hessian of this point or of one near it."""
        curvatures = self.c * self.losses._second_derivative(forms)
        before = working.curvatures
        if working.quadratic is not None and before is not None:
            changed = float(np.abs(curvatures - before).sum()) > STALE * float(before.sum())
            moved = not np.array_equal(curvatures, before)
            if not (changed or working.slow) or not (moved or working.stride > 1 or working.single):
                return working.quadratic
            if working.slow and not changed:
                working.stride, working.single = max(1, working.stride // 4), False
        squares = self.squares[working.blocks.coordinates]
        units = np.sqrt(np.where(squares > 0, squares, 1.0)) if working.single else None
        hessian = working.data.gram(curvatures, working.stride, units)
        hessian[np.diag_indices_from(hessian)] += ridge
        working.quadratic, working.curvatures = Quadratic(hessian, working.blocks), curvatures
        working.promised, working.slow = np.inf, False
        return working.quadratic


def _positions(blocks: Blocks, chosen: IntArray) -> IntArray:
    """Return where the coordinates of some blocks are among those of all, sorted by block."""
    everywhere = Blocks(np.arange(len(blocks.coordinates)), blocks.starts, blocks.weights)
    return everywhere.select(chosen).coordinates
