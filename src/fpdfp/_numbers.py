"""Small numerical helpers: one thread for BLAS, rounded constants, the momentum of FISTA, relative entropies, bits.

Constants that come from LAPACK and BLAS differ in their last bits with the number of threads. What is chosen from
them, such as a step, must not: so they are rounded.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from fpdfp._typing import Array

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


T = TypeVar("T", float, Array)


def accelerate(theta: T) -> tuple[T, T]:
    """Return β = (θ − 1)/θ⁺ and θ⁺ = (1 + √(1 + 4θ²))/2, for a number or for each of an array.

    (A. Beck and M. Teboulle, "A fast iterative shrinkage-thresholding algorithm for linear inverse problems", SIAM
    Journal on Imaging Sciences 2, 2009.)

    >>> accelerate(1.0)
    (0.0, 1.618033988749895)
    """
    root = math.sqrt if isinstance(theta, float) else np.sqrt
    # Not θ**2, which Python and NumPy do not always round alike.
    following = (1.0 + root(1.0 + 4.0 * (theta * theta))) / 2.0
    return (theta - 1.0) / following, following


def kullback_leibler(change: Array, before: Array) -> Array:
    """Return (p + δ) log((p + δ)/p) − δ for probabilities p and changes δ, with 0 log 0 = 0; infinite where p + δ < 0.

    Over changes that add up to 0, it adds up to the divergence. Every term is at least 0, whatever rounding does.

    >>> kullback_leibler(np.array([0.5, -0.5]), np.array([0.5, 0.5])).round(4)
    array([0.1931, 0.5   ])
    """
    after = before + change
    ratio = np.where(before > 0, change / np.where(before > 0, before, 1.0), np.where(change > 0, np.inf, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms: Any = np.maximum(after * np.log1p(np.maximum(ratio, -1.0)) - change, 0.0)
    return np.where(after > 0, terms, np.where(after < 0, np.inf, before))


def relative_entropy(after: Array, before: Array) -> Array:
    """Return b − a + a log(a/b) for a ≥ 0 and b > 0; infinite where a < 0.

    >>> relative_entropy(np.array([0.0, 1.0]), np.array([2.0, 1.0]))
    array([2., 0.])
    """
    with np.errstate(all="ignore"):
        ratio = (after - before) / before
        found: Array = np.where(after > 0, after * np.log1p(ratio) - (after - before), before)
    return np.where(after >= 0, np.maximum(found, 0.0), np.inf)


def format_bits(bits: float) -> str:
    """Write a number of bits with a unit.

    >>> format_bits(12_345_678)
    '12.3 Mbit'
    """
    for unit in ("bit", "kbit", "Mbit", "Gbit", "Tbit"):
        if bits < 1000 or unit == "Tbit":
            return f"{bits:.0f} {unit}" if unit == "bit" else f"{bits:.3g} {unit}"
        bits /= 1000
    raise AssertionError("unreachable")


@functools.cache
def _controller() -> Any:
    import scipy.linalg  # noqa: F401 - brings a BLAS of its own, which the controller must find
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _Limit:
    """Counts nested contexts: the outermost one sets the limit, which is slow."""

    def __init__(self) -> None:
        self.depth = 0
        self.set: Any = None
        self.lock = threading.Lock()


_limit = _Limit()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Within this context, BLAS uses one thread."""
    with _limit.lock:
        if _limit.depth == 0:
            _limit.set = _controller().limit(limits=1, user_api="blas")
        _limit.depth += 1
    try:
        yield
    finally:
        with _limit.lock:
            _limit.depth -= 1
            if _limit.depth == 0:
                _limit.set.restore_original_limits()
