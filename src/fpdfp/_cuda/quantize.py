"""Rounding on the GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._cuda.source import kernel
from fpdfp._typing import Array

THREADS = 256
L2 = 0
#: As in :mod:`fpdfp._kernels.norms`.
PIECE = 1024
SMALL = 2.0**-960
UNIT = 2.0**900
#: Entries of an array are counted in 32 bits.
MOST_ENTRIES = 2**32 - 512


def grid(threads: int, rows: int) -> tuple[int, int]:
    """Return the blocks for so many threads in each row."""
    return -(-threads // THREADS), rows


def check_size(size: int) -> None:
    """Refuse arrays too large for the GPU's kernels."""
    if size > MOST_ENTRIES:
        raise ValueError(f"arrays on the GPU may have at most {MOST_ENTRIES} entries, got {size}")


def quantize(
    rounding: int, kind: int, values: Array, block: int, s: int, k0: int, k1: int, tag: int, clients: Array,
    round_: int, levels: Array, scales: Array,
) -> None:  # fmt: skip
    """Write levels and scales, as :func:`fpdfp._kernels.quantize.quantize` does."""
    rows, size = values.shape
    if rows == 0 or size == 0:
        return
    check_size(size)
    fill_scales(kind, values, block, scales)
    u32 = np.uint32
    kernel("quantize", values.dtype.name)(
        grid(-(-size // 256) * 64, rows),
        (THREADS,),
        (
            np.int32(rounding), values, u32(size), u32(block), u32(scales.shape[1]), np.int32(s), u32(k0), u32(k1),
            u32(tag), _on_device(clients), u32(round_), scales, levels,
        ),
    )  # fmt: skip


def fill_scales(kind: int, values: Array, block: int, scales: Array) -> None:
    """Write the scale of every block."""
    import cupy

    blocks = scales.shape[1]
    sums = _block_sums(kind, 1.0, values, block, blocks)
    _finish(kind, 1.0, sums, values.shape[1], block, scales)
    if kind == L2 and values.dtype == np.float64:
        # Squares of tiny numbers vanish; float32 has none so tiny.
        tiny = (sums < SMALL).reshape(scales.shape)
        if bool(tiny.any()):
            again = cupy.empty_like(scales)
            _finish(kind, UNIT, _block_sums(kind, UNIT, values, block, blocks), values.shape[1], block, again)
            scales[tiny] = again[tiny]


def _block_sums(kind: int, unit: float, values: Array, block: int, blocks: int) -> Array:
    import cupy

    rows, size = values.shape
    pieces = -(-block // PIECE)
    u32 = np.uint32
    partial = cupy.empty(rows * blocks * pieces)
    kernel("piece_sums", values.dtype.name)(
        grid(32 * blocks * pieces, rows),
        (THREADS,),
        (np.int32(kind), np.float64(unit), values, u32(size), u32(block), u32(pieces), u32(blocks), partial),
    )
    if pieces == 1:
        return partial
    sums = cupy.empty(rows * blocks)
    kernel("block_sums")(grid(32 * blocks, rows), (THREADS,), (np.int32(kind), partial, u32(pieces), u32(blocks), sums))
    return sums


def _finish(kind: int, unit: float, sums: Array, size: int, block: int, scales: Array) -> None:
    rows, blocks = scales.shape
    u32 = np.uint32
    kernel("finish_scales")(
        grid(rows * blocks, 1),
        (THREADS,),
        (np.int32(kind), np.float64(unit), sums, u32(size), u32(block), u32(blocks), u32(rows), scales),
    )


def dequantize(rounding: int, levels: Array, scales: Array, block: int, s: int, out: Array) -> None:
    """Write what levels stand for, as :func:`fpdfp._kernels.quantize.dequantize` does."""
    rows, size = levels.shape
    if rows == 0 or size == 0:
        return
    check_size(size)
    u32 = np.uint32
    kernel("dequantize", out.dtype.name)(
        grid(-(-size // 4), rows),
        (THREADS,),
        (np.int32(rounding), levels, scales, u32(size), u32(block), u32(scales.shape[1]), np.int32(s), out),
    )


def half(
    random: bool, digits: int, lowest: int, infinity: int, values: Array, k0: int, k1: int, tag: int, clients: Array,
    round_: int, codes: Array, good: Array,
) -> None:  # fmt: skip
    """Write 16-bit numbers, as :func:`fpdfp._kernels.half.half` does."""
    import cupy

    rows, size = values.shape
    bad = cupy.zeros(rows, dtype=np.int32)
    if rows and size:
        check_size(size)
        u32, i32 = np.uint32, np.int32
        kernel("half_numbers", values.dtype.name)(
            grid(-(-size // 256) * 64, rows),
            (THREADS,),
            (
                i32(random), i32(digits), i32(lowest), i32(infinity), values, u32(size), u32(k0), u32(k1), u32(tag),
                _on_device(clients), u32(round_), codes, bad,
            ),
        )  # fmt: skip
    good[:] = bad == 0


def fill_words(k0: int, k1: int, tag: int, clients: Array, round_: int, out: Array) -> None:
    """Write a word for every client and coordinate, as :func:`fpdfp._kernels.philox.fill_words` does."""
    rows, size = out.shape
    if rows and size:
        check_size(size)
        u32 = np.uint32
        kernel("fill_words")(
            grid(-(-size // 256) * 64, rows),
            (THREADS,),
            (u32(k0), u32(k1), u32(tag), _on_device(clients), u32(round_), u32(size), out),
        )


def _on_device(clients: Any) -> Array:
    import cupy

    numbers: Array = cupy.asarray(clients, dtype=np.int64)
    return numbers
