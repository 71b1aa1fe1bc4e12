"""Products of one matrix with many vectors, each vector's result independent of the others; and sparse matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int64, prange, uint64

from fpdfp._kernels.glm import dot, sparse_dot
from fpdfp._kernels.jit import serial, strictly_side_by_side, threaded

#: Vectors that a sparse matrix is multiplied with at once, and of how many they are a multiple, with zeros besides
#: them.
CHUNK, LANES = 32, 4


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
    are the same as for a single vector.
    """
    count = vectors.shape[0]
    if count < LANES:
        for i in range(count):
            multiply_one(data, indices, indptr, vectors[i], out[i])
        return
    columns = np.empty((vectors.shape[1], width_for(count)), dtype=np.float64)
    turn(vectors, columns)
    sums = np.empty((out.shape[1], columns.shape[1]), dtype=np.float64)
    multiply_columns(data, indices, indptr, columns, sums)
    turn_back(sums, out)


@serial
def multiply_one(data: Any, indices: Any, indptr: Any, vector: Any, out: Any) -> None:
    """Multiply one vector: as :func:`fpdfp._kernels.glm.sparse_dot` for every row, which would take a call each."""
    for row in range(out.size):
        total = 0.0
        for p in range(uint64(indptr[row]), uint64(indptr[row + 1])):
            total += float64(data[p]) * float64(vector[uint64(indices[p])])
        out[row] = total


@serial
def width_for(count: Any) -> Any:
    """Return how many columns are made of some vectors."""
    return (count + LANES - 1) // LANES * LANES


@serial
def turn(vectors: Any, columns: Any) -> None:
    """Write vectors as columns, with zeros besides them."""
    for i in range(vectors.shape[0]):
        for j in range(vectors.shape[1]):
            columns[uint64(j), uint64(i)] = vectors[i, j]
    columns[:, vectors.shape[0] :] = 0.0


@serial
def turn_back(columns: Any, vectors: Any) -> None:
    """Write columns as vectors."""
    for i in range(vectors.shape[0]):
        for j in range(vectors.shape[1]):
            vectors[i, j] = columns[uint64(j), uint64(i)]


@strictly_side_by_side
def add_scaled(entry: Any, column: Any, sums: Any) -> None:
    """Add a multiple of one row of columns to another."""
    for i in range(sums.size):
        sums[i] += entry * float64(column[i])


@serial
def multiply_columns(data: Any, indices: Any, indptr: Any, columns: Any, sums: Any) -> None:
    """Multiply vectors that are columns, in float64."""
    for row in range(sums.shape[0]):
        target = sums[row]
        for i in range(target.size):
            target[i] = 0.0
        for p in range(indptr[row], indptr[row + 1]):
            add_scaled(float64(data[p]), columns[uint64(indices[p])], target)


@threaded
def multiply_csr(data: Any, indices: Any, indptr: Any, vectors: Any, out: Any) -> None:
    for chunk in prange((vectors.shape[0] + CHUNK - 1) // CHUNK):
        start = int64(chunk) * CHUNK
        multiply_chunk(data, indices, indptr, vectors[start : start + CHUNK], out[start : start + CHUNK])


@threaded
def dual_step_csr(
    data: Any, indices: Any, indptr: Any, turned_data: Any, turned_indices: Any, turned_indptr: Any, points: Any,
    slopes: Any, duals: Any, gamma: Any, sigma: Any, weight: Any, new_x: Any, new_v: Any,
) -> None:  # fmt: skip
    """Write v⁺ = clip( v + σB(half − γBᵀv), ±w ) and x⁺ = half − γBᵀv⁺, with half = x − γ · slope, or x without slopes.

    There is one x for all or one for each, and one v for all or one for each. w > 0, and ``turned`` is Bᵀ. Numbers
    are rounded where NumPy would round them if it did one step after the other, so that the bits are the same.
    """
    gamma, sigma, weight = points.dtype.type(gamma), points.dtype.type(sigma), points.dtype.type(weight)
    shared = duals.shape[0] == 1
    if new_v.shape[0] == 1:
        dual_step_one(
            data, indices, indptr, turned_data, turned_indices, turned_indptr, points[0], slopes, duals[0], gamma,
            sigma, weight, new_x[0], new_v[0],
        )  # fmt: skip
        return
    for chunk in prange((new_v.shape[0] + CHUNK - 1) // CHUNK):
        start = int64(chunk) * CHUNK
        stop = min(start + CHUNK, new_v.shape[0])
        width = width_for(stop - start)
        half = np.empty((points.shape[1], width), dtype=points.dtype)
        if slopes.shape[0] > 0:
            turn(slopes[start:stop], half)
            step_from(points[:1] if points.shape[0] == 1 else points[start:stop], gamma, half)
        else:
            turn(points[start:stop], half)
        v = np.empty((duals.shape[1], width), dtype=points.dtype)
        x = np.empty_like(half)
        sums, images = np.empty(half.shape, dtype=np.float64), np.empty(v.shape, dtype=np.float64)
        if shared:
            for row in range(v.shape[0]):
                v[row, :] = duals[0, row]
            for row in range(sums.shape[0]):
                first, last = turned_indptr[row], turned_indptr[row + 1]
                sums[row, :] = sparse_dot(turned_data, turned_indices, first, last, duals[0])
        else:
            turn(duals[start:stop], v)
            multiply_columns(turned_data, turned_indices, turned_indptr, v, sums)
        step_back(half, sums, gamma, x)
        multiply_columns(data, indices, indptr, x, images)
        clip_step(images, sigma, weight, v)
        turn_back(v, new_v[start:stop])
        if new_x.shape[1] > 0:
            multiply_columns(turned_data, turned_indices, turned_indptr, v, sums)
            step_back(half, sums, gamma, x)
            turn_back(x, new_x[start:stop])


@serial
def dual_step_one(
    data: Any, indices: Any, indptr: Any, turned_data: Any, turned_indices: Any, turned_indptr: Any, point: Any,
    slopes: Any, dual: Any, gamma: Any, sigma: Any, weight: Any, new_x: Any, new_v: Any,
) -> None:  # fmt: skip
    """Do what :func:`dual_step_csr` does for one vector, to the same bits."""
    half = point - gamma * slopes[0] if slopes.shape[0] > 0 else point.copy()
    sums, images, x = np.empty(half.size), np.empty(dual.size), np.empty_like(half)
    multiply_one(turned_data, turned_indices, turned_indptr, dual, sums)
    for j in range(x.size):
        x[j] = sums[j]
        x[j] = half[j] - gamma * x[j]
    multiply_one(data, indices, indptr, x, images)
    for row in range(dual.size):
        new_v[row] = images[row]
        y = sigma * new_v[row] + dual[row]
        # Written so that NaN, which fails every comparison, stays.
        y = -weight if y < -weight else y
        new_v[row] = weight if y > weight else y
    if new_x.size > 0:
        multiply_one(turned_data, turned_indices, turned_indptr, new_v, sums)
        for j in range(x.size):
            x[j] = sums[j]
            new_x[j] = half[j] - gamma * x[j]


@serial
def dual_steps_one(
    data: Any, indices: Any, indptr: Any, turned_data: Any, turned_indices: Any, turned_indptr: Any, factors: Any,
    y: Any, gamma: Any, sigma: Any, weight: Any, previous: Any, point: Any, theta: Any, steps: Any,
) -> Any:  # fmt: skip
    """Take accelerated dual steps for the prox of one y in double precision, and return θ.

    The map is BS, S diagonal with some factors. ``previous`` and ``point``, the last dual and where the next step
    starts, are written over.
    """
    sums, x, images = np.empty(y.size), np.empty(y.size), np.empty(point.size)
    for _ in range(steps):
        multiply_one(turned_data, turned_indices, turned_indptr, point, sums)
        for j in range(y.size):
            x[j] = factors[j] * (y[j] - gamma * (factors[j] * sums[j]))
        multiply_one(data, indices, indptr, x, images)
        uphill = 0.0
        for row in range(point.size):
            new = sigma * images[row] + point[row]
            new = -weight if new < -weight else new
            images[row] = weight if new > weight else new
            uphill += (point[row] - images[row]) * (images[row] - previous[row])
        # Momentum that points uphill is dropped.
        theta = 1.0 if uphill > 0.0 else theta
        following = (1.0 + np.sqrt(1.0 + 4.0 * (theta * theta))) / 2.0
        momentum = (theta - 1.0) / following
        theta = following
        for row in range(point.size):
            point[row] = images[row] + momentum * (images[row] - previous[row])
            previous[row] = images[row]
    return theta


@serial
def step_from(points: Any, gamma: Any, columns: Any) -> None:
    """Write x − γ · slope into columns that hold slopes."""
    for i in range(columns.shape[1]):
        point = points[min(i, points.shape[0] - 1)]
        for j in range(columns.shape[0]):
            columns[uint64(j), uint64(i)] = point[j] - gamma * columns[uint64(j), uint64(i)]


@serial
def step_back(half: Any, sums: Any, gamma: Any, x: Any) -> None:
    """Write x = half − γ · sums, all rounded to the dtype of x."""
    for j in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[j, i] = sums[j, i]
            x[j, i] = half[j, i] - gamma * x[j, i]


@serial
def clip_step(images: Any, sigma: Any, weight: Any, v: Any) -> None:
    """Write v ← σ · images + v, between ±weight, all rounded to the dtype of v."""
    image = np.empty(v.shape[1], dtype=v.dtype)
    for row in range(v.shape[0]):
        for i in range(v.shape[1]):
            image[i] = images[row, i]
        for i in range(v.shape[1]):
            y = sigma * image[i] + v[row, i]
            # Written so that NaN, which fails every comparison, stays.
            y = -weight if y < -weight else y
            v[row, i] = weight if y > weight else y


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


@serial
def take_columns(
    data: Any, indices: Any, indptr: Any, place: Any, some_data: Any, some_indices: Any, some_indptr: Any
) -> Any:  # fmt: skip
    """Write some columns of a CSR matrix as one of their own, and return how many entries they have.

    ``place`` says where a column comes, −1 for one that does not; there is room for all entries.
    """
    found = uint64(0)
    some_indptr[0] = 0
    for row in range(indptr.size - 1):
        for p in range(uint64(indptr[row]), uint64(indptr[row + 1])):
            at = place[uint64(indices[p])]
            # what does not count is written over: there are no jumps that a processor would have to guess
            some_data[found], some_indices[found] = data[p], at
            found += uint64(at >= 0)
        some_indptr[row + 1] = found
    return found


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
