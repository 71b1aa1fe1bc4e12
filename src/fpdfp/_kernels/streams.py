"""The streams of many short messages, written and read in one call: what surrounds a call costs more than a stream.

The layouts are those of :mod:`fpdfp.compress.codecs`, which also handles long messages and reports what is wrong with a
stream.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, uint8, uint16, uint32, uint64

from fpdfp._kernels import adaptive, elias, fixed, measure, rans, tokens
from fpdfp._kernels.bits import bit_length, carry
from fpdfp._kernels.jit import serial


@serial
def encode_rows(
    code: Any, levels: Any, scales: Any, block: Any, lowest: Any, highest: Any, omega: Any, costs: Any, logs: Any,
    codes: Any, ends: Any,
) -> Any:  # fmt: skip
    """Return the streams of all rows, one after the other; write the code and the end of each.

    Rows are shorter than :data:`rans.MANY`.
    """
    count, size = levels.shape
    kept = np.empty((count, size), dtype=np.int32)
    live = np.empty(count, dtype=np.int64)
    work = np.zeros((count, measure.WORKSPACE, tokens.TOKENS), dtype=np.int64)
    plan = np.zeros((count, measure.PLAN), dtype=np.int64)
    at = int64(0)
    for i in range(count):
        live[i] = measure.live_levels(levels[i], scales[i], block, kept[i])
        if live[i] > 0:
            row = kept[i, : live[i]]
            measure.plan_stream(code, row, lowest, highest, omega, costs, logs, work[i], plan[i])
        at += (plan[i, measure.BITS] + 7) >> 3
        codes[i] = plan[i, measure.CODE]
        ends[i] = at
    out = np.empty(at, dtype=np.uint8)
    at = int64(0)
    for i in range(count):
        row = kept[i, : live[i]]
        if codes[i] == measure.RANS:
            _encode_rans(row, work[i], plan[i], out, at)
        elif codes[i] == measure.ADAPTIVE:
            bits = plan[i, measure.BITS]
            if adaptive.encode(row, lowest, highest, bits, logs, out[at : ends[i]]) != bits:
                raise AssertionError("a stream is not as long as was foreseen")
        elif live[i] > 0:
            bits = plan[i, measure.BITS]
            words = np.empty(bits // 32 + 2, dtype=np.uint32)
            written = int64(0)
            if codes[i] == measure.FIXED:
                written = fixed.encode(row, lowest, bit_length(highest - lowest), words)
            elif plan[i, measure.SPARSE] != 0:
                written = elias.encode_sparse(row, omega, words)
            else:
                written = elias.encode_dense(row, omega, words)
            if written != bits:
                raise AssertionError("a stream is not as long as was foreseen")
            _put_words(words, ends[i] - at, out, at)
        at = ends[i]
    return out


@serial
def _put_words(words: Any, count: Any, out: Any, at: Any) -> None:
    """Write the first bytes of words."""
    for b in range(count):
        out[at + b] = uint8(words[b >> 2] >> uint32(8 * (b & 3)))


@serial
def _encode_rans(levels: Any, work: Any, plan: Any, out: Any, at: Any) -> None:
    """Write a stream of one state."""
    frequencies = work[measure.FREQUENCIES]
    shift, model, bound = plan[measure.SHIFT], plan[measure.MODEL], plan[measure.WORDS]
    escapes = work[measure.COUNTS, tokens.ESCAPE]
    out[at] = uint8(shift | (model << 5) | ((1 if escapes > 0 else 0) << 7))
    at += 1
    if escapes > 0:
        for b in range(4):
            out[at + b] = uint8(escapes >> (8 * b))
        at += 4
    if model == tokens.EXPLICIT:
        at = _put_table(frequencies, plan[measure.FIRST], plan[measure.LAST], escapes > 0, out, at)
    else:
        out[at] = uint8(plan[measure.REACH])
        out[at + 1] = uint8(plan[measure.ZEROS])
        out[at + 2] = uint8(plan[measure.RATE])
        at += 3
    shares = np.empty(tokens.TOKENS, dtype=np.uint64)
    starts = np.empty(tokens.TOKENS, dtype=np.uint64)
    inverses = np.empty(tokens.TOKENS, dtype=np.float64)
    total = uint64(0)
    for t in range(tokens.TOKENS):
        shares[t] = uint64(frequencies[t])
        starts[t] = total
        total += shares[t]
        inverses[t] = np.nextafter(1.0 / max(frequencies[t], 1), np.inf)
        if work[measure.COUNTS, t] > 0 and frequencies[t] == 0:
            raise AssertionError("a token has no frequency")
    if total != tokens.TOTAL:
        raise AssertionError("frequencies do not add up")
    states = np.empty(1, dtype=np.uint64)
    words = np.empty(bound + 1, dtype=np.uint16)
    begin = int64(rans.encode(levels, shift, shares, starts, inverses, states, words))
    for b in range(rans.STATE_BYTES):
        out[at + b] = uint8(states[0] >> uint64(8 * b))
    at += rans.STATE_BYTES
    for w in range(begin, bound + 1):
        out[at] = uint8(words[w])
        out[at + 1] = uint8(words[w] >> uint16(8))
        at += 2
    for _ in range(2 * (begin - 1)):
        out[at] = 0
        at += 1
    bits = (levels.size - escapes) * shift + 32 * escapes
    if bits > 0:
        rest = np.empty(bits // 32 + 2, dtype=np.uint32)
        rans.encode_rest(levels, shift, rest)
        _put_words(rest, (bits + 7) >> 3, out, at)


@serial
def _put_table(frequencies: Any, first: Any, last: Any, escapes: Any, out: Any, at: Any) -> Any:
    """Write a table of frequencies, and return where it ends."""
    out[at] = uint8(first)
    out[at + 1] = uint8(last)
    # A gamma code of a number up to 4097 has 25 bits.
    words = np.empty(tokens.TOKENS + 2, dtype=np.uint32)
    pending, fill, word = uint64(0), 0, 0
    for place in range(first, last + (2 if escapes else 1)):
        frequency = frequencies[place if place <= last else tokens.ESCAPE]
        code, length = elias.gamma_codeword(frequency + 1)
        pending, fill = pending | (code << uint64(fill)), fill + length
        words[word] = uint32(pending)
        pending, fill, word = carry(pending, fill, word)
    words[word] = uint32(pending)
    count = (32 * word + fill + 7) >> 3
    _put_words(words, count, out, at + 2)
    return at + 2 + count


@serial
def decode_rows(
    data: Any, ends: Any, codes: Any, block: Any, lowest: Any, highest: Any, logs: Any, levels: Any, scales: Any
) -> Any:  # fmt: skip
    """Read the scales and levels of bodies that stand one after the other; return whether all could be read.

    A body that is damaged and one in a code that is not read here make no difference: reading it alone tells.
    """
    count, size = levels.shape
    n_blocks = scales.shape[1]
    room = np.empty(size, dtype=np.int32)
    begin = int64(0)
    for i in range(count):
        end = ends[i]
        if end - begin < 4 * n_blocks:
            return False
        live = int64(0)
        for b in range(n_blocks):
            bits = uint32(0)
            for k in range(4):
                bits |= uint32(data[begin + 4 * b + k]) << uint32(8 * k)
            # The sign, or an exponent of ones: negative, NaN or infinite.
            if bits >> uint32(31) != 0 or bits >= uint32(0x7F800000):
                return False
            scales[i, b] = bits
            if bits != 0:
                live += min(block, size - b * block)
        begin += 4 * n_blocks
        found = room[:live]
        if live == 0:
            if codes[i] != 0 or begin != end:
                return False
        elif codes[i] == measure.RANS:
            if not _decode_rans(data[begin:end], lowest, highest, found):
                return False
        elif codes[i] == measure.ADAPTIVE:
            if adaptive.decode(data[begin:end], lowest, highest, logs, found) != 0:
                return False
        elif not _decode_words(codes[i], data[begin:end], lowest, highest, found):
            return False
        taken = int64(0)
        for b in range(n_blocks):
            for j in range(b * block, min((b + 1) * block, size)):
                levels[i, j] = found[taken] if scales[i, b] != 0 else 0
                taken += 1 if scales[i, b] != 0 else 0
        begin = end
    return True


@serial
def _as_words(data: Any) -> Any:
    """Return bytes as 32-bit words, with at least two words of zeros after them."""
    words = np.zeros(data.size // 4 + 3, dtype=np.uint32)
    for b in range(data.size):
        words[b >> 2] |= uint32(data[b]) << uint32(8 * (b & 3))
    return words


@serial
def _ends_well(words: Any, end: Any, limit: Any) -> Any:
    """Whether a stream did not break off, and has no more after its end than the padding of a byte."""
    if end < 0:
        return False
    rest = limit - end
    return rest < 8 and (rest == 0 or (words[end // 32] >> uint32(end % 32)) & uint32((1 << rest) - 1) == 0)


@serial
def _decode_words(code: Any, data: Any, lowest: Any, highest: Any, levels: Any) -> Any:
    """Read a stream without a model; return whether it could be read."""
    limit = 8 * data.size
    words = _as_words(data)
    end = int64(-1)
    if code == measure.FIXED:
        end = int64(fixed.decode(words, limit, lowest, highest, bit_length(highest - lowest), levels))
    elif code == measure.OMEGA:
        end = int64(elias.decode(words, limit, lowest, highest, levels))
    return _ends_well(words, end, limit)


@serial
def _decode_rans(data: Any, lowest: Any, highest: Any, levels: Any) -> Any:
    """Read a stream of one state; return whether it could be read."""
    if data.size < 1:
        return False
    shift, model, escaped = int64(data[0] & 31), int64((data[0] >> 5) & 3), int64(data[0] >> 7)
    at = int64(1)
    escapes = int64(0)
    if escaped:
        if data.size < at + 4:
            return False
        for b in range(4):
            escapes |= int64(data[at + b]) << (8 * b)
        at += 4
        if escapes < 1 or escapes > levels.size:
            return False
    frequencies = np.zeros(tokens.TOKENS, dtype=np.int64)
    at = _get_model(data, at, model, escaped != 0, frequencies)
    bits = (levels.size - escapes) * shift + 32 * escapes
    end = data.size - ((bits + 7) >> 3)
    n_words = (end - at - rans.STATE_BYTES) // 2
    if at < 0 or end < at + rans.STATE_BYTES or (end - at - rans.STATE_BYTES) % 2 != 0:
        return False
    states = np.zeros(1, dtype=np.uint64)
    for b in range(rans.STATE_BYTES):
        states[0] |= uint64(data[at + b]) << uint64(8 * b)
    at += rans.STATE_BYTES
    words = np.zeros(n_words + rans.STREAMS, dtype=np.uint16)
    for w in range(n_words):
        words[w] = uint16(data[at + 2 * w]) | (uint16(data[at + 2 * w + 1]) << uint16(8))
    slots = np.empty(tokens.TOTAL, dtype=np.uint32)
    rans.fill_slots(frequencies, slots)
    if states[0] < rans.LOWEST or rans.decode(words, n_words, states, slots, levels) != 0:
        return False
    seen = int64(0)
    for j in range(levels.size):
        seen += 1 if levels[j] == tokens.ESCAPE - tokens.CENTRE else 0
    if seen != escapes:
        return False
    rest = _as_words(data[end:])
    limit = 8 * (data.size - end)
    return _ends_well(rest, int64(rans.decode_rest(rest, limit, shift, lowest, highest, levels)), limit)


@serial
def _get_model(data: Any, at: Any, model: Any, escapes: Any, frequencies: Any) -> Any:
    """Read the frequencies, and return where the model ends, or −1."""
    if model != tokens.EXPLICIT:
        if model > tokens.EXPLICIT or data.size < at + 3:
            return int64(-1)
        good = tokens.fill_shape(
            model, int64(data[at]), int64(data[at + 1]), int64(data[at + 2]), escapes, frequencies
        )  # fmt: skip
        return at + 3 if good else int64(-1)
    if data.size < at + 2:
        return int64(-1)
    first, last = int64(data[at]), int64(data[at + 1])
    if first > last or last >= tokens.ESCAPE:
        return int64(-1)
    rest = data[at + 2 : at + 2 + 4 * tokens.TOKENS]
    words = _as_words(rest)
    escape = tokens.ESCAPE if escapes else -1
    position = int64(
        elias.read_frequencies(words, 8 * rest.size, first, last, escape, tokens.TOTAL, frequencies)
    )  # fmt: skip
    if position < 0 or frequencies.sum() != tokens.TOTAL:
        return int64(-1)
    used = (position + 7) >> 3
    return at + 2 + used if _ends_well(words, position, 8 * used) else int64(-1)
