"""Levels as tokens, and the probability model of a message's tokens.

A level is split as level = 2^h · q + r with 0 ≤ r < 2^h. The quotient q, from −127 to 127, becomes the token
q + 127, which an entropy coder writes; r is sent as it is. A level whose quotient is outside becomes the token
255, the escape, and its 32 bits are sent as they are. h is such that |q| is below 16 on average.

A model gives each token a frequency out of 4096. There are three kinds: a table of frequencies, and two that
take three bytes (the largest |q|, the share of zeros, the decay), for messages too short for a table:

    geometric   the frequency of ±k falls with k as r^k
    Gaussian    the frequency of ±k falls with k as q^(k²)

Everything is done in integers, so that every machine makes the same model of the same bytes.
"""

from __future__ import annotations

import math
from typing import Any

from numba import int64, uint64

from fpdfp._kernels.bits import bit_length
from fpdfp._kernels.jit import inline, serial

TOKENS = 256
CENTRE = 127
ESCAPE = 255
#: Frequencies add up to this, a power of two.
TOTAL = 4096
TOTAL_BITS = 12
GEOMETRIC = 0
GAUSSIAN = 1
EXPLICIT = 2
#: No model takes fewer bytes.
LEAST_BYTES = 3
#: Costs are counted in units of 2^-20 bits.
COST_BITS = 20


@serial
def shift_for(total: Any, count: Any) -> Any:
    """Return h from the sum of 2 |level|, or 2 |level| − 1 for negative ones, over ``count`` levels."""
    return max(0, bit_length(total // max(count, 1)) - 5)


@serial
def fits(lowest: Any, highest: Any) -> Any:
    """Whether every possible level is a token with h = 0, which is better for a few values far apart."""
    return lowest >= -CENTRE and highest <= CENTRE


@inline
def token_of(level: Any, shift: Any) -> Any:
    """Return a level's token."""
    token = uint64((int64(level) >> shift) + CENTRE)
    return token if token < uint64(ESCAPE) else uint64(ESCAPE)


@serial
def reach_of(lowest: Any, highest: Any) -> Any:
    """Return how far from the centre tokens can be, whatever h is: others never occur, and stay zero in all tables."""
    return min(CENTRE, max(-lowest, highest))


@serial
def clear(tables: Any, reach: Any) -> None:
    """Set all counts to zero, of tables that are zero beyond the reach."""
    for row in range(tables.shape[0]):
        for t in range(CENTRE - reach, CENTRE + reach + 1):
            tables[uint64(row), uint64(t)] = 0
        tables[uint64(row), ESCAPE] = 0


@serial
def add_tokens(levels: Any, shift: Any, tables: Any) -> None:
    """Count tokens in four tables, which take turns, so that runs of one token do not wait for each other."""
    whole = levels.size - levels.size % 4
    for j in range(0, whole, 4):
        for lane in range(4):
            tables[uint64(lane), token_of(levels[uint64(j + lane)], shift)] += 1
    for j in range(whole, levels.size):
        tables[0, token_of(levels[uint64(j)], shift)] += 1


@serial
def merge(tables: Any, reach: Any) -> None:
    """Add the four tables up in the first."""
    for t in range(CENTRE - reach, CENTRE + reach + 1):
        tables[0, uint64(t)] += tables[1, uint64(t)] + tables[2, uint64(t)] + tables[3, uint64(t)]
    tables[0, ESCAPE] += tables[1, ESCAPE] + tables[2, ESCAPE] + tables[3, ESCAPE]


@serial
def decay(code: Any) -> Any:
    """Return exp(−1/σ²) in units of 2^-16, for the code of a Gaussian's width."""
    return 65536 - (((16 + (code & 15)) << (code >> 4)) >> 4)


@serial
def fill_shape(model: Any, reach: Any, zeros: Any, rate: Any, escapes: Any, frequencies: Any) -> bool:
    """Write the frequencies of a geometric or Gaussian model; return whether the three numbers allow one."""
    free = TOTAL - (1 if escapes else 0) - 2 * reach
    if free < 1 or reach > CENTRE:
        return False
    frequencies[ESCAPE] = 1 if escapes else 0
    weight = int64(1) << 30
    square = int64(decay(rate))
    step = (square * int64(math.sqrt(float(square << 16)))) >> 16
    total = int64(0)
    for k in range(1, reach + 1):
        frequencies[CENTRE + k] = weight
        total += weight
        if model == GAUSSIAN:
            weight = (weight * step) >> 16
            step = (step * square) >> 16
        else:
            weight = (weight * rate) >> 8
    # Every token has a frequency of at least 1, zero too; the rest is shared out.
    share = (free - max(1, min(16 * zeros, free - 1))) >> 1
    left = free
    for k in range(1, reach + 1):
        part = int64(uint64(share * frequencies[CENTRE + k]) // uint64(total))  # unsigned, which is sooner done
        frequencies[CENTRE + k] = 1 + part
        frequencies[CENTRE - k] = 1 + part
        left -= 2 * part
    frequencies[CENTRE] = left
    return True


@serial
def fill_table(counts: Any, first: Any, last: Any, frequencies: Any) -> None:
    """Write frequencies in proportion to the counts, at least 1 for every token that occurs."""
    total = int64(counts[ESCAPE])
    for t in range(first, last + 1):
        total += counts[t]
    # In floating point: only the encoder does this, and it sends what it found.
    scale = float(TOTAL) / max(total, 1)
    largest = ESCAPE
    left = int64(TOTAL)
    for place in range(first, last + 2):
        t = place if place <= last else ESCAPE
        frequencies[t] = max(int64(counts[t] * scale + 0.5), 1) if counts[t] > 0 else 0
        left -= frequencies[t]
        largest = t if frequencies[t] > frequencies[largest] else largest
    while left != 0:
        # Half of the largest at most, so that what is too much is taken from several.
        change = max(left, -(int64(frequencies[largest]) // 2))
        frequencies[largest] += change
        left -= change
        for place in range(first, last + 2):
            t = place if place <= last else ESCAPE
            largest = t if frequencies[t] > frequencies[largest] else largest


@serial
def cost(counts: Any, first: Any, last: Any, frequencies: Any, costs: Any) -> Any:
    """Return what the tokens cost, in units of 2^-20 bits; more than anything if one that occurs has no frequency."""
    total = counts[ESCAPE] * costs[frequencies[ESCAPE]]
    impossible = counts[ESCAPE] > 0 and frequencies[ESCAPE] == 0
    for t in range(first, last + 1):
        total += counts[t] * costs[frequencies[t]]
        impossible = impossible or (counts[t] > 0 and frequencies[t] == 0)
    return int64(1) << 61 if impossible else total


@serial
def least_cost(counts: Any, first: Any, last: Any, costs: Any) -> Any:
    """Return what the tokens cost at least, whatever the model: their entropy, rounded down.

    A frequency in proportion to the count is rounded up, and ``costs`` are above logarithms by no more than 372 units.
    """
    number = int64(counts[ESCAPE])
    for t in range(first, last + 1):
        number += counts[t]
    scale = float(TOTAL) / max(number, 1)
    total = counts[ESCAPE] * costs[min(int64(counts[ESCAPE] * scale) + 1, TOTAL)]
    for t in range(first, last + 1):
        total += counts[t] * costs[min(int64(counts[t] * scale) + 1, TOTAL)]
    return total - 372 * number


@serial
def fit(counts: Any, first: Any, last: Any, costs: Any, frequencies: Any, trial: Any) -> Any:
    """Choose the cheapest model; return it, its three numbers, its bytes and the cost of the tokens.

    ``frequencies`` and ``trial`` are full of zeros.
    """
    number = int64(0)
    first_moment = int64(0)
    second_moment = int64(0)
    for t in range(first, last + 1):
        size = abs(t - CENTRE)
        number += counts[t]
        first_moment += counts[t] * size
        second_moment += counts[t] * size * size
    escapes = counts[ESCAPE] > 0
    nonzero = number - counts[CENTRE]
    reach = max(abs(first - CENTRE), abs(last - CENTRE)) if number > 0 else 0
    zeros = min(255, (256 * (number - nonzero) + number // 2) // max(number, 1))
    rates = (
        min(255, (256 * (first_moment - nonzero) + first_moment // 2) // max(first_moment, 1)),
        _gaussian_rate(number, second_moment),
    )

    fill_table(counts, first, last, frequencies)
    # The first and the last token, and the Elias gamma codes of one more than each frequency.
    bits = 2 * bit_length(frequencies[ESCAPE] + 1) - 1 if escapes else 0
    for t in range(first, last + 1):
        bits += 2 * bit_length(frequencies[t] + 1) - 1
    model, rate, size = EXPLICIT, int64(0), 2 + (bits + 7) // 8
    best = cost(counts, first, last, frequencies, costs)
    for shape in (GEOMETRIC, GAUSSIAN):
        if fill_shape(shape, reach, zeros, rates[shape], escapes, trial):
            total = cost(counts, first, last, trial, costs)
            if number == 0 or total + (int64(3) << (COST_BITS + 3)) < best + (int64(size) << (COST_BITS + 3)):
                model, rate, size, best = shape, rates[shape], 3, total
                for t in range(CENTRE - reach, CENTRE + reach + 1):
                    frequencies[t] = trial[t]
                frequencies[ESCAPE] = trial[ESCAPE]
    return model, reach, zeros, rate, size, best


@serial
def _gaussian_rate(number: Any, second_moment: Any) -> Any:
    """Return the code of the width whose variance is the mean square, rounded to the narrower side."""
    wanted = min(int64(65536.0 * number / max(second_moment, 1)), 63488) * 16
    # The smallest of the numbers (16 + c) 2^e, c < 16, that is not below what is wanted.
    exponent = max(bit_length(wanted) - 5, 0)
    mantissa = (wanted + (int64(1) << exponent) - 1) >> exponent
    if mantissa == 32:
        mantissa, exponent = 16, exponent + 1
    return int64(min(max(16 * exponent + mantissa - 16, 0), 255))
