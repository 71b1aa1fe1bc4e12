"""The codes with a fitted model: our own rANS, and constriction's.

A stream is

    1 byte       h (bits 0 to 4), the model (bits 5 and 6: 0 geometric, 1 Gaussian, 2 table), escapes or not (bit 7)
    4 bytes      the number of escapes, if there are any
    the model    geometric and Gaussian: largest |q|, share of zeros, decay, a byte each
                 table: the first and the last token, a byte each, and the Elias gamma codes of one more than each
                 frequency from the first token to the last (then the escape's), padded to a byte
    the tokens   rans: a state of 5 bytes for each of 1 or 4 streams, then 16-bit words
                 ans: 32-bit words as constriction makes them
    the rest     h bits of each level, 32 of an escape

See :mod:`fpdfp._kernels.tokens` and :mod:`fpdfp._kernels.rans`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp import _kernels
from fpdfp._typing import Array
from fpdfp.compress.base import Body, damage_error
from fpdfp.compress.codecs import CODES, check_end, to_bytes, to_words
from fpdfp.errors import MessageError

RANS = CODES["rans"]


def encode(code: int, levels: Array, work: Array, plan: Array) -> list[Any]:
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
    write = _rans_words if code == RANS else _ans_words
    parts += write(levels, shift, frequencies, words)
    if shift or escapes:
        bits = (levels.size - escapes) * shift + 32 * escapes
        rest = np.empty(bits // 32 + 2, dtype=np.uint32)
        _kernels.rans.encode_rest(levels, shift, rest)
        parts.append(to_bytes(rest, bits))
    return parts


def decode(body: Body, count: int, lowest: int, highest: int) -> Array:
    """Read ``count`` levels, all from ``lowest`` to ``highest``."""
    data = body.data
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
    read = _read_rans if body.code == RANS else _read_ans
    levels = read(data[at:end], count, frequencies)
    if escaped and np.count_nonzero(levels == _kernels.tokens.ESCAPE - _kernels.tokens.CENTRE) != escapes:
        raise damage_error("its number of escapes is wrong")
    possible = np.flatnonzero(frequencies) - _kernels.tokens.CENTRE
    if not bits and body.code == RANS and lowest <= possible[0] and possible[-1] <= highest:
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


def _read_rans(data: bytes, count: int, frequencies: Array) -> Array:
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


def _ans_words(levels: Array, shift: int, frequencies: Array, bound: int) -> list[Any]:
    stream = _constriction()
    quotients = levels >> shift
    centre, escape = _kernels.tokens.CENTRE, _kernels.tokens.ESCAPE
    tokens = np.where(abs(quotients) <= centre, quotients + centre, escape).astype(np.int32)
    coder = stream.stack.AnsCoder()
    coder.encode_reverse(tokens, _ans_model(stream, frequencies))
    words = coder.get_compressed()
    return [words.astype("<u4", copy=False).data, bytes(4 * (bound - len(words)))]


def _read_ans(data: bytes, count: int, frequencies: Array) -> Array:
    if len(data) % 4:
        raise damage_error("it is cut off")
    try:
        stream = _constriction()
    except ImportError as error:
        raise MessageError(f"a message cannot be read here: {error}") from error
    words = np.frombuffer(data, dtype="<u4").astype(np.uint32)
    words = words[: int(np.max(np.flatnonzero(words), initial=-1)) + 1]
    # The last word of constriction's streams is never 0: zeros after it are what fills the stream up.
    coder = stream.stack.AnsCoder(words)
    tokens = coder.decode(_ans_model(stream, frequencies), count)
    if not coder.is_empty():
        raise damage_error("its levels cannot be decoded")
    return np.asarray(tokens - _kernels.tokens.CENTRE, dtype=np.int32)


def _constriction() -> Any:
    try:
        import constriction
    except ImportError as error:
        raise ImportError("the code 'ans' needs the package constriction: pip install 'fpdfp[entropy]'") from error
    return constriction.stream


def _ans_model(stream: Any, frequencies: Array) -> Any:
    return stream.model.Categorical((frequencies / frequencies.sum()).astype(np.float32), perfect=False)
