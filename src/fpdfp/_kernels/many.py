"""Losses and gradients of generalised linear models at many points in one pass over the rows.

``points`` has a column for each of P points. At point p the rows whose label is ``held[p]`` are left out of the
gradient and of the first sum of losses, and make up the second. Sums are divided by the number of a client's rows.
Points are done some at a time; what is computed of one does not depend on the others, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange, uint64

from fpdfp._kernels.functions import call
from fpdfp._kernels.jit import inline, serial, threaded

#: How many points are done at a time.
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
def one_client_dense(
    phi: Any, slope: Any, p: Any, q: Any, weights: Any, shifts: Any, X: Any, y: Any, labels: Any, first: Any, last: Any,
    x: Any, held: Any, values: Any, helds: Any, gradients: Any,
) -> None:  # fmt: skip
    z = np.empty(held.size)
    out = np.empty(held.size, dtype=np.bool_)
    for j in range(first, last):
        multiply_dense(X, j, x, z)
        for b in range(z.size):
            out[b] = labels[j] == held[b]
        weight = 1.0 if weights is None else weights[j]
        shift = 0.0 if shifts is None else shifts[j]
        turn_into_slopes(phi, slope, p, q, weight, shift, y[j], out, z, values, helds)
        add_dense(X, j, z, gradients)


@serial
def one_client_csr(
    phi: Any, slope: Any, p: Any, q: Any, weights: Any, shifts: Any, data: Any, indices: Any, indptr: Any, y: Any,
    labels: Any, first: Any, last: Any, x: Any, held: Any, values: Any, helds: Any, gradients: Any,
) -> None:  # fmt: skip
    z = np.empty(held.size)
    out = np.empty(held.size, dtype=np.bool_)
    for j in range(first, last):
        multiply_csr(data, indices, indptr, j, x, z)
        for b in range(z.size):
            out[b] = labels[j] == held[b]
        weight = 1.0 if weights is None else weights[j]
        shift = 0.0 if shifts is None else shifts[j]
        turn_into_slopes(phi, slope, p, q, weight, shift, y[j], out, z, values, helds)
        add_csr(data, indices, indptr, j, z, gradients)


@threaded
def many_dense(
    phi: Any, slope: Any, p: Any, q: Any, weights: Any, shifts: Any, X: Any, y: Any, offsets: Any, labels: Any,
    clients: Any, points: Any, held: Any, values: Any, helds: Any, gradients: Any,
) -> None:  # fmt: skip
    blocks = (held.size + TOGETHER - 1) // TOGETHER
    for task in prange(clients.size * blocks):
        i, block = task // blocks, task % blocks
        some = slice(block * TOGETHER, min((block + 1) * TOGETHER, held.size))
        first, last = offsets[clients[i]], offsets[clients[i] + 1]
        x = points[:, some].copy()
        found = np.zeros(x.shape)
        one_client_dense(
            phi, slope, p, q, weights, shifts, X, y, labels, first, last, x, held[some], values[i, some],
            helds[i, some], found,
        )  # fmt: skip
        gradients[i, some] = found.T / (last - first)
        values[i, some] /= last - first
        helds[i, some] /= last - first


@threaded
def many_csr(
    phi: Any, slope: Any, p: Any, q: Any, weights: Any, shifts: Any, data: Any, indices: Any, indptr: Any, y: Any,
    offsets: Any, labels: Any, clients: Any, points: Any, held: Any, values: Any, helds: Any, gradients: Any,
) -> None:  # fmt: skip
    blocks = (held.size + TOGETHER - 1) // TOGETHER
    for task in prange(clients.size * blocks):
        i, block = task // blocks, task % blocks
        some = slice(block * TOGETHER, min((block + 1) * TOGETHER, held.size))
        first, last = offsets[clients[i]], offsets[clients[i] + 1]
        x = points[:, some].copy()
        found = np.zeros(x.shape)
        one_client_csr(
            phi, slope, p, q, weights, shifts, data, indices, indptr, y, labels, first, last, x, held[some],
            values[i, some], helds[i, some], found,
        )  # fmt: skip
        gradients[i, some] = found.T / (last - first)
        values[i, some] /= last - first
        helds[i, some] /= last - first
