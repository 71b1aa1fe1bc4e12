"""Paths of penalties: from the smallest weight whose solution is trivial down."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.penalties import L1, ElasticNet, GroupL12, SparseGroup, Zero
from fpdfp.problem import Model
from fpdfp.selection.batch import Batch
from fpdfp.selection.task import Anchor, Task

#: The accuracy of the solution at which the largest weight is computed, and by how much its penalty is above that.
TIGHT, ABOVE = 1e-15, 2.0
#: How often the weight of the trivial solution is doubled.
DOUBLINGS = 60
#: Penalties below this, relative to the weight and to x, are zero.
NOTHING = 1e-9


def largest_alpha(batch: Batch, model_of: Callable[[float], Model], rounds: int) -> tuple[float, Anchor]:
    """Return the smallest weight α at which the penalised part Bx of the solution is zero, and that solution.

    ``model_of(α)`` is g and B. With x the solution of a weight that is large enough, where Bx = 0, that is the least α
    for which −∇f(x) is in Bᵀ∂(αg)(0).
    """
    batch.begin([model_of(1.0)])
    alpha = ABOVE * max(dual_size(model_of(1.0), -batch.known.anchors[-1][0].slope), 1e-300)
    for _ in range(DOUBLINGS):
        task = Task(model_of(alpha), level=3)
        batch.solve([task], TIGHT, rounds)
        if task.best is None:
            raise ArgumentError("rounds", f"must be more than {rounds}: the start of the path was not found")
        found = task.best
        if task.penalty(found.x) <= NOTHING * alpha * max(np.abs(found.x).max(initial=0.0), 1.0):
            # With many features, those with the largest slopes are known exactly.
            size = dual_size(model_of(1.0), np.where(found.sure, -found.slope, 0.0))
            if size <= alpha * (1.0 + 1e-9):
                return size, found
        alpha *= ABOVE
    raise ArgumentError("alphas", "must be given: no weight was found whose solution is trivial")


def dual_size(model: Model, slope: Array) -> float:
    """Return the least α for which a slope is in Bᵀ∂(αg)(0): a dual norm of it, exactly.

    Entries that nothing is penalised of are excluded: at a solution they are zero.
    """
    penalty, linop = model.penalty, model.linop
    if not linop.is_identity:
        return _least_multiple(model, slope)
    if isinstance(penalty, ElasticNet):
        return _ratio(np.abs(slope), np.broadcast_to(penalty.l1, slope.shape))
    if isinstance(penalty, L1):
        return _ratio(np.abs(slope), np.broadcast_to(penalty.weight, slope.shape))
    if isinstance(penalty, GroupL12 | SparseGroup):
        return _of_groups(penalty, slope)
    if isinstance(penalty, Zero):
        return 0.0
    raise ArgumentError("alphas", f"must be given for the penalty {type(penalty).__name__}")


def _ratio(sizes: Array, weights: Array) -> float:
    some = weights > 0
    return float((sizes[some] / weights[some]).max(initial=0.0))


def _of_groups(penalty: GroupL12 | SparseGroup, slope: Array) -> float:
    """Find the least α by bisection: a multiple of the penalty whose prox takes the slope to zero."""
    if not np.abs(slope).max(initial=0.0) > 0:
        return 0.0

    def vanishes(alpha: float) -> bool:
        moved = penalty.prox(slope, alpha)
        # what is not penalised is not moved
        free = penalty.prox(slope, 1e300) != 0
        return not np.any(moved[~free])

    low, high = 0.0, 1.0
    while not vanishes(high):
        low, high = high, 2.0 * high
        if high > 1e300:
            raise ArgumentError("alphas", "must be given: the penalty has no weight whose solution is trivial")
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (low, middle) if vanishes(middle) else (middle, high)
    return high


def _least_multiple(model: Model, slope: Array) -> float:
    """Return min α with Bᵀv = slope and |v_j| ≤ α w_j, a linear programme, for an l1 norm of Bx."""
    penalty = model.penalty
    if not isinstance(penalty, L1):
        raise ArgumentError("alphas", f"must be given for the penalty {type(penalty).__name__} of Bx")
    from scipy.optimize import linprog
    from scipy.sparse import csr_array, hstack

    rows = csr_array(model.linop.apply(np.eye(model.shape[0])).T)
    weights = np.broadcast_to(penalty.weight, (rows.shape[0],)).astype(np.float64)
    used = weights > 0
    # v = w (p − q) with p, q ≥ 0 and p + q ≤ α: where α is least, one of them is 0
    scaled = (rows.T.tocsc()[:, used] * weights[used]).tocsc()
    m = int(used.sum())
    touched = np.flatnonzero(np.abs(scaled).sum(axis=1) > 0)
    # What is not in the range of Bᵀ is 0 where Bx = 0 and x is best otherwise, up to rounding.
    dense = scaled[touched].toarray()
    slope = slope.copy()
    slope[touched] = dense @ np.linalg.lstsq(dense, slope[touched], rcond=None)[0]
    size = float(np.abs(slope[touched]).max(initial=0.0))
    if size == 0.0:
        return 0.0
    A = hstack([scaled[touched], -scaled[touched]]).tocsr()
    # with α as the last variable: p_j + q_j − α ≤ 0
    eye = csr_array((np.ones(2 * m), (np.tile(np.arange(m), 2), np.arange(2 * m))), shape=(m, 2 * m))
    upper = hstack([eye, csr_array(-np.ones((m, 1)))]).tocsr()
    equal = hstack([A, csr_array((len(touched), 1))]).tocsr()
    cost = np.append(np.zeros(2 * m), 1.0)
    found = linprog(cost, A_ub=upper, b_ub=np.zeros(m), A_eq=equal, b_eq=slope[touched] / size, method="highs")
    if not found.success:
        raise ArgumentError("alphas", f"must be given: the largest weight was not found ({found.message})")
    return float(found.x[-1]) * size


def make_grid(largest: float, count: int, ratio: float) -> Array:
    """Return weights from the largest down, evenly spaced in their logarithms."""
    if not largest > 0:
        return np.zeros(1)
    return np.asarray(largest * np.logspace(0.0, math.log10(ratio), count))


def check_alphas(alphas: Sequence[float] | Array) -> Array:
    """Return given weights from the largest down."""
    found = _checks.float_array("alphas", alphas, dtype=np.float64)
    if found.ndim != 1 or not len(found) or (found < 0).any():
        raise ArgumentError("alphas", "must be a number of weights, or weights of at least 0")
    return np.sort(found)[::-1]
