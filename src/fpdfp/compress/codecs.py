"""Codes of integers: levels to bytes and back, and their exact length without encoding."""

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

#: The codes by name; the numbers stand in messages.
CODES = {"fixed": 1, "gamma": 2, "omega": 3, "rice": 4, "rans": 5, "ans": 6, "auto": 15}
NAMES = {number: name for name, number in CODES.items() if name != "auto"}
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
    gamma, omega, costs = tables()
    work = np.zeros((_kernels.measure.WORKSPACE, _kernels.tokens.TOKENS), dtype=np.int64)
    plan = np.zeros(_kernels.measure.PLAN, dtype=np.int64)
    _kernels.measure.plan_stream(CODES[codec], levels, lowest, highest, gamma, omega, costs, work, plan)
    code, bits = int(plan[_kernels.measure.CODE]), int(plan[_kernels.measure.BITS])
    if code in (CODES["rans"], CODES["ans"]):
        from fpdfp.compress import entropy

        return Parts(code, entropy.encode(code, levels, work, plan))
    out = np.empty(bits // 32 + 2, dtype=np.uint32)
    if code == CODES["fixed"]:
        written = _kernels.fixed.encode(levels, lowest, (highest - lowest).bit_length(), out)
    elif code == CODES["rice"]:
        written = _kernels.rice.encode(levels, out)
    else:
        kind, table = (_kernels.elias.GAMMA, gamma) if code == CODES["gamma"] else (_kernels.elias.OMEGA, omega)
        write = _kernels.elias.encode_sparse if plan[_kernels.measure.SPARSE] else _kernels.elias.encode_dense
        written = write(kind, levels, table, out)
    if written != bits:
        raise AssertionError(f"a stream of {bits} bits was foreseen and one of {written} written")
    return Parts(code, [to_bytes(out, bits)])


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
    if body.code not in NAMES:
        raise damage_error(f"code {body.code} is unknown")
    if body.code in (CODES["rans"], CODES["ans"]):
        from fpdfp.compress import entropy

        return entropy.decode(body, count, lowest, highest)
    limit = 8 * len(body.data)
    words = to_words(body.data)
    levels = np.empty(count, dtype=np.int32)
    if body.code == CODES["fixed"]:
        end = _kernels.fixed.decode(words, limit, lowest, highest, (highest - lowest).bit_length(), levels)
    elif body.code == CODES["rice"]:
        end = _kernels.rice.decode(words, limit, lowest, highest, levels)
    else:
        kind = _kernels.elias.GAMMA if body.code == CODES["gamma"] else _kernels.elias.OMEGA
        end = _kernels.elias.decode(kind, words, limit, lowest, highest, levels)
    check_end(words, end, limit)
    return levels


def encode_rows(codec: str, levels: Array, scales: Array, block: int, lowest: int, highest: int) -> list[Body] | None:
    """Write the levels of several clients' short messages at once; None where it has to be one after the other."""
    if namespace(levels) is not np or len(levels) < 2 or levels.shape[1] > SHORT or codec == "ans":
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
    if not _kernels.streams.decode_rows(data, ends, codes, block, lowest, highest, levels, scales):
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
