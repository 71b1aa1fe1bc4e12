"""Codes of levels on the GPU: packing in a fixed number of bits, and the exact length under every code."""

from __future__ import annotations

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

    bits = np.zeros(len(levels), dtype=np.int64)
    for i, (row, scale) in enumerate(zip(levels, scales, strict=True)):
        sent = live_levels(row, scale, block)
        if sent.size:
            bits[i] = _stream_bits(code, cupy.ascontiguousarray(sent), lowest, highest)
    return bits


def _stream_bits(code: int, levels: Array, lowest: int, highest: int) -> int:
    """Return the bits of a stream: the least of all codes, for AUTO."""
    from fpdfp._kernels import measure, tokens

    lengths: dict[int, int] = {}
    if code in (measure.FIXED, measure.AUTO):
        lengths[measure.FIXED] = levels.size * (highest - lowest).bit_length()
    if code == measure.FIXED:
        return lengths[code]
    lengths[measure.RICE], total = _rice(levels)
    if code in (measure.RANS, measure.ANS, measure.AUTO):
        shift = int(tokens.shift_for(total, levels.size))
        shifts = {shift, 0} if tokens.fits(lowest, highest) else {shift}
        lengths[measure.ANS if code == measure.ANS else measure.RANS] = min(_tokens(code, levels, h) for h in shifts)
    if code in (measure.GAMMA, measure.OMEGA, measure.AUTO):
        lengths[measure.GAMMA], lengths[measure.OMEGA] = _elias(levels)
    return min(lengths.values()) if code == measure.AUTO else lengths[code]


def _rice(levels: Array) -> tuple[int, int]:
    import cupy

    totals = cupy.zeros(2, dtype=np.uint64)
    warps = -(-levels.size // RICE_BLOCK)
    kernel("rice_lengths")(grid(32 * warps, 1), (THREADS,), (levels, np.uint64(levels.size), totals))
    length, total = totals.get().tolist()
    return length, total


def _tokens(code: int, levels: Array, shift: int) -> int:
    import cupy

    from fpdfp._kernels import measure, tokens
    from fpdfp.compress.codecs import tables

    counts = cupy.zeros(tokens.TOKENS, dtype=np.uint64)
    blocks = min(-(-levels.size // (16 * THREADS)), 4096)
    kernel("count_tokens")((blocks,), (THREADS,), (levels, np.uint64(levels.size), np.int32(shift), counts))
    work = np.zeros((measure.WORKSPACE, tokens.TOKENS), dtype=np.int64)
    work[measure.COUNTS] = counts.get().astype(np.int64)
    plan = np.zeros(measure.PLAN, dtype=np.int64)
    return int(measure.plan_counted(code, levels.size, shift, tables().costs, work, plan))


def _elias(levels: Array) -> tuple[int, int]:
    import cupy

    from fpdfp._kernels import elias

    size = np.uint64(levels.size)
    warps = -(-levels.size // ELIAS_PIECE)
    last = cupy.empty(warps, dtype=np.int64)
    kernel("last_nonzero")(grid(32 * warps, 1), (THREADS,), (levels, size, last))
    host = np.maximum.accumulate(last.get())
    before = cupy.asarray(np.concatenate([[-1], host[:-1]]))
    totals = cupy.zeros(5, dtype=np.uint64)
    kernel("elias_lengths")(grid(32 * warps, 1), (THREADS,), (levels, size, before, totals))
    dense_gamma, dense_omega, sparse_gamma, sparse_omega, nonzero = totals.get().tolist()
    front = [int(elias.codeword(kind, nonzero + 1)[1]) for kind in (elias.GAMMA, elias.OMEGA)]
    return 1 + min(dense_gamma, sparse_gamma + front[0]), 1 + min(dense_omega, sparse_omega + front[1])
