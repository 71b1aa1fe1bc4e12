"""Rounding on the GPU."""

from __future__ import annotations

import functools
import math
import threading
from typing import Any

import numpy as np

from fpdfp._cuda.source import kernel
from fpdfp._typing import Array

THREADS = 256
L2 = 0
#: As in :mod:`fpdfp._kernels.quantize`.
PIECE = 1024
UNIT = 2.0**900
#: Up to this many pieces, a block's sum is taken in one kernel.
MIDDLE = 512
#: Entries of an array are counted in 32 bits.
MOST_ENTRIES = 2**32 - 512
#: Clients are rows of a grid.
MOST_ROWS = 65_535


def grid(threads: int, rows: int) -> tuple[int, int]:
    """Return the blocks for a given number of threads in each row."""
    return -(-threads // THREADS), rows


def check_size(rows: int, size: int) -> None:
    """Refuse arrays too large for the GPU's kernels."""
    if size > MOST_ENTRIES or rows > MOST_ROWS:
        raise ValueError(
            f"arrays on the GPU may have at most {MOST_ROWS} clients with {MOST_ENTRIES} entries each, "
            f"got {rows} with {size}"
        )


def quantize(
    rounding: int, kind: int, values: Array, block: int, s: int, k0: int, k1: int, tag: int, clients: Array,
    round_: int, levels: Array, scales: Any,
) -> Array:  # fmt: skip
    """Write levels and scales, as :func:`fpdfp._kernels.quantize.quantize` does; return the scales on this machine.

    They are copied while the levels are rounded, so that looking at them holds nothing up.
    """
    rows, size = values.shape
    host, copied = _landing.room(scales.shape)
    if rows == 0 or size == 0:
        return host
    check_size(rows, size)
    fill_scales(kind, values, block, scales)
    scales.get(out=host, blocking=False)
    copied.record()
    u32 = np.uint32
    kernel("quantize", values.dtype.char, rounding)(
        grid(-(-size // 256) * 16, rows),
        (THREADS,),
        (
            values, u32(size), u32(block), u32(scales.shape[1]), np.int32(s), u32(k0), u32(k1),
            u32(tag), _on_device(clients), u32(round_), scales, levels,
        ),
    )  # fmt: skip
    copied.synchronize()
    return host


class _Landing(threading.local):
    """Pinned memory of a thread, to which scales are copied to be looked at, and the event that says they are there."""

    def __init__(self) -> None:
        self.buffer: Any = np.empty(0, dtype=np.float32)
        self.event: Any = None

    def room(self, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """Return an array in that memory, good until the next call."""
        import cupy
        import cupyx

        size = math.prod(shape)
        if self.event is None or size > self.buffer.size:
            self.buffer = cupyx.empty_pinned(max(size, 4096), dtype=np.float32)
            self.event = cupy.cuda.Event(disable_timing=True)
        return self.buffer[:size].reshape(shape), self.event


_landing = _Landing()


def fill_scales(kind: int, values: Array, block: int, scales: Array) -> None:
    """Write the scale of every block."""
    import cupy

    rows, size = values.shape
    blocks, pieces = scales.shape[1], -(-block // PIECE)
    u32, dtype = np.uint32, values.dtype.char
    sums = cupy.empty(scales.shape)
    # Squares of tiny numbers vanish; float32 has none so tiny.
    for unit in (1.0, UNIT) if kind == L2 and dtype == "d" else (1.0,):
        head = (np.int32(kind), np.float64(unit))
        if pieces == 1:
            args = (*head, values, u32(size), u32(block), u32(blocks), sums, scales)
            kernel("short_scales", dtype)(grid(32 * blocks, rows), (THREADS,), args)
            continue
        layout = (u32(size), u32(block), u32(pieces), u32(blocks))
        if pieces <= MIDDLE:
            kernel("middle_scales", dtype)((blocks, rows), (512,), (*head, values, *layout, sums, scales))
        else:
            partial = cupy.empty(rows * blocks * pieces)
            kernel("piece_sums", dtype)(grid(32 * blocks * pieces, rows), (THREADS,), (*head, values, *layout, partial))
            kernel("long_scales")(grid(32 * blocks, rows), (THREADS,), (*head, partial, *layout, sums, scales))


def dequantize(rounding: int, levels: Array, scales: Array, block: int, s: int, out: Array) -> None:
    """Write what levels stand for, as :func:`fpdfp._kernels.quantize.dequantize` does."""
    rows, size = levels.shape
    if rows == 0 or size == 0:
        return
    check_size(rows, size)
    u32 = np.uint32
    kernel("dequantize", out.dtype.char, rounding)(
        grid(-(-size // 4), rows),
        (THREADS,),
        (levels, scales, u32(size), u32(block), u32(scales.shape[1]), np.int32(s), out),
    )


def half(
    random: bool, digits: int, lowest: int, infinity: int, values: Array, k0: int, k1: int, tag: int, clients: Array,
    round_: int, codes: Array, good: Array,
) -> None:  # fmt: skip
    """Write 16-bit numbers, as :func:`fpdfp._kernels.quantize.half` does."""
    import cupy

    rows, size = values.shape
    bad = cupy.zeros(rows, dtype=np.int32)
    if rows and size:
        check_size(rows, size)
        u32, i32 = np.uint32, np.int32
        kernel("half_numbers", values.dtype.char)(
            grid(-(-size // 256) * 64, rows),
            (THREADS,),
            (
                i32(random), i32(digits), i32(lowest), i32(infinity), values, u32(size), u32(k0), u32(k1), u32(tag),
                _on_device(clients), u32(round_), codes, bad,
            ),
        )  # fmt: skip
    good[:] = bad == 0


def multiply(values: Array, factor: float, dtype: Any) -> Array:
    """Return values times a factor, worked out in float64; subnormal numbers, too, which CuPy's own kernels drop."""
    import cupy

    out = cupy.empty(values.shape, dtype=dtype)
    if values.size:
        kernel("multiply", values.dtype.char, out.dtype.char)(
            grid(values.size, 1),
            (THREADS,),
            (cupy.ascontiguousarray(values), np.uint64(values.size), np.float64(factor), out),
        )
    return out


def fill_words(k0: int, k1: int, tag: int, clients: Array, round_: int, out: Array) -> None:
    """Write a word for every client and coordinate, as :func:`fpdfp._kernels.philox.fill_words` does."""
    rows, size = out.shape
    if rows and size:
        check_size(rows, size)
        u32 = np.uint32
        kernel("fill_words")(
            grid(-(-size // 256) * 64, rows),
            (THREADS,),
            (u32(k0), u32(k1), u32(tag), _on_device(clients), u32(round_), u32(size), out),
        )


def _on_device(clients: Any) -> Array:
    """Return client numbers in the memory of the GPU; the same ones come again and again."""
    return _copied(tuple(map(int, clients)))


@functools.lru_cache(maxsize=16)
def _copied(clients: tuple[int, ...]) -> Array:
    import cupy

    return cupy.asarray(clients, dtype=np.int64)
