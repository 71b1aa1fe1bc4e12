"""The largest number of all sites, rounded up on a public grid; nothing else about them is revealed.

At every threshold of the grid each site sends a uniform integer of 64 bits if its number is above, and 0 if not. Under
masks only the sums arrive: 0 where no site is above, and a uniform integer where any site is. So the sum says "none" or
"at least one", wrongly with probability 2⁻⁶⁴ a threshold. With odd integers the lowest bit of the sum would show
whether an even number of sites is above.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import Refusal

#: Thresholds: powers of 2^(1/8) from 2⁻⁴⁰ to 2⁴⁰, so the maximum is rounded up by at most 9 %.
GRID = 2.0 ** (np.arange(-320, 321) / 8)


def exceeds(value: float, words: Any) -> Any:
    """Return what a site with this number sends for each threshold of the grid, before masks.

    Parameters
    ----------
    value
        The site's number, finite and not negative.
    words
        A uniform word of 64 bits for each threshold, that no one else knows; for the same request the same.
    """
    if not math.isfinite(value) or value < 0:
        raise Refusal("a maximum is over numbers that are finite and not negative")
    if value > GRID[-1]:
        raise Refusal(f"a number of this site is above {GRID[-1]:g}, where the grid of a maximum ends")
    return np.where(value > GRID, words, np.uint64(0)).view(np.int64)


def largest(sums: Array) -> float:
    """Return the maximum, rounded up to the grid, from sums without masks.

    >>> words = np.full(GRID.size, 5, np.uint64)
    >>> round(largest(exceeds(0.5, words) + exceeds(3.0, words)), 12)
    3.084421650816
    """
    above = np.flatnonzero(sums)
    return float(GRID[above[-1] + 1]) if above.size else float(GRID[0])
