"""Inner products of the rows of sparse matrices."""

from __future__ import annotations

from typing import Any

from numba import prange

from fpdfp._kernels.jit import serial, threaded


@serial
def dot_rows(data: Any, indices: Any, i: int, end_i: int, j: int, end_j: int) -> float:
    """Return the inner product of two rows, whose indices are sorted."""
    total = 0.0
    while i < end_i and j < end_j:
        if indices[i] == indices[j]:
            total += float(data[i]) * float(data[j])
            i += 1
            j += 1
        elif indices[i] < indices[j]:
            i += 1
        else:
            j += 1
    return total


@threaded
def row_grams(data: Any, indices: Any, indptr: Any, starts: Any, out: Any) -> None:
    """Write X_i X_iᵀ for matrices of as many rows as ``out`` has, which begin at ``starts``."""
    for client in prange(len(starts)):
        for a in range(out.shape[1]):
            row = starts[client] + a
            for b in range(a + 1):
                other = starts[client] + b
                value = dot_rows(data, indices, indptr[row], indptr[row + 1], indptr[other], indptr[other + 1])
                out[client, a, b] = value
                out[client, b, a] = value
