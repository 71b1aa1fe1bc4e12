"""Philox4x32-10, the counter-based generator behind every draw.

J. K. Salmon, M. A. Moraes, R. O. Dror and D. E. Shaw, "Parallel random numbers: as easy as 1, 2, 3",
SC 2011.

The counter is (index, purpose and step, client, round) and the key is the seed: see :mod:`fpdfp.rng`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int64, uint32, uint64

from fpdfp._kernels.jit import inline, serial

#: Coordinates come in groups of 256; in a group, coordinate r takes word r // 64 of block r % 64.
#: Neighbouring coordinates then use neighbouring blocks, which processors and GPUs do side by side.
GROUP = 256
BLOCKS = 64


@inline
def philox(c0: Any, c1: Any, c2: Any, c3: Any, k0: Any, k1: Any) -> Any:
    """Return the four words that Philox4x32-10 gives for a counter and a key."""
    for _ in range(10):
        p0 = uint64(c0) * uint64(0xD2511F53)
        p1 = uint64(c2) * uint64(0xCD9E8D57)
        c0 = uint32(p1 >> uint64(32)) ^ c1 ^ k0
        c2 = uint32(p0 >> uint64(32)) ^ c3 ^ k1
        c1 = uint32(p1)
        c3 = uint32(p0)
        k0 = uint32(k0 + uint32(0x9E3779B9))
        k1 = uint32(k1 + uint32(0xBB67AE85))
    return c0, c1, c2, c3


@serial
def fill_group(k0: Any, k1: Any, tag: Any, client: Any, round_: Any, group: Any, words: Any) -> None:
    """Write the 256 words of one group of coordinates into ``words``."""
    for lane in range(BLOCKS):
        w0, w1, w2, w3 = philox(
            uint32(group * BLOCKS + lane), uint32(tag), uint32(client), uint32(round_), uint32(k0), uint32(k1)
        )
        words[lane] = w0
        words[BLOCKS + lane] = w1
        words[2 * BLOCKS + lane] = w2
        words[3 * BLOCKS + lane] = w3


@serial
def fill_words(k0: Any, k1: Any, tag: Any, clients: Any, round_: Any, out: Any) -> None:
    """Write a word for every (client, coordinate) of the two-dimensional ``out``."""
    words = np.empty(GROUP, dtype=np.uint32)
    for i in range(out.shape[0]):
        for start in range(0, out.shape[1], GROUP):
            fill_group(k0, k1, tag, clients[i], round_, start // GROUP, words)
            stop = min(start + GROUP, out.shape[1])
            for j in range(start, stop):
                out[i, j] = words[j - start]


@serial
def sample_subset(
    k0: Any, k1: Any, tag: Any, client: Any, round_: Any, size: Any, count: Any, table: Any, out: Any
) -> None:
    """Write ``count`` distinct integers of ``range(size)``, a uniformly random subset, into ``out``.

    Floyd's algorithm: for j = size − count, …, size − 1 draw t in 0…j, and take t, or j if t is in
    already. ``table`` (a power of two of at least ``2 * count`` entries) describes what is in. If it has a bit for each
    integer it is a set of bits, and otherwise an open-addressing set, so the cost depends on ``count`` and not on
    ``size``. A draw has 53 bits: its bias is below ``size / 2**53``.
    """
    # A block of four words makes two draws, which are kept in ``out``; processors do several blocks at once.
    for block in range((count + 1) // 2):
        w0, w1, w2, w3 = philox(uint32(block), uint32(tag), uint32(client), uint32(round_), uint32(k0), uint32(k1))
        out[2 * block] = (uint64(w0) << uint64(21)) ^ (uint64(w1) >> uint64(11))
        if 2 * block + 1 < count:
            out[2 * block + 1] = (uint64(w2) << uint64(21)) ^ (uint64(w3) >> uint64(11))
    mask = table.size - 1
    has_bits = size <= 64 * table.size
    table[:] = 0 if has_bits else -1
    for i in range(count):
        j = size - count + i
        candidate = min(int64(float64(out[i]) * (1.0 / 9007199254740992.0) * (j + 1)), j)
        if has_bits:
            if (table[candidate >> 6] >> (candidate & 63)) & 1:
                candidate = j
            table[candidate >> 6] |= int64(1) << (candidate & 63)
        else:
            slot = _find(table, mask, candidate)
            if table[slot] == candidate:
                candidate = j
                slot = _find(table, mask, candidate)
            table[slot] = candidate
        out[i] = candidate


@inline
def _find(table: Any, mask: Any, value: Any) -> Any:
    """Return the slot that holds ``value``, or the free one where it belongs."""
    slot = int64((uint64(value) * uint64(0x9E3779B97F4A7C15)) >> uint64(33)) & mask
    while table[slot] != -1 and table[slot] != value:
        slot = (slot + 1) & mask
    return slot
