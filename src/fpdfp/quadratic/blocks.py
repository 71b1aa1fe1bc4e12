"""Block coordinate descent and Newton steps for a quadratic with a weighted sum of norms of blocks.

    m(u) = ⟨s, u − c⟩ + ½ (u − c)ᵀH(u − c) + Σ_G w_G ‖u_G‖

A sweep moves one block after another by a proximal step with its own Lipschitz constant (P. Tseng and S. Yun, "A
coordinate gradient descent method for nonsmooth separable minimization", Math. Program. 117, 2009). A Newton step moves
all coordinates that are not 0. Coordinates that vanish are exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.penalties import L1, GroupL12, Zero
from fpdfp.penalties.base import Penalty
from fpdfp.quadratic.newton import solve_scaled
from fpdfp.quadratic.statement import Quadratic, Solution, Work

#: Rounds of coordinate descent and Newton steps, how many of both in each, and by how much they must shrink the error.
ROUNDS, SWEEPS, NEWTON, SHRINK, ENOUGH = 40, 10, 10, 1e-20, 1e-12
#: This many coordinates make a Newton step as long as a round of coordinate descent, and by how much that must shrink
#: it.
LONG, QUICK = 40, 0.1
#: Shortenings of a Newton step.
HALVINGS = 20

#: A Newton step leads to the least value, to where coordinates have become 0 on the way, or only to the first of these.
Outcome = Literal["there", "nearer", "short"]


class Blocks(NamedTuple):
    """Coordinates sorted by block, where each block starts, and the weight of its norm."""

    coordinates: IntArray
    starts: IntArray
    weights: Array

    @property
    def sizes(self) -> IntArray:
        """The number of coordinates of each block."""
        return np.diff(self.starts)

    def select(self, chosen: IntArray) -> Blocks:
        """Return some of the blocks, in order; ``coordinates`` belong to the same space."""
        sizes = self.sizes[chosen]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        return Blocks(self.coordinates[np.repeat(self.starts[chosen], sizes) + within], starts, self.weights[chosen])

    @property
    def single(self) -> bool:
        """Whether every block has one coordinate."""
        return len(self.starts) == len(self.coordinates) + 1

    def reduce(self, function: np.ufunc, u: Array) -> Array:
        """Return the sums, or what another function makes of the entries, of each block."""
        reduced: Array = u if self.single else function.reduceat(u, self.starts[:-1])
        return reduced

    def norms(self, u: Array) -> Array:
        """Return the norm of each block of a vector whose entries are sorted as the coordinates are."""
        return np.abs(u) if self.single else np.sqrt(self.reduce(np.add, u * u))

    def spread(self, factors: Array) -> Array:
        """Give each entry the factor of its block."""
        return factors if self.single else np.repeat(factors, self.sizes)

    def value(self, u: Array) -> float:
        """Return Σ_G w_G ‖u_G‖."""
        return float(self.weights @ self.norms(u))

    def residuals(self, u: Array, slope: Array) -> Array:
        """Return the length of the shortest subgradient in each block, for the slope of the smooth part."""
        from fpdfp._kernels.quadratic import block_residuals

        residuals = np.empty(len(self.weights))
        block_residuals(u, slope, self.starts, self.weights, residuals)
        return residuals


def blocks_of(penalty: Penalty, count: int) -> Blocks | None:
    """Return the blocks of a penalty of a given number of coordinates, None if it is not a sum of norms of blocks."""
    if isinstance(penalty, L1 | Zero):
        weight = penalty.weight if isinstance(penalty, L1) else 0.0
        return Blocks(np.arange(count), np.arange(count + 1), np.broadcast_to(np.float64(weight), (count,)).copy())
    if isinstance(penalty, GroupL12) and penalty.axis is None and penalty.groups.ndim == 1:
        starts = np.append(penalty._starts, count)
        return Blocks(penalty._order, starts, np.broadcast_to(np.float64(penalty.weight), (len(starts) - 1,)).copy())
    return None


def descend_blocks(q: Quadratic, blocks: Blocks) -> Solution:
    """Return where q plus the norms of blocks is least, and the dual there."""
    order, x = blocks.coordinates, q.centre
    u = x.copy()
    u[order] = BlockDescent(q.matrix[np.ix_(order, order)], blocks).minimise(x[order], q.slope[order])
    dual = -(q.slope + q.matrix @ (u - x))[order]
    norms = blocks.norms(dual)
    # What rounding has left of the condition |v| ≤ weight.
    shares = np.where(norms > blocks.weights, blocks.weights / np.where(norms > 0, norms, 1.0), 1.0)
    v = np.empty_like(dual)
    v[order] = blocks.spread(shares) * dual
    return Solution(u, v, Work())


class BlockDescent:
    """Minimises m for one H; its coordinates are sorted by block."""

    def __init__(self, hessian: Array, blocks: Blocks) -> None:
        self.hessian, self.blocks = hessian, blocks
        diagonal = np.diag(hessian)
        #: The largest eigenvalue of each block, up to rounding.
        self.bounds: Array = np.maximum(diagonal, 0.0)
        if not blocks.single:
            self.bounds = np.maximum(np.maximum.reduceat(diagonal, blocks.starts[:-1]), 0.0)
            for size in np.unique(blocks.sizes[blocks.sizes > 1]):
                alike = np.flatnonzero(blocks.sizes == size)
                own = blocks.starts[alike][:, None] + np.arange(size)
                largest = np.linalg.eigvalsh(hessian[own[:, :, None], own[:, None, :]])[:, -1]
                self.bounds[alike] = np.maximum(largest, 0.0) * (1.0 + 1e-12)

    def error(self, u: Array, slope: Array) -> float:
        """Return Σ_G r_G²/2L_G: about by how much the model can still be decreased."""
        bounded = self.bounds > 0
        residuals = np.where(bounded, self.blocks.residuals(u, slope), 0.0)
        return float((residuals**2 / np.where(bounded, 2.0 * self.bounds, 1.0)).sum())

    def minimise(self, x: Array, gradient: Array, near: Callable[[Array, Array], bool] | None = None) -> Array:
        """Return the u of least m, from x and the slope there, or one that with its slope is near enough."""
        from fpdfp._kernels.quadratic import descend

        u, slope = x.copy(), gradient.copy()
        room = np.empty(int(self.blocks.sizes.max(initial=1)))
        start, last = self.error(u, slope), np.inf
        sweeps, before = SWEEPS, start
        for _ in range(ROUNDS):
            # A Newton step takes as long as many sweeps.
            for _ in range(1 + len(u) // LONG):
                descend(self.hessian, slope, u, self.blocks.starts, self.blocks.weights, self.bounds, sweeps, room)
                error = self.error(u, slope)
                if error > QUICK * before or (near is not None and near(u, slope)):
                    break
                before = error
            for _ in range(NEWTON if sweeps > 1 else len(u)):
                if near is not None and near(u, slope):
                    return u
                u, slope, outcome = self.take_newton_step(u, slope)
                if outcome == "there":
                    break
                if outcome == "short" and self.blocks.single:
                    sweeps = 1  # where H is nearly singular, more would undo the Newton steps
            error = self.error(u, slope)
            if error <= SHRINK * start or (error <= ENOUGH * start and error > 0.5 * last):
                break
            last = error
        return u

    def take_newton_step(self, u: Array, slope: Array) -> tuple[Array, Array, Outcome]:
        """Move the coordinates that are not 0 towards where the model is least; return both and the outcome.

        A coordinate that would change its sign becomes 0. Where the model would not decrease so, they are moved until
        the first one becomes 0, on which way it does.
        """
        blocks = self.blocks
        norms = blocks.norms(u)
        free = np.flatnonzero(blocks.spread((norms > 0) | (blocks.weights == 0)))
        if not len(free):
            return u, slope, "there"
        safe = np.where(norms > 0, norms, 1.0)
        downhill = -(slope + blocks.spread(np.where(norms > 0, blocks.weights / safe, 0.0)) * u)[free]
        step = np.zeros_like(u)
        step[free] = solve_scaled(self._bend(free, u, norms), downhill)
        single = blocks.spread((blocks.sizes == 1) & (blocks.weights > 0))
        crossing = single & (u * (u + step) < 0)
        first = float((-u[crossing] / step[crossing]).min(initial=1.0))
        value = blocks.value(u)
        for share in (1.0, first, *(first * 0.5 ** np.arange(1, HALVINGS))):
            trial = u + share * step
            trial[crossing & (u * trial <= 1e-14 * u * u)] = 0.0
            change = trial - u
            image = self.hessian @ change
            if float(slope @ change) + 0.5 * float(change @ image) + blocks.value(trial) - value < 0:
                outcome: Outcome = "short" if share < 1.0 else "nearer" if crossing.any() else "there"
                return trial, slope + image, outcome
        return u, slope, "there"

    def _bend(self, free: IntArray, u: Array, norms: Array) -> Array:
        """Return the Hessian of the model on the free coordinates, and of the norms of larger blocks."""
        from fpdfp._kernels.quadratic import bend

        system = self.hessian[np.ix_(free, free)]
        if not self.blocks.single:
            place = np.full(len(u), -1)
            place[free] = np.arange(len(free))
            bend(system, place, u, self.blocks.starts, self.blocks.weights, norms)
        return system
