"""Quadratics with a weighted l1 norm of a sparse Bu, by accelerated proximal gradient steps.

    u⁺ = argmin_u ½ Σ_i m_i (u_i − t_i)² + Σ_e w_e |(Bu)_e|,   t = a − ∇q(a)/m,   a⁺ = u⁺ + θ (u⁺ − u)

A step takes one product with the Hessian and a prox in a diagonal metric m. So tens of steps take less time than one
Newton system. The metric is a multiple of the diagonal of the Hessian; the multiple follows from the curvature that
steps meet (A. Beck and M. Teboulle, "A fast iterative shrinkage-thresholding algorithm for linear inverse problems",
SIAM J. Imaging Sci. 2, 2009). The prox of differences of neighbours is exact; for any other sparse B it is computed in
its dual.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse

from fpdfp._numbers import accelerate
from fpdfp._typing import Array, IntArray
from fpdfp.linops import Difference, Matrix
from fpdfp.linops.base import LinOp
from fpdfp.penalties import L1
from fpdfp.penalties.base import Penalty
from fpdfp.quadratic.statement import Products, Quadratic, Solution, Work

if TYPE_CHECKING:
    from fpdfp.problem import Model

#: The most dual steps for one prox.
DUAL_STEPS = 2000
#: After this part of the steps it is looked at whether the others will suffice.
TRIAL = 0.2
#: How much larger than what was met the curvature is taken to be, and than the last one at least; the part of the
#: accuracy that a prox gets.
SAFE, MORE, PART = 1.02, 1.2, 0.1
#: A step is repeated if it meets more curvature than it was taken to be, times this. For an eigenvalue h in units of
#: the curvature, errors follow e⁺ = (1 − h)(e + θ (e − e⁻)). With the largest momentum, θ = 1, that is stable up to
#: h = 4/3, where −1 is a root of r² − (1 − h)(2r − 1).
STABLE = 4.0 / 3.0
#: The smallest entry of the metric, relative to the largest, and the smallest objective, relative to that at the start.
LEAST, LEFT = 1e-12, 0.1


def take_steps(
    model: Model,
    q: Quadratic | Products,
    prox: Prox,
    v: Array,
    ridge: Array,
    enough: float,
    share: float,
    most: int,
    likely: float = math.inf,
    objective: float = math.inf,
) -> Solution:
    """Minimise q + g∘B from the centre of q, in at most a given number of steps, and if it is likely to take that many.

    Let r = ∇q(u) + Bᵀv, and R the ridge. The error of u and v is g(Bu) + g*(v) − ⟨Bu, v⟩ + Σ_k r_k²/2R_k. It bounds
    what is left to gain where R is a part of H. It is to become ``enough``, or a ``share`` of the decrease. Where q is
    f itself, ``enough`` is for the objective at the centre, and is less for a smaller one.
    """
    penalty, linop = model.penalty, model.linop
    metric = np.maximum(q.diagonal, LEAST * float(q.diagonal.max()))
    u, slope = q.centre, q.slope
    start = penalty.value(linop.apply(u))
    ahead, slope_ahead = u, slope
    # The largest curvature is more than the diagonal, unless there is nothing else.
    stretch, theta = SAFE * MORE, 1.0
    best, least, before = (u, v), np.inf, np.inf
    trial = max(1, round(TRIAL * most))
    for step in range(most):
        while True:
            stretched = stretch * metric
            target = ahead - slope_ahead / stretched
            new, v = prox.apply(target, stretched, v, PART * enough)
            slope_new = q.gradient(new)
            change = new - ahead
            size, bend = float(change @ (metric * change)), float(change @ (slope_new - slope_ahead))
            stable = bend <= STABLE * stretch * size
            if bend > (1.0 + 1e-9) * stretch * size:
                stretch = SAFE * max(bend / size, MORE * stretch)
            if stable:
                break
        # A prox has Bᵀv = M (t − u).
        rest, image = slope_new + stretched * (target - new), linop.apply(new)
        value = penalty.value(image)
        error = abs(value - float(image @ v)) + float((rest * rest / (2.0 * ridge)).sum())
        if error < least:
            best, least = (new, v), error
        decrease = start - value - 0.5 * float((new - q.centre) @ (q.slope + slope_new))
        goal = max(enough * max(1.0 - decrease / objective, LEFT), share * decrease)
        if error <= goal:
            return Solution(new, v, Work(step + 1))
        # To shrink the error tenfold takes about as many steps as the curvature is times the diagonal.
        if step == 0 and stretch * math.log10(error / goal) > likely:
            break
        if step % trial == trial - 1:
            # At this rate there would not be steps enough.
            if least >= before or (most - step) * math.log(before / least) < trial * math.log(least / enough):
                break
            before = least
        if float((metric * (ahead - new)) @ (new - u)) > 0.0:
            theta = 1.0
        momentum, theta = accelerate(theta)
        # The gradient of a quadratic is affine, so that no product is needed where the next step starts.
        ahead, slope_ahead = new + momentum * (new - u), slope_new + momentum * (slope_new - slope)
        u, slope = new, slope_new
    return Solution(*best, Work(step + 1, 1))


class Prox(Protocol):
    """A prox in a diagonal metric."""

    def apply(self, target: Array, metric: Array, v: Array, enough: float) -> tuple[Array, Array]:
        """Return u and its dual, within a duality gap; v is where to start."""


def find_prox(linop: LinOp, penalty: Penalty) -> Prox | None:
    """Return the prox of a penalty of Bx, None for what has another form."""
    if not isinstance(penalty, L1) or len(linop.in_shape) != 1:
        return None
    matrix = as_sparse(linop)
    if matrix is None:
        return None
    weights = np.broadcast_to(np.asarray(penalty.weight, dtype=np.float64).ravel(), (matrix.shape[0],))
    return find_chain(matrix, weights) or SparseProx.of(matrix, weights)


def as_sparse(linop: LinOp) -> Any | None:
    """Return B as a CSR matrix in float64, None for one that is not given by its entries."""
    if isinstance(linop, Difference):
        count = linop.size_in
        return scipy.sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(count - 1, count)).tocsr()
    if isinstance(linop, Matrix) and linop.sparse:
        return linop.matrix.astype(np.float64, copy=False)
    return None


class ChainProx(NamedTuple):
    """B has multiples of differences of neighbours: row e is c_e (x_{j+1} − x_j), and ``edges`` has its j."""

    edges: IntArray
    factors: Array
    weights: Array

    def apply(self, target: Array, metric: Array, v: Array, enough: float) -> tuple[Array, Array]:
        """Return u and its dual, exactly up to rounding."""
        from fpdfp._kernels.quadratic import prox_chain

        u = np.empty_like(target)
        prox_chain(target, metric, self.weights, u)
        # The dual of u_{j+1} − u_j is what all before have too much.
        dual = np.cumsum(metric * (u - target))[:-1]
        clipped = np.minimum(np.maximum(dual, -self.weights), self.weights)
        return u, clipped[self.edges] / self.factors


def find_chain(matrix: Any, weights: Array) -> ChainProx | None:
    """Return the prox of differences of neighbours, None for a B with any other row."""
    columns = matrix.shape[1]
    if not (np.diff(matrix.indptr) == 2).all():
        return None
    sorted_matrix = matrix if matrix.has_sorted_indices else matrix.sorted_indices()
    places, entries = sorted_matrix.indices.reshape(-1, 2), sorted_matrix.data.reshape(-1, 2)
    edges, factors = places[:, 0], entries[:, 1]
    neighbours = (places[:, 1] == edges + 1) & (entries[:, 0] == -factors) & (factors != 0)
    if not neighbours.all() or np.bincount(edges).max(initial=0) > 1:
        return None
    of_edges = np.zeros(columns - 1)
    of_edges[edges] = weights * np.abs(factors)
    return ChainProx(edges, factors, of_edges)


class SparseProx(NamedTuple):
    """Any sparse B, by dual steps."""

    matrix: Any
    turned: Any
    weights: Array
    #: |B|, and the sums of its columns.
    sizes: Any
    sums: Array

    @classmethod
    def of(cls, matrix: Any, weights: Array) -> SparseProx:
        """Return the prox of a CSR matrix."""
        sizes = abs(matrix)
        return cls(matrix, matrix.T.tocsr(), np.ascontiguousarray(weights), sizes, sizes.sum(axis=0))

    def apply(self, target: Array, metric: Array, v: Array, enough: float) -> tuple[Array, Array]:
        """Return u and its dual, within a duality gap or after DUAL_STEPS steps."""
        from fpdfp._kernels.quadratic import prox_sparse

        there, back = self.matrix, self.turned
        # Steps of this length are stable whatever B is: A. Chambolle and T. Pock, "Diagonal preconditioning for first
        # order primal-dual algorithms in convex optimization", ICCV 2011.
        sizes = self.sizes @ (self.sums / metric)
        steps = 1.0 / np.where(sizes > 0, sizes, 1.0)
        dual, u = np.minimum(np.maximum(v, -self.weights), self.weights), np.empty_like(target)
        prox_sparse(
            there.data, there.indices, there.indptr, back.data, back.indices, back.indptr, steps, target, metric,
            self.weights, enough, DUAL_STEPS, dual, u,
        )  # fmt: skip
        return u, dual
