"""Numbers in fixed point: integers of a few bits, relative to a scale."""

from __future__ import annotations

import numpy as np

from fpdfp._typing import Array

#: Bits of numbers that are not rounded.
EXACT = 64


def largest_step(bits: int) -> int:
    """The largest integer of a given number of bits, one of them for the sign."""
    return int(2 ** (bits - 1) - 1)


def scale_rows(rows: Array, bits: int) -> Array:
    """Return the step of each row of numbers, in float32, with which its largest number fits."""
    sizes = np.abs(rows).max(axis=-1, initial=0.0)
    steps: Array = np.nextafter((sizes / largest_step(bits)).astype(np.float32), np.float32(np.inf))
    return steps * (sizes > 0)


def write_fixed(numbers: Array, steps: Array, bits: int) -> Array:
    """Return numbers as integers with a given number of bits and a step each; 64 bits are exact.

    Along the last axis, which is filled up to whole bytes.

    >>> import numpy as np
    >>> written = write_fixed(np.array([[0.5, -1.0, 0.25]]), np.float32(1 / 8), 5)
    >>> written.shape, read_fixed(written, np.float32(1 / 8), 5, 3)
    ((1, 2), array([[ 0.5 , -1.  ,  0.25]]))
    """
    if bits == EXACT:
        whole: Array = np.ascontiguousarray(numbers, dtype="<f8").view(np.uint8)
        return whole.reshape(*numbers.shape[:-1], 8 * numbers.shape[-1])
    most = largest_step(bits)
    safe = np.where(steps > 0, steps, 1.0).astype(np.float64)
    integers = np.clip(np.rint(numbers / safe), -most, most).astype(np.int64) + most
    planes = ((integers[..., None] >> np.arange(bits)) & 1).astype(np.uint8)
    return np.packbits(planes.reshape(*numbers.shape[:-1], bits * numbers.shape[-1]), axis=-1)


def read_fixed(written: Array, steps: Array, bits: int, count: int) -> Array:
    """Return the numbers that were written, with the given length of the last axis."""
    if bits == EXACT:
        exact: Array = np.ascontiguousarray(written).view("<f8").astype(np.float64)
        return exact
    planes = np.unpackbits(written, axis=-1, count=bits * count).reshape(*written.shape[:-1], count, bits)
    integers = (planes.astype(np.int64) << np.arange(bits)).sum(axis=-1) - largest_step(bits)
    return integers * np.asarray(steps, dtype=np.float64)


def count_bytes(bits: int, count: int) -> int:
    """Return the number of bytes that numbers take."""
    return -(-bits * count // 8)
