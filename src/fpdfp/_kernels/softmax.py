"""Gradients and values of softmax losses, many clients in one call.

A client's loss is the mean over its rows of ``log Σ_k exp(a_jᵀx_k) − a_jᵀx_{y_j}``, plus the ridge
``½ Σ_k Σ_j l2_j x_kj²``. Rows, clients and draws are as in :mod:`fpdfp._kernels.glm`; ``x`` has one point that all
clients share, or one for each, and a point has a row for each class.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import float64, int64, prange, uint64

from fpdfp._kernels.glm import add_rows, choose_rows, linear_forms, start_with_ridge
from fpdfp._kernels.jit import inline, serial, threaded

#: Dense rows that all classes go through while they are in the cache; a multiple of four, as the helpers take them.
BLOCK = 32


@inline
def loss(z: Any, label: Any) -> Any:
    """The loss of one row from its linear forms: the largest one is taken out, so nothing overflows."""
    top = 0
    for k in range(1, z.size):
        if z[k] > z[top]:
            top = k
    others = 0.0
    for k in range(z.size):
        if k != top:
            others += math.exp(z[k] - z[top])
    return (z[top] - z[label]) + math.log1p(others)


@inline
def weigh(z: Any, label: Any, count: Any) -> None:
    """Turn the linear forms of a row into its weights in the gradient, one for each class, in place."""
    top = z[0]
    for k in range(1, z.size):
        top = max(top, z[k])
    total = 0.0
    for k in range(z.size):
        z[k] = math.exp(z[k] - top)
        total += z[k]
    others = 0.0
    for k in range(z.size):
        z[k] /= total * count
        if k != label:
            others += z[k]
    # p − 1 would lose the digits of a p near 1
    z[label] = -others


@serial
def forms_dense(X: Any, rows: Any, x: Any, z: Any, turned: Any) -> None:
    """Write a_jᵀx_k for up to ``BLOCK`` rows into z, a row for each class, and into ``turned``, a row for each row."""
    for k in range(x.shape[0]):
        linear_forms(X, None, None, None, rows, x[k], z[k])
    for t in range(rows.size):
        for k in range(x.shape[0]):
            turned[t, k] = z[k, t]


@inline
def client_gradient_dense(X: Any, y: Any, rows: Any, x: Any, l2: Any, gradient: Any) -> None:
    """Write the gradient of one client over the given rows."""
    classes = x.shape[0]
    z = np.empty((classes, BLOCK), dtype=np.float64)
    turned = np.empty((BLOCK, classes), dtype=np.float64)
    for k in range(classes):
        start_with_ridge(l2, x[k], gradient[k])
    for start in range(0, rows.size, BLOCK):
        block = rows[start : start + BLOCK]
        forms_dense(X, block, x, z, turned)
        for t in range(block.size):
            weigh(turned[t], int64(y[block[t]]), rows.size)
        for k in range(classes):
            for t in range(block.size):
                z[k, t] = turned[t, k]
            add_rows(X, None, None, None, block, z[k], gradient[k])


@serial
def forms_csr(data: Any, indices: Any, start: Any, stop: Any, columns: Any, z: Any) -> None:
    """Write aᵀx_k for one CSR row; ``columns`` is x with a row for each feature, so that classes lie side by side."""
    z[:] = 0.0
    for p in range(start, stop):
        entry = float64(data[p])
        column = columns[uint64(indices[p])]
        for k in range(z.size):
            z[k] += entry * column[k]


@inline
def client_gradient_csr(
    data: Any, indices: Any, indptr: Any, y: Any, rows: Any, x: Any, l2: Any, gradient: Any
) -> None:
    """Write the gradient of one client over the given rows of a CSR matrix."""
    classes, features = x.shape
    columns = np.ascontiguousarray(x.T)
    sums = np.zeros((features, classes), dtype=np.float64)
    z = np.empty(classes, dtype=np.float64)
    for t in range(rows.size):
        start, stop = indptr[rows[t]], indptr[rows[t] + 1]
        forms_csr(data, indices, start, stop, columns, z)
        weigh(z, int64(y[rows[t]]), rows.size)
        for p in range(start, stop):
            entry = float64(data[p])
            total = sums[uint64(indices[p])]
            for k in range(classes):
                total[k] += entry * z[k]
    for k in range(classes):
        for j in range(features):
            gradient[k, j] = l2[j] * x[k, j] + sums[j, k]


@inline
def client_loss_dense(X: Any, y: Any, rows: Any, x: Any) -> Any:
    """Return the sum of the losses of one client's rows."""
    z = np.empty((x.shape[0], BLOCK), dtype=np.float64)
    turned = np.empty((BLOCK, x.shape[0]), dtype=np.float64)
    total = 0.0
    for start in range(0, rows.size, BLOCK):
        block = rows[start : start + BLOCK]
        forms_dense(X, block, x, z, turned)
        for t in range(block.size):
            total += loss(turned[t], int64(y[block[t]]))
    return total


@inline
def client_loss_csr(data: Any, indices: Any, indptr: Any, y: Any, rows: Any, columns: Any) -> Any:
    """Return the sum of the losses of one client's rows of a CSR matrix."""
    z = np.empty(columns.shape[1], dtype=np.float64)
    total = 0.0
    for t in range(rows.size):
        forms_csr(data, indices, indptr[rows[t]], indptr[rows[t] + 1], columns, z)
        total += loss(z, int64(y[rows[t]]))
    return total


@threaded
def gradients(
    X: Any, data: Any, indices: Any, indptr: Any, y: Any, rows: Any, offsets: Any, clients: Any, draws: Any, x: Any,
    l2: Any, out: Any,
) -> None:  # fmt: skip
    shared = x.shape[0] == 1
    for i in prange(clients.size):
        own = choose_rows(rows, offsets, clients[i], draws, i)
        point = x[0] if shared else x[i]
        if X is not None:
            client_gradient_dense(X, y, own, point, l2, out[i])
        if data is not None:
            client_gradient_csr(data, indices, indptr, y, own, point, l2, out[i])


@threaded
def values(
    X: Any, data: Any, indices: Any, indptr: Any, y: Any, rows: Any, offsets: Any, clients: Any, x: Any, ridge: Any,
    out: Any,
) -> None:  # fmt: skip
    columns = np.ascontiguousarray(x.T)
    for i in prange(clients.size):
        own = rows[offsets[clients[i]] : offsets[clients[i] + 1]]
        total = 0.0
        if X is not None:
            total = client_loss_dense(X, y, own, x)
        if data is not None:
            total = client_loss_csr(data, indices, indptr, y, own, columns)
        out[i] = total / own.size + ridge
