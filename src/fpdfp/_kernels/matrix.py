"""Products of one matrix with many vectors, each vector's result independent of the others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int64, prange, uint64

from fpdfp._kernels.glm import dot, sparse_dot
from fpdfp._kernels.jit import serial, threaded

#: Vectors that a sparse matrix is multiplied with at once.
CHUNK = 8


def multiply(matrix: Any, vectors: Any, dtype: Any) -> Any:
    """Return the products of a dense or a CSR matrix, whose indices were checked, with vectors."""
    rows, columns = matrix.shape
    count = len(vectors)
    if vectors.shape != (count, columns):
        raise ValueError(f"a matrix of shape {matrix.shape} does not take vectors of shape {vectors.shape}")
    out = np.empty((count, rows), dtype=dtype)
    if isinstance(matrix, np.ndarray):
        # Of one vector, threads would only wait for each other.
        alone = multiply_dense.alone  # type: ignore[attr-defined]
        (alone if count == 1 else multiply_dense)(matrix, vectors, out)
    else:
        (multiply_chunk if count == 1 else multiply_csr)(matrix.data, matrix.indices, matrix.indptr, vectors, out)
    return out


@threaded
def multiply_dense(matrix: Any, vectors: Any, out: Any) -> None:
    for i in prange(vectors.shape[0]):
        for row in range(matrix.shape[0]):
            out[i, row] = dot(matrix[row], vectors[i])


@serial
def multiply_chunk(data: Any, indices: Any, indptr: Any, vectors: Any, out: Any) -> None:
    """Multiply up to ``CHUNK`` vectors at once, laid out so that processors do them side by side.

    Each vector's sums are taken in the same order as by :func:`fpdfp._kernels.glm.sparse_dot`, so the bits
    are those of a vector that comes alone.
    """
    count = vectors.shape[0]
    if count < 4:
        for i in range(count):
            for row in range(out.shape[1]):
                out[i, row] = sparse_dot(data, indices, indptr[row], indptr[row + 1], vectors[i])
        return
    columns = np.zeros((vectors.shape[1], CHUNK), dtype=np.float64)
    for i in range(count):
        for j in range(vectors.shape[1]):
            columns[j, i] = vectors[i, j]
    sums = np.empty(CHUNK, dtype=np.float64)
    for row in range(out.shape[1]):
        sums[:] = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            entry = float64(data[p])
            column = columns[uint64(indices[p])]
            for i in range(CHUNK):
                sums[i] += entry * column[i]
        for i in range(count):
            out[i, row] = sums[i]


@threaded
def multiply_csr(data: Any, indices: Any, indptr: Any, vectors: Any, out: Any) -> None:
    for chunk in prange((vectors.shape[0] + CHUNK - 1) // CHUNK):
        start = int64(chunk) * CHUNK
        multiply_chunk(data, indices, indptr, vectors[start : start + CHUNK], out[start : start + CHUNK])


@threaded
def weighted_gram_csr(data: Any, indices: Any, indptr: Any, weights: Any, place: Any, parts: Any, out: Any) -> None:
    """Write Σ_j w_j a_j a_jᵀ over the rows of a CSR matrix, for some of its columns.

    ``place`` says where a column comes in the result, −1 for one that does not. The rows are shared out among as many
    parts as there are zeroed matrices, whose sums are added in order: the bits do not depend on the number of threads.
    """
    count, size = parts.shape[0], out.shape[0]
    n_rows = indptr.size - 1
    for part in prange(count):
        gram = parts[part]
        where, entries = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.float64)
        for row in range(n_rows * part // count, n_rows * (part + 1) // count):
            found = 0
            for p in range(indptr[row], indptr[row + 1]):
                at = place[uint64(indices[p])]
                if at >= 0:
                    where[found], entries[found] = at, data[p]
                    found += 1
            for p in range(found):
                scaled = weights[row] * entries[p]
                line = gram[uint64(where[p])]
                for q in range(p + 1):
                    line[uint64(where[q])] += scaled * entries[q]
    for a in range(size):
        for b in range(a + 1):
            total = 0.0
            for part in range(count):
                # an entry is on the side where its columns come in the order of the row
                total += parts[part, a, b]
                if a != b:
                    total += parts[part, b, a]
            out[a, b] = total
            out[b, a] = total
