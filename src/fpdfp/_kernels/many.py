"""Losses and gradients of generalised linear models and of softmax at many points in one pass over the rows.

``points`` has a column for each of P points. At point p the rows whose label is ``held[p]`` are left out of the
gradient and of the first sum of losses, and make up the second. Sums are divided by the number of a client's rows.
Points are done some at a time; what is computed of one does not depend on the others, to the last bit. For softmax a
point has K columns, one for each class, and ``shifts`` has what is added to the linear forms of each row, a column for
each class, or is None. Matrices are given as in :mod:`fpdfp._kernels.glm`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, prange, uint64

from fpdfp._kernels.glm import call
from fpdfp._kernels.jit import inline, serial, threaded
from fpdfp._kernels.softmax import loss, weigh

#: How many linear forms are done at a time, if a point does not have more.
TOGETHER = 32


@inline
def multiply_dense(X: Any, j: Any, x: Any, z: Any) -> None:
    """Set z to the linear forms of row j at all columns of x."""
    z[:] = 0.0
    for i in range(x.shape[0]):
        a = X[j, i]
        if a != 0.0:
            for b in range(z.size):
                z[b] += a * x[i, b]


@inline
def multiply_csr(data: Any, indices: Any, indptr: Any, j: Any, x: Any, z: Any) -> None:
    """Set z to the linear forms of row j at all columns of x."""
    z[:] = 0.0
    for t in range(indptr[j], indptr[j + 1]):
        a, i = data[t], uint64(indices[t])
        for b in range(z.size):
            z[b] += a * x[i, b]


@inline
def add_dense(X: Any, j: Any, z: Any, gradients: Any) -> None:
    """Add row j to each column of the gradients, as often as z says."""
    for i in range(gradients.shape[0]):
        a = X[j, i]
        if a != 0.0:
            for b in range(z.size):
                gradients[i, b] += a * z[b]


@inline
def add_csr(data: Any, indices: Any, indptr: Any, j: Any, z: Any, gradients: Any) -> None:
    """Add row j to each column of the gradients, as often as z says."""
    for t in range(indptr[j], indptr[j + 1]):
        a, i = data[t], uint64(indices[t])
        for b in range(z.size):
            gradients[i, b] += a * z[b]


@inline
def turn_into_slopes(
    phi: Any, slope: Any, p: Any, q: Any, weight: Any, shift: Any, y: Any, out: Any, z: Any, values: Any, helds: Any
) -> None:
    """Add the losses of a row at some points, and turn its linear forms into its weights in the gradients."""
    for b in range(z.size):
        form = z[b] + shift
        loss = weight * call(phi, form, y, p, q)
        if out[b]:
            helds[b] += loss
            z[b] = 0.0
        else:
            values[b] += loss
            z[b] = weight * call(slope, form, y, p, q)


@serial
def one_client(
    phi: Any, slope: Any, p: Any, q: Any, weights: Any, shifts: Any, X: Any, data: Any, indices: Any, indptr: Any,
    y: Any, labels: Any, first: Any, last: Any, x: Any, held: Any, values: Any, helds: Any, gradients: Any,
) -> None:  # fmt: skip
    z = np.empty(held.size)
    out = np.empty(held.size, dtype=np.bool_)
    for j in range(first, last):
        if X is not None:
            multiply_dense(X, j, x, z)
        if data is not None:
            multiply_csr(data, indices, indptr, j, x, z)
        for b in range(z.size):
            out[b] = labels[j] == held[b]
        weight = 1.0 if weights is None else weights[j]
        shift = 0.0 if shifts is None else shifts[j]
        turn_into_slopes(phi, slope, p, q, weight, shift, y[j], out, z, values, helds)
        if X is not None:
            add_dense(X, j, z, gradients)
        if data is not None:
            add_csr(data, indices, indptr, j, z, gradients)


@threaded
def evaluate(
    phi: Any, slope: Any, p: Any, q: Any, weights: Any, shifts: Any, X: Any, data: Any, indices: Any, indptr: Any,
    y: Any, offsets: Any, labels: Any, clients: Any, points: Any, held: Any, values: Any, helds: Any, gradients: Any,
) -> None:  # fmt: skip
    blocks = (held.size + TOGETHER - 1) // TOGETHER
    for task in prange(clients.size * blocks):
        i, block = task // blocks, task % blocks
        some = slice(block * TOGETHER, min((block + 1) * TOGETHER, held.size))
        first, last = offsets[clients[i]], offsets[clients[i] + 1]
        x = points[:, some].copy()
        found = np.zeros(x.shape)
        one_client(
            phi, slope, p, q, weights, shifts, X, data, indices, indptr, y, labels, first, last, x, held[some],
            values[i, some], helds[i, some], found,
        )  # fmt: skip
        gradients[i, some] = found.T / (last - first)
        values[i, some] /= last - first
        helds[i, some] /= last - first


@inline
def turn_classes_into_slopes(
    weight: Any, shifts: Any, j: Any, label: Any, held: Any, out: Any, z: Any, values: Any, helds: Any
) -> None:
    """Add the losses of a row at some points, and turn its linear forms into its weights in the gradients."""
    classes = z.size // held.size
    for b in range(held.size):
        forms = z[b * classes : (b + 1) * classes]
        if shifts is not None:
            for k in range(classes):
                forms[k] += shifts[j, k]
        lost = weight * loss(forms, label)
        if out == held[b]:
            helds[b] += lost
            forms[:] = 0.0
        else:
            values[b] += lost
            weigh(forms, label, 1.0)
            for k in range(classes):
                forms[k] *= weight


@serial
def one_client_classes(
    weights: Any, shifts: Any, X: Any, data: Any, indices: Any, indptr: Any, y: Any, labels: Any, first: Any,
    last: Any, x: Any, held: Any, values: Any, helds: Any, gradients: Any,
) -> None:  # fmt: skip
    z = np.empty(x.shape[1])
    for j in range(first, last):
        if X is not None:
            multiply_dense(X, j, x, z)
        if data is not None:
            multiply_csr(data, indices, indptr, j, x, z)
        weight = 1.0 if weights is None else weights[j]
        turn_classes_into_slopes(weight, shifts, j, int64(y[j]), held, labels[j], z, values, helds)
        if X is not None:
            add_dense(X, j, z, gradients)
        if data is not None:
            add_csr(data, indices, indptr, j, z, gradients)


@threaded
def evaluate_classes(
    weights: Any, shifts: Any, X: Any, data: Any, indices: Any, indptr: Any, y: Any, offsets: Any, labels: Any,
    clients: Any, points: Any, held: Any, values: Any, helds: Any, gradients: Any,
) -> None:  # fmt: skip
    classes = points.shape[1] // held.size
    each = max(1, TOGETHER // classes)
    blocks = (held.size + each - 1) // each
    for task in prange(clients.size * blocks):
        i, start = task // blocks, (task % blocks) * each
        stop = min(start + each, held.size)
        first, last = offsets[clients[i]], offsets[clients[i] + 1]
        x = points[:, start * classes : stop * classes].copy()
        found = np.zeros(x.shape)
        one_client_classes(
            weights, shifts, X, data, indices, indptr, y, labels, first, last, x, held[start:stop],
            values[i, start:stop], helds[i, start:stop], found,
        )  # fmt: skip
        gradients[i, start * classes : stop * classes] = found.T / (last - first)
        values[i, start:stop] /= last - first
        helds[i, start:stop] /= last - first
