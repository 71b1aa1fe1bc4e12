"""What the kernels of ``quantize`` do, in NumPy, to the last bit: for runs that are too short to compile for."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._kernels import norms
from fpdfp._kernels.philox import GROUP
from fpdfp._kernels.philox import LANES as BLOCKS

UNIFORM = 0
EXPONENTIAL = 1
COIN = 2
SIGN = 3

DRAW = 1.0 / 4294967296.0


def draw_words(k0: int, k1: int, tag: int, clients: Any, round_: int, size: int) -> Any:
    """Return a word for every client and coordinate, as :func:`fpdfp._kernels.philox.fill_words` writes them."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    groups = -(-size // GROUP)
    c0: Any = np.arange(groups * BLOCKS, dtype=np.uint64)[None, :]
    c1: Any = np.uint64(tag & 0xFFFFFFFF)
    c3: Any = np.uint64(round_)
    c2: Any = clients.astype(np.uint64)[:, None]
    for turn in range(10):
        p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0 = (p1 >> shift) ^ c1 ^ np.uint64((k0 + turn * 0x9E3779B9) & 0xFFFFFFFF)
        c2 = (p0 >> shift) ^ c3 ^ np.uint64((k1 + turn * 0xBB67AE85) & 0xFFFFFFFF)
        c1, c3 = p1 & low, p0 & low
    words = np.stack([part.reshape(len(clients), groups, BLOCKS) for part in (c0, c1, c2, c3)], axis=2)
    return words.reshape(len(clients), groups * GROUP)[:, :size]


def _tree(lanes: Any) -> Any:
    width = norms.LANES // 2
    while width > 0:
        lanes[:, :width] += lanes[:, width : 2 * width]
        width //= 2
    return lanes[:, 0]


def _sum(squares: bool, values: Any, unit: float) -> Any:
    """Return the sum of |unit · x| or of its squares for each row, in the order of :mod:`fpdfp._kernels.norms`."""
    rows, size = values.shape
    sizes = np.zeros((rows, -(-size // norms.LANES) * norms.LANES))
    sizes[:, :size] = abs(values * unit)
    terms = sizes * sizes if squares else sizes
    pieces = np.zeros((rows, norms.LANES))
    for number, start in enumerate(range(0, size, norms.PIECE)):
        lanes = np.zeros((rows, norms.LANES))
        for base in range(start, min(start + norms.PIECE, terms.shape[1]), norms.LANES):
            lanes += terms[:, base : base + norms.LANES]
        pieces[:, number % norms.LANES] += _tree(lanes)
    return _tree(pieces)


def _block_scales(kind: int, values: Any) -> Any:
    """Return the scale of each row as float32, rounded up."""
    if kind == norms.L2:
        total = _sum(True, values, 1.0)
        scale = np.sqrt(total)
        if (total < norms.SMALL).any():
            scale = np.where(total < norms.SMALL, np.sqrt(_sum(True, values, norms.UNIT)) / norms.UNIT, scale)
    elif kind == norms.MEAN:
        scale = _sum(False, values, 1.0) / values.shape[1]
    else:
        scale = abs(values).max(axis=1)
        if kind == norms.POWER:
            mantissa, exponent = np.frexp(scale)
            power = np.ldexp(1.0, np.maximum(exponent - (mantissa == 0.5), -149))
            scale = np.where((scale > 0) & (scale < np.inf), power, scale)
    rounded = scale.astype(np.float32)
    return np.where(rounded.astype(np.float64) < scale, np.nextafter(rounded, np.float32(np.inf)), rounded)


def _round(rounding: int, values: Any, words: Any, norm: Any, s: int) -> Any:
    """Return the levels of numbers in blocks of the given norms."""
    if rounding == UNIFORM:
        scaled = np.minimum(abs(values) * (s / norm), float(s))
        level = np.floor(scaled)
        return np.copysign(level + ((words + 0.5) * DRAW < scaled - level), values)
    if rounding == EXPONENTIAL:
        ratios = abs(values) / norm
        bits = ratios.view(np.uint64)
        halvings = 1023 - (bits >> np.uint64(52)).astype(np.int64)
        chance = (bits >> np.uint64(20)) & np.uint64(0xFFFFFFFF)
        above = np.maximum(halvings, 0) + ((halvings <= 0) | (words >= chance))
        below = np.where((words + 0.5) * DRAW < ratios * np.ldexp(1.0, s - 1), s, 0)
        level = np.where(halvings < s, above, below)
        return np.where(values < 0, -level, level)
    if rounding == COIN:
        return np.where((words + 0.5) * DRAW < 0.5 + 0.5 * (values / norm), 0, -1)
    return np.where(values < 0, -1, 0)


def quantize(
    rounding: int, kind: int, values: Any, block: int, s: int, k0: int, k1: int, tag: int, clients: Any, round_: int,
    levels: Any, scales: Any,
) -> None:  # fmt: skip
    """Write levels and scales."""
    values = values.astype(np.float64)
    with np.errstate(all="ignore"):
        for b in range(scales.shape[1]):
            scales[:, b] = _block_scales(kind, values[:, b * block : (b + 1) * block])
        norm = _spread(scales, block, values.shape[1])
        words = 0 if rounding == SIGN else draw_words(k0, k1, tag, clients, round_, values.shape[1])
        live = (norm > 0) & (norm < np.inf)
        levels[...] = np.where(live, _round(rounding, values, words, norm, s), 0)


def dequantize(rounding: int, levels: Any, scales: Any, block: int, s: int, out: Any) -> None:
    """Write what the levels stand for."""
    norm = _spread(scales, block, levels.shape[1])
    with np.errstate(all="ignore"):
        if rounding == UNIFORM:
            out[...] = norm / s * levels
        elif rounding == EXPONENTIAL:
            size = np.where(levels != 0, norm * np.ldexp(1.0, 1 - abs(levels)), 0.0)
            out[...] = np.where(levels < 0, -size, size)
        else:
            out[...] = norm * (1 + 2 * levels)


def roundtrip(
    rounding: int, kind: int, values: Any, block: int, s: int, k0: int, k1: int, tag: int, clients: Any, round_: int,
    levels: Any, scales: Any, out: Any,
) -> None:  # fmt: skip
    """Quantize and dequantize."""
    quantize(rounding, kind, values, block, s, k0, k1, tag, clients, round_, levels, scales)
    dequantize(rounding, levels, scales, block, s, out)


def _spread(scales: Any, block: int, size: int) -> Any:
    """Return the scale of every entry."""
    return np.repeat(scales.astype(np.float64), block, axis=1)[:, :size]
