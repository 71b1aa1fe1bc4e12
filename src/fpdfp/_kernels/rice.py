"""Golomb-Rice codes with a parameter for every 512 levels.

S. W. Golomb, "Run-length encodings", IEEE Trans. Inf. Theory 12 (1966); R. F. Rice, JPL Publication 79-22 (1979).

A block starts with five bits, its parameter k. 31 stands for a block of zeros, and nothing follows. Otherwise
each level becomes u = 2·level, or −2·level − 1 if it is negative, and is written as ⌊u/2^k⌋ ones, a zero, and
the k lower digits of u. If there would be 20 ones or more, it is written as 20 ones and the 32 digits of u.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, uint32, uint64

from fpdfp._kernels.bits import BROKEN, carry, get, ones, trailing_zeros, window
from fpdfp._kernels.jit import inline, serial

BLOCK = 512
PARAMETER_BITS = 5
ZEROS = 31
MOST_ONES = 20


@inline
def _unsigned(level: Any) -> Any:
    """Number 0, −1, 1, −2, 2, … as 0, 1, 2, 3, 4, … does."""
    return uint32((uint32(level) << uint32(1)) ^ uint32(level >> 31))


@serial
def _length(numbers: Any, count: Any, k: Any) -> Any:
    """The length of the codes of ``count`` numbers u with parameter k."""
    escape = uint32(MOST_ONES + 31 - k)
    total = uint32(0)  # at most 512 codes of 52 bits
    for j in range(count):
        quotient = numbers[uint64(j)] >> uint32(k)
        total = uint32(total + uint32(quotient if quotient < uint32(MOST_ONES) else escape))
    return int64(total) + count * (k + 1)


@serial
def best_parameter(levels: Any, numbers: Any) -> Any:
    """Return the best parameter of a block, the length of the block with it, and the sum of its u.

    ``numbers`` is room for the u of 512 levels.

    Where there are no escapes the length is a convex function of k, so that a k that is no shorter than the one
    before ends the search; where there are, it need not be.
    """
    total = uint64(0)
    largest = uint32(0)
    for j in range(levels.size):
        u = _unsigned(levels[j])
        numbers[j] = u
        total += uint64(u)
        largest = max(largest, u)
    if total == 0:
        return ZEROS, PARAMETER_BITS, int64(0)
    best, length, before = 0, int64(1) << 62, int64(1) << 62
    for k in range(ZEROS):
        tried = _length(numbers, levels.size, k)
        if tried < length:
            best, length = k, tried
        if tried >= before and (largest >> uint32(k - 1)) < MOST_ONES:
            break
        before = tried
    return best, PARAMETER_BITS + length, int64(total)


@serial
def encode(levels: Any, out: Any) -> Any:
    """Write the stream and return its length in bits."""
    numbers = np.empty(BLOCK, dtype=np.uint32)
    pending, fill, word = uint64(0), 0, 0
    for start in range(0, levels.size, BLOCK):
        block = levels[start : start + BLOCK]
        k = best_parameter(block, numbers)[0]
        pending, fill = pending | (uint64(k) << uint64(fill)), fill + PARAMETER_BITS
        out[uint64(word)] = uint32(pending)
        pending, fill, word = carry(pending, fill, word)
        for j in range(block.size if k != ZEROS else 0):
            u = uint64(_unsigned(block[j]))
            quotient = int64(u >> uint64(k))
            escaped = quotient >= MOST_ONES
            prefix = ones(MOST_ONES if escaped else quotient)
            pending, fill = pending | (prefix << uint64(fill)), fill + (MOST_ONES if escaped else quotient + 1)
            out[uint64(word)] = uint32(pending)
            pending, fill, word = carry(pending, fill, word)
            width = 32 if escaped else k
            pending, fill = pending | ((u & ones(width)) << uint64(fill)), fill + width
            out[uint64(word)] = uint32(pending)
            pending, fill, word = carry(pending, fill, word)
    out[uint64(word)] = uint32(pending)
    return 32 * word + fill


@serial
def decode(words: Any, limit: Any, lowest: Any, highest: Any, levels: Any) -> Any:
    """Read the levels, all from ``lowest`` to ``highest``; return where the stream ends, or BROKEN."""
    position = int64(0)
    for start in range(0, levels.size, BLOCK):
        if position + PARAMETER_BITS > limit:
            return BROKEN
        k = get(words, position, PARAMETER_BITS)
        position += PARAMETER_BITS
        block = levels[start : start + BLOCK]
        if k == ZEROS:
            block[:] = 0
            continue
        for j in range(block.size):
            at = uint64(position) >> uint64(5)
            count = trailing_zeros(~window(words[at], words[at + uint64(1)], position))
            escaped = count >= MOST_ONES
            position += MOST_ONES if escaped else count + 1
            width = 32 if escaped else k
            if position + width > limit:
                return BROKEN
            u = (uint64(0) if escaped else uint64(count) << uint64(k)) | uint64(get(words, position, width))
            position += width
            level = int64(u >> uint64(1)) ^ -int64(u & uint64(1))
            if level < lowest or level > highest:
                return BROKEN
            block[j] = level
    return position
