"""Tables that the codes of integers look numbers up in."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray


class Tables(NamedTuple):
    """The omega codes of small numbers, the costs of frequencies, and the logarithms of factorials."""

    omega: Array
    costs: IntArray
    logs: IntArray


@functools.cache
def tables() -> Tables:
    """Return the tables, made once."""
    from fpdfp._kernels import adaptive, elias, tokens

    # What a frequency f costs, rounded up: log2(4096/f) + log2(e) f/2^24, the second term as `rans` explains.
    f = np.arange(1, tokens.TOTAL + 1)
    exact = np.log2(tokens.TOTAL / f) + np.log2(np.e) * f / 2**24
    costs = np.zeros(tokens.TOTAL + 1, dtype=np.int64)
    costs[1:] = np.ceil(exact * 2**tokens.COST_BITS).astype(np.int64) + 1
    return Tables(elias.make_table(), costs, adaptive.log_factorials())
