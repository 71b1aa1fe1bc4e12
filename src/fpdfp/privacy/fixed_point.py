"""Numbers as integers: sums of integers are exact in any order, and a uniform mask hides them without a trace.

Two forms. *Wide* integers have 128 bits at the fixed scale 2⁻⁶⁴, for statistics: no one has to agree on a scale.
*Short* ones have a few bits under a scale that all sites share, for rounds of a method. Numbers that do not fit are
refused, never clipped: a clipped sum is wrong, and no one sees it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._kernels import fixed
from fpdfp._typing import Array
from fpdfp.errors import Refusal

#: Bits of the integers under a shared scale.
BITS = 8, 12
#: Bits of whole numbers and of numbers with noise, modulo which they are added.
WORD = 64
#: Bits of a wide integer.
WIDE = 128


def headroom(sites: int) -> int:
    """Return the bits that a sum over a given number of sites has more than a term.

    >>> headroom(3), headroom(5), headroom(30)
    (2, 3, 5)
    """
    return (sites - 1).bit_length()


def to_wide(values: Array, sites: int) -> Any:
    """Return numbers as wide integers, (n, 2) words of 64 bits, the lower first; refuse what ``sites`` could overflow.

    >>> to_wide(np.array([0.5, -1.0]), 3).tolist()
    [[9223372036854775808, 0], [0, 18446744073709551615]]
    """
    flat = np.ascontiguousarray(values, np.float64).reshape(-1)
    words = np.empty((flat.size, 2), np.uint64)
    largest = WIDE - 1 - fixed.SCALE - headroom(sites)
    place = fixed.encode(flat, largest, words)
    if place >= 0:
        raise Refusal(f"a number of this site is not below 2^{largest} in size, so it cannot be added up exactly")
    return words


def from_wide(words: Any) -> Array:
    """Return the float64 nearest to each wide integer."""
    values = np.empty(len(words))
    fixed.decode(words, values)
    return values


def to_short(values: Array, step: float, bits: int, draws: Array | None = None) -> Any:
    """Return values/step as integers below 2^(bits − 1) in size; refuse larger ones.

    Parameters
    ----------
    values
        Any numbers.
    step
        The scale that the sites share.
    bits
        Of one site's integers.
    draws
        Uniform numbers in [0, 1), by which each number is rounded up or down so that its mean is right; without them
        it is rounded to the nearest integer.

    Examples
    --------
    >>> to_short(np.array([0.26, -0.5]), 0.25, 8).tolist()
    [1, -2]
    """
    scaled = np.asarray(values, np.float64) / step
    rounded = np.rint(scaled) if draws is None else np.floor(scaled + draws)
    if not (np.abs(rounded) < 2.0 ** (bits - 1)).all():  # NaN fails every comparison
        raise Refusal(f"a number of this site does not fit into {bits} bits under the scale that sites share")
    return rounded.astype(np.int64)


def signed(words: Any, bits: int) -> Any:
    """Return integers modulo 2^bits as signed ones.

    >>> signed(np.array([1, 255], np.uint8), 8).tolist()
    [1, -1]
    """
    shift = np.int64(64 - bits)
    return (words.astype(np.uint64).view(np.int64) << shift) >> shift


def pack(words: Any, bits: int) -> bytes:
    """Return integers modulo 2^bits, closely packed."""
    packed = np.zeros(-(-words.size * bits // 8), np.uint8)
    fixed.pack(words, bits, packed)
    return packed.tobytes()


def unpack(data: bytes, bits: int, count: int) -> Any:
    """Return what :func:`pack` has packed, as words of the next machine width."""
    words = np.empty(count, word_type(bits))
    fixed.unpack(np.frombuffer(data, np.uint8), bits, words)
    return words


def word_type(bits: int) -> Any:
    """Return the unsigned type that holds a given number of bits.

    >>> word_type(10)
    dtype('uint16')
    """
    return np.dtype(f"<u{next(width for width in (8, 16, 32, 64) if width >= bits) // 8}")
