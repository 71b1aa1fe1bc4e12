"""Rounding blocks of numbers at random to levels, and back; to 16 bits; and which numbers are the largest.

The scale of a block is its l2 norm, its largest entry, its mean size, or a power of two. Sums are taken in an order
that is written down, so that a processor and a GPU find the same number: 64 lanes, of which lane j adds up entries j,
j + 64, j + 128, … of each piece of 1024 entries. The lanes are added as a tree (lane j and lane j + 32, then j and
j + 16, …). The pieces' sums are added in the same way: lane j takes pieces j, j + 64, ….

NumPy does the same, to the last bit, in runs that are too short to compile for.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float32, float64, int64, prange, uint64

from fpdfp._kernels import streams
from fpdfp._kernels.jit import SMALL, inline, serial, threaded, until_compiled
from fpdfp._kernels.philox import BLOCKS, GROUP, fill_group

#: How entries are rounded.
UNIFORM, EXPONENTIAL, COIN, SIGN = range(4)
#: What the scale of a block is.
L2, MAX, MEAN, POWER = range(4)

#: A word times this is below 1.
DRAW = 1.0 / 4294967296.0
LANES = 64
PIECE = 1024
#: Below this a sum of squares may have lost digits, and is taken again over larger numbers.
TINY = 2.0**-960
UNIT = 2.0**900
#: Bits of the digits by which the largest keys are found.
DIGIT = 11
#: About what compiling one of the three kernels takes, in seconds.
PATIENCE = 2.0


@serial
def _tree(lanes: Any) -> Any:
    width = LANES // 2
    while width > 0:
        for j in range(width):
            lanes[j] += lanes[j + width]
        width //= 2
    return lanes[0]


@serial
def _sum(squares: Any, values: Any, unit: Any, lanes: Any, pieces: Any) -> Any:
    """Return the sum of |unit · x| or of its squares."""
    pieces[:] = 0.0
    for start in range(0, values.size, PIECE):
        stop = min(start + PIECE, values.size)
        whole = start + (stop - start) // LANES * LANES
        lanes[:] = 0.0
        for base in range(start, whole, LANES):
            for j in range(LANES):
                x = abs(float64(values[uint64(base) + uint64(j)]) * unit)
                lanes[j] += x * x if squares else x
        for j in range(whole, stop):
            x = abs(float64(values[uint64(j)]) * unit)
            lanes[j - whole] += x * x if squares else x
        pieces[(start // PIECE) % LANES] += _tree(lanes)
    return _tree(pieces)


@serial
def _largest(values: Any, lanes: Any) -> Any:
    """Return the largest |x|, or NaN if there is one."""
    lanes[:] = 0.0
    whole = values.size // LANES * LANES
    for base in range(0, whole, LANES):
        for j in range(LANES):
            x = abs(float64(values[uint64(base) + uint64(j)]))
            # written so that NaN, which fails every comparison, replaces a number and is not replaced
            lanes[j] = lanes[j] if x <= lanes[j] or lanes[j] != lanes[j] else x
    largest = 0.0
    for j in range(LANES):
        largest = largest if lanes[j] <= largest or largest != largest else lanes[j]
    for j in range(whole, values.size):
        x = abs(float64(values[uint64(j)]))
        largest = largest if x <= largest or largest != largest else x
    return largest


@serial
def block_scale(kind: Any, values: Any, lanes: Any, pieces: Any) -> Any:
    """The scale of a block as a float32, rounded up; infinity or NaN if it has none."""
    if kind == L2:
        total = _sum(True, values, 1.0, lanes, pieces)
        scale = math.sqrt(total)
        if total < TINY:
            scale = math.sqrt(_sum(True, values, UNIT, lanes, pieces)) / UNIT
    elif kind == MEAN:
        scale = _sum(False, values, 1.0, lanes, pieces) / values.size
    else:
        scale = _largest(values, lanes)
        if kind == POWER and 0.0 < scale < math.inf:
            mantissa, exponent = math.frexp(scale)
            scale = math.ldexp(1.0, int64(max(exponent - 1 if mantissa == 0.5 else exponent, -149)))
    rounded = float32(scale)
    if float64(rounded) < scale:
        rounded = np.nextafter(rounded, float32(math.inf))
    return rounded


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


def _tree_plainly(lanes: Any) -> Any:
    width = LANES // 2
    while width > 0:
        lanes[:, :width] += lanes[:, width : 2 * width]
        width //= 2
    return lanes[:, 0]


def _sum_plainly(squares: bool, values: Any, unit: float) -> Any:
    """Return the sum of |unit · x| or of its squares for each row, in the order of :func:`_sum`."""
    rows, size = values.shape
    sizes = np.zeros((rows, -(-size // LANES) * LANES))
    sizes[:, :size] = abs(values * unit)
    terms = sizes * sizes if squares else sizes
    pieces = np.zeros((rows, LANES))
    for number, start in enumerate(range(0, size, PIECE)):
        lanes = np.zeros((rows, LANES))
        for base in range(start, min(start + PIECE, terms.shape[1]), LANES):
            lanes += terms[:, base : base + LANES]
        pieces[:, number % LANES] += _tree_plainly(lanes)
    return _tree_plainly(pieces)


def _block_scales(kind: int, values: Any) -> Any:
    """Return the scale of each row as float32, rounded up."""
    if kind == L2:
        total = _sum_plainly(True, values, 1.0)
        scale = np.sqrt(total)
        if (total < TINY).any():
            scale = np.where(total < TINY, np.sqrt(_sum_plainly(True, values, UNIT)) / UNIT, scale)
    elif kind == MEAN:
        scale = _sum_plainly(False, values, 1.0) / values.shape[1]
    else:
        scale = abs(values).max(axis=1)
        if kind == POWER:
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


def _quantize_plainly(
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


def _dequantize_plainly(rounding: int, levels: Any, scales: Any, block: int, s: int, out: Any) -> None:
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


def _roundtrip_plainly(
    rounding: int, kind: int, values: Any, block: int, s: int, k0: int, k1: int, tag: int, clients: Any, round_: int,
    levels: Any, scales: Any, out: Any,
) -> None:  # fmt: skip
    """Quantize and dequantize."""
    _quantize_plainly(rounding, kind, values, block, s, k0, k1, tag, clients, round_, levels, scales)
    _dequantize_plainly(rounding, levels, scales, block, s, out)


def _spread(scales: Any, block: int, size: int) -> Any:
    """Return the scale of every entry."""
    return np.repeat(scales.astype(np.float64), block, axis=1)[:, :size]


def _is_small(*args: Any) -> bool:
    """Whether NumPy does a row of levels in reasonable time and memory."""
    return all(arg.size <= SMALL for arg in args if isinstance(arg, np.ndarray))


@until_compiled(_quantize_plainly, _is_small, PATIENCE)
@threaded
def quantize(
    rounding: Any, kind: Any, values: Any, block: Any, s: Any, k0: Any, k1: Any, tag: Any, clients: Any, round_: Any,
    levels: Any, scales: Any,
) -> None:  # fmt: skip
    for i in prange(values.shape[0]):
        quantize_row(
            rounding, kind, values[i], block, s, k0, k1, tag, clients[i], round_, levels[i], scales[i], make_room()
        )  # fmt: skip


@until_compiled(_dequantize_plainly, _is_small, PATIENCE)
@threaded
def dequantize(rounding: Any, levels: Any, scales: Any, block: Any, s: Any, out: Any) -> None:
    for i in prange(levels.shape[0]):
        dequantize_row(rounding, levels[i], scales[i], block, s, out[i])


@until_compiled(_roundtrip_plainly, _is_small, PATIENCE)
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

    They include its levels and ``added``. Returns whether all scales are finite.
    """
    count, size = values.shape
    levels, scales = np.empty((count, size), dtype=np.int32), np.empty((count, -(-size // block)), dtype=np.float32)
    roundtrip(rounding, kind, values, block, s, k0, k1, tag, clients, round_, levels, scales, out)
    streams.count_bits(code, levels, scales, block, lowest, highest, omega, costs, logs, bits)
    bits += added
    return bool(np.isfinite(scales).all())


@until_compiled(compress_in_steps, lambda *_: True, PATIENCE + streams.PATIENCE)
@serial
def compress_at_once(
    rounding: Any, kind: Any, values: Any, block: Any, s: Any, k0: Any, k1: Any, tag: Any, clients: Any, round_: Any,
    code: Any, lowest: Any, highest: Any, omega: Any, costs: Any, logs: Any, added: Any, out: Any, bits: Any,
) -> Any:  # fmt: skip
    """Do the same in one call, for small arrays: calls would take longer than what they do."""
    count, size = values.shape
    room, (work, plan) = make_room(), streams.make_room()
    levels, scales = np.empty(size, dtype=np.int32), np.empty((size + block - 1) // block, dtype=np.float32)
    finite = True
    for i in range(count):
        quantize_row(rounding, kind, values[i], block, s, k0, k1, tag, clients[i], round_, levels, scales, room)
        dequantize_row(rounding, levels, scales, block, s, out[i])
        streams.count_row(code, levels, scales, block, lowest, highest, omega, costs, logs, work, plan)
        bits[i] = plan[streams.BITS] + added
        for b in range(scales.size):
            finite = finite and math.isfinite(scales[b])
    return finite


@serial
def half_row(
    random: Any, digits: Any, lowest: Any, infinity: Any, values: Any, k0: Any, k1: Any, tag: Any, client: Any,
    round_: Any, codes: Any,
) -> Any:  # fmt: skip
    """Write the 16 bits of each number: a sign, an exponent from ``lowest`` on, ``digits`` digits after the first.

    Return whether every number has a finite neighbour on both sides.
    """
    words = np.empty(GROUP, dtype=np.uint32)
    good = True
    for start in range(0, values.size, GROUP):
        if random:
            fill_group(k0, k1, tag, client, round_, start // GROUP, words)
        for j in range(start, min(start + GROUP, values.size)):
            size = abs(float64(values[j]))
            if not size < math.inf:
                good = False
                continue
            exponent = max(int64(math.frexp(size)[1]) - 1, lowest) if size > 0.0 else lowest
            scaled = math.ldexp(size, int64(digits - exponent))
            whole = math.floor(scaled)
            rest = scaled - whole
            if random:
                up = (words[j - start] + 0.5) * DRAW < rest
            else:
                up = rest > 0.5 or (rest == 0.5 and int64(whole) % 2 == 1)
            code = ((exponent - lowest) << digits) + int64(whole) + (1 if up else 0)
            good = good and code < infinity
            codes[j] = code | (0x8000 if values[j] < 0 else 0)
    return good


@threaded
def half(
    random: Any, digits: Any, lowest: Any, infinity: Any, values: Any, k0: Any, k1: Any, tag: Any, clients: Any,
    round_: Any, codes: Any, good: Any,
) -> None:  # fmt: skip
    for i in prange(values.shape[0]):
        good[i] = half_row(
            random, digits, lowest, infinity, values[i], k0, k1, tag, clients[i], round_, codes[i]
        )  # fmt: skip


@serial
def select_row(keys: Any, width: Any, k: Any, chosen: Any) -> None:
    """Write 1 for the k largest of the keys, of those that are equal the first ones, and 0 for the others.

    The k-th largest is found a digit of 11 bits at a time, from the top.
    """
    counts = np.empty(1 << DIGIT, dtype=np.int64)
    prefix = uint64(0)
    above = int64(0)
    shift = width
    while shift > 0:
        size = min(DIGIT, shift)
        before = shift
        shift -= size
        counts[:] = 0
        mask = (uint64(1) << uint64(size)) - uint64(1)
        for j in range(keys.size):
            key = uint64(keys[uint64(j)])
            if before >= 64 or (key >> uint64(before)) == prefix:
                counts[(key >> uint64(shift)) & mask] += 1
        digit = (1 << size) - 1
        while digit > 0 and above + counts[digit] < k:
            above += counts[digit]
            digit -= 1
        prefix = (prefix << uint64(size)) | uint64(digit)
    ties = k - above
    for j in range(keys.size):
        key = uint64(keys[uint64(j)])
        if key == prefix and ties > 0:
            chosen[uint64(j)] = 1
            ties -= 1
        else:
            chosen[uint64(j)] = 1 if key > prefix else 0


@threaded
def select_largest(keys: Any, width: Any, k: Any, chosen: Any) -> None:
    for i in prange(keys.shape[0]):
        select_row(keys[i], width, k, chosen[i])
