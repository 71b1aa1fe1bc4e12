"""Codes of integers: levels to bytes and back, and their exact length without encoding.

A stream of rANS is

    1 byte       h (bits 0 to 4), the model (bits 5 and 6: 0 geometric, 1 Gaussian, 2 table), escapes or not (bit 7)
    4 bytes      the number of escapes, if there are any
    the model    geometric and Gaussian: largest |q|, share of zeros, decay, a byte each
                 table: the first and the last token, a byte each, and the Elias gamma codes of one more than each
                 frequency from the first token to the last (then the escape's), padded to a byte
    the tokens   a state of 5 bytes for each of 1 or 4 streams, then 16-bit words
    the rest     h bits of each level, 32 of an escape

See :mod:`fpdfp._kernels.tokens` and :mod:`fpdfp._kernels.rans`; the other streams are described by their kernels.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fpdfp import _checks, _cuda, _kernels
from fpdfp._array import namespace, to_host
from fpdfp._kernels.tables import tables
from fpdfp._typing import Array, IntArray
from fpdfp.compress.base import Body, Parts, damage_error
from fpdfp.errors import MessageError

#: The codes by name; the numbers stand in messages.
CODES = {"fixed": 1, "omega": 3, "rans": 5, "adaptive": 8, "auto": 15}
#: Numbers of codes that are no longer read, and stay reserved.
FORMER = {2: "Elias gamma", 4: "Rice", 6: "ANS of constriction"}
#: Stands in messages without levels.
NO_CODE = 0
#: Levels up to which several messages are written and read in one call.
SHORT = 1 << 14


def check(codec: Any) -> str:
    """Return the name of a code."""
    return _checks.choice("codec", codec, tuple(CODES))


def count(codec: str, levels: Array, scales: Array, block: int, lowest: int, highest: int) -> IntArray:
    """Return the exact bits of the levels of each row."""
    if namespace(levels) is not np:
        return _cuda.count_bits(CODES[codec], levels, scales, block, lowest, highest)
    bits = np.empty(len(levels), dtype=np.int64)
    _kernels.measure.count_bits(CODES[codec], levels, scales, block, lowest, highest, *tables(), bits)
    return bits


def encode_row(codec: str, levels: Array, scales: Array, block: int, lowest: int, highest: int) -> Parts:
    """Write the levels of one client: those of the blocks whose scale is not zero."""
    if namespace(levels) is not np:
        return encode(codec, _cuda.live_levels(levels, scales, block), lowest, highest)
    if not _kernels.measure.all_live(scales):
        kept = np.empty_like(levels)
        levels = kept[: _kernels.measure.live_levels(levels, scales, block, kept)]
    return encode(codec, levels, lowest, highest)


def encode(codec: str, levels: Array, lowest: int, highest: int) -> Parts:
    """Write levels, all from ``lowest`` to ``highest``, in a code; ``"auto"`` takes the shortest."""
    if levels.size == 0:
        return Parts(NO_CODE, [])
    if namespace(levels) is not np:
        if codec == "fixed":
            width = (highest - lowest).bit_length()
            return Parts(
                CODES[codec], [to_bytes(to_host(_cuda.pack_fixed(levels, lowest, width)), levels.size * width)]
            )
        levels = to_host(levels)
    omega, costs, logs = tables()
    work = np.zeros((_kernels.measure.WORKSPACE, _kernels.tokens.TOKENS), dtype=np.int64)
    plan = np.zeros(_kernels.measure.PLAN, dtype=np.int64)
    _kernels.measure.plan_stream(CODES[codec], levels, lowest, highest, omega, costs, logs, work, plan)
    code, bits = int(plan[_kernels.measure.CODE]), int(plan[_kernels.measure.BITS])
    if code == CODES["rans"]:
        return Parts(code, _encode_rans(levels, work, plan))
    out = np.empty(bits // 32 + 2, dtype=np.uint32)
    if code == CODES["adaptive"]:
        stream = out.view(np.uint8)[: -(-bits // 8)]
        written = _kernels.adaptive.encode(levels, lowest, highest, bits, logs, stream)
        pieces: list[Any] = [stream.data]
    else:
        if code == CODES["fixed"]:
            written = _kernels.fixed.encode(levels, lowest, (highest - lowest).bit_length(), out)
        elif plan[_kernels.measure.SPARSE]:
            written = _kernels.elias.encode_sparse(levels, omega, out)
        else:
            written = _kernels.elias.encode_dense(levels, omega, out)
        pieces = [to_bytes(out, bits)]
    if written != bits:
        raise AssertionError(f"a stream of {bits} bits was foreseen and one of {written} written")
    return Parts(code, pieces)


def decode_on_gpu(body: Body, count: int, lowest: int, highest: int) -> Array:
    """Read levels into the memory of the GPU: there, if their code allows it, else here."""
    import cupy

    if body.code != CODES["fixed"] or count == 0:
        return cupy.asarray(decode(body, count, lowest, highest))
    width = (highest - lowest).bit_length()
    words = to_words(body.data)
    check_end(words, count * width if count * width <= 8 * len(body.data) else -1, 8 * len(body.data))
    levels = cupy.empty(count, dtype=np.int32)
    if not _cuda.unpack_fixed(cupy.asarray(words), count, lowest, highest, width, levels):
        raise damage_error("its levels are cut off or out of range")
    return levels


def decode(body: Body, count: int, lowest: int, highest: int) -> Array:
    """Read ``count`` levels, all from ``lowest`` to ``highest``."""
    if count == 0:
        if body.code != NO_CODE or body.data:
            raise damage_error("it has levels where none are due")
        return np.empty(0, dtype=np.int32)
    if body.code in FORMER:
        raise MessageError(
            f"a message has code {body.code} ({FORMER[body.code]}), which this version no longer reads; "
            "the codes are 'fixed', 'omega', 'rans' and 'adaptive'"
        )
    if body.code not in CODES.values() or body.code == CODES["auto"]:
        raise damage_error(f"code {body.code} is unknown")
    if body.code == CODES["rans"]:
        return _decode_rans(body.data, count, lowest, highest)
    levels = np.empty(count, dtype=np.int32)
    if body.code == CODES["adaptive"]:
        data = np.frombuffer(body.data, dtype=np.uint8)
        if _kernels.adaptive.decode(data, lowest, highest, tables().logs, levels) != 0:
            raise damage_error("its levels are cut off or out of range, or there is something after them")
        return levels
    limit = 8 * len(body.data)
    words = to_words(body.data)
    if body.code == CODES["fixed"]:
        end = _kernels.fixed.decode(words, limit, lowest, highest, (highest - lowest).bit_length(), levels)
    else:
        end = _kernels.elias.decode(words, limit, lowest, highest, levels)
    check_end(words, end, limit)
    return levels


def encode_rows(codec: str, levels: Array, scales: Array, block: int, lowest: int, highest: int) -> list[Body] | None:
    """Write the levels of several clients' short messages at once; None where it has to be one after the other."""
    if namespace(levels) is not np or len(levels) < 2 or levels.shape[1] > SHORT:
        return None
    codes, ends = np.empty((2, len(levels)), dtype=np.int64)
    data = _kernels.streams.encode_rows(
        CODES[codec], levels, scales, block, lowest, highest, *tables(), codes, ends
    ).tobytes()  # fmt: skip
    starts = [0, *ends.tolist()]
    return [Body(code, data[a:b]) for code, (a, b) in zip(codes.tolist(), itertools.pairwise(starts), strict=True)]


def decode_rows(bodies: Sequence[Body], size: int, block: int, lowest: int, highest: int) -> tuple[Array, Array] | None:
    """Read the levels and scales of several short messages at once; None where it has to be one after the other.

    That is also where one is damaged: to read it by itself says how.
    """
    if len(bodies) < 2 or not 0 < size <= SHORT:
        return None
    data = np.frombuffer(b"".join([body.data for body in bodies]), dtype=np.uint8)
    codes = np.array([body.code for body in bodies])
    ends = np.cumsum([len(body.data) for body in bodies])
    levels = np.empty((len(bodies), size), dtype=np.int32)
    scales = np.empty((len(bodies), -(-size // block)), dtype=np.uint32)
    if not _kernels.streams.decode_rows(data, ends, codes, block, lowest, highest, tables().logs, levels, scales):
        return None
    return levels, scales.view(np.float32)


def to_bytes(words: Array, bits: int) -> memoryview:
    """Return the first bits of an array of words as bytes; the bits after them are zeros."""
    return words.astype(words.dtype.newbyteorder("<"), copy=False).view(np.uint8).data[: -(-bits // 8)]


def to_words(data: bytes) -> Array:
    """Return bytes as 32-bit words, with at least two words of zeros after them."""
    words = np.zeros(len(data) // 4 + 3, dtype="<u4")
    words.view(np.uint8)[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    return words.astype(np.uint32, copy=False)


def check_end(words: Array, end: int, limit: int) -> None:
    """Refuse a stream that broke off, or that has more after its end than the padding of a byte."""
    if end < 0:
        raise damage_error("its levels are cut off or out of range")
    rest = limit - end
    if rest >= 8 or (rest and int(words[end // 32]) >> (end % 32) & ((1 << rest) - 1)):
        raise damage_error("there is something after its levels")


def _encode_rans(levels: Array, work: Array, plan: Array) -> list[Any]:
    """Write levels as they were planned."""
    measure, tokens = _kernels.measure, _kernels.tokens
    shift, model, words = int(plan[measure.SHIFT]), int(plan[measure.MODEL]), int(plan[measure.WORDS])
    frequencies = work[measure.FREQUENCIES]
    if ((work[measure.COUNTS] > 0) & (frequencies == 0)).any() or frequencies.sum() != tokens.TOTAL:
        raise AssertionError("a token has no frequency")  # before a kernel writes where it should not
    escapes = int(work[measure.COUNTS, tokens.ESCAPE])
    parts: list[Any] = [bytes([shift | model << 5 | (escapes > 0) << 7])]
    if escapes:
        parts.append(escapes.to_bytes(4, "little"))
    parts.append(_write_model(plan, frequencies, escapes > 0))
    parts += _rans_words(levels, shift, frequencies, words)
    if shift or escapes:
        bits = (levels.size - escapes) * shift + 32 * escapes
        rest = np.empty(bits // 32 + 2, dtype=np.uint32)
        _kernels.rans.encode_rest(levels, shift, rest)
        parts.append(to_bytes(rest, bits))
    return parts


def _decode_rans(data: bytes, count: int, lowest: int, highest: int) -> Array:
    if not data:
        raise damage_error("it has no levels")
    shift, model, escaped = data[0] & 31, data[0] >> 5 & 3, data[0] >> 7
    at = 1
    escapes = 0
    if escaped:
        escapes = int.from_bytes(data[at : at + 4], "little")
        at += 4
        if not 0 < escapes <= count:
            raise damage_error("its number of escapes is out of range")
    frequencies, at = _read_model(data, at, model, bool(escaped))
    bits = (count - escapes) * shift + 32 * escapes
    end = len(data) - -(-bits // 8)
    if end < at:
        raise damage_error("it is cut off")
    levels = _rans_levels(data[at:end], count, frequencies)
    if escaped and np.count_nonzero(levels == _kernels.tokens.ESCAPE - _kernels.tokens.CENTRE) != escapes:
        raise damage_error("its number of escapes is wrong")
    possible = np.flatnonzero(frequencies) - _kernels.tokens.CENTRE
    if not bits and lowest <= possible[0] and possible[-1] <= highest:
        return levels
    rest = to_words(data[end:])
    limit = 8 * (len(data) - end)
    check_end(rest, _kernels.rans.decode_rest(rest, limit, shift, lowest, highest, levels), limit)
    return levels


def _write_model(plan: Array, frequencies: Array, escapes: bool) -> bytes:
    measure, tokens = _kernels.measure, _kernels.tokens
    if plan[measure.MODEL] != tokens.EXPLICIT:
        return bytes(int(plan[i]) for i in (measure.REACH, measure.ZEROS, measure.RATE))
    first, last = int(plan[measure.FIRST]), int(plan[measure.LAST])
    sent = frequencies[first : last + 1].tolist() + ([int(frequencies[tokens.ESCAPE])] if escapes else [])
    # Elias gamma: as many zeros as there are digits after the first, a one, and those digits, the lowest first.
    number, length = 0, 0
    for frequency in sent:
        digits = (frequency + 1).bit_length()
        group = 1 | (frequency + 1 - (1 << digits - 1)) << 1
        number |= group << (length + digits - 1)
        length += 2 * digits - 1
    return bytes([first, last]) + number.to_bytes(-(-length // 8), "little")


def _read_model(data: bytes, at: int, model: int, escapes: bool) -> tuple[Array, int]:
    """Return the frequencies, and where the model ends."""
    tokens = _kernels.tokens
    frequencies = np.zeros(tokens.TOKENS, dtype=np.int64)
    if model != tokens.EXPLICIT:
        head = data[at : at + 3]
        if (
            model > tokens.EXPLICIT
            or len(head) < 3
            or not tokens.fill_shape(model, head[0], head[1], head[2], escapes, frequencies)
        ):
            raise damage_error("its model is invalid")
        return frequencies, at + 3
    head = data[at : at + 2]
    if len(head) < 2:
        raise damage_error("it is cut off")
    first, last = head[0], head[1]
    if not first <= last < tokens.ESCAPE:
        raise damage_error("its model is invalid")
    rest = data[at + 2 : at + 2 + 4 * tokens.TOKENS]
    words, limit = to_words(rest), 8 * len(rest)
    escape = tokens.ESCAPE if escapes else -1
    position = int(_kernels.elias.read_frequencies(words, limit, first, last, escape, tokens.TOTAL, frequencies))
    if position < 0:
        raise damage_error("its model is invalid")
    used = -(-position // 8)
    check_end(words, position, 8 * used)
    if int(frequencies.sum()) != tokens.TOTAL:
        raise damage_error("its model is invalid")
    return frequencies, at + 2 + used


def _rans_words(levels: Array, shift: int, frequencies: Array, bound: int) -> list[Any]:
    starts = (np.cumsum(frequencies) - frequencies).astype(np.uint64)
    inverses = np.nextafter(1.0 / np.maximum(frequencies, 1), np.inf)
    states = np.empty(_streams(levels.size), dtype=np.uint64)
    words = np.empty(bound + 1, dtype=np.uint16)
    begin = int(_kernels.rans.encode(levels, shift, frequencies.astype(np.uint64), starts, inverses, states, words))
    heads = b"".join(int(state).to_bytes(_kernels.rans.STATE_BYTES, "little") for state in states)
    return [heads, words[begin:].astype("<u2", copy=False).data, bytes(2 * (begin - 1))]


def _rans_levels(data: bytes, count: int, frequencies: Array) -> Array:
    streams = _streams(count)
    rans = _kernels.rans
    at = rans.STATE_BYTES * streams
    if len(data) < at or (len(data) - at) % 2:
        raise damage_error("it is cut off")
    states = np.array(
        [int.from_bytes(data[i : i + rans.STATE_BYTES], "little") for i in range(0, at, rans.STATE_BYTES)],
        np.uint64,
    )
    n_words = (len(data) - at) // 2
    words = np.zeros(n_words + rans.STREAMS, dtype=np.uint16)
    words[:n_words] = np.frombuffer(data, dtype="<u2", offset=at)
    slots = np.empty(_kernels.tokens.TOTAL, dtype=np.uint32)
    rans.fill_slots(frequencies, slots)
    levels = np.empty(count, dtype=np.int32)
    if (states < rans.LOWEST).any() or rans.decode(words, n_words, states, slots, levels) != 0:
        raise damage_error("its levels cannot be decoded")
    return levels


def _streams(count: int) -> int:
    return _kernels.rans.STREAMS if count >= _kernels.rans.MANY else 1
