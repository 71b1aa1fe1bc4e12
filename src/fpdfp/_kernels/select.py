"""Which entries are the k largest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, prange, uint64

from fpdfp._kernels.jit import serial, threaded

DIGIT = 11


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
def select(keys: Any, width: Any, k: Any, chosen: Any) -> None:
    for i in prange(keys.shape[0]):
        select_row(keys[i], width, k, chosen[i])
