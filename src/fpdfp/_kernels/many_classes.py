"""Losses and gradients of softmax at many points in one pass over the rows.

``points`` has K columns for each of P points, one for each class, one point after the other. Which rows are left out at
a point, and what is computed of it, is as in :mod:`fpdfp._kernels.many`: nothing depends on the other points, to the
last bit. ``shifts`` has what is added to the linear forms of each row, a column for each class, or is None.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import int64, prange

from fpdfp._kernels.jit import inline, serial, threaded
from fpdfp._kernels.many import add_csr, add_dense, multiply_csr, multiply_dense
from fpdfp._kernels.softmax import loss, weigh

#: How many linear forms are done at a time, if a point does not have more.
TOGETHER = 32


@inline
def turn_into_slopes(
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
def one_client_dense(
    weights: Any, shifts: Any, X: Any, y: Any, labels: Any, first: Any, last: Any, x: Any, held: Any, values: Any,
    helds: Any, gradients: Any,
) -> None:  # fmt: skip
    z = np.empty(x.shape[1])
    for j in range(first, last):
        multiply_dense(X, j, x, z)
        weight = 1.0 if weights is None else weights[j]
        turn_into_slopes(weight, shifts, j, int64(y[j]), held, labels[j], z, values, helds)
        add_dense(X, j, z, gradients)


@serial
def one_client_csr(
    weights: Any, shifts: Any, data: Any, indices: Any, indptr: Any, y: Any, labels: Any, first: Any, last: Any,
    x: Any, held: Any, values: Any, helds: Any, gradients: Any,
) -> None:  # fmt: skip
    z = np.empty(x.shape[1])
    for j in range(first, last):
        multiply_csr(data, indices, indptr, j, x, z)
        weight = 1.0 if weights is None else weights[j]
        turn_into_slopes(weight, shifts, j, int64(y[j]), held, labels[j], z, values, helds)
        add_csr(data, indices, indptr, j, z, gradients)


@threaded
def many_dense(
    weights: Any, shifts: Any, X: Any, y: Any, offsets: Any, labels: Any, clients: Any, points: Any, held: Any,
    values: Any, helds: Any, gradients: Any,
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
        one_client_dense(
            weights, shifts, X, y, labels, first, last, x, held[start:stop], values[i, start:stop],
            helds[i, start:stop], found,
        )  # fmt: skip
        gradients[i, start * classes : stop * classes] = found.T / (last - first)
        values[i, start:stop] /= last - first
        helds[i, start:stop] /= last - first


@threaded
def many_csr(
    weights: Any, shifts: Any, data: Any, indices: Any, indptr: Any, y: Any, offsets: Any, labels: Any, clients: Any,
    points: Any, held: Any, values: Any, helds: Any, gradients: Any,
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
        one_client_csr(
            weights, shifts, data, indices, indptr, y, labels, first, last, x, held[start:stop],
            values[i, start:stop], helds[i, start:stop], found,
        )  # fmt: skip
        gradients[i, start * classes : stop * classes] = found.T / (last - first)
        values[i, start:stop] /= last - first
        helds[i, start:stop] /= last - first
