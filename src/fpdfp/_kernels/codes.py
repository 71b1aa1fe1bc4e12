"""Codes of integers without a model: a fixed number of bits, and Elias codes.

P. Elias, "Universal codeword sets and representations of the integers", IEEE Trans. Inf. Theory 21 (1975).

A stream is an array of 32-bit words; bits are numbered from the least significant bit of the first word. A writer is
three numbers: the bits that are not in a word yet, how many they are, and the next word. A reader is one: the position
of the next bit. Readers are given two words of zeros past the end, so that they can look ahead, and compare every
position with the length they were given.

Levels are written in the omega code, dense or sparse, tables of frequencies in the gamma code. Both codes of k ≥ 1 are
made of groups: the binary digits of a number, the leading 1 first and then the others from the lowest on. With
N = ⌊log₂ k⌋,

    gamma(k)  N zeros, then the group of k
    omega(k)  the groups of k, of its number of digits less one, and so on down to 1 (which has no group),
              the shortest first. Then a zero

A stream of levels starts with a bit. 0, dense: for every level the code of |level| + 1, then a sign bit (1 for minus)
unless the level is 0. 1, sparse: the code of one plus the number of non-zero levels. For each of them follow the code
of the distance from the one before (the first: from −1), a sign bit, and the code of |level|.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import int64, types, uint32, uint64
from numba.extending import intrinsic

from fpdfp._kernels.jit import inline, interpret, serial

#: What a reader answers when the stream ends too early or holds something impossible.
BROKEN = -1
#: Codes of smaller numbers are looked up.
TABLE = 4096
LENGTH_BITS = uint64(6)
LENGTH_MASK = uint64(63)


@intrinsic  # type: ignore[untyped-decorator]
def leading_zeros(typing_context: Any, value: Any) -> Any:
    """Count the leading zeros of a 64-bit integer: 64 for 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


leading_zeros.interpreted = lambda value: 64 - value.bit_length()


@serial
def bit_length(value: Any) -> Any:
    """The number of bits that an integer of at least 0 has: 0 for 0."""
    return 64 - leading_zeros(uint64(value))


@inline
def carry(pending: Any, fill: Any, word: Any) -> Any:
    """Go on to the next word if the pending bits have filled one, which the caller has stored.

    Appending the ``width`` (at most 32) bits of ``value`` takes three lines, written out where they are needed
    because arrays handed to small functions inside branches are counted anew at each call::

        pending, fill = pending | (value << uint64(fill)), fill + width
        out[uint64(word)] = uint32(pending)
        pending, fill, word = carry(pending, fill, word)
    """
    full = fill >> 5
    return pending >> (uint64(full) << uint64(5)), fill & 31, word + full


@inline
def window(low: Any, high: Any, position: Any) -> Any:
    """Return the bits from a position on, at least 33, out of the word that holds it and the next."""
    return (uint64(low) | (uint64(high) << uint64(32))) >> (uint64(position) & uint64(31))


@inline
def ones(count: Any) -> Any:
    """A number of ``count`` (at most 63) ones."""
    return (uint64(1) << uint64(count)) - uint64(1)


@serial
def get(words: Any, position: Any, width: Any) -> Any:
    """Return the next ``width`` (at most 32) bits as an integer."""
    at = uint64(position) >> uint64(5)
    return int64(window(words[at], words[at + uint64(1)], position) & ones(width))


@serial
def encode_fixed(levels: Any, lowest: Any, width: Any, out: Any) -> Any:
    """Write level − lowest in ``width`` bits for every level; return the length in bits."""
    pending, fill, word = uint64(0), 0, 0
    for j in range(levels.size):
        code = uint64(int64(levels[uint64(j)]) - lowest)
        pending, fill = pending | (code << uint64(fill)), fill + width
        out[uint64(word)] = uint32(pending)
        pending, fill, word = carry(pending, fill, word)
    out[uint64(word)] = uint32(pending)
    return 32 * word + fill


@serial
def decode_fixed(words: Any, limit: Any, lowest: Any, highest: Any, width: Any, levels: Any) -> Any:
    """Read the levels, all from ``lowest`` to ``highest``; return where the stream ends, or BROKEN."""
    end = levels.size * width
    if end > limit:
        return BROKEN
    for j in range(levels.size):
        level = lowest + get(words, j * width, width)
        if level > highest:
            return BROKEN
        levels[uint64(j)] = level
    return end


@serial
def gamma_codeword(k: Any) -> Any:
    """The gamma code of k, from 1 up to 2**32, and its length."""
    digits = bit_length(k)
    return _group(k, digits) << uint64(digits - 1), 2 * digits - 1


@serial
def codeword(k: Any) -> Any:
    """The omega code of k, from 1 up to 2**32, and its length."""
    code = uint64(0)
    length = 1
    while k > 1:
        digits = bit_length(k)
        code = _group(k, digits) | (code << uint64(digits))
        length += digits
        k = digits - 1
    return code, length


@inline
def _group(k: Any, digits: Any) -> Any:
    return uint64(1) | ((uint64(k) ^ (uint64(1) << uint64(digits - 1))) << uint64(1))


def make_table() -> Any:
    """Return the omega codes of 0 (none), 1, 2, …, each above six bits that hold its length."""
    find = interpret(codeword)
    codes, lengths = zip((0, 0), *(find(k) for k in range(1, TABLE)), strict=True)
    return (np.array(codes, dtype=np.uint64) << LENGTH_BITS) | np.array(lengths, dtype=np.uint64)


def code_lengths(numbers: Any) -> Any:
    """Return the lengths of the omega codes of an array of numbers, in NumPy."""
    digits = np.frexp(numbers)[1]
    lengths = np.ones_like(digits)
    while (digits > 1).any():
        lengths += np.where(digits > 1, digits, 0)
        digits = np.frexp(digits - 1)[1]
    return lengths


@inline
def code_length(k: Any, table: Any) -> Any:
    """The length in bits of the code of k ≥ 1."""
    return int64(table[uint64(k)] & LENGTH_MASK) if k < table.size else codeword(k)[1]


@serial
def read_short(bits: Any) -> Any:
    """Return the number whose code the next 32 bits start with, and the code's length: 0 if it is longer."""
    k = int64(1)
    length = int64(0)
    while bits & uint64(1) == 1:
        length += 1 + k
        if length > 31:
            return int64(0), int64(0)
        rest = bits >> uint64(1)
        bits = rest >> uint64(k)
        k = int64((uint64(1) << uint64(k)) | (rest & ones(k)))
    return k, length + 1


@serial
def read_long(words: Any, position: Any, limit: Any) -> Any:
    """Return the next number and its code's length, for codes of any length; 0 for a code over 2**33 or cut off."""
    start = position
    k = int64(1)
    while position < limit and get(words, position, 1) == 1:
        if k > 32 or position + 1 + k > limit:
            return int64(0), int64(0)
        digits = k
        k = int64((uint64(1) << uint64(digits)) | uint64(get(words, position + 1, digits)))
        position += 1 + digits
    return (k, position + 1 - start) if position < limit else (int64(0), int64(0))


@serial
def _read_gamma(words: Any, position: Any, limit: Any) -> Any:
    """Return the next number in the gamma code and its code's length; 0 for a code over 2**33 or cut off."""
    zeros = 0
    while position + zeros < limit and get(words, position + zeros, 1) == 0:
        zeros += 1
    if zeros > 32 or position + 1 + 2 * zeros > limit:
        return int64(0), int64(0)
    return int64((uint64(1) << uint64(zeros)) | uint64(get(words, position + zeros + 1, zeros))), 1 + 2 * zeros


@serial
def read_frequencies(words: Any, limit: Any, first: Any, last: Any, escape: Any, most: Any, frequencies: Any) -> Any:
    """Read one less than each gamma code into the places first to last, and the escape's; return the end, −1 if none.

    Numbers may be up to ``most``; ``escape`` is −1 without one.
    """
    position = int64(0)
    for place in range(first, last + 2):
        if place == last + 1 and escape < 0:
            break
        number, length = _read_gamma(words, position, limit)
        if length == 0 or number > most + 1:
            return int64(-1)
        frequencies[place if place <= last else escape] = number - 1
        position += length
    return position


@serial
def sparse_length(levels: Any, table: Any) -> Any:
    """The exact length of the sparse stream, but for its first bit."""
    total = 0
    last = -1
    count = 0
    for j in range(levels.size):
        level = int64(abs(int64(levels[uint64(j)])))
        if level > 0:
            total += 1 + code_length(j - last, table) + code_length(level, table)
            last = j
            count += 1
    return total + code_length(count + 1, table)


@serial
def dense_length(levels: Any, table: Any) -> Any:
    """The exact length of the dense stream, but for its first bit."""
    total = 0
    for j in range(levels.size):
        level = int64(abs(int64(levels[uint64(j)])))
        total += code_length(level + 1, table) + (1 if level > 0 else 0)
    return total


@inline
def _entry(entry: Any, k: Any) -> Any:
    """Return a code and its length from the table's entry, or worked out where the table has none."""
    return (entry >> LENGTH_BITS, int64(entry & LENGTH_MASK)) if entry > 0 else codeword(k)


@serial
def encode_dense(levels: Any, table: Any, out: Any) -> Any:
    """Write the dense stream and return its length in bits."""
    pending, fill, word = uint64(0), 1, 0
    for j in range(levels.size):
        level = int64(levels[uint64(j)])
        k = abs(level) + 1
        code, length = _entry(table[uint64(k)] if k < table.size else uint64(0), k)
        code |= uint64(level < 0) << uint64(length)
        length += int64(level != 0)
        pending, fill = pending | ((code & ones(32)) << uint64(fill)), fill + min(length, 32)
        out[uint64(word)] = uint32(pending)
        pending, fill, word = carry(pending, fill, word)
        if length > 32:
            pending, fill = pending | ((code >> uint64(32)) << uint64(fill)), fill + length - 32
            out[uint64(word)] = uint32(pending)
            pending, fill, word = carry(pending, fill, word)
    out[uint64(word)] = uint32(pending)
    return 32 * word + fill


@serial
def encode_sparse(levels: Any, table: Any, out: Any) -> Any:
    """Write the sparse stream and return its length in bits."""
    count = 0
    for j in range(levels.size):
        count += 1 if levels[uint64(j)] != 0 else 0
    code, length = codeword(count + 1)
    out[0] = uint32(uint64(1) | (code << uint64(1)))
    pending, fill, word = carry(uint64(1) | (code << uint64(1)), length + 1, 0)
    last = -1
    for j in range(levels.size):
        level = int64(levels[uint64(j)])
        if level == 0:
            continue
        for part in range(2):
            k = int64(j - last) if part == 0 else abs(level)
            code, length = _entry(table[uint64(k)] if k < table.size else uint64(0), k)
            if part == 0:
                code |= uint64(level < 0) << uint64(length)
                length += 1
            pending, fill = pending | ((code & ones(32)) << uint64(fill)), fill + min(length, 32)
            out[uint64(word)] = uint32(pending)
            pending, fill, word = carry(pending, fill, word)
            if length > 32:
                pending, fill = pending | ((code >> uint64(32)) << uint64(fill)), fill + length - 32
                out[uint64(word)] = uint32(pending)
                pending, fill, word = carry(pending, fill, word)
        last = j
    out[uint64(word)] = uint32(pending)
    return 32 * word + fill


@serial
def decode_elias(words: Any, limit: Any, lowest: Any, highest: Any, levels: Any) -> Any:
    """Read the levels, all from ``lowest`` to ``highest``; return where the stream ends, or BROKEN."""
    if limit < 1:
        return int64(BROKEN)
    if get(words, 0, 1) == 1:
        return _decode_sparse(words, limit, lowest, highest, levels)
    position = int64(1)
    for j in range(levels.size):
        at = uint64(position) >> uint64(5)
        bits = window(words[at], words[at + uint64(1)], position)
        size, length = read_short(bits)
        if length == 0:
            size, length = read_long(words, position, limit)
            at = uint64(position + length) >> uint64(5)
            sign = window(words[at], words[at + uint64(1)], position + length)
        else:
            sign = bits >> uint64(length)
        signed = size > 1
        level = (1 - size) if signed and sign & uint64(1) == 1 else size - 1
        position += length + (1 if signed else 0)
        if length == 0 or position > limit or level < lowest or level > highest:
            return int64(BROKEN)
        levels[uint64(j)] = level
    return position


@serial
def _decode_sparse(words: Any, limit: Any, lowest: Any, highest: Any, levels: Any) -> Any:
    levels[:] = 0
    count, length = read_long(words, 1, limit)
    position = 1 + length
    if length == 0 or count - 1 > levels.size:
        return int64(BROKEN)
    place = int64(-1)
    for _ in range(count - 1):
        at = uint64(position) >> uint64(5)
        gap, length = read_short(window(words[at], words[at + uint64(1)], position))
        if length == 0:
            gap, length = read_long(words, position, limit)
        place += gap
        position += length
        if length == 0 or position >= limit or place >= levels.size:
            return int64(BROKEN)
        at = uint64(position) >> uint64(5)
        bits = window(words[at], words[at + uint64(1)], position)
        position += 1
        level, length = read_short(bits >> uint64(1))
        if length == 0:
            level, length = read_long(words, position, limit)
        position += length
        level = -level if bits & uint64(1) == 1 else level
        if length == 0 or position > limit or level < lowest or level > highest:
            return int64(BROKEN)
        levels[uint64(place)] = level
    return position
