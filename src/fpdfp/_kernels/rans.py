"""Levels as tokens, and the probability model of a message's tokens.

A level is split as level = 2^h · q + r with 0 ≤ r < 2^h. The quotient q, from −127 to 127, becomes the token
q + 127, which an entropy coder writes; r is sent unchanged. A level whose quotient is outside becomes the token
255, the escape, and its 32 bits are sent unchanged. h is such that |q| is below 16 on average.

A model gives each token a frequency out of 4096. There are three kinds: a table of frequencies, and two that
take three bytes (the largest |q|, the share of zeros, the decay), for messages too short for a table:

    geometric   the frequency of ±k falls with k as r^k
    Gaussian    the frequency of ±k falls with k as q^(k²)

Everything is done in integers, so that every machine makes the same model of the same bytes.

Tokens are written by asymmetric numeral systems, within a fraction of a percent of their information.

J. Duda, "Asymmetric numeral systems", arXiv:1311.2540.

A state x of at least 2^24 takes in a token of frequency f, start c (the frequencies of the tokens before it)
out of M = 4096 as

    x ← M ⌊x/f⌋ + c + (x mod f),

which adds log₂(M/f) bits to it; before that, if x ≥ 2^28 f, its 16 lower bits are written and dropped. Tokens
are taken in last to first, so that they come out first to last. From ``MANY`` tokens on, four states take turns,
which a processor works on side by side.

The number of 16-bit words is not what happened to be written but a bound of it that follows from the counts of
the tokens, so that a message's length is known without encoding it. One step enlarges x by a factor of at most
(M/f)(1 + f/x), where x ≥ 2^24, or x ≥ 2^12 f if a word was just written. With ``costs`` at least
log₂(M/f) + log₂(e) f/2^24, W words therefore hold at most A + W log₂(e)/2^12 bits, A the sum of the costs, and
W ≤ ⌊A (1 + 2^-15)/16⌋. What the bound leaves over is filled with zeros, a few bytes in a message of a megabyte.
"""

from __future__ import annotations

import math
from typing import Any

from numba import float64, int64, uint16, uint32, uint64

from fpdfp._kernels.codes import BROKEN, bit_length, carry, get, ones
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
LOWEST = 1 << 24
STATE_BYTES = 5
WORD_BITS = 16
#: Tokens from which four states take turns.
MANY = 1 << 15
STREAMS = 4


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


@serial
def word_bound(total: Any) -> Any:
    """Return how many words tokens of this total cost can take."""
    return (total + (total >> 15)) >> (COST_BITS + 4)


@inline
def _spill(state: Any, frequency: Any) -> Any:
    """Return what is left of a state before a token of this frequency is taken in, and how many words it leaves."""
    spilt = uint64(state >= (frequency << uint64(28)))
    return state >> (spilt << uint64(4)), spilt


@inline
def _take_in(state: Any, frequency: Any, start: Any, inverse: Any) -> Any:
    """M ⌊x/f⌋ + c + (x mod f).

    x < 2^28 f ≤ 2^40 and ``inverse`` is 1/f rounded up, so the product is above x/f by less than 1/f, and its
    integer part is right.
    """
    quotient = uint64(int64(float64(int64(state)) * inverse))
    return state + quotient * (uint64(TOTAL) - frequency) + start


@serial
def encode(levels: Any, shift: Any, frequencies: Any, starts: Any, inverses: Any, states: Any, words: Any) -> Any:
    """Take in all tokens; write words from the end of ``words`` backwards, and return where they begin.

    ``words`` has one entry more than the bound: the next word is written whether it is needed or not, since a
    branch that no one can foresee costs more.
    """
    at = uint64(words.size)
    size = levels.size
    whole = 0
    if states.size == STREAMS:
        whole = size - size % STREAMS
    for s in range(states.size):
        states[s] = LOWEST
    for j in range(size - 1, whole - 1, -1):
        lane = uint64(j) % uint64(states.size)
        t = token_of(levels[uint64(j)], shift)
        x = states[lane]
        words[at - uint64(1)] = uint16(x)
        x, spilt = _spill(x, frequencies[t])
        at -= spilt
        states[lane] = _take_in(x, frequencies[t], starts[t], inverses[t])
    if whole == 0:
        return at
    x0, x1, x2, x3 = states[0], states[1], states[2], states[3]
    for group in range(whole // STREAMS - 1, -1, -1):
        j = uint64(group) << uint64(2)
        t3 = token_of(levels[j + uint64(3)], shift)
        t2 = token_of(levels[j + uint64(2)], shift)
        t1 = token_of(levels[j + uint64(1)], shift)
        t0 = token_of(levels[j], shift)
        f3, f2, f1, f0 = frequencies[t3], frequencies[t2], frequencies[t1], frequencies[t0]
        words[at - uint64(1)] = uint16(x3)
        x3, spilt = _spill(x3, f3)
        at -= spilt
        words[at - uint64(1)] = uint16(x2)
        x2, spilt = _spill(x2, f2)
        at -= spilt
        words[at - uint64(1)] = uint16(x1)
        x1, spilt = _spill(x1, f1)
        at -= spilt
        words[at - uint64(1)] = uint16(x0)
        x0, spilt = _spill(x0, f0)
        at -= spilt
        x3 = _take_in(x3, f3, starts[t3], inverses[t3])
        x2 = _take_in(x2, f2, starts[t2], inverses[t2])
        x1 = _take_in(x1, f1, starts[t1], inverses[t1])
        x0 = _take_in(x0, f0, starts[t0], inverses[t0])
    states[0], states[1], states[2], states[3] = x0, x1, x2, x3
    return at


@serial
def fill_slots(frequencies: Any, slots: Any) -> None:
    """Write for each of the 4096 slots its token, the token's frequency less one, and its place in the token."""
    slot = 0
    for t in range(frequencies.size):
        for place in range(frequencies[t]):
            slots[slot] = uint32((t << 24) | ((frequencies[t] - 1) << TOTAL_BITS) | place)
            slot += 1


@inline
def _token(entry: Any) -> Any:
    return int64(entry >> uint64(24)) - CENTRE


@inline
def _give_back(state: Any, entry: Any) -> Any:
    """Undo one step of the encoder: f ⌊x/M⌋ + (x mod M) − c."""
    frequency = ((entry >> uint64(TOTAL_BITS)) & uint64(TOTAL - 1)) + uint64(1)
    return frequency * (state >> uint64(TOTAL_BITS)) + (entry & uint64(TOTAL - 1))


@inline
def _refill(state: Any, word: Any) -> Any:
    """Return a state with the next word in it where it has become too small, and how many words it took."""
    short = uint64(state < uint64(LOWEST))
    return (state << (short << uint64(4))) | (uint64(word) & (uint64(0) - short)), short


@serial
def decode(words: Any, count: Any, states: Any, slots: Any, levels: Any) -> Any:
    """Write the quotient of every level (128 for an escape); return 0, or BROKEN for other streams.

    ``words`` has four more entries than the ``count`` that belong to the stream.
    """
    mask = uint64(TOTAL - 1)
    at = uint64(0)
    end = uint64(count)
    size = levels.size
    whole = 0
    if states.size == STREAMS:
        whole = size - size % STREAMS
        x0, x1, x2, x3 = states[0], states[1], states[2], states[3]
        for group in range(whole // STREAMS):
            if at > end:
                return BROKEN
            j = uint64(group) << uint64(2)
            e0, e1 = uint64(slots[x0 & mask]), uint64(slots[x1 & mask])
            e2, e3 = uint64(slots[x2 & mask]), uint64(slots[x3 & mask])
            levels[j] = _token(e0)
            levels[j + uint64(1)] = _token(e1)
            levels[j + uint64(2)] = _token(e2)
            levels[j + uint64(3)] = _token(e3)
            x0, x1, x2, x3 = _give_back(x0, e0), _give_back(x1, e1), _give_back(x2, e2), _give_back(x3, e3)
            x0, short = _refill(x0, words[at])
            at += short
            x1, short = _refill(x1, words[at])
            at += short
            x2, short = _refill(x2, words[at])
            at += short
            x3, short = _refill(x3, words[at])
            at += short
        states[0], states[1], states[2], states[3] = x0, x1, x2, x3
    for j in range(whole, size):
        if at > end:
            return BROKEN
        lane = uint64(j) % uint64(states.size)
        x = states[lane]
        entry = uint64(slots[x & mask])
        levels[uint64(j)] = _token(entry)
        states[lane], short = _refill(_give_back(x, entry), words[at])
        at += short
    # An encoder starts from 2^24, and fills up with zeros to a bound that is not far off.
    # Each state can hold almost a word, and the bound is a little above what the tokens take.
    broken = at > end or end - at > uint64(2 + states.size + (size >> 14) + (count >> 14))
    for s in range(states.size):
        broken = broken or states[s] != uint64(LOWEST)
    while at < end:
        broken = broken or words[at] != 0
        at += uint64(1)
    return BROKEN if broken else 0


@serial
def encode_rest(levels: Any, shift: Any, out: Any) -> Any:
    """Write what the tokens exclude: the lower bits of each level, all 32 of an escape; return the bits."""
    pending, fill, word = uint64(0), 0, 0
    for j in range(levels.size):
        level = int64(levels[uint64(j)])
        width = 32 if token_of(level, shift) == uint64(ESCAPE) else shift
        pending, fill = pending | ((uint64(level) & ones(width)) << uint64(fill)), fill + width
        out[uint64(word)] = uint32(pending)
        pending, fill, word = carry(pending, fill, word)
    out[uint64(word)] = uint32(pending)
    return 32 * word + fill


@serial
def decode_rest(words: Any, limit: Any, shift: Any, lowest: Any, highest: Any, levels: Any) -> Any:
    """Put quotients and rests together; return where the stream ends, or BROKEN."""
    position = int64(0)
    for j in range(levels.size):
        quotient = int64(levels[uint64(j)])
        width = 32 if quotient == ESCAPE - CENTRE else shift
        if position + width > limit:
            return int64(BROKEN)
        rest = get(words, position, width) if width > 0 else int64(0)
        level = (rest ^ 0x80000000) - 0x80000000 if quotient == ESCAPE - CENTRE else (quotient << shift) + rest
        position += width
        if level < lowest or level > highest:
            return int64(BROKEN)
        levels[uint64(j)] = level
    return position
