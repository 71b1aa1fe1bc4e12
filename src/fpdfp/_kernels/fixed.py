"""Levels in a fixed number of bits each."""

from __future__ import annotations

from typing import Any

from numba import int64, uint32, uint64

from fpdfp._kernels.bits import BROKEN, carry, get
from fpdfp._kernels.jit import serial


@serial
def encode(levels: Any, lowest: Any, width: Any, out: Any) -> Any:
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
def decode(words: Any, limit: Any, lowest: Any, highest: Any, width: Any, levels: Any) -> Any:
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
