"""Codes of levels on the GPU: packing in a fixed number of bits, and the exact length under every code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fpdfp._cuda.rounding import THREADS, grid
from fpdfp._cuda.source import kernel
from fpdfp._typing import Array, IntArray

RICE_BLOCK = 512
ELIAS_PIECE = 1024


def pack_fixed(levels: Array, lowest: int, width: int) -> Array:
    """Return the 32-bit words of a row of levels, as :func:`fpdfp._kernels.fixed.encode` writes them."""
    import cupy

    words = -(-levels.size * width // 32)
    out = cupy.empty(words, dtype=np.uint32)
    if words:
        kernel("pack_fixed")(
            grid(words, 1),
            (THREADS,),
            (levels, np.uint64(levels.size), np.int32(lowest), np.uint32(width), np.uint64(words), out),
        )
    return out


def unpack_fixed(words: Array, size: int, lowest: int, highest: int, width: int, levels: Array) -> bool:
    """Write the levels of words with one word of zeros after them; return whether all are in range."""
    import cupy

    bad = cupy.zeros(1, dtype=np.int32)
    if size:
        kernel("unpack_fixed")(
            grid(-(-size // 4), 1),
            (THREADS,),
            (words, np.uint64(size), np.int32(lowest), np.int32(highest), np.uint32(width), levels, bad),
        )
    return not int(bad.get()[0])


def live_levels(levels: Array, scales: Array, block: int) -> Array:
    """Return the levels of the blocks whose scale is not zero: the others are not sent."""
    import cupy

    live = scales.view(np.uint32) != 0  # by their bits, since CuPy takes subnormal numbers for zero
    return levels if bool(live.all()) else levels[cupy.repeat(live, block)[: levels.size]]


def count_bits(code: int, levels: Array, scales: Array, block: int, lowest: int, highest: int) -> IntArray:
    """Return the exact bits of the levels of each row, as :func:`fpdfp._kernels.measure.count_bits` does."""
    import cupy

    whole = (scales.view(np.uint32) != 0).all(axis=1).get().tolist()
    streams = [
        row if all_live else cupy.ascontiguousarray(live_levels(row, scale, block))
        for row, scale, all_live in zip(levels, scales, whole, strict=True)
    ]
    bits = np.zeros(len(levels), dtype=np.int64)
    sent = [i for i, stream in enumerate(streams) if stream.size]
    if sent:
        bits[sent] = _stream_bits(code, [streams[i] for i in sent], lowest, highest)
    return bits


def _stream_bits(code: int, streams: Sequence[Array], lowest: int, highest: int) -> IntArray:
    """Return the bits of each stream, the least of all codes for AUTO.

    The kernels of all streams are started before the result of any is waited for.
    """
    from fpdfp._kernels import measure

    lengths: dict[int, IntArray] = {}
    if code in (measure.FIXED, measure.AUTO):
        lengths[measure.FIXED] = np.array([one.size for one in streams]) * (highest - lowest).bit_length()
    if code == measure.FIXED:
        return lengths[code]
    lengths[measure.RICE], totals = _rice(streams)
    if code in (measure.RANS, measure.ANS, measure.AUTO):
        entropy = _tokens(code, streams, totals, lowest, highest)
        lengths[measure.ANS if code == measure.ANS else measure.RANS] = entropy
    if code in (measure.GAMMA, measure.OMEGA, measure.AUTO):
        lengths[measure.GAMMA], lengths[measure.OMEGA] = _elias(streams)
    return np.min(list(lengths.values()), axis=0) if code == measure.AUTO else lengths[code]


def _rice(streams: Sequence[Array]) -> tuple[IntArray, IntArray]:
    """Return the length of each stream, and the sum of its numbers."""
    import cupy

    totals = cupy.zeros((len(streams), 2), dtype=np.uint64)
    for levels, total in zip(streams, totals, strict=True):
        warps = -(-levels.size // RICE_BLOCK)
        kernel("rice_lengths")(grid(32 * warps, 1), (THREADS,), (levels, np.uint64(levels.size), total))
    length, total = totals.get().astype(np.int64).T
    return length, total


def _tokens(code: int, streams: Sequence[Array], totals: IntArray, lowest: int, highest: int) -> IntArray:
    """Return the length of each stream in an entropy coder, with the shorter of two splits where there are two."""
    import cupy

    from fpdfp._kernels import measure, tokens
    from fpdfp._kernels.tables import tables

    tried: list[tuple[int, int]] = []
    for i, (levels, total) in enumerate(zip(streams, totals.tolist(), strict=True)):
        shift = int(tokens.shift_for(total, levels.size))
        tried += [(i, h) for h in ({shift, 0} if tokens.fits(lowest, highest) else {shift})]
    counts = cupy.zeros((len(tried), tokens.TOKENS), dtype=np.uint64)
    for (i, shift), row in zip(tried, counts, strict=True):
        size = streams[i].size
        blocks = min(-(-size // (16 * THREADS)), 4096)
        kernel("count_tokens")((blocks,), (THREADS,), (streams[i], np.uint64(size), np.int32(shift), row))
    lengths = np.full(len(streams), np.iinfo(np.int64).max)
    for (i, shift), row in zip(tried, counts.get().astype(np.int64), strict=True):
        work = np.zeros((measure.WORKSPACE, tokens.TOKENS), dtype=np.int64)
        work[measure.COUNTS] = row
        plan = np.zeros(measure.PLAN, dtype=np.int64)
        given = shift, tokens.CENTRE, tables().costs, measure.NEVER
        length = int(measure.plan_counted(code, streams[i].size, *given, work, plan))
        lengths[i] = min(lengths[i], length)
    return lengths


def _elias(streams: Sequence[Array]) -> tuple[IntArray, IntArray]:
    """Return the lengths of each stream in the two Elias codes, dense or sparse, whichever is shorter."""
    import cupy

    from fpdfp._kernels import elias

    pieces = [-(-levels.size // ELIAS_PIECE) for levels in streams]
    last = cupy.full((len(streams), max(pieces)), -1, dtype=np.int64)
    for levels, warps, row in zip(streams, pieces, last, strict=True):
        kernel("last_nonzero")(grid(32 * warps, 1), (THREADS,), (levels, np.uint64(levels.size), row))
    before = np.full(last.shape, -1)
    before[:, 1:] = np.maximum.accumulate(last.get(), axis=1)[:, :-1]
    known, totals = cupy.asarray(before), cupy.zeros((len(streams), 5), dtype=np.uint64)
    for levels, warps, row, total in zip(streams, pieces, known, totals, strict=True):
        kernel("elias_lengths")(grid(32 * warps, 1), (THREADS,), (levels, np.uint64(levels.size), row, total))
    gamma, omega = [], []
    for dense_gamma, dense_omega, sparse_gamma, sparse_omega, nonzero in totals.get().tolist():
        front = [int(elias.codeword(kind, nonzero + 1)[1]) for kind in (elias.GAMMA, elias.OMEGA)]
        gamma.append(1 + min(dense_gamma, sparse_gamma + front[0]))
        omega.append(1 + min(dense_omega, sparse_omega + front[1]))
    return np.array(gamma), np.array(omega)
