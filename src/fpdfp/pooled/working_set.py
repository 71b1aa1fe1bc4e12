"""Proximal Newton steps on working sets, for linear models with B = I and a weighted sum of norms of blocks.

    F(x) = Σ_j c_j φ(a_jᵀx, y_j) + ½ Σ_k R_k x_k² + Σ_G w_G ‖x_G‖

with blocks of one coordinate for the l1 norm. Most blocks are 0 at the solution. Only some are worked on, those that
are not 0 and those whose optimality condition is violated most, and on these f is replaced by a quadratic model. The
model is minimised exactly (`fpdfp/quadratic/blocks.py`); the line search needs no more products with the data. The
Hessian may come from an earlier point or a part of the rows: it decides how fast the steps converge, not where to.
Where the columns worked on have few entries no Hessian is made (`fpdfp/quadratic/columns.py`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from fpdfp._numbers import one_thread
from fpdfp._typing import Array, IntArray
from fpdfp.bounds import Bound
from fpdfp.pooled.fit import CLEAR, START_TOL, TINY, Columns, Curvature, Fit, Point, find_start, has_rows
from fpdfp.pooled.lagrangian import Found
from fpdfp.problem import Problem
from fpdfp.quadratic.blocks import BlockDescent, Blocks, blocks_of
from fpdfp.quadratic.columns import ColumnDescent

#: Up to this many coordinates all are worked on, unless the data are dense and at most the share NARROW of the blocks
#: matters. Else at first FEW blocks, and never more coordinates than MOST.
ALL, NARROW, FEW, MOST = 160, 0.5, 64, 3000
#: A working set is kept while no more than this part of the error is outside of it.
OUTSIDE = 0.1
#: A model is minimised up to this part of the goal.
NEAR = 0.003
#: Without a Hessian a sweep takes as long as to read the entries of its columns, with one as long as to read the
#: Hessian. This many sweeps take as long as to make the Hessian, and to solve systems with it.
SWEEPS = 50
#: Without a Hessian one of this many of the blocks that violate their condition is worked on at least. On logistic
#: losses of 1,500 × 6,000 and 5,000 × 20,000 with 15 entries a row all of them, or one of 4 or 8, take up to 1.4 times
#: longer.
THIN = 2
#: Without a Hessian a model is minimised up to this part of the error as well: the next one costs nothing.
PART = 0.1
#: Steps in all, with a part of the rows, on one working set, and rounds without progress.
MAX_STEPS, MAX_ROUGH, MAX_INNER, PATIENCE = 400, 15, 12, 6


@dataclasses.dataclass
class Set:
    """A working set: which blocks, where their coordinates are among all sorted by block, and the model of f there."""

    chosen: IntArray
    place: IntArray
    blocks: Blocks
    curved: Array
    curvature: Curvature
    quadratic: BlockDescent | None = None
    columns: ColumnDescent | None = None


def find_blocks(problem: Problem) -> Blocks | None:
    """Return the blocks of the penalty, None for a problem of another form."""
    if not (has_rows(problem.losses) and problem.linop.is_identity):
        return None
    return blocks_of(problem.penalty, problem.linop.size_in)


def solve_blocks(problem: Problem, blocks: Blocks, tol: float, x: Array | None) -> Found | None:
    """Return the best point found; None where too many coordinates are not 0 for this way."""
    if x is None:
        x = find_start(problem, ALL, lambda fit, start: WorkingSets(fit, blocks, START_TOL).solve(start))
    return WorkingSets(Fit(problem), blocks, tol).solve(x)


class WorkingSets:
    """Solves one problem."""

    def __init__(self, fit: Fit, blocks: Blocks, tol: float) -> None:
        self.fit, self.blocks, self.tol = fit, blocks, tol
        #: How much F curves along each block at least, or, where it has no weight, about how much.
        self.curved = self.curve(blocks)
        self.set: Set | None = None
        self.steps = 0

    def solve(self, x: Array) -> Found | None:
        """Return the best point found; None where too many coordinates are not 0 for this way."""
        fit = self.fit
        point = fit.at(x)
        goal, least, stalled, nearest = self.tol, np.inf, 0, point.x
        best: Found | None = None
        returned = False
        while True:
            slope, point = fit.back(point, fit.data)
            gradient = (slope + fit.ridge * point.x)[self.blocks.coordinates]
            error = self.estimate_gap(self.blocks, self.curved, point.x[self.blocks.coordinates], gradient, point.value)
            stalled = 0 if error < 0.5 * least else stalled + 1
            if error < least:
                least, nearest = error, point.x
            close = error <= goal * fit.scale(point.value)
            over = self.steps >= MAX_STEPS or stalled > PATIENCE
            if fit.rough and (close or over or self.steps >= MAX_ROUGH):
                return fit.conclude(point, slope, Bound(np.inf, -slope), self.steps, self.tol)
            if close or over:
                if point.travel is None or (over and not returned):
                    # x in the precision of the data is looked at before anything is claimed.
                    point, returned = fit.at(nearest if over else point.x), over
                    least *= 2.0
                    continue
                bound = self.bound(point, slope, self.tol * fit.scale(point.value))
                found = fit.conclude(point, slope, bound, self.steps, self.tol)
                if best is None or found.reached.error < best.reached.error:
                    best = found
                if found.reached.enough or over:
                    return best
                goal *= 0.1
            if not self.suffices(point, gradient, error) and not self.choose(point.x, gradient):
                return None
            point = self.descend(point, gradient, goal * fit.scale(point.value), error)

    def curve(self, blocks: Blocks) -> Array:
        """Return the ridge of each block, and all of its curvature where the block has no weight."""
        ridge = blocks.reduce(np.minimum, self.fit.ridge[blocks.coordinates])
        if (blocks.weights > 0).all():
            return ridge
        squares = blocks.reduce(np.add, self.fit.squares[blocks.coordinates])
        curved: Array = np.where(blocks.weights > 0, ridge, ridge + self.fit.curvature * squares)
        return curved

    def estimate_gap(self, blocks: Blocks, curved: Array, own: Array, gradient: Array, value: float) -> float:
        """Return about what the duality gap will be, from the optimality conditions of some blocks and F(x)."""
        from fpdfp._kernels.quadratic import estimate_gap

        gap: float = estimate_gap(own, gradient, blocks.starts, blocks.weights, curved, value)
        return gap

    def bound(self, point: Point, slope: Array, enough: float) -> Bound:
        """Return the bound of F(x) − F*."""
        nearest = self.fit.problem.penalty.conjugate_prox(-(slope + self.fit.ridge * point.x), 1.0)
        return self.fit.bound(point, slope, nearest, enough=enough)

    def suffices(self, point: Point, gradient: Array, error: float) -> bool:
        """Return whether nearly all of the error belongs to the working set: a larger one needs another Hessian."""
        if self.set is None:
            return False
        blocks, slope = self.set.blocks, gradient[self.set.place]
        inside = self.estimate_gap(blocks, self.set.curved, point.x[blocks.coordinates], slope, point.value)
        return inside >= (1.0 - OUTSIDE) * error

    def choose(self, x: Array, gradient: Array) -> bool:
        """Choose what to work on; return False where that would be too much."""
        blocks = self.blocks
        own = x[blocks.coordinates]
        needed = (blocks.norms(own) > 0) | (blocks.weights == 0)
        residuals = blocks.residuals(own, gradient)
        violated = np.flatnonzero(~needed & (residuals > 0))
        narrow = not self.fit.data.sparse and len(violated) + needed.sum() <= NARROW * len(needed)
        if len(blocks.coordinates) <= ALL and not narrow:
            chosen = np.arange(len(needed))
        else:
            room = max(FEW, 2 * int(needed.sum()))
            if self.is_thin(np.append(np.flatnonzero(needed), violated)):
                room = max(room, len(violated) // THIN)
            if len(violated) > room:
                squares = blocks.reduce(np.add, self.fit.squares[blocks.coordinates])[violated]
                gains = residuals[violated] ** 2 / np.maximum(squares, TINY)
                violated = violated[np.argpartition(gains, -room)[-room:]]
            wanted = needed.copy()
            wanted[violated] = True
            if self.set is not None and len(self.set.chosen) <= 2 * room:
                wanted[self.set.chosen] = True
            chosen = np.flatnonzero(wanted)
        if self.set is not None and np.isin(chosen, self.set.chosen).all():
            return True
        place = Blocks(np.arange(len(blocks.coordinates)), blocks.starts, blocks.weights).select(chosen).coordinates
        own_blocks, columns = blocks.select(chosen), None
        if self.is_thin(chosen):
            ridge = self.fit.ridge[own_blocks.coordinates]
            columns = ColumnDescent(self.fit.by_column, own_blocks.coordinates, ridge, own_blocks.weights)
        elif len(place) > MOST:
            return False
        if columns is None:
            data = self.fit.data.select(own_blocks.coordinates)
        else:  # a copy of many sparse columns takes longer than a few products with all of them
            data = Columns(self.fit.data.X, own_blocks.coordinates)
        curvature = Curvature(self.fit, data, own_blocks.coordinates)
        self.set = Set(chosen, place, own_blocks, self.curved[chosen], curvature, columns=columns)
        return True

    def is_thin(self, chosen: IntArray) -> bool:
        """Whether some blocks are single columns with too few entries for a Hessian."""
        data, count = self.fit.data, len(chosen)
        # Columns that matter have hardly less than half as many entries as others; to count takes a while.
        if not (data.sparse and self.blocks.single) or SWEEPS * data.X.nnz >= 2 * count * data.count:
            return False
        return SWEEPS * int(self.entries[self.blocks.coordinates[chosen]].sum()) < count**2

    @functools.cached_property
    def entries(self) -> IntArray:
        """The number of entries that each column of sparse rows has."""
        return np.bincount(self.fit.data.X.indices, minlength=self.fit.data.count)

    def descend(self, point: Point, gradient: Array, goal: float, error: float) -> Point:
        """Take steps on the working set until its error is small relative to the goal or to the error of all blocks."""
        fit, working = self.fit, self.set
        assert working is not None
        blocks, coordinates = working.blocks, working.blocks.coordinates
        slope, value = gradient[working.place], point.value

        enough = NEAR * goal

        def near(u: Array, at: Array) -> bool:
            return self.estimate_gap(blocks, working.curved, u, at, value) <= enough

        for step in range(MAX_INNER):
            self.steps += 1
            if step and working.columns is None:
                working.curvature.data = working.curvature.data.copy()  # where one step was not enough
            data = working.curvature.data
            own = point.x[coordinates]
            if working.columns is not None:
                inside = self.estimate_gap(blocks, working.curved, own, slope, value)
                enough = max(NEAR * goal, PART * inside)
                target = working.columns.minimise(point.curvatures, own, slope, near)
            else:
                target = self.minimise_with_hessian(working, point, own, slope, near)
            promised = float(slope @ (target - own)) + blocks.value(target) - blocks.value(own)
            share, point = fit.search_line(point, data, coordinates, target, promised)
            working.curvature.judge(promised, share)
            if share == 0.0:
                break
            before = slope
            slope, point = fit.back(point, data)
            slope = slope + fit.ridge[coordinates] * point.x[coordinates]
            clear = -promised > CLEAR * point.value and working.columns is None
            if clear and working.curvature.learn(point.x[coordinates] - own, slope - before):
                working.quadratic = None
            if len(working.chosen) == len(self.blocks.weights):
                break
            if self.estimate_gap(blocks, working.curved, point.x[coordinates], slope, point.value) <= max(
                0.3 * goal, 0.1 * error
            ):
                break
        return point

    @staticmethod
    def minimise_with_hessian(
        working: Set, point: Point, own: Array, slope: Array, near: Callable[[Array, Array], bool]
    ) -> Array:
        """Return where the model with the Hessian is least."""
        if working.curvature.move(point.curvatures) or working.quadratic is None:
            working.quadratic = BlockDescent(working.curvature.hessian, working.blocks)
        with one_thread():  # factors of many threads differ in the last bits
            return working.quadratic.minimise(own, slope, near)
