"""Numbers as integers: sums of integers are exact in any order, and a uniform mask hides them without a trace.

*Wide* integers have 128 bits at the fixed scale 2⁻⁶⁴, so that no one has to agree on a scale. Numbers with noise are
integers of 64 bits already. Numbers that do not fit are refused, never clipped: a clipped sum is wrong, and no one sees
it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._kernels import fixed
from fpdfp._typing import Array
from fpdfp.errors import Refusal

#: Bits of numbers with noise, modulo which they are added.
WORD = 64
#: Bits of a wide integer.
WIDE = 128


def headroom(sites: int) -> int:
    """Return the bits that a sum over a given number of sites has more than a term.

    >>> headroom(3), headroom(5), headroom(30)
    (2, 3, 5)
    """
    return (sites - 1).bit_length()


def to_wide(values: Array, sites: int) -> Any:
    """Return numbers as wide integers, (n, 2) words of 64 bits, the lower first; refuse what ``sites`` could overflow.

    >>> to_wide(np.array([0.5, -1.0]), 3).tolist()
    [[9223372036854775808, 0], [0, 18446744073709551615]]
    """
    flat = np.ascontiguousarray(values, np.float64).reshape(-1)
    words = np.empty((flat.size, 2), np.uint64)
    largest = WIDE - 1 - fixed.SCALE - headroom(sites)
    place = fixed.encode(flat, largest, words)
    if place >= 0:
        raise Refusal(f"a number of this site is not below 2^{largest} in size, so it cannot be added up exactly")
    return words


def from_wide(words: Any) -> Array:
    """Return the float64 nearest to each wide integer."""
    values = np.empty(len(words))
    fixed.decode(words, values)
    return values
