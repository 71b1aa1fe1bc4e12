"""Elias omega coding by the book, and messages in it: the independent check of the bit counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def omega(k: int) -> str:
    """Write the omega code of k ≥ 1: groups of binary digits, each giving the length of the next, then a 0."""
    code = "0"
    while k > 1:
        digits = format(k, "b")
        code = digits + code
        k = len(digits) - 1
    return code


def read_omega(bits: Iterator[str]) -> int:
    value = 1
    while next(bits) == "1":
        value = int("1" + "".join(next(bits) for _ in range(value)), 2)
    return value


def encode(levels: Any, norms: Any, block: int) -> str:
    """Write a message: norms, a bit for dense or sparse, and the levels of every block of norm not 0."""
    head = "".join(format(int(bits), "032b") for bits in norms.view(np.uint32))
    parts = [levels[b * block : (b + 1) * block] for b in range(len(norms)) if norms[b] > 0]
    dense = "".join(omega(abs(v) + 1) + ("" if v == 0 else "01"[int(v < 0)]) for part in parts for v in part.tolist())
    sparse = ""
    for part in parts:
        where = np.flatnonzero(part)
        sparse += omega(len(where) + 1)
        for gap, v in zip(np.diff(where, prepend=-1).tolist(), part[where].tolist(), strict=True):
            sparse += omega(gap) + "01"[int(v < 0)] + omega(abs(v))
    return head + ("0" + dense if len(dense) <= len(sparse) else "1" + sparse)


def decode(message: str, size: int, block: int) -> tuple[Any, Any]:
    """Read a message back."""
    bits = iter(message)
    count = -(-size // block)
    words = [int("".join(next(bits) for _ in range(32)), 2) for _ in range(count)]
    norms = np.array(words, dtype=np.uint32).view(np.float32)
    levels = np.zeros(size, dtype=np.int64)
    sparse = next(bits) == "1"
    for b in range(count):
        if norms[b] == 0:
            continue
        part = levels[b * block : (b + 1) * block]
        if sparse:
            position = -1
            for _ in range(read_omega(bits) - 1):
                position += read_omega(bits)
                sign = -1 if next(bits) == "1" else 1
                part[position] = sign * read_omega(bits)
        else:
            for j in range(len(part)):
                magnitude = read_omega(bits) - 1
                part[j] = magnitude if magnitude == 0 or next(bits) == "0" else -magnitude
    assert next(bits, None) is None
    return levels, norms
