"""The low-precision quantizer of Definition 1, and the exact length of its codes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float32, float64, int64, prange, uint64

from fpdfp._kernels.jit import serial, threaded
from fpdfp._kernels.philox import GROUP, fill_group

L2 = 0
MAX = 1
ELIAS = 0
FIXED = 1
#: The bits of a block's norm, a float32.
NORM_BITS = 32
LARGEST_FLOAT32 = 3.4028234663852886e38


@serial
def block_norm(kind: Any, values: Any) -> Any:
    """The norm of a block as a float32, rounded up; infinity if it has none."""
    largest = 0.0
    refused = 0
    for j in range(values.size):
        size = float64(abs(values[j]))
        refused += 0 if size <= LARGEST_FLOAT32 else 1  # counts NaN, which fails every comparison
        largest = size if size > largest else largest
    if refused > 0:
        return float32(math.inf)
    norm = largest
    if kind == L2 and largest > 0.0:
        # Scaled by a power of two, which is exact, so that no square overflows or vanishes.
        unit = 2.0 ** min(-math.floor(math.log2(largest)), 1000.0)
        s0 = s1 = s2 = s3 = 0.0
        whole = values.size - values.size % 4
        for j in range(0, whole, 4):
            a, b, c, e = values[j] * unit, values[j + 1] * unit, values[j + 2] * unit, values[j + 3] * unit
            s0 += a * a
            s1 += b * b
            s2 += c * c
            s3 += e * e
        for j in range(whole, values.size):
            a = values[j] * unit
            s0 += a * a
        norm = math.sqrt((s0 + s2) + (s1 + s3)) / unit
    rounded = float32(norm)
    if float64(rounded) < norm:
        rounded = np.nextafter(rounded, float32(math.inf))
    return rounded


@serial
def round_levels(values: Any, words: Any, scale: Any, s: Any, levels: Any) -> None:
    """Round |x_i| s/‖x‖ up or down at random, and put the sign on."""
    for j in range(values.size):
        scaled = min(abs(values[j]) * scale, float64(s))
        level = math.floor(scaled)
        up = 1.0 if (words[j] + 0.5) * (1.0 / 4294967296.0) < scaled - level else 0.0
        levels[j] = math.copysign(level + up, values[j])


@serial
def quantize_row(
    kind: Any, values: Any, block: Any, s: Any, k0: Any, k1: Any, tag: Any, client: Any, round_: Any,
    levels: Any, norms: Any,
) -> None:  # fmt: skip
    """Quantize one client's array."""
    for b in range(norms.size):
        norms[b] = block_norm(kind, values[b * block : (b + 1) * block])
    words = np.empty(GROUP, dtype=np.uint32)
    for start in range(0, values.size, GROUP):
        fill_group(k0, k1, tag, client, round_, start // GROUP, words)
        stop = min(start + GROUP, values.size)
        j = start
        while j < stop:
            b = j // block
            end = min(stop, (b + 1) * block)
            norm = float64(norms[b])
            if 0.0 < norm < math.inf:
                round_levels(values[j:end], words[j - start : end - start], s / norm, s, levels[j:end])
            else:
                levels[j:end] = 0
            j = end


@serial
def dequantize_row(levels: Any, norms: Any, block: Any, s: Any, out: Any) -> None:
    """Write norm · level / s."""
    for b in range(norms.size):
        unit = float64(norms[b]) / s
        # slices, because a loop from 0 needs no code for negative indices
        source = levels[b * block : (b + 1) * block]
        target = out[b * block : (b + 1) * block]
        for j in range(source.size):
            target[j] = unit * source[j]


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


@serial
def code_length(k: Any, table: Any) -> Any:
    """The same, looked up where the table has it."""
    return table[uint64(k)] if k < table.size else omega_length(int64(k))


@serial
def bits_row(codec: Any, levels: Any, norms: Any, block: Any, s: Any, table: Any) -> Any:
    """The exact length in bits of one client's message."""
    total = NORM_BITS * norms.size
    if codec == FIXED:
        width = fixed_width(2 * s)
        for b in range(norms.size):
            if norms[b] > 0:
                total += width * levels[b * block : (b + 1) * block].size
        return total
    dense = 0
    sparse = 0
    for b in range(norms.size):
        if norms[b] == 0:
            continue
        part = levels[b * block : (b + 1) * block]
        last = -1
        count = 0
        for j in range(part.size):
            level = int64(abs(part[j]))
            dense += code_length(level + 1, table)
            if level > 0:
                sparse += code_length(j - last, table) + code_length(level, table)
                last = j
                count += 1
        dense += count
        sparse += count + code_length(count + 1, table)
    return total + 1 + min(dense, sparse)


@serial
def fixed_width(largest: Any) -> Any:
    """How many bits the integers from 0 to ``largest`` need."""
    width = 0
    while largest > 0:
        width += 1
        largest >>= 1
    return width


@threaded
def quantize(
    kind: Any, values: Any, block: Any, s: Any, k0: Any, k1: Any, tag: Any, clients: Any, round_: Any,
    levels: Any, norms: Any,
) -> None:  # fmt: skip
    for i in prange(values.shape[0]):
        quantize_row(kind, values[i], block, s, k0, k1, tag, clients[i], round_, levels[i], norms[i])


@threaded
def dequantize(levels: Any, norms: Any, block: Any, s: Any, out: Any) -> None:
    for i in prange(levels.shape[0]):
        dequantize_row(levels[i], norms[i], block, s, out[i])


@threaded
def count_bits(codec: Any, levels: Any, norms: Any, block: Any, s: Any, table: Any, bits: Any) -> None:
    for i in prange(levels.shape[0]):
        bits[i] = bits_row(codec, levels[i], norms[i], block, s, table)


@threaded
def roundtrip(
    kind: Any, codec: Any, values: Any, block: Any, s: Any, k0: Any, k1: Any, tag: Any, clients: Any, round_: Any,
    table: Any, norms: Any, out: Any, bits: Any,
) -> None:  # fmt: skip
    for i in prange(values.shape[0]):
        levels = np.empty(values.shape[1], dtype=np.int32)
        quantize_row(kind, values[i], block, s, k0, k1, tag, clients[i], round_, levels, norms[i])
        dequantize_row(levels, norms[i], block, s, out[i])
        bits[i] = bits_row(codec, levels, norms[i], block, s, table)
