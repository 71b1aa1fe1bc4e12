"""The low-precision quantizer of Definition 1, and the exact length of its codes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float32, float64, int64, prange

from fpdfp._kernels.jit import Kernel, serial
from fpdfp._kernels.philox import GROUP, fill_group

L2 = 0
MAX = 1


@serial
def block_norm(kind: Any, values: Any, start: Any, stop: Any) -> Any:
    """The norm of a block, safe against overflow of the squares, rounded up to float32."""
    largest = 0.0
    for j in range(start, stop):
        # a NaN fails every comparison, so it is caught by hand
        if not abs(values[j]) <= largest:
            largest = float64(abs(values[j]))
            if not largest <= 3.4028234663852886e38:
                return float32(math.inf)
    norm = largest
    if kind == L2 and largest > 0.0:
        total = 0.0
        for j in range(start, stop):
            ratio = values[j] / largest
            total += ratio * ratio
        norm = largest * math.sqrt(total)
    rounded = float32(norm)
    if float64(rounded) < norm:
        rounded = np.nextafter(rounded, float32(math.inf))
    return rounded


def _quantize(
    kind: Any, values: Any, block: Any, s: Any, k0: Any, k1: Any, tag: Any, clients: Any, round_: Any,
    levels: Any, norms: Any,
) -> None:  # fmt: skip
    size = values.shape[1]
    for i in prange(values.shape[0]):
        for b in range(norms.shape[1]):
            norms[i, b] = block_norm(kind, values[i], b * block, min((b + 1) * block, size))
        words = np.empty(GROUP, dtype=np.uint32)
        for start in range(0, size, GROUP):
            fill_group(k0, k1, tag, clients[i], round_, start // GROUP, words)
            stop = min(start + GROUP, size)
            j = start
            while j < stop:
                b = j // block
                end = min(stop, (b + 1) * block)
                norm = float64(norms[i, b])
                scale = s / norm if 0.0 < norm < math.inf else 0.0
                while j < end:
                    scaled = min(abs(values[i, j]) * scale, float64(s))
                    level = math.floor(scaled)
                    if (words[j - start] + 0.5) * (1.0 / 4294967296.0) < scaled - level:
                        level += 1.0
                    levels[i, j] = int64(level) if values[i, j] >= 0 else -int64(level)
                    j += 1


def _dequantize(levels: Any, norms: Any, block: Any, s: Any, out: Any) -> None:
    size = levels.shape[1]
    for i in prange(levels.shape[0]):
        for b in range(norms.shape[1]):
            unit = float64(norms[i, b]) / s
            for j in range(b * block, min((b + 1) * block, size)):
                out[i, j] = unit * levels[i, j]


@serial
def omega_length(k: Any) -> Any:
    """The length in bits of the Elias omega code of k ≥ 1."""
    length = 1
    while k > 1:
        bits = 0
        rest = k
        while rest > 0:
            bits += 1
            rest >>= 1
        length += bits
        k = bits - 1
    return length


def _elias_bits(levels: Any, norms: Any, block: Any, table: Any, bits: Any) -> None:
    size = levels.shape[1]
    for i in prange(levels.shape[0]):
        dense = 0
        sparse = 0
        for b in range(norms.shape[1]):
            if norms[i, b] == 0:
                continue
            start = b * block
            last = start - 1
            count = 0
            for j in range(start, min(start + block, size)):
                level = abs(levels[i, j])
                dense += table[level + 1] if level + 1 < table.size else omega_length(int64(level) + 1)
                if level > 0:
                    dense += 1
                    gap = j - last
                    sparse += 1
                    sparse += table[gap] if gap < table.size else omega_length(int64(gap))
                    sparse += table[level] if level < table.size else omega_length(int64(level))
                    last = j
                    count += 1
            sparse += omega_length(int64(count) + 1)
        bits[i] = 1 + min(dense, sparse)


quantize = Kernel(_quantize)
dequantize = Kernel(_dequantize)
elias_bits = Kernel(_elias_bits)
