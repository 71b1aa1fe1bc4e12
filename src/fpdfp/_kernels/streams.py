"""Streams of levels: their exact length under every code without writing them, and writing and reading them.

Many short messages are written and read in one call: what surrounds a call costs more than a stream.

A stream of rANS is

    1 byte       h (bits 0 to 4), the model (bits 5 and 6: 0 geometric, 1 Gaussian, 2 table), escapes or not (bit 7)
    4 bytes      the number of escapes, if there are any
    the model    geometric and Gaussian: largest |q|, share of zeros, decay, a byte each
                 table: the first and the last token, a byte each, and the Elias gamma codes of one more than each
                 frequency from the first token to the last (then the escape's), padded to a byte
    the tokens   a state of 5 bytes for each of 1 or 4 streams, then 16-bit words
    the rest     h bits of each level, 32 of an escape

The other streams are described by their kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import int64, prange, uint8, uint32, uint64

from fpdfp._kernels import adaptive, rans
from fpdfp._kernels.codes import (
    bit_length,
    carry,
    code_length,
    code_lengths,
    decode_elias,
    decode_fixed,
    dense_length,
    encode_dense,
    encode_fixed,
    encode_sparse,
    gamma_codeword,
    make_table,
    read_frequencies,
    sparse_length,
)
from fpdfp._kernels.jit import SMALL, inline, interpret, serial, threaded, until_compiled
from fpdfp._typing import Array, IntArray

#: What can be wrong with a stream that is read, by its number; 0 is nothing.
FAULTS = (
    "",
    "it is cut off",
    "its levels are cut off or out of range",
    "there is something after its levels",
    "its number of escapes is wrong",
    "its model is invalid",
    "its levels cannot be decoded",
)
CUT_OFF, OUT_OF_RANGE, MORE, ESCAPES, NO_MODEL, NO_STATE = range(1, 7)

FIXED = 1
OMEGA = 3
RANS = 5
ADAPTIVE = 8
AUTO = 15

#: About what compiling takes, in seconds.
PATIENCE = 8.0

#: What a plan holds: the code, its bits, whether it is sparse (Elias), and the model of the tokens (rANS).
CODE, BITS, SPARSE, SHIFT, MODEL, FIRST, LAST, REACH, ZEROS, RATE, MODEL_BYTES, WORDS = range(12)
PLAN = 12
#: Rows of the workspace: four tables of counts (the first becomes the counts), the frequencies, a trial, and room for
#: a block of numbers.
COUNTS, FREQUENCIES, TRIAL, NUMBERS = 0, 4, 5, 6
WORKSPACE = 7
#: Levels that are counted in one go through memory.
CHUNK = 512
#: More bits than any stream has.
NEVER = 1 << 62
#: Among so many threads at most the clients of a batch are shared out.
SHARES = 32


class Tables(NamedTuple):
    """The omega codes of small numbers, the costs of frequencies, and the logarithms of factorials."""

    omega: Array
    costs: IntArray
    logs: IntArray


@functools.cache
def tables() -> Tables:
    """Return the tables, made once."""
    # What a frequency f costs, rounded up: log2(4096/f) + log2(e) f/2^24, the second term as `rans` explains.
    f = np.arange(1, rans.TOTAL + 1)
    exact = np.log2(rans.TOTAL / f) + np.log2(np.e) * f / 2**24
    costs = np.zeros(rans.TOTAL + 1, dtype=np.int64)
    costs[1:] = np.ceil(exact * 2**rans.COST_BITS).astype(np.int64) + 1
    return Tables(make_table(), costs, adaptive.log_factorials())


@serial
def _survey(levels: Any, reach: Any, work: Any) -> Any:
    """Return the sum of 2 |level|, less 1 for negative ones, and the non-zero levels after a zero; count tokens.

    A chunk is at hand while it is counted twice: to go through memory again would take longer than the counting.
    """
    rans.clear(work[:NUMBERS], reach)
    total = int64(0)
    starts = int64(0)
    for start in range(0, levels.size, CHUNK):
        stop = min(start + CHUNK, levels.size)
        found = uint32(0)
        for j in range(max(start, 1), stop):
            found = uint32(found + uint32(levels[uint64(j)] != 0 and levels[uint64(j) - uint64(1)] == 0))
        starts += int64(found)
        for j in range(start, stop):
            level = levels[uint64(j)]
            total += int64(uint32((uint32(level) << uint32(1)) ^ uint32(level >> 31)))
        rans.add_tokens(levels[start:stop], 0, work)
    rans.merge(work, reach)
    return total, starts


@serial
def _plan_tokens(
    levels: Any, total: Any, lowest: Any, highest: Any, costs: Any, enough: Any, work: Any, plan: Any
) -> Any:
    """Fit the model, and return the length of the rANS stream; tokens have been counted for h = 0."""
    shift, reach = rans.shift_for(total, levels.size), rans.reach_of(lowest, highest)
    tried = 0 if shift == 0 or rans.fits(lowest, highest) else shift
    enough = enough if shift == 0 else NEVER  # the lengths for two h are compared with each other
    best = int64(1) << 62
    # Where both can be, h = 0 comes first; then the other; and h = 0 again if it was better.
    for attempt in range(3):
        if attempt > 0 or tried > 0:
            rans.clear(work[:NUMBERS], reach)
            rans.add_tokens(levels, tried, work)
            rans.merge(work, reach)
        length = plan_counted(levels.size, tried, reach, costs, enough, work, plan)
        if tried == shift and length <= best:
            return length
        best, tried = length, shift - tried
    return best


@serial
def plan_counted(size: Any, shift: Any, reach: Any, costs: Any, enough: Any, work: Any, plan: Any) -> Any:
    """Fit the model to the counts, all within a reach of the centre, and return the length of the stream.

    Where no model makes an rANS stream shorter than ``enough`` none is fitted, and that is returned.
    """
    counts = work[COUNTS]
    first, last = rans.CENTRE - reach, rans.CENTRE + reach
    while first <= last and counts[first] == 0:
        first += 1
    while last >= first and counts[last] == 0:
        last -= 1
    if first > last:
        first, last = rans.TOKENS, -1
    plan[SHIFT], plan[FIRST], plan[LAST] = shift, first, last
    streams = rans.STREAMS if size >= rans.MANY else 1
    least = rans.WORD_BITS * rans.word_bound(rans.least_cost(counts, first, last, costs))
    if 8 * (1 + rans.LEAST_BYTES + rans.STATE_BYTES * streams) + least >= enough:
        return int64(enough)
    model, farthest, zeros, rate, model_bytes, cost = rans.fit(
        counts, first, last, costs, work[FREQUENCIES], work[TRIAL]
    )
    words = rans.word_bound(cost)
    plan[MODEL] = model
    plan[REACH], plan[ZEROS], plan[RATE], plan[MODEL_BYTES], plan[WORDS] = farthest, zeros, rate, model_bytes, words
    escapes = int64(counts[rans.ESCAPE])
    head = 1 + (4 if escapes > 0 else 0) + model_bytes
    coded = 8 * rans.STATE_BYTES * streams + rans.WORD_BITS * words
    return 8 * head + coded + (size - escapes) * shift + 32 * escapes


@serial
def _plan_elias(levels: Any, starts: Any, table: Any, best: Any, work: Any, plan: Any) -> Any:
    """Return the length of the shorter of the dense and the sparse stream, or ``best`` if neither is shorter.

    Counting takes a pass, so it is excluded where the counts of the tokens say that it cannot win.
    """
    shift = plan[SHIFT]
    counts = work[COUNTS]
    # The least that the levels of each token can take, dense and sparse.
    dense = int64(1)
    sparse = int64(1)
    for t in range(plan[FIRST], plan[LAST] + 1):
        q = t - rans.CENTRE
        least = q << shift if q >= 0 else ((-q - 1) << shift) + 1
        dense += counts[t] * (code_length(int64(least) + 1, table) + (1 if least > 0 else 0))
        sparse += counts[t] * (2 + code_length(int64(least), table)) if least > 0 else 0
    exact = shift == 0 and counts[rans.ESCAPE] == 0
    if dense < best:
        length = dense if exact else 1 + dense_length(levels, table)
        if length < best:
            best = length
            plan[CODE], plan[SPARSE] = OMEGA, 0
    # A non-zero level after a zero has a distance of 2 or more, which takes three bits.
    if sparse + 2 * starts < best:
        length = 1 + sparse_length(levels, table)
        if length < best:
            best = length
            plan[CODE], plan[SPARSE] = OMEGA, 1
    return best


@serial
def plan_stream(
    code: Any, levels: Any, lowest: Any, highest: Any, omega: Any, costs: Any, logs: Any, work: Any, plan: Any
) -> None:
    """Choose the code (the shortest, for AUTO), and write what its encoder needs to know.

    ``work`` is full of zeros, or was used for levels between the same bounds.
    """
    best = int64(1) << 62
    plan[CODE] = 0
    total, starts, adapted = int64(0), int64(0), int64(0)
    if code in (OMEGA, RANS, AUTO):
        total, starts = _survey(levels, rans.reach_of(lowest, highest), work)
    if code == ADAPTIVE or (code == AUTO and adaptive.is_tried(levels.size, lowest, highest)):
        if code == AUTO and rans.fits(lowest, highest):
            adaptive.sort_tokens(work[COUNTS], rans.reach_of(lowest, highest), work[NUMBERS])
            adapted = adaptive.sorted_length(work[NUMBERS:, : adaptive.SORTS], lowest, highest, logs)
        else:
            adapted = adaptive.length(levels, lowest, highest, logs, work[NUMBERS])
        best = adaptive.handicap(adapted, levels.size)
        plan[CODE] = ADAPTIVE
    width = bit_length(highest - lowest)
    if code in (FIXED, AUTO) and levels.size * width < best:
        best = levels.size * width
        plan[CODE] = FIXED
    if code in (OMEGA, RANS, AUTO):
        enough = best if code == AUTO else NEVER
        length = _plan_tokens(levels, total, lowest, highest, costs, enough, work, plan)
        if code in (RANS, AUTO) and length < best:
            best = length
            plan[CODE] = RANS
        if code in (OMEGA, AUTO):
            best = _plan_elias(levels, starts, omega, best, work, plan)
    plan[BITS] = adapted if plan[CODE] == ADAPTIVE else best


@serial
def live_levels(levels: Any, scales: Any, block: Any, kept: Any) -> Any:
    """Copy the levels of the blocks whose scale is not zero, since the others are not sent; return how many."""
    count = 0
    for b in range(scales.size):
        if scales[b] > 0:
            for j in range(b * block, min((b + 1) * block, levels.size)):
                kept[uint64(count)] = levels[uint64(j)]
                count += 1
    return count


@serial
def all_live(scales: Any) -> Any:
    """Whether no scale is zero."""
    dead = 0
    for b in range(scales.size):
        dead += 1 if scales[b] == 0 else 0
    return dead == 0


def _lengths(code: int, levels: Any, lowest: int, highest: int, costs: Any) -> Iterator[int]:
    """Yield what the levels of one message take in each code that is allowed, except the adaptive one."""
    size = levels.size
    if code in (FIXED, AUTO):
        yield size * int(highest - lowest).bit_length()
    if code in (RANS, AUTO):
        shift = _shift_for(int(((levels << 1) ^ (levels >> 31)).sum()), size)
        for tried in {0, shift} if lowest >= -rans.CENTRE and highest <= rans.CENTRE else {shift}:
            yield _token_length(levels, tried, costs)
    if code in (OMEGA, AUTO):
        sizes = abs(levels)
        (places,) = sizes.nonzero()
        yield 1 + int(code_lengths(sizes + 1).sum()) + places.size
        # The number of those that are not zero, and of each the distance and the size.
        sent = np.concatenate([[places.size + 1], np.diff(places, prepend=-1), sizes[places]])
        yield 1 + int(code_lengths(sent).sum()) + places.size


def _shortest(code: int, levels: Any, lowest: int, highest: int, costs: Any, logs: Any) -> int:
    """Return what the levels of one message take in the code that is chosen."""
    least = min(_lengths(code, levels, lowest, highest, costs), default=NEVER)
    if code != ADAPTIVE and not (code == AUTO and _is_tried(levels.size, lowest, highest)):
        return least
    length = adaptive.length_plainly(levels, lowest, highest, logs)
    return length if _handicap(length, levels.size) <= least else least


def _token_length(levels: Any, shift: int, costs: Any) -> int:
    """The length of an rANS stream."""
    quotients = (levels >> shift) + rans.CENTRE
    found = np.where((quotients < 0) | (quotients >= rans.ESCAPE), rans.ESCAPE, quotients)
    work: list[Any] = [[0] * rans.TOKENS for _ in range(WORKSPACE)]
    work[COUNTS] = np.bincount(found, minlength=rans.TOKENS).tolist()
    return int(_plan_counted(levels.size, shift, rans.CENTRE, costs, NEVER, work, [0] * PLAN))


_shift_for, _plan_counted = interpret(rans.shift_for), interpret(plan_counted)
_is_tried, _handicap = interpret(adaptive.is_tried), interpret(adaptive.handicap)


def _count_plainly(
    code: int, levels: Any, scales: Any, block: int, lowest: int, highest: int, omega: Any, costs: Any, logs: Any,
    bits: Any,
) -> None:  # fmt: skip
    """Do what ``count_bits`` does, without compiling it."""
    costs = costs.tolist()
    live = np.repeat(scales > 0, block, axis=1)[:, : levels.shape[1]]
    for i, row in enumerate(levels.astype(np.int64)):
        kept = row[live[i]]
        bits[i] = _shortest(code, kept, lowest, highest, costs, logs) if kept.size else 0


def _is_small(code: int, levels: Any, *_: Any) -> bool:
    """Whether NumPy counts in reasonable time."""
    return bool(levels.shape[1] < rans.MANY and levels.size <= SMALL)


@inline
def make_room() -> Any:
    """Return a workspace, and room for a plan."""
    return np.zeros((WORKSPACE, rans.TOKENS), dtype=np.int64), np.empty(PLAN, dtype=np.int64)


@serial
def count_row(
    code: Any, levels: Any, scales: Any, block: Any, lowest: Any, highest: Any, omega: Any, costs: Any, logs: Any,
    work: Any, plan: Any,
) -> None:  # fmt: skip
    """Write the exact bits of the levels of a client's message into the plan."""
    plan[BITS] = 0
    if not all_live(scales):
        kept = np.empty_like(levels)
        levels = kept[: live_levels(levels, scales, block, kept)]
    if levels.size > 0:
        plan_stream(code, levels, lowest, highest, omega, costs, logs, work, plan)


@until_compiled(_count_plainly, _is_small, PATIENCE)
@threaded
def count_bits(
    code: Any, levels: Any, scales: Any, block: Any, lowest: Any, highest: Any, omega: Any, costs: Any, logs: Any,
    bits: Any,
) -> None:  # fmt: skip
    """The exact bits of the levels of each client's message."""
    n_rows = levels.shape[0]
    shares = min(n_rows, SHARES)
    for share in prange(shares):
        work, plan = make_room()
        for i in range(int64(share) * n_rows // shares, (int64(share) + 1) * n_rows // shares):
            count_row(code, levels[i], scales[i], block, lowest, highest, omega, costs, logs, work, plan)
            bits[i] = plan[BITS]


@serial
def encode_rows(
    code: Any, levels: Any, scales: Any, block: Any, lowest: Any, highest: Any, omega: Any, costs: Any, logs: Any,
    codes: Any, starts: Any, ends: Any,
) -> Any:  # fmt: skip
    """Return bytes with the streams of all rows; write the code of each, and where it starts and ends."""
    count, size = levels.shape
    kept = np.empty((0 if all_live(scales.ravel()) else count, size), dtype=np.int32)
    live = np.full(count, size)
    work = np.zeros((count, WORKSPACE, rans.TOKENS), dtype=np.int64)
    plan = np.zeros((count, PLAN), dtype=np.int64)
    at = int64(0)
    for i in range(count):
        if kept.shape[0] > 0:
            live[i] = live_levels(levels[i], scales[i], block, kept[i])
        row = kept[i, : live[i]] if kept.shape[0] > 0 else levels[i]
        if live[i] > 0:
            plan_stream(code, row, lowest, highest, omega, costs, logs, work[i], plan[i])
        codes[i], starts[i], ends[i] = plan[i, CODE], at, at + ((plan[i, BITS] + 7) >> 3)
        at = (ends[i] + 3) >> 2 << 2  # encoders write words
    words = np.empty(at // 4 + 2, dtype=np.uint32)
    for i in range(count):
        row = kept[i, : live[i]] if kept.shape[0] > 0 else levels[i]
        if live[i] > 0:
            _encode_stream(row, lowest, highest, omega, logs, work[i], plan[i], words[starts[i] // 4 :])
    return words.view(np.uint8)


@serial
def _encode_stream(
    levels: Any, lowest: Any, highest: Any, omega: Any, logs: Any, work: Any, plan: Any, words: Any
) -> None:  # fmt: skip
    """Write levels as they were planned."""
    bits = plan[BITS]
    out = words.view(np.uint8)[: (bits + 7) >> 3]
    if plan[CODE] == RANS:
        written = _encode_rans(levels, work, plan, out)
    elif plan[CODE] == ADAPTIVE:
        written = adaptive.encode(levels, lowest, highest, bits, logs, out)
    elif plan[CODE] == FIXED:
        written = encode_fixed(levels, lowest, bit_length(highest - lowest), words)
    elif plan[SPARSE] != 0:
        written = encode_sparse(levels, omega, words)
    else:
        written = encode_dense(levels, omega, words)
    if written != bits:
        raise AssertionError("a stream is not as long as was foreseen")


@serial
def _encode_rans(levels: Any, work: Any, plan: Any, out: Any) -> Any:
    """Write a stream with its model, and return its bits."""
    frequencies, escapes = work[FREQUENCIES], work[COUNTS, rans.ESCAPE]
    shift, bound = plan[SHIFT], plan[WORDS]
    shares, starts = np.empty(rans.TOKENS, dtype=np.uint64), np.empty(rans.TOKENS, dtype=np.uint64)
    inverses = np.empty(rans.TOKENS, dtype=np.float64)
    total = uint64(0)
    for t in range(rans.TOKENS):
        shares[t] = uint64(frequencies[t])
        starts[t] = total
        total += shares[t]
        inverses[t] = np.nextafter(1.0 / max(frequencies[t], 1), np.inf)
        if work[COUNTS, t] > 0 and frequencies[t] == 0:
            raise AssertionError("a token has no frequency")
    if total != rans.TOTAL:
        raise AssertionError("frequencies do not add up")
    at = _put_model(plan, frequencies, escapes, out)
    states = np.empty(rans.STREAMS if levels.size >= rans.MANY else 1, dtype=np.uint64)
    words = np.empty(bound + 1, dtype=np.uint16)
    begin = int64(rans.encode(levels, shift, shares, starts, inverses, states, words))
    for s in range(states.size):
        for b in range(rans.STATE_BYTES):
            out[at + b] = uint8(states[s] >> uint64(8 * b))
        at += rans.STATE_BYTES
    end = at + 2 * (bound + 1 - begin)
    out[at:end] = words[begin:].view(np.uint8)
    at += 2 * bound
    out[end:at] = 0
    bits = (levels.size - escapes) * shift + 32 * escapes
    if bits > 0:
        rest = np.empty(bits // 32 + 2, dtype=np.uint32)
        rans.encode_rest(levels, shift, rest)
        out[at:] = rest.view(np.uint8)[: (bits + 7) >> 3]
    return 8 * at + bits


@serial
def _put_model(plan: Any, frequencies: Any, escapes: Any, out: Any) -> Any:
    """Write what comes before the tokens, and return where it ends."""
    out[0] = uint8(plan[SHIFT] | (plan[MODEL] << 5) | ((1 if escapes > 0 else 0) << 7))
    at = int64(1)
    if escapes > 0:
        for b in range(4):
            out[at + b] = uint8(escapes >> (8 * b))
        at += 4
    if plan[MODEL] != rans.EXPLICIT:
        out[at], out[at + 1], out[at + 2] = plan[REACH], plan[ZEROS], plan[RATE]
        return at + 3
    first, last = plan[FIRST], plan[LAST]
    out[at], out[at + 1] = first, last
    # A gamma code of a number up to 4097 has 25 bits.
    words = np.empty(rans.TOKENS + 2, dtype=np.uint32)
    pending, fill, word = uint64(0), 0, 0
    for place in range(first, last + (2 if escapes > 0 else 1)):
        code, length = gamma_codeword(frequencies[place if place <= last else rans.ESCAPE] + 1)
        pending, fill = pending | (code << uint64(fill)), fill + length
        words[word] = uint32(pending)
        pending, fill, word = carry(pending, fill, word)
    words[word] = uint32(pending)
    count = (32 * word + fill + 7) >> 3
    out[at + 2 : at + 2 + count] = words.view(np.uint8)[:count]
    return at + 2 + count


@serial
def decode_rows(
    data: Any, ends: Any, codes: Any, block: Any, lowest: Any, highest: Any, logs: Any, levels: Any, scales: Any
) -> Any:  # fmt: skip
    """Read the scales and levels of bodies that stand one after the other; return whether all could be read.

    A body that is damaged and one in a code that is not read here make no difference: only reading it shows which.
    """
    count, size = levels.shape
    n_blocks = scales.shape[1]
    room = np.empty(size, dtype=np.int32)
    begin = int64(0)
    for i in range(count):
        end = ends[i]
        if end - begin < 4 * n_blocks:
            return False
        live = int64(0)
        for b in range(n_blocks):
            bits = uint32(0)
            for k in range(4):
                bits |= uint32(data[begin + 4 * b + k]) << uint32(8 * k)
            # The sign, or an exponent of ones: negative, NaN or infinite.
            if bits >> uint32(31) != 0 or bits >= uint32(0x7F800000):
                return False
            scales[i, b] = bits
            if bits != 0:
                live += min(block, size - b * block)
        begin += 4 * n_blocks
        if live == 0:
            if codes[i] != 0 or begin != end:
                return False
        elif decode_stream(codes[i], data[begin:end], lowest, highest, logs, room[:live]) != 0:
            return False
        taken = int64(0)
        for b in range(n_blocks):
            for j in range(b * block, min((b + 1) * block, size)):
                levels[i, j] = room[taken] if scales[i, b] != 0 else 0
                taken += 1 if scales[i, b] != 0 else 0
        begin = end
    return True


@serial
def decode_stream(code: Any, data: Any, lowest: Any, highest: Any, logs: Any, levels: Any) -> Any:
    """Read at least one level; return what is wrong with the stream, a number in ``FAULTS``."""
    if code == RANS:
        return int64(_decode_rans(data, lowest, highest, levels))
    if code == ADAPTIVE:
        return int64(0 if adaptive.decode(data, lowest, highest, logs, levels) == 0 else OUT_OF_RANGE)
    limit = 8 * data.size
    words = _as_words(data)
    end = int64(-1)
    if code == FIXED:
        end = int64(decode_fixed(words, limit, lowest, highest, bit_length(highest - lowest), levels))
    elif code == OMEGA:
        end = int64(decode_elias(words, limit, lowest, highest, levels))
    return _check_end(words, end, limit)


@serial
def _as_words(data: Any) -> Any:
    """Return bytes as 32-bit words, with at least two words of zeros after them."""
    words = np.zeros(data.size // 4 + 3, dtype=np.uint32)
    words.view(np.uint8)[: data.size] = data
    return words


@serial
def _check_end(words: Any, end: Any, limit: Any) -> Any:
    """Find whether a stream broke off, or has more after its end than the padding of a byte."""
    if end < 0:
        return int64(OUT_OF_RANGE)
    rest = limit - end
    clean = rest < 8 and (rest == 0 or (words[end // 32] >> uint32(end % 32)) & uint32((1 << rest) - 1) == 0)
    return int64(0 if clean else MORE)


@serial
def _decode_rans(data: Any, lowest: Any, highest: Any, levels: Any) -> Any:
    if data.size < 1:
        return CUT_OFF
    shift, model, escaped = int64(data[0] & 31), int64((data[0] >> 5) & 3), data[0] >> 7 != 0
    at = int64(1)
    escapes = int64(0)
    if escaped:
        if data.size < at + 4:
            return CUT_OFF
        for b in range(4):
            escapes |= int64(data[at + b]) << (8 * b)
        at += 4
        if escapes < 1 or escapes > levels.size:
            return ESCAPES
    frequencies = np.zeros(rans.TOKENS, dtype=np.int64)
    at = _get_model(data, at, model, escaped, frequencies)
    if at < 0:
        return NO_MODEL
    bits = (levels.size - escapes) * shift + 32 * escapes
    end = data.size - ((bits + 7) >> 3)
    if end < at:
        return CUT_OFF
    fault = _get_tokens(data[at:end], frequencies, levels)
    if fault != 0:
        return fault
    first, last = 0, rans.ESCAPE
    while first < last and frequencies[first] == 0:
        first += 1
    while last > first and frequencies[last] == 0:
        last -= 1
    if bits == 0 and lowest <= first - rans.CENTRE and last - rans.CENTRE <= highest:
        return 0
    if escaped:
        seen = int64(0)
        for j in range(levels.size):
            seen += 1 if levels[uint64(j)] == rans.ESCAPE - rans.CENTRE else 0
        if seen != escapes:
            return ESCAPES
    rest = _as_words(data[end:])
    limit = 8 * (data.size - end)
    return _check_end(rest, int64(rans.decode_rest(rest, limit, shift, lowest, highest, levels)), limit)


@serial
def _get_model(data: Any, at: Any, model: Any, escapes: Any, frequencies: Any) -> Any:
    """Read the frequencies, and return where the model ends, or −1."""
    if model != rans.EXPLICIT:
        if model > rans.EXPLICIT or data.size < at + 3:
            return int64(-1)
        good = rans.fill_shape(
            model, int64(data[at]), int64(data[at + 1]), int64(data[at + 2]), escapes, frequencies
        )  # fmt: skip
        return at + 3 if good else int64(-1)
    if data.size < at + 2:
        return int64(-1)
    first, last = int64(data[at]), int64(data[at + 1])
    if first > last or last >= rans.ESCAPE:
        return int64(-1)
    rest = data[at + 2 : at + 2 + 4 * rans.TOKENS]
    words = _as_words(rest)
    escape = rans.ESCAPE if escapes else -1
    position = int64(read_frequencies(words, 8 * rest.size, first, last, escape, rans.TOTAL, frequencies))
    if position < 0 or frequencies.sum() != rans.TOTAL:
        return int64(-1)
    used = (position + 7) >> 3
    return at + 2 + used if _check_end(words, position, 8 * used) == 0 else int64(-1)


@serial
def _get_tokens(data: Any, frequencies: Any, levels: Any) -> Any:
    """Read states and words, write the quotient of every level, and return what is wrong."""
    states = np.zeros(rans.STREAMS if levels.size >= rans.MANY else 1, dtype=np.uint64)
    at = rans.STATE_BYTES * states.size
    if data.size < at or (data.size - at) % 2 != 0:
        return CUT_OFF
    low = False
    for s in range(states.size):
        for b in range(rans.STATE_BYTES):
            states[s] |= uint64(data[rans.STATE_BYTES * s + b]) << uint64(8 * b)
        low = low or states[s] < uint64(rans.LOWEST)
    n_words = (data.size - at) // 2
    words = np.zeros(n_words + rans.STREAMS, dtype=np.uint16)
    words.view(np.uint8)[: 2 * n_words] = data[at:]
    slots = np.empty(rans.TOTAL, dtype=np.uint32)
    rans.fill_slots(frequencies, slots)
    return NO_STATE if low or rans.decode(words, n_words, states, slots, levels) != 0 else 0
