"""Products of one matrix with many vectors, each vector's result independent of the others."""

from __future__ import annotations

from typing import Any

from numba import prange

from fpdfp._kernels.glm import dot, sparse_dot
from fpdfp._kernels.jit import Kernel, serial


def _multiply_dense(matrix: Any, vectors: Any, out: Any) -> None:
    for i in prange(vectors.shape[0]):
        for row in range(matrix.shape[0]):
            out[i, row] = dot(matrix[row], vectors[i])


def _multiply_csr(data: Any, indices: Any, indptr: Any, vectors: Any, out: Any) -> None:
    for i in prange(vectors.shape[0]):
        vector = vectors[i]
        for row in range(out.shape[1]):
            out[i, row] = sparse_dot(data, indices, indptr[row], indptr[row + 1], vector)


@serial
def weighted_gram_csr(data: Any, indices: Any, indptr: Any, weights: Any, out: Any) -> None:
    """Add Σ_j w_j a_j a_jᵀ over the rows of a CSR matrix with sorted indices to the zeroed ``out``."""
    for row in range(indptr.size - 1):
        for p in range(indptr[row], indptr[row + 1]):
            scaled = weights[row] * data[p]
            for q in range(indptr[row], p + 1):
                out[indices[p], indices[q]] += scaled * data[q]
    for a in range(out.shape[0]):
        for b in range(a):
            out[b, a] = out[a, b]


multiply_dense = Kernel(_multiply_dense)
multiply_csr = Kernel(_multiply_csr)
