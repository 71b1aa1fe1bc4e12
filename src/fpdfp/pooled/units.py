"""Features of very different sizes, brought to units in which they are alike.

An augmented Lagrangian has one σ, one term of proximity and one length of gradients for all coordinates, which suit
none of them where a column is 1e5 times as large as another. In units that are powers of two nothing is rounded: the
objective, the limits and the bound of the gap are the same numbers.
"""

from __future__ import annotations

import numpy as np

from fpdfp._typing import Array
from fpdfp.losses._linear import LinearModel
from fpdfp.penalties import L1, ElasticNet
from fpdfp.pooled.lagrangian import AugmentedLagrangian, Found
from fpdfp.problem import Problem

#: From this ratio of sizes on the units are changed, for which the data are copied.
APART = 100.0


def solve_alike(problem: Problem, tol: float, x: Array) -> Found:
    """Return the best point that an augmented Lagrangian finds, in units that suit it."""
    factors = find_factors(problem)
    penalty = None if factors is None else problem.penalty.rescale(np.broadcast_to(factors, problem.model.shape))
    if factors is None or penalty is None:
        return AugmentedLagrangian(problem, tol).solve(x)
    assert isinstance(problem.losses, LinearModel)
    alike = problem.with_losses(problem.losses.rescale(factors), penalty)
    found = AugmentedLagrangian(alike, tol).solve((x / factors).astype(x.dtype))
    x, *duals = (one.astype(x.dtype) for one in (found.x * factors, found.v / factors, found.certificate.v / factors))
    violation = problem.evaluate(x)[1]  # a length, in the units of x
    residual = problem.residual(x, duals[0])
    certificate = found.certificate._replace(v=duals[1], residual=residual, violation=violation)
    return found._replace(x=x, v=duals[0], certificate=certificate)


def find_factors(problem: Problem) -> Array | None:
    """Return what to divide each feature by; None where they are alike, or cannot be changed."""
    losses = problem.losses
    if not (problem.linop.is_identity and isinstance(losses, LinearModel) and losses.shape[-1] == losses.n_features):
        return None
    # Classes that all move alike are held by weights of x alone, which would be of very different sizes then.
    if len(losses.shape) > 1 and isinstance(problem.penalty, L1 | ElasticNet):
        return None
    squares = losses._column_squares(problem.weights) + float(problem.weights.sum()) * losses._ridge
    # A column of zeros without a ridge has no size.
    sizes = np.sqrt(np.where(squares > 0, squares, 1.0))
    if sizes.max() < APART * sizes.min():
        return None
    factors: Array = np.exp2(-np.round(np.log2(sizes)))
    return factors
