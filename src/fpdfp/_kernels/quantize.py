"""Rounding blocks of numbers at random to levels, and back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float64, int64, prange, uint64

from fpdfp._kernels import measure, rounding
from fpdfp._kernels.jit import SMALL, inline, serial, threaded, until_compiled
from fpdfp._kernels.norms import LANES, block_scale
from fpdfp._kernels.philox import GROUP, fill_group

UNIFORM, EXPONENTIAL, COIN, SIGN = rounding.UNIFORM, rounding.EXPONENTIAL, rounding.COIN, rounding.SIGN
DRAW = rounding.DRAW
#: About what compiling one of the three kernels takes, in seconds.
PATIENCE = 2.0


def _is_small(*args: Any) -> bool:
    """Whether NumPy does a row of levels in reasonable time and memory."""
    return all(arg.size <= SMALL for arg in args if isinstance(arg, np.ndarray))


@serial
def round_uniform(values: Any, words: Any, scale: Any, s: Any, levels: Any) -> None:
    """Round |x| s/‖x‖ up or down at random, and put the sign on."""
    for j in range(values.size):
        scaled = min(abs(values[j]) * scale, float64(s))
        level = math.floor(scaled)
        up = 1.0 if (words[j] + 0.5) * DRAW < scaled - level else 0.0
        levels[j] = math.copysign(level + up, values[j])


@serial
def round_exponential(values: Any, words: Any, norm: Any, s: Any, ratios: Any, levels: Any) -> None:
    """Round |x|/‖x‖ to 1, 1/2, …, 2^(1 − s) or 0: levels 1, 2, …, s, 0, and put the sign on."""
    bits = ratios.view(np.uint64)
    for j in range(values.size):
        ratios[j] = abs(float64(values[j])) / norm
    finest = math.ldexp(1.0, int64(s - 1))
    for j in range(values.size):
        halvings = 1023 - int64(bits[j] >> uint64(52))
        if halvings < s:
            # The 32 leading digits after the first are the chance of the larger power, 2^-32 short at most.
            chance = (bits[j] >> uint64(20)) & uint64(0xFFFFFFFF)
            level = max(halvings, 0) + (1 if halvings <= 0 or uint64(words[j]) >= chance else 0)
        else:
            level = s if (words[j] + 0.5) * DRAW < ratios[j] * finest else 0
        levels[j] = -level if values[j] < 0 else level


@serial
def round_sign(coin: Any, values: Any, words: Any, norm: Any, levels: Any) -> None:
    """Keep the sign, as level 0 for plus and −1 for minus; or draw it, with the chances that keep the mean."""
    if coin:
        for j in range(values.size):
            plus = 0.5 + 0.5 * (float64(values[j]) / norm)
            levels[j] = 0 if (words[j] + 0.5) * DRAW < plus else -1
    else:
        for j in range(values.size):
            levels[j] = -1 if values[j] < 0 else 0


@inline
def make_room() -> Any:
    """Return the room that quantizing takes: to make it for every row would take as long as a short row does."""
    return np.empty(LANES), np.empty(LANES), np.empty(GROUP, dtype=np.uint32), np.empty(GROUP)


@serial
def quantize_row(
    rounding: Any, kind: Any, values: Any, block: Any, s: Any, k0: Any, k1: Any, tag: Any, client: Any, round_: Any,
    levels: Any, scales: Any, room: Any,
) -> None:  # fmt: skip
    """Quantize one client's array."""
    lanes, pieces, words, ratios = room
    for b in range(scales.size):
        scales[b] = block_scale(kind, values[b * block : (b + 1) * block], lanes, pieces)
    for start in range(0, values.size, GROUP):
        if rounding != SIGN:
            fill_group(k0, k1, tag, client, round_, start // GROUP, words)
        stop = min(start + GROUP, values.size)
        j = start
        while j < stop:
            b = j // block
            end = min(stop, (b + 1) * block)
            part, draws, target = values[j:end], words[j - start : end - start], levels[j:end]
            norm = float64(scales[b])
            if not 0.0 < norm < math.inf:
                target[:] = 0
            elif rounding == UNIFORM:
                round_uniform(part, draws, s / norm, s, target)
            elif rounding == EXPONENTIAL:
                round_exponential(part, draws, norm, s, ratios, target)
            else:
                round_sign(rounding == COIN, part, draws, norm, target)
            j = end


@serial
def dequantize_row(rounding: Any, levels: Any, scales: Any, block: Any, s: Any, out: Any) -> None:
    """Write what the levels stand for."""
    for b in range(scales.size):
        norm = float64(scales[b])
        # slices, because a loop from 0 needs no code for negative indices
        source = levels[b * block : (b + 1) * block]
        target = out[b * block : (b + 1) * block]
        if rounding == UNIFORM:
            unit = norm / s
            for j in range(source.size):
                target[j] = unit * source[j]
        elif rounding == EXPONENTIAL:
            for j in range(source.size):
                level = int64(source[j])
                size = norm * math.ldexp(1.0, 1 - abs(level)) if level != 0 else 0.0
                target[j] = -size if level < 0 else size
        else:
            for j in range(source.size):
                target[j] = norm * (1 + 2 * source[j])


@until_compiled(rounding.quantize, _is_small, PATIENCE)
@threaded
def quantize(
    rounding: Any, kind: Any, values: Any, block: Any, s: Any, k0: Any, k1: Any, tag: Any, clients: Any, round_: Any,
    levels: Any, scales: Any,
) -> None:  # fmt: skip
    for i in prange(values.shape[0]):
        quantize_row(
            rounding, kind, values[i], block, s, k0, k1, tag, clients[i], round_, levels[i], scales[i], make_room()
        )  # fmt: skip


@until_compiled(rounding.dequantize, _is_small, PATIENCE)
@threaded
def dequantize(rounding: Any, levels: Any, scales: Any, block: Any, s: Any, out: Any) -> None:
    for i in prange(levels.shape[0]):
        dequantize_row(rounding, levels[i], scales[i], block, s, out[i])


@until_compiled(rounding.roundtrip, _is_small, PATIENCE)
@threaded
def roundtrip(
    rounding: Any, kind: Any, values: Any, block: Any, s: Any, k0: Any, k1: Any, tag: Any, clients: Any, round_: Any,
    levels: Any, scales: Any, out: Any,
) -> None:  # fmt: skip
    """Quantize and dequantize."""
    for i in prange(values.shape[0]):
        quantize_row(
            rounding, kind, values[i], block, s, k0, k1, tag, clients[i], round_, levels[i], scales[i], make_room()
        )  # fmt: skip
        dequantize_row(rounding, levels[i], scales[i], block, s, out[i])


def compress_in_steps(
    rounding: int, kind: int, values: Any, block: int, s: int, k0: int, k1: int, tag: int, clients: Any, round_: int,
    code: int, lowest: int, highest: int, omega: Any, costs: Any, logs: Any, added: int, out: Any, bits: Any,
) -> bool:  # fmt: skip
    """Quantize and dequantize, with threads where that is sooner done, and count the bits of each message.

    They are those of its levels, and ``added``. Returns whether all scales are finite.
    """
    count, size = values.shape
    levels, scales = np.empty((count, size), dtype=np.int32), np.empty((count, -(-size // block)), dtype=np.float32)
    roundtrip(rounding, kind, values, block, s, k0, k1, tag, clients, round_, levels, scales, out)
    measure.count_bits(code, levels, scales, block, lowest, highest, omega, costs, logs, bits)
    bits += added
    return bool(np.isfinite(scales).all())


@until_compiled(compress_in_steps, lambda *_: True, PATIENCE + measure.PATIENCE)
@serial
def compress_at_once(
    rounding: Any, kind: Any, values: Any, block: Any, s: Any, k0: Any, k1: Any, tag: Any, clients: Any, round_: Any,
    code: Any, lowest: Any, highest: Any, omega: Any, costs: Any, logs: Any, added: Any, out: Any, bits: Any,
) -> Any:  # fmt: skip
    """Do the same in one call, for small arrays: calls would take longer than what they do."""
    count, size = values.shape
    room, (work, plan) = make_room(), measure.make_room()
    levels, scales = np.empty(size, dtype=np.int32), np.empty((size + block - 1) // block, dtype=np.float32)
    finite = True
    for i in range(count):
        quantize_row(rounding, kind, values[i], block, s, k0, k1, tag, clients[i], round_, levels, scales, room)
        dequantize_row(rounding, levels, scales, block, s, out[i])
        measure.count_row(code, levels, scales, block, lowest, highest, omega, costs, logs, work, plan)
        bits[i] = plan[measure.BITS] + added
        for b in range(scales.size):
            finite = finite and math.isfinite(scales[b])
    return finite
