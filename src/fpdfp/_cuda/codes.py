"""Codes of levels on the GPU: packing in a fixed number of bits, and the exact length under every code."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fpdfp._cuda.rounding import THREADS, grid
from fpdfp._cuda.source import kernel
from fpdfp._typing import Array, IntArray

ELIAS_PIECE = 1024
SORT_PIECE = 4096


def pack_fixed(levels: Array, lowest: int, width: int) -> Array:
    """Return the 32-bit words of a row of levels, as :func:`fpdfp._kernels.codes.encode_fixed` writes them."""
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
    """Return the exact bits of the levels of each row, as :func:`fpdfp._kernels.streams.count_bits` does."""
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
    from fpdfp._kernels import adaptive
    from fpdfp._kernels import streams as kernels

    lengths: list[IntArray] = []
    if code in (kernels.FIXED, kernels.AUTO):
        lengths.append(np.array([one.size for one in streams]) * (highest - lowest).bit_length())
    if code in (kernels.RANS, kernels.AUTO):
        lengths.append(_tokens(streams, lowest, highest))
    if code in (kernels.OMEGA, kernels.AUTO):
        lengths.append(_elias(streams))
    least = np.min(lengths, axis=0) if lengths else np.full(len(streams), kernels.NEVER)
    if code not in (kernels.ADAPTIVE, kernels.AUTO):
        return least
    tried = [
        i for i, one in enumerate(streams) if code == kernels.ADAPTIVE or adaptive.is_tried(one.size, lowest, highest)
    ]
    for i, bits in zip(tried, _adaptive([streams[i] for i in tried], lowest, highest), strict=True):
        if adaptive.handicap(bits, streams[i].size) <= least[i]:
            least[i] = bits
    return least


def _adaptive(streams: Sequence[Array], lowest: int, highest: int) -> IntArray:
    """Return the length of each stream in the adaptive code, from its levels by digits."""
    import cupy

    from fpdfp._kernels import adaptive
    from fpdfp._kernels.streams import tables

    counted = []
    for levels in streams:
        sorts = cupy.zeros((-(-levels.size // adaptive.BLOCK), adaptive.SORTS), dtype=np.uint32)
        kernel("sort_levels")((-(-levels.size // SORT_PIECE),), (THREADS,), (levels, np.uint64(levels.size), sorts))
        counted.append(sorts)
    return np.array(
        [adaptive.sorted_length(one.get().astype(np.int64), lowest, highest, tables().logs) for one in counted]
    )


def _tokens(streams: Sequence[Array], lowest: int, highest: int) -> IntArray:
    """Return the length of each stream in rANS, with the shorter of two splits where there are two."""
    import cupy

    from fpdfp._kernels import rans
    from fpdfp._kernels import streams as kernels

    totals = cupy.zeros(len(streams), dtype=np.uint64)
    for i, levels in enumerate(streams):
        kernel("sum_numbers")(_share(levels.size), (THREADS,), (levels, np.uint64(levels.size), totals[i : i + 1]))
    tried: list[tuple[int, int]] = []
    for i, (levels, total) in enumerate(zip(streams, totals.get().tolist(), strict=True)):
        shift = int(rans.shift_for(total, levels.size))
        tried += [(i, h) for h in ({shift, 0} if rans.fits(lowest, highest) else {shift})]
    counts = cupy.zeros((len(tried), rans.TOKENS), dtype=np.uint64)
    for (i, shift), row in zip(tried, counts, strict=True):
        size = streams[i].size
        kernel("count_tokens")(_share(size), (THREADS,), (streams[i], np.uint64(size), np.int32(shift), row))
    lengths = np.full(len(streams), np.iinfo(np.int64).max)
    for (i, shift), row in zip(tried, counts.get().astype(np.int64), strict=True):
        work = np.zeros((kernels.WORKSPACE, rans.TOKENS), dtype=np.int64)
        work[kernels.COUNTS] = row
        plan = np.zeros(kernels.PLAN, dtype=np.int64)
        given = shift, rans.CENTRE, kernels.tables().costs, kernels.NEVER
        length = int(kernels.plan_counted(streams[i].size, *given, work, plan))
        lengths[i] = min(lengths[i], length)
    return lengths


def _share(size: int) -> tuple[int]:
    """Return a grid in which a thread takes 16 levels, or more of very many."""
    return (min(-(-size // (16 * THREADS)), 4096),)


def _elias(streams: Sequence[Array]) -> IntArray:
    """Return the length of each stream in the Elias omega code, dense or sparse, whichever is shorter."""
    import cupy

    from fpdfp._kernels.codes import codeword

    pieces = [-(-levels.size // ELIAS_PIECE) for levels in streams]
    last = cupy.full((len(streams), max(pieces)), -1, dtype=np.int64)
    for levels, warps, row in zip(streams, pieces, last, strict=True):
        kernel("last_nonzero")(grid(32 * warps, 1), (THREADS,), (levels, np.uint64(levels.size), row))
    before = np.full(last.shape, -1)
    before[:, 1:] = np.maximum.accumulate(last.get(), axis=1)[:, :-1]
    known, totals = cupy.asarray(before), cupy.zeros((len(streams), 3), dtype=np.uint64)
    for levels, warps, row, total in zip(streams, pieces, known, totals, strict=True):
        kernel("elias_lengths")(grid(32 * warps, 1), (THREADS,), (levels, np.uint64(levels.size), row, total))
    return np.array(
        [1 + min(dense, sparse + int(codeword(nonzero + 1)[1])) for dense, sparse, nonzero in totals.get().tolist()]
    )
