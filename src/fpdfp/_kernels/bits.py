"""Reading and writing bits.

A stream is an array of 32-bit words; bits are numbered from the least significant bit of the first word. A
writer is three numbers: the bits that are not in a word yet, how many they are, and the next word. A reader is
one: the position of the next bit. Readers are given two words of zeros past the end, so that they can look
ahead, and compare every position with the length they were given.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import int64, types, uint64
from numba.extending import intrinsic

from fpdfp._kernels.jit import inline, serial

#: What a reader answers when the stream ends too early or holds something impossible.
BROKEN = -1


@intrinsic  # type: ignore[untyped-decorator]
def leading_zeros(typing_context: Any, value: Any) -> Any:
    """Count the leading zeros of a 64-bit integer: 64 for 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctlz(args[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


leading_zeros.interpreted = lambda value: 64 - value.bit_length()


@serial
def bit_length(value: Any) -> Any:
    """How many bits an integer of at least 0 has: 0 for 0."""
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
