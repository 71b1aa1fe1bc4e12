"""What the solution is expected to look like: which features are not zero, and how the penalty curves there."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fpdfp._momentum import accelerate
from fpdfp._typing import Array, IntArray
from fpdfp.penalties import GroupL12, SparseGroup
from fpdfp.problem import Model

#: The most proximal steps to where the quadratic is least, and the progress below which no more are taken.
MOST, LITTLE = 1000, 1e-6


class Expected(NamedTuple):
    """About where ½⟨x, Hx⟩ − ⟨b, x⟩ + g(x) is least.

    Attributes
    ----------
    free
        The features that move there as H says: not those that the penalty holds at zero or at a limit.
    x
        Their values, a column for each row of x.
    curvature
        The Hessian of g between them. Around a norm of a group it is large across the group, and bends what H leaves
        flat; proximal steps go along with it whatever their length.
    """

    free: IntArray
    x: Array
    curvature: Array


def expect(model: Model, features: IntArray, hessian: Array, b: Array) -> Expected:
    """Return that for some features and a group norm of x, and for other penalties as if there were none.

    ``b`` has a row for each row of x. An l1 norm does not curve, and from so rough a quadratic the features that it
    leaves were guessed too few, above all where rows are few: so all features count there.
    """
    penalty = model.penalty
    curved = isinstance(penalty, GroupL12 | SparseGroup) and penalty.groups is not None
    if not curved or not model.linop.is_identity or len(model.shape) != 1:
        return Expected(np.arange(len(features)), np.linalg.solve(hessian, b.T), np.zeros_like(hessian))
    assert isinstance(penalty, GroupL12 | SparseGroup)
    own, t = penalty.restrict(features), 1.0 / float(np.linalg.eigvalsh(hessian)[-1])
    x = z = np.zeros(len(features))
    theta = 1.0
    for _ in range(MOST):
        moved = own.prox(z - t * (hessian @ z - b[0]), t)
        change = moved - x
        beta, theta = accelerate(1.0 if float((z - moved) @ change) > 0 else theta)
        z, x = moved + beta * change, moved
        if float(np.linalg.norm(change)) <= LITTLE * float(np.linalg.norm(x)):
            break
    # The prox has the derivative (I + t∇²g)⁻¹ where g is smooth, 0 where it holds x.
    held = own.conjugate_prox_derivative(x / t - (hessian @ x - b[0]), 1.0 / t)(np.eye(len(x)))
    free = np.flatnonzero((x != 0) & (np.diag(held) < 1.0 - 1e-9))
    derivative = np.eye(len(free)) - held[np.ix_(free, free)]
    curvature = (np.linalg.inv(derivative) - np.eye(len(free))) / t
    return Expected(free, x[free, None], (curvature + curvature.T) / 2.0)
