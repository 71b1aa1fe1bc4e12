"""The exact length of a stream of levels under every code, without writing it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import int64, prange, uint32, uint64

from fpdfp._kernels import adaptive, elias, rans, tokens
from fpdfp._kernels.bits import bit_length
from fpdfp._kernels.jit import SMALL, inline, interpret, serial, threaded, until_compiled

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


@serial
def _survey(levels: Any, reach: Any, work: Any) -> Any:
    """Return the sum of 2 |level|, less 1 for negative ones, and the non-zero levels after a zero; count tokens.

    A chunk is at hand while it is counted twice: to go through memory again would take longer than the counting.
    """
    tokens.clear(work[:NUMBERS], reach)
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
        tokens.add_tokens(levels[start:stop], 0, work)
    tokens.merge(work, reach)
    return total, starts


@serial
def _plan_tokens(
    levels: Any, total: Any, lowest: Any, highest: Any, costs: Any, enough: Any, work: Any, plan: Any
) -> Any:
    """Fit the model, and return the length of the rANS stream; tokens have been counted for h = 0."""
    shift, reach = tokens.shift_for(total, levels.size), tokens.reach_of(lowest, highest)
    tried = 0 if shift == 0 or tokens.fits(lowest, highest) else shift
    enough = enough if shift == 0 else NEVER  # the lengths for two h are compared with each other
    best = int64(1) << 62
    # Where both can be, h = 0 comes first; then the other; and h = 0 again if it was better.
    for attempt in range(3):
        if attempt > 0 or tried > 0:
            tokens.clear(work[:NUMBERS], reach)
            tokens.add_tokens(levels, tried, work)
            tokens.merge(work, reach)
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
    first, last = tokens.CENTRE - reach, tokens.CENTRE + reach
    while first <= last and counts[first] == 0:
        first += 1
    while last >= first and counts[last] == 0:
        last -= 1
    if first > last:
        first, last = tokens.TOKENS, -1
    plan[SHIFT], plan[FIRST], plan[LAST] = shift, first, last
    streams = rans.STREAMS if size >= rans.MANY else 1
    least = rans.WORD_BITS * rans.word_bound(tokens.least_cost(counts, first, last, costs))
    if 8 * (1 + tokens.LEAST_BYTES + rans.STATE_BYTES * streams) + least >= enough:
        return int64(enough)
    model, farthest, zeros, rate, model_bytes, cost = tokens.fit(
        counts, first, last, costs, work[FREQUENCIES], work[TRIAL]
    )
    words = rans.word_bound(cost)
    plan[MODEL] = model
    plan[REACH], plan[ZEROS], plan[RATE], plan[MODEL_BYTES], plan[WORDS] = farthest, zeros, rate, model_bytes, words
    escapes = int64(counts[tokens.ESCAPE])
    head = 1 + (4 if escapes > 0 else 0) + model_bytes
    coded = 8 * rans.STATE_BYTES * streams + rans.WORD_BITS * words
    return 8 * head + coded + (size - escapes) * shift + 32 * escapes


@serial
def _plan_elias(levels: Any, starts: Any, table: Any, best: Any, work: Any, plan: Any) -> Any:
    """Return the length of the shorter of the dense and the sparse stream, or ``best`` if neither is shorter.

    Counting takes a pass, so it is left out where the counts of the tokens say that it cannot win.
    """
    shift = plan[SHIFT]
    counts = work[COUNTS]
    # The least that the levels of each token can take, dense and sparse.
    dense = int64(1)
    sparse = int64(1)
    for t in range(plan[FIRST], plan[LAST] + 1):
        q = t - tokens.CENTRE
        least = q << shift if q >= 0 else ((-q - 1) << shift) + 1
        dense += counts[t] * (elias.code_length(int64(least) + 1, table) + (1 if least > 0 else 0))
        sparse += counts[t] * (2 + elias.code_length(int64(least), table)) if least > 0 else 0
    exact = shift == 0 and counts[tokens.ESCAPE] == 0
    if dense < best:
        length = dense if exact else 1 + elias.dense_length(levels, table)
        if length < best:
            best = length
            plan[CODE], plan[SPARSE] = OMEGA, 0
    # A non-zero level after a zero has a distance of 2 or more, which takes three bits.
    if sparse + 2 * starts < best:
        length = 1 + elias.sparse_length(levels, table)
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
        total, starts = _survey(levels, tokens.reach_of(lowest, highest), work)
    if code == ADAPTIVE or (code == AUTO and adaptive.is_tried(levels.size, lowest, highest)):
        if code == AUTO and tokens.fits(lowest, highest):
            adaptive.sort_tokens(work[COUNTS], tokens.reach_of(lowest, highest), work[NUMBERS])
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
        for tried in {0, shift} if lowest >= -tokens.CENTRE and highest <= tokens.CENTRE else {shift}:
            yield _token_length(levels, tried, costs)
    if code in (OMEGA, AUTO):
        sizes = abs(levels)
        (places,) = sizes.nonzero()
        yield 1 + int(elias.code_lengths(sizes + 1).sum()) + places.size
        # The number of those that are not zero, and of each the distance and the size.
        sent = np.concatenate([[places.size + 1], np.diff(places, prepend=-1), sizes[places]])
        yield 1 + int(elias.code_lengths(sent).sum()) + places.size


def _shortest(code: int, levels: Any, lowest: int, highest: int, costs: Any, logs: Any) -> int:
    """Return what the levels of one message take in the code that is chosen."""
    least = min(_lengths(code, levels, lowest, highest, costs), default=NEVER)
    if code != ADAPTIVE and not (code == AUTO and _is_tried(levels.size, lowest, highest)):
        return least
    length = adaptive.length_plainly(levels, lowest, highest, logs)
    return length if _handicap(length, levels.size) <= least else least


def _token_length(levels: Any, shift: int, costs: Any) -> int:
    """The length of an rANS stream."""
    quotients = (levels >> shift) + tokens.CENTRE
    found = np.where((quotients < 0) | (quotients >= tokens.ESCAPE), tokens.ESCAPE, quotients)
    work: list[Any] = [[0] * tokens.TOKENS for _ in range(WORKSPACE)]
    work[COUNTS] = np.bincount(found, minlength=tokens.TOKENS).tolist()
    return int(_plan_counted(levels.size, shift, tokens.CENTRE, costs, NEVER, work, [0] * PLAN))


_shift_for, _plan_counted = interpret(tokens.shift_for), interpret(plan_counted)
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
    return np.zeros((WORKSPACE, tokens.TOKENS), dtype=np.int64), np.empty(PLAN, dtype=np.int64)


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
