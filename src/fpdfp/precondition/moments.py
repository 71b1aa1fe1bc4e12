"""Second moments as clients send them: relative to powers of two, in few levels."""

from __future__ import annotations

import numpy as np

from fpdfp._typing import Array

#: Sizes are powers of two within 2⁻⁵⁹ and 2⁵⁹, so that float32 holds all that is made of them.
LARGEST = 59
NO_BOUNDS = (
    "preconditioner: QuantizedMoments needs losses with known bounds of their Hessians (linear models; with levels for "
    "at most 4,000 features); give another one, or None"
)


def powers_above(diagonals: Array) -> Array:
    """The smallest powers of two that are at least so much, 0 where nothing is."""
    exponents = np.ceil(np.log2(np.where(diagonals > 0, diagonals, 1.0)))
    powers: Array = np.where(diagonals > 0, 2.0 ** np.clip(exponents, -LARGEST, LARGEST), 0.0)
    return powers


def nearest_powers(values: Array) -> Array:
    """The powers of two that are nearest to positive numbers, in their logarithms."""
    powers: Array = 2.0 ** np.round(np.log2(values))
    return powers


def variances(decoded: Array, levels: int) -> Array:
    """Estimate the variance of what stochastic rounding to multiples of at most 1/s did to each number.

    Between two multiples it is 1/6 of the squared step on average. A number far below the step is sent as 0 or, rarely,
    as one step, and then its variance is the squared step times that chance: so 0 counts nothing and one step counts
    half. The standard deviation of a sum is right within a factor 1.5 whichever way numbers are spread.
    """
    steps = np.abs(decoded) * levels
    part: Array = np.where(steps < 0.25, 0.0, np.where(steps < 1.5, 0.5, 1.0 / 6.0)) / levels**2
    return part


def filled(curvature: Array) -> Array:
    """Return curvatures with the mean of the others where there is none: such a coordinate may have any."""
    there = curvature > 0
    return np.where(there, curvature, curvature[there].mean() if there.any() else 1.0)
