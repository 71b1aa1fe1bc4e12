"""Asymmetric numeral systems: tokens within a fraction of a percent of their information.

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

from typing import Any

from numba import float64, int64, uint16, uint32, uint64

from fpdfp._kernels.bits import BROKEN, carry, get, ones
from fpdfp._kernels.jit import inline, serial
from fpdfp._kernels.tokens import CENTRE, COST_BITS, ESCAPE, TOTAL, TOTAL_BITS, token_of

LOWEST = 1 << 24
STATE_BYTES = 5
WORD_BITS = 16
#: Tokens from which four states take turns.
MANY = 1 << 15
STREAMS = 4


@serial
def word_bound(total: Any) -> Any:
    """Return how many words tokens of this total cost can take."""
    return (total + (total >> 15)) >> (COST_BITS + 4)


@inline
def _spill(state: Any, frequency: Any) -> Any:
    """1 if a word must be written before a token of this frequency is taken in, else 0."""
    return uint64(state >= (frequency << uint64(28)))


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
    branch that nobody can foresee costs more.
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
        spilt = _spill(x, frequencies[t])
        words[at - uint64(1)] = uint16(x)
        x >>= spilt << uint64(4)
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
        spilt = _spill(x3, f3)
        words[at - uint64(1)] = uint16(x3)
        x3 >>= spilt << uint64(4)
        at -= spilt
        spilt = _spill(x2, f2)
        words[at - uint64(1)] = uint16(x2)
        x2 >>= spilt << uint64(4)
        at -= spilt
        spilt = _spill(x1, f1)
        words[at - uint64(1)] = uint16(x1)
        x1 >>= spilt << uint64(4)
        at -= spilt
        spilt = _spill(x0, f0)
        words[at - uint64(1)] = uint16(x0)
        x0 >>= spilt << uint64(4)
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


@serial
def decode(words: Any, count: Any, states: Any, slots: Any, levels: Any) -> Any:
    """Write the quotient of every level (128 for an escape); return 0, or BROKEN if this is no stream of ours.

    ``words`` has four more entries than the ``count`` that belong to the stream.
    """
    mask = uint64(TOTAL - 1)
    low = uint64(LOWEST)
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
            short = uint64(x0 < low)
            x0 = (x0 << (short << uint64(4))) | (uint64(words[at]) & (uint64(0) - short))
            at += short
            short = uint64(x1 < low)
            x1 = (x1 << (short << uint64(4))) | (uint64(words[at]) & (uint64(0) - short))
            at += short
            short = uint64(x2 < low)
            x2 = (x2 << (short << uint64(4))) | (uint64(words[at]) & (uint64(0) - short))
            at += short
            short = uint64(x3 < low)
            x3 = (x3 << (short << uint64(4))) | (uint64(words[at]) & (uint64(0) - short))
            at += short
        states[0], states[1], states[2], states[3] = x0, x1, x2, x3
    for j in range(whole, size):
        if at > end:
            return BROKEN
        lane = uint64(j) % uint64(states.size)
        x = states[lane]
        entry = uint64(slots[x & mask])
        levels[uint64(j)] = _token(entry)
        x = _give_back(x, entry)
        short = uint64(x < low)
        x = (x << (short << uint64(4))) | (uint64(words[at]) & (uint64(0) - short))
        at += short
        states[lane] = x
    # An encoder starts from 2^24, and fills up with zeros to a bound that is not far off.
    # Each state can hold almost a word, and the bound is a little above what the tokens take.
    broken = at > end or end - at > uint64(2 + states.size + (size >> 14) + (count >> 14))
    for s in range(states.size):
        broken = broken or states[s] != low
    while at < end:
        broken = broken or words[at] != 0
        at += uint64(1)
    return BROKEN if broken else 0


@serial
def encode_rest(levels: Any, shift: Any, out: Any) -> Any:
    """Write what the tokens leave out: the lower bits of each level, all 32 of an escape; return the bits."""
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
