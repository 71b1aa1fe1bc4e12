"""Local problems with a quadratic term, by a fixed number of accelerated gradient steps."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fpdfp._typing import Array
from fpdfp.methods._parameters import MAX_LOCAL_STEPS

#: Local steps make a client's mistake smaller than this share of where it began.
LOCAL_ACCURACY = 0.05


def steps_needed(smoothness: float, tau: float) -> int:
    """Return how many steps make the mistake twenty times smaller for f_i + τ/2 ‖·‖² with f_i smooth."""
    condition = (smoothness + tau) / tau
    return min(MAX_LOCAL_STEPS, math.ceil(math.sqrt(condition) * math.log(1.0 / LOCAL_ACCURACY)))


def constant_momentum(q: float) -> float:
    """Return (1 − √q)/(1 + √q), the momentum of gradient steps of length q/τ on what is strongly convex with τ.

    >>> constant_momentum(0.25)
    0.3333333333333333
    """
    root = math.sqrt(q)
    return (1.0 - root) / (1.0 + root)


def minimise(slopes: Callable[[Array], Array], start: Array, rows: int, count: int, step: float, tau: float) -> Array:
    """Return nearly the minimisers, one a row, of functions that are strongly convex with τ, from one start.

    Accelerated gradient steps with the constant momentum of a strongly convex problem; ``slopes`` returns the gradients
    of the functions, each at its row.
    """
    momentum = constant_momentum(tau * step)
    y = point = np.repeat(start[None], rows, axis=0)
    for _ in range(count):
        after = (point - step * slopes(point)).astype(start.dtype, copy=False)
        y, point = after, after + momentum * (after - y)
    return y
