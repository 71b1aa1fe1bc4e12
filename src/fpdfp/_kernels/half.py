"""Rounding to 16-bit floating-point numbers, to the nearest or at random."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float64, int64, prange

from fpdfp._kernels.jit import serial, threaded
from fpdfp._kernels.philox import GROUP, fill_group


@serial
def half_row(
    random: Any, digits: Any, lowest: Any, infinity: Any, values: Any, k0: Any, k1: Any, tag: Any, client: Any,
    round_: Any, codes: Any,
) -> Any:  # fmt: skip
    """Write the 16 bits of each number: a sign, an exponent from ``lowest`` on, ``digits`` digits after the first.

    Return whether every number has a finite neighbour on both sides.
    """
    words = np.empty(GROUP, dtype=np.uint32)
    good = True
    for start in range(0, values.size, GROUP):
        if random:
            fill_group(k0, k1, tag, client, round_, start // GROUP, words)
        for j in range(start, min(start + GROUP, values.size)):
            size = abs(float64(values[j]))
            if not size < math.inf:
                good = False
                continue
            exponent = max(int64(math.frexp(size)[1]) - 1, lowest) if size > 0.0 else lowest
            scaled = math.ldexp(size, int64(digits - exponent))
            whole = math.floor(scaled)
            rest = scaled - whole
            if random:
                up = (words[j - start] + 0.5) * (1.0 / 4294967296.0) < rest
            else:
                up = rest > 0.5 or (rest == 0.5 and int64(whole) % 2 == 1)
            code = ((exponent - lowest) << digits) + int64(whole) + (1 if up else 0)
            good = good and code < infinity
            codes[j] = code | (0x8000 if values[j] < 0 else 0)
    return good


@threaded
def half(
    random: Any, digits: Any, lowest: Any, infinity: Any, values: Any, k0: Any, k1: Any, tag: Any, clients: Any,
    round_: Any, codes: Any, good: Any,
) -> None:  # fmt: skip
    for i in prange(values.shape[0]):
        good[i] = half_row(
            random, digits, lowest, infinity, values[i], k0, k1, tag, clients[i], round_, codes[i]
        )  # fmt: skip
