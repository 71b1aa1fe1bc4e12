"""Rounding of constants, away from their last bits.

Constants that come from LAPACK and BLAS differ in their last bits with the number of threads. What is chosen from
them, such as a step, must not.
"""

from __future__ import annotations

import math

DIGITS = 10


def round_up(value: float) -> float:
    """Return the next larger number with ten significant digits.

    >>> round_up(2.0), round_up(2.00000000001)
    (2.0, 2.000000001)
    """
    return _to_digits(value, up=True)


def round_down(value: float) -> float:
    """Return the next smaller number with ten significant digits.

    >>> round_down(2.0), round_down(1.99999999999)
    (2.0, 1.999999999)
    """
    return _to_digits(value, up=False)


def _to_digits(value: float, *, up: bool) -> float:
    if value == 0.0 or not math.isfinite(value):
        return value
    nearest = float(f"{value:.{DIGITS - 1}e}")
    # A number with ten digits, but for rounding errors, is that number: they must not move it on.
    if math.isclose(nearest, value, rel_tol=1e-14, abs_tol=0.0) or (nearest > value) == up:
        return nearest
    step = 10.0 ** (math.floor(math.log10(abs(value))) - DIGITS + 1)
    return float(f"{nearest + (step if up else -step):.{DIGITS - 1}e}")
