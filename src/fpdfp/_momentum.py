"""The recurrence of FISTA, the one place where it stands."""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

from fpdfp._typing import Array

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
