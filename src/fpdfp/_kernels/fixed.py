"""Fixed-point integers of 128 bits, and sums of them with carries.

A number x is the integer nearest to x · 2⁶⁴, ties to even, in two's complement: two words, the lower first. So the
bytes of a row are the little-endian integer.
"""

from __future__ import annotations

import math
from typing import Any

from numba import float64, int64, uint64

from fpdfp._kernels.jit import serial

#: The scale is 2 to this power.
SCALE = 64
#: Bits of the fraction of a float64.
FRACTION = 53


@serial
def encode(values: Any, largest: Any, words: Any) -> Any:
    """Write numbers as integers; return the place of the first that is not below 2^largest in size, or −1."""
    one, all_ones = uint64(1), ~uint64(0)
    for i in range(values.size):
        x = values[i]
        if not abs(x) < math.ldexp(1.0, largest):  # NaN fails every comparison
            return i
        fraction, exponent = math.frexp(abs(x))
        digits = uint64(math.ldexp(fraction, FRACTION))
        shift = int64(exponent) + SCALE - FRACTION
        low, high = uint64(0), uint64(0)
        if shift >= 64:
            high = digits << uint64(shift - 64)
        elif shift > 0:
            low = digits << uint64(shift)
            high = digits >> uint64(64 - shift)
        elif shift == 0:
            low = digits
        elif shift >= -FRACTION:
            back = uint64(-shift)
            low = digits >> back
            rest, half = digits & ((one << back) - one), one << (back - one)
            if rest > half or (rest == half and low & one == one):
                low += one
        if x < 0:
            low, high = ~low, ~high
            high += one if low == all_ones else uint64(0)
            low += one
        words[i, 0], words[i, 1] = low, high
    return -1


@serial
def decode(words: Any, values: Any) -> None:
    """Write the float64 nearest to each integer over 2⁶⁴."""
    one = uint64(1)
    for i in range(values.size):
        low, high = uint64(words[i, 0]), uint64(words[i, 1])
        negative = high >> uint64(63) == one
        if negative:
            high = ~high + (one if low == uint64(0) else uint64(0))
            low = ~low + one
        if high == uint64(0):
            x = math.ldexp(float64(low), -SCALE)
        else:
            bits = uint64(0)
            while bits < uint64(64) and high >> bits != uint64(0):
                bits += one
            top, rest = high, low
            if bits < uint64(64):
                top = high << (uint64(64) - bits) | low >> bits
                rest = low & ((one << bits) - one)
            # a last bit that says that there is more below decides ties
            x = math.ldexp(float64(top | (one if rest != uint64(0) else uint64(0))), int64(bits) - SCALE)
        values[i] = -x if negative else x


@serial
def add(total: Any, words: Any) -> None:
    """Add integers modulo 2¹²⁸."""
    for i in range(total.shape[0]):
        low = uint64(total[i, 0]) + uint64(words[i, 0])
        total[i, 1] += words[i, 1] + (uint64(1) if low < uint64(words[i, 0]) else uint64(0))
        total[i, 0] = low


@serial
def subtract(total: Any, words: Any) -> None:
    """Subtract integers modulo 2¹²⁸."""
    for i in range(total.shape[0]):
        borrow = uint64(1) if uint64(total[i, 0]) < uint64(words[i, 0]) else uint64(0)
        total[i, 1] -= words[i, 1] + borrow
        total[i, 0] -= words[i, 0]
