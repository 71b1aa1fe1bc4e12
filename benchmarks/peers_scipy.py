"""FPDFP as one would write it with NumPy and SciPy: sparse products in a loop over clients."""

from __future__ import annotations

from typing import Any

import numpy as np


def omega_lengths(count: int) -> Any:
    """The lengths of the Elias omega codes of 0 (unused) to count − 1."""
    lengths = np.zeros(count, dtype=np.int64)
    for k in range(1, count):
        length, rest = 1, k
        while rest > 1:
            length += rest.bit_length()
            rest = rest.bit_length() - 1
        lengths[k] = length
    return lengths


LENGTHS = omega_lengths(4096)


def quantize(x: Any, levels: int, generator: np.random.Generator) -> tuple[Any, int]:
    """Quantize a vector as QSGD does; return its decoded value and the exact bits of its code."""
    norm = float(np.float32(np.linalg.norm(x)))
    if norm == 0.0:
        return np.zeros_like(x), 33
    scaled = np.minimum(np.abs(x) * (levels / norm), levels)
    lower = np.floor(scaled)
    level = (lower + (generator.random(x.size) < scaled - lower)).astype(np.int64)
    where = np.flatnonzero(level)
    dense = int(LENGTHS[level + 1].sum()) + where.size
    gaps = np.diff(where, prepend=-1)
    sparse = int(LENGTHS[gaps].sum() + LENGTHS[level[where]].sum()) + where.size + int(LENGTHS[where.size + 1])
    return np.copysign(level * (norm / levels), x), 33 + min(dense, sparse)


class Federation:
    """Clients with CSR rows, and the server's x and v."""

    def __init__(self, X: Any, y: Any, owners: Any, B: Any, *, l2: float, weight: float, lam: float) -> None:
        self.parts = [(X[owners == i], y[owners == i]) for i in np.unique(owners)]
        self.transposes = [part.T.tocsr() for part, _ in self.parts]
        self.B, self.Bt = B.tocsr(), B.T.tocsr()
        self.l2, self.weight, self.lam = l2, weight, lam

    def run(self, rounds: int, *, n: int, step: float, levels: int) -> tuple[Any, Any, int]:
        """Do some rounds from zero; return x, v and the bits sent."""
        generator = np.random.default_rng(0)
        x, v = np.zeros(self.B.shape[1]), np.zeros(self.B.shape[0])
        sigma = self.lam / step
        bits = 0
        for _ in range(rounds):
            sum_x, sum_v = np.zeros_like(x), np.zeros_like(v)
            back = self.Bt @ v
            for i in generator.choice(len(self.parts), n, replace=False):
                A, y = self.parts[i]
                slopes = -y / (1.0 + np.exp(y * (A @ x))) / len(y)
                half = x - step * (self.transposes[i] @ slopes + self.l2 * x)
                dual = np.clip(sigma * (self.B @ (half - step * back)) + v, -self.weight, self.weight)
                change, bits_x = quantize(half - step * (self.Bt @ dual) - x, levels, generator)
                decoded, bits_v = quantize(dual, levels, generator)
                sum_x += change
                sum_v += decoded
                bits += bits_x + bits_v
            x, v = x + sum_x / n, sum_v / n
        return x, v, bits
