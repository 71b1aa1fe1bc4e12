"""The scale of a block: its l2 norm, its largest entry, its mean size, or a power of two.

Sums are taken in an order that is written down, so that a processor and a GPU find the same number: 64 lanes,
of which lane j adds up entries j, j + 64, j + 128, … of each piece of 1024 entries; the lanes are added as a
tree (lane j and lane j + 32, then j and j + 16, …); and the pieces' sums are added in the same way, lane j
taking pieces j, j + 64, ….
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float32, float64, int64, uint64

from fpdfp._kernels.jit import serial

L2 = 0
MAX = 1
MEAN = 2
POWER = 3

LANES = 64
PIECE = 1024
#: Below this a sum of squares may have lost digits, and is taken again over larger numbers.
SMALL = 2.0**-960
UNIT = 2.0**900


@serial
def _tree(lanes: Any) -> Any:
    width = LANES // 2
    while width > 0:
        for j in range(width):
            lanes[j] += lanes[j + width]
        width //= 2
    return lanes[0]


@serial
def _sum(squares: Any, values: Any, unit: Any, lanes: Any, pieces: Any) -> Any:
    """Return the sum of |unit · x| or of its squares."""
    pieces[:] = 0.0
    for start in range(0, values.size, PIECE):
        stop = min(start + PIECE, values.size)
        whole = start + (stop - start) // LANES * LANES
        lanes[:] = 0.0
        for base in range(start, whole, LANES):
            for j in range(LANES):
                x = abs(float64(values[uint64(base) + uint64(j)]) * unit)
                lanes[j] += x * x if squares else x
        for j in range(whole, stop):
            x = abs(float64(values[uint64(j)]) * unit)
            lanes[j - whole] += x * x if squares else x
        pieces[(start // PIECE) % LANES] += _tree(lanes)
    return _tree(pieces)


@serial
def _largest(values: Any, lanes: Any) -> Any:
    """Return the largest |x|, or NaN if there is one."""
    lanes[:] = 0.0
    whole = values.size // LANES * LANES
    for base in range(0, whole, LANES):
        for j in range(LANES):
            x = abs(float64(values[uint64(base) + uint64(j)]))
            # written so that NaN, which fails every comparison, replaces a number and is not replaced
            lanes[j] = lanes[j] if x <= lanes[j] or lanes[j] != lanes[j] else x
    largest = 0.0
    for j in range(LANES):
        largest = largest if lanes[j] <= largest or largest != largest else lanes[j]
    for j in range(whole, values.size):
        x = abs(float64(values[uint64(j)]))
        largest = largest if x <= largest or largest != largest else x
    return largest


@serial
def block_scale(kind: Any, values: Any, lanes: Any, pieces: Any) -> Any:
    """The scale of a block as a float32, rounded up; infinity or NaN if it has none."""
    if kind == L2:
        total = _sum(True, values, 1.0, lanes, pieces)
        scale = math.sqrt(total)
        if total < SMALL:
            scale = math.sqrt(_sum(True, values, UNIT, lanes, pieces)) / UNIT
    elif kind == MEAN:
        scale = _sum(False, values, 1.0, lanes, pieces) / values.size
    else:
        scale = _largest(values, lanes)
        if kind == POWER and 0.0 < scale < math.inf:
            mantissa, exponent = math.frexp(scale)
            scale = math.ldexp(1.0, int64(max(exponent - 1 if mantissa == 0.5 else exponent, -149)))
    rounded = float32(scale)
    if float64(rounded) < scale:
        rounded = np.nextafter(rounded, float32(math.inf))
    return rounded
