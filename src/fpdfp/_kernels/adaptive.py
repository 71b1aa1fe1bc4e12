"""An adaptive code: levels as decisions between 0 and 1, in arithmetic coding, without a model in the message.

I. H. Witten, R. M. Neal and J. G. Cleary, "Arithmetic coding for data compression", Comm. ACM 30 (1987).

Levels come in blocks of 16384. Let D be the digits of the largest possible |level|. A block starts with a shift h < D.
If D > 1, a bit says whether h > 0; if so, h − 1 follows, in as many bits as D − 2 has. A level is written
with q = ⌊|level|/2^h⌋ as

    ZERO      whether q > 0
    j ≥ 1     if so, whether q has more than j digits, up to the answer 0 or j = D − h − 1
    SECOND    the second digit of q, if there is one
    PLAIN     the other digits of q, then the h lower digits of |level|, the highest first
    PLAIN     whether the level is negative, unless it is 0 or all levels have one sign

A kind of decision that was a times 0 and b times 1 before in its block is 0 with probability (a + 1)/(a + b + 2),
a plain one with probability 1/2. So the length depends on counts alone, and is known without encoding.

A message is a number in an interval. A decision divides the interval of width w at ⌊w/(a + b + 2)⌋ (a + 1); widths
are kept in 56 bits, at least 2^48. The division loses less than 2^-33 of a width, in a block at most 2^20 times: less
than 2^-12 bits, which ``SLACK`` allows for. The number is the first in its interval that has as many bits as were
counted; zeros follow in thought.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, uint8, uint64

from fpdfp._kernels.codes import BROKEN, bit_length
from fpdfp._kernels.jit import interpret, serial
from fpdfp._kernels.rans import CENTRE, fits

#: Levels after which counts start from zero.
BLOCK = 1 << 14
#: Of more levels rANS takes about as many bits, and a tenth of the time.
SHORT = 4096
#: The kinds of decisions; those from 1 to 31 are "more than j digits".
ZERO, SECOND, PLAIN, KINDS = 0, 32, 33, 34
#: Numbers by digits and second digit.
SORTS = 64
#: Logarithms are in units of 2^-20 bits.
UNIT = 1 << 20
#: Units that a block may take more than the logarithms of its probabilities: 2^-12 bits, and as much for rounding.
SLACK = 512
LEAST = 1 << 48
TOP = 56
#: What a coder holds: the start of the interval (for a reader: the distance from it), its width, the next byte.
LOW, WIDTH, AT = 0, 1, 2


def log_factorials() -> Any:
    """Return log2(i!) for all i up to one more than a block, in units of 2^-20 bits, rounded down.

    In integers, so that every machine counts the same bits: i! to 96 digits, of which 32 are squared again and again.
    """
    factorial, shift = 1, 0
    mantissas, logs = np.empty(BLOCK + 2, dtype=np.uint64), np.empty(BLOCK + 2, dtype=np.int64)
    for i in range(BLOCK + 2):
        factorial *= max(i, 1)
        extra = max(factorial.bit_length() - 96, 0)
        factorial, shift = factorial >> extra, shift + extra
        digits = factorial.bit_length()
        mantissas[i] = factorial << 32 >> digits
        logs[i] = shift + digits - 1
    for _ in range(20):
        mantissas = mantissas * mantissas >> np.uint64(31)
        large = mantissas >> np.uint64(32)
        logs = 2 * logs + large.astype(np.int64)
        mantissas >>= large
    return logs


@serial
def _sort(levels: Any, sorts: Any) -> None:
    """Count levels by the number of digits and the second digit."""
    for i in range(SORTS):
        sorts[i] = 0
    for j in range(levels.size):
        size = uint64(abs(int64(levels[uint64(j)])))
        digits = bit_length(size)
        second = (size >> uint64(digits - 2)) & uint64(1) if digits > 1 else uint64(0)
        sorts[uint64(2 * digits) + second] += 1


@serial
def sort_tokens(counts: Any, reach: Any, sorts: Any) -> None:
    """Do the same from how often each level occurs, all within a reach of the centre."""
    for i in range(SORTS):
        sorts[i] = 0
    for size in range(reach + 1):
        digits = bit_length(size)
        second = (size >> (digits - 2)) & 1 if digits > 1 else 0
        number = counts[CENTRE + size] + (counts[CENTRE - size] if size > 0 else 0)
        sorts[2 * digits + second] += number


@serial
def _cost(zeros: Any, ones: Any, logs: Any) -> Any:
    """Return what decisions of one kind take, in any order."""
    return logs[zeros + ones + 1] - logs[zeros] - logs[ones]


@serial
def _shift_bits(shift: Any, digits: Any) -> Any:
    """Return the number of bits that the shift takes."""
    return (1 if digits > 1 else 0) + (bit_length(digits - 2) if shift > 0 else 0)


@serial
def _block_cost(sorts: Any, size: Any, shift: Any, digits: Any, signed: Any, logs: Any) -> Any:
    """Return what a block takes with a shift."""
    small = int64(0)
    for d in range(shift + 1):
        small += sorts[2 * d] + sorts[2 * d + 1]
    plain = _shift_bits(shift, digits) + shift * size + ((size - sorts[0]) if signed else 0)
    cost = SLACK + _cost(small, size - small, logs)
    left = size - small
    first, second = int64(0), int64(0)
    for j in range(1, digits - shift + 1):
        a, b = sorts[2 * (shift + j)], sorts[2 * (shift + j) + 1]
        left -= a + b
        if j < digits - shift:
            cost += _cost(a + b, left, logs)
        if j > 1:
            first += a
            second += b
            plain += (j - 2) * (a + b)
    return cost + _cost(first, second, logs) + plain * UNIT


@serial
def best_shift(sorts: Any, size: Any, lowest: Any, highest: Any, logs: Any) -> Any:
    """Return the shift of a block, the lowest with the least cost, and that cost."""
    digits, signed = bit_length(max(-lowest, highest)), lowest < 0 and highest > 0
    best, least = 0, _block_cost(sorts, size, 0, digits, signed, logs)
    for shift in range(1, digits):
        cost = _block_cost(sorts, size, shift, digits, signed, logs)
        if cost < least:
            best, least = shift, cost
    return best, least


@serial
def length(levels: Any, lowest: Any, highest: Any, logs: Any, sorts: Any) -> Any:
    """Return the bits of the stream; ``sorts`` is room for 64 numbers."""
    cost = int64(0)
    for start in range(0, levels.size, BLOCK):
        block = levels[start : start + BLOCK]
        _sort(block, sorts)
        cost += best_shift(sorts, block.size, lowest, highest, logs)[1]
    return (cost + UNIT - 1) // UNIT


@serial
def sorted_length(sorts: Any, lowest: Any, highest: Any, logs: Any) -> Any:
    """Return the bits of a stream whose blocks have been counted."""
    cost = int64(0)
    for b in range(sorts.shape[0]):
        cost += best_shift(sorts[b], sorts[b].sum(), lowest, highest, logs)[1]
    return (cost + UNIT - 1) // UNIT


@serial
def is_tried(size: Any, lowest: Any, highest: Any) -> Any:
    """Whether AUTO tries this code: rANS has a token for every level if there are few, and is faster for many."""
    return size <= SHORT or not fits(lowest, highest)


@serial
def handicap(bits: Any, size: Any) -> Any:
    """Return the length that the other codes are compared with: of many levels, the slow code must save a 64th."""
    return bits + (bits >> 6 if size > SHORT else 0)


_best_shift = interpret(best_shift)


def length_plainly(levels: Any, lowest: int, highest: int, logs: Any) -> int:
    """Do what ``length`` does, in NumPy."""
    cost = 0
    for start in range(0, levels.size, BLOCK):
        block = abs(levels[start : start + BLOCK])
        digits = np.frexp(block)[1]
        second = np.where(digits > 1, block >> np.maximum(digits - 2, 0) & 1, 0)
        sorts = np.bincount(2 * digits + second, minlength=SORTS).tolist()
        cost += _best_shift(sorts, block.size, lowest, highest, logs[: block.size + 2].tolist())[1]
    return int((cost + UNIT - 1) // UNIT)


@serial
def _carry(out: Any, at: Any) -> None:
    """Add 1 to the bytes before a place."""
    at -= 1
    while out[at] == 255:
        out[at] = 0
        at -= 1
    out[at] += uint8(1)


@serial
def _put(bit: Any, kind: Any, counts: Any, coder: Any, out: Any) -> None:
    """Write a decision."""
    share = _share(kind, counts, coder)
    if bit:
        coder[LOW] += share
        coder[WIDTH] -= share
    else:
        coder[WIDTH] = share
    if kind != PLAIN:
        counts[2 * kind + bit] += 1
    while coder[WIDTH] < LEAST:
        at = int64(coder[AT])
        if coder[LOW] >> uint64(TOP) != 0:
            _carry(out, at)
        out[at] = uint8(coder[LOW] >> uint64(TOP - 8))
        coder[LOW] = (coder[LOW] & uint64(LEAST - 1)) << uint64(8)
        coder[WIDTH] <<= uint64(8)
        coder[AT] += uint64(1)


@serial
def _share(kind: Any, counts: Any, coder: Any) -> Any:
    """Return the width that a decision leaves for 0."""
    zeros, ones = counts[2 * kind], counts[2 * kind + 1]
    return coder[WIDTH] // uint64(zeros + ones + 2) * uint64(zeros + 1)


@serial
def _put_plain(number: Any, width: Any, counts: Any, coder: Any, out: Any) -> None:
    """Write the lower digits of a number, the highest first."""
    for place in range(width - 1, -1, -1):
        _put((number >> place) & 1, PLAIN, counts, coder, out)


@serial
def encode(levels: Any, lowest: Any, highest: Any, bits: Any, logs: Any, out: Any) -> Any:
    """Write the stream into bytes, as many as its length demands; return its bits, or BROKEN."""
    digits, signed = bit_length(max(-lowest, highest)), lowest < 0 and highest > 0
    sorts, counts = np.empty(SORTS, dtype=np.int64), np.empty(2 * KINDS, dtype=np.int64)
    coder = np.zeros(3, dtype=np.uint64)
    coder[WIDTH] = uint64(1) << uint64(TOP)
    for start in range(0, levels.size, BLOCK):
        block = levels[start : start + BLOCK]
        _sort(block, sorts)
        shift = best_shift(sorts, block.size, lowest, highest, logs)[0]
        counts[:] = 0
        if digits > 1:
            _put(1 if shift > 0 else 0, PLAIN, counts, coder, out)
        if shift > 0:
            _put_plain(shift - 1, bit_length(digits - 2), counts, coder, out)
        for i in range(block.size):
            size = abs(int64(block[i]))
            quotient = size >> shift
            _put(1 if quotient > 0 else 0, ZERO, counts, coder, out)
            own = bit_length(quotient)
            for j in range(1, min(own + 1, digits - shift) if own > 0 else 0):
                _put(1 if own > j else 0, j, counts, coder, out)
            if own > 1:
                _put((quotient >> (own - 2)) & 1, SECOND, counts, coder, out)
            _put_plain(size, shift + max(own - 2, 0), counts, coder, out)
            if signed and size > 0:
                _put(1 if block[i] < 0 else 0, PLAIN, counts, coder, out)
    # The first number of this length in the interval.
    at = int64(coder[AT])
    step = uint64(1) << uint64(max(TOP - (bits - 8 * at), 0))
    if 8 * at > bits or step > coder[WIDTH]:
        return int64(BROKEN)
    low = (coder[LOW] + step - uint64(1)) // step * step
    if low >> uint64(TOP) != 0:
        _carry(out, at)
    for place in range(at, out.size):
        out[place] = uint8(low >> uint64(TOP - 8))
        low <<= uint64(8)
    return int64(bits)


@serial
def _next(data: Any, coder: Any) -> Any:
    """Return the next byte, 0 after the last."""
    at = coder[AT]
    coder[AT] += uint64(1)
    return uint64(data[at]) if at < uint64(data.size) else uint64(0)


@serial
def _get(kind: Any, counts: Any, coder: Any, data: Any) -> Any:
    """Read a decision."""
    share = _share(kind, counts, coder)
    bit = 1 if coder[LOW] >= share else 0
    if bit:
        coder[LOW] -= share
        coder[WIDTH] -= share
    else:
        coder[WIDTH] = share
    if kind != PLAIN:
        counts[2 * kind + bit] += 1
    while coder[WIDTH] < LEAST:
        coder[LOW] = (coder[LOW] << uint64(8)) | _next(data, coder)
        coder[WIDTH] <<= uint64(8)
    return bit


@serial
def _get_plain(number: Any, width: Any, counts: Any, coder: Any, data: Any) -> Any:
    """Read digits, and return the number with these digits after its own."""
    for _ in range(width):
        number = 2 * number + _get(PLAIN, counts, coder, data)
    return number


@serial
def decode(data: Any, lowest: Any, highest: Any, logs: Any, levels: Any) -> Any:
    """Read the levels, all from ``lowest`` to ``highest``, from all bytes; return 0, or BROKEN."""
    digits, signed = bit_length(max(-lowest, highest)), lowest < 0 and highest > 0
    counts = np.empty(2 * KINDS, dtype=np.int64)
    coder = np.zeros(3, dtype=np.uint64)
    coder[WIDTH] = uint64(1) << uint64(TOP)
    for _ in range(TOP // 8):
        coder[LOW] = (coder[LOW] << uint64(8)) | _next(data, coder)
    shift = int64(0)
    for i in range(levels.size):
        if i % BLOCK == 0:
            counts[:] = 0
            shift = int64(_get(PLAIN, counts, coder, data)) if digits > 1 else int64(0)
            if shift > 0:
                shift = 1 + _get_plain(0, bit_length(digits - 2), counts, coder, data)
            if shift >= digits:
                return BROKEN
        size = int64(_get(ZERO, counts, coder, data))
        own = int64(size)
        while own > 0 and own < digits - shift and _get(own, counts, coder, data):
            own += 1
        if own > 1:
            size = 2 * size + _get(SECOND, counts, coder, data)
        size = _get_plain(size, shift + max(own - 2, 0), counts, coder, data)
        negative = size > 0 and (_get(PLAIN, counts, coder, data) if signed else lowest < 0)
        level = -size if negative else size
        if level < lowest or level > highest:
            return BROKEN
        levels[uint64(i)] = level
        if coder[AT] > uint64(data.size + TOP // 8 + 1):
            return BROKEN
    bits = length(levels, lowest, highest, logs, np.empty(SORTS, dtype=np.int64))
    rest = 8 * data.size - bits
    return BROKEN if rest < 0 or rest > 7 or int64(data[data.size - 1]) & ((1 << rest) - 1) != 0 else 0
