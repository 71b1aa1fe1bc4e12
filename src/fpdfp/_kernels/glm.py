"""Gradients and values of generalised linear losses, many clients in one call.

A client's loss is the mean over its rows of φ(z_j, y_j) with z_j = a_jᵀx, plus the ridge ``l2/2 ‖x‖²``.
``kind`` chooses φ: logistic, ``log(1 + exp(−y z))``, or squared, ``(z − y)²/2``.

Rows are sorted by client; client i owns rows ``offsets[i]:offsets[i+1]``. ``x`` has one row that all
clients share, or one row for each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from fpdfp._kernels.jit import Kernel, inline, serial
from fpdfp._kernels.philox import sample_subset

LOGISTIC = 0
SQUARED = 1


@inline
def slope(kind: Any, z: Any, y: Any) -> Any:
    """The derivative of φ in z."""
    if kind == LOGISTIC:
        # exp may overflow to infinity for a confidently right row: the slope is then 0, as it should be.
        return -y / (1.0 + math.exp(y * z))
    return z - y


@inline
def phi(kind: Any, z: Any, y: Any) -> Any:
    """The loss of one row."""
    if kind == LOGISTIC:
        margin = y * z
        return max(-margin, 0.0) + math.log1p(math.exp(-abs(margin)))
    return 0.5 * (z - y) ** 2


@serial
def dot(a: Any, b: Any) -> Any:
    """Inner product in a fixed order that processors can do eight at a time."""
    n = a.size
    whole = n - n % 8
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    for j in range(0, whole, 8):
        s0 += a[j] * b[j]
        s1 += a[j + 1] * b[j + 1]
        s2 += a[j + 2] * b[j + 2]
        s3 += a[j + 3] * b[j + 3]
        s4 += a[j + 4] * b[j + 4]
        s5 += a[j + 5] * b[j + 5]
        s6 += a[j + 6] * b[j + 6]
        s7 += a[j + 7] * b[j + 7]
    for j in range(whole, n):
        s0 += a[j] * b[j]
    return ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))


@serial
def sparse_dot(data: Any, indices: Any, start: Any, stop: Any, x: Any) -> Any:
    """Inner product of a CSR row with a dense vector."""
    s = 0.0
    for p in range(start, stop):
        s += data[p] * x[indices[p]]
    return s


@serial
def choose_rows(k0: Any, k1: Any, tag: Any, client: Any, round_: Any, offsets: Any, batch: Any) -> Any:
    """Return the numbers of a random subset of ``batch`` of a client's rows, or of all of them."""
    first = offsets[client]
    count = offsets[client + 1] - first
    if batch >= count:
        return np.arange(first, first + count)
    rows = np.empty(batch, dtype=np.int64)
    size = 4
    while size < 2 * batch:
        size *= 2
    sample_subset(k0, k1, tag, client, round_, count, batch, np.empty(size, dtype=np.int64), rows)
    for t in range(batch):
        rows[t] += first
    return rows


@serial
def client_gradient_dense(kind: Any, X: Any, y: Any, rows: Any, x: Any, l2: Any, gradient: Any) -> None:
    """Write the gradient of one client over the given rows."""
    for j in range(gradient.size):
        gradient[j] = l2 * x[j]
    for t in range(rows.size):
        row = X[rows[t]]
        weight = slope(kind, dot(row, x), y[rows[t]]) / rows.size
        for j in range(gradient.size):
            gradient[j] += weight * row[j]


@serial
def client_gradient_csr(
    kind: Any, data: Any, indices: Any, indptr: Any, y: Any, rows: Any, x: Any, l2: Any, gradient: Any
) -> None:
    """Write the gradient of one client over the given rows of a CSR matrix."""
    for j in range(gradient.size):
        gradient[j] = l2 * x[j]
    for t in range(rows.size):
        row = rows[t]
        start = indptr[row]
        stop = indptr[row + 1]
        weight = slope(kind, sparse_dot(data, indices, start, stop, x), y[row]) / rows.size
        for p in range(start, stop):
            gradient[indices[p]] += weight * data[p]


def _gradients_dense(
    kind: Any, X: Any, y: Any, offsets: Any, clients: Any, x: Any, l2: Any, batch: Any,
    k0: Any, k1: Any, tag: Any, round_: Any, out: Any,
) -> None:  # fmt: skip
    shared = x.shape[0] == 1
    for i in prange(clients.size):
        rows = choose_rows(k0, k1, tag, clients[i], round_, offsets, batch)
        client_gradient_dense(kind, X, y, rows, x[0] if shared else x[i], l2, out[i])


def _gradients_csr(
    kind: Any, data: Any, indices: Any, indptr: Any, y: Any, offsets: Any, clients: Any, x: Any, l2: Any,
    batch: Any, k0: Any, k1: Any, tag: Any, round_: Any, out: Any,
) -> None:  # fmt: skip
    shared = x.shape[0] == 1
    for i in prange(clients.size):
        rows = choose_rows(k0, k1, tag, clients[i], round_, offsets, batch)
        client_gradient_csr(kind, data, indices, indptr, y, rows, x[0] if shared else x[i], l2, out[i])


@serial
def client_value_dense(kind: Any, X: Any, y: Any, start: Any, stop: Any, x: Any) -> Any:
    """The sum of φ over a client's rows."""
    total = 0.0
    for row in range(start, stop):
        total += phi(kind, dot(X[row], x), y[row])
    return total


@serial
def client_value_csr(kind: Any, data: Any, indices: Any, indptr: Any, y: Any, start: Any, stop: Any, x: Any) -> Any:
    """The sum of φ over a client's rows of a CSR matrix."""
    total = 0.0
    for row in range(start, stop):
        total += phi(kind, sparse_dot(data, indices, indptr[row], indptr[row + 1], x), y[row])
    return total


def _values_dense(kind: Any, X: Any, y: Any, offsets: Any, clients: Any, x: Any, l2: Any, out: Any) -> None:
    ridge = 0.5 * l2 * dot(x, x)
    for i in prange(clients.size):
        start = offsets[clients[i]]
        stop = offsets[clients[i] + 1]
        out[i] = client_value_dense(kind, X, y, start, stop, x) / (stop - start) + ridge


def _values_csr(
    kind: Any,
    data: Any,
    indices: Any,
    indptr: Any,
    y: Any,
    offsets: Any,
    clients: Any,
    x: Any,
    l2: Any,
    out: Any,
) -> None:
    ridge = 0.5 * l2 * dot(x, x)
    for i in prange(clients.size):
        start = offsets[clients[i]]
        stop = offsets[clients[i] + 1]
        out[i] = client_value_csr(kind, data, indices, indptr, y, start, stop, x) / (stop - start) + ridge


gradients_dense = Kernel(_gradients_dense)
gradients_csr = Kernel(_gradients_csr)
values_dense = Kernel(_values_dense)
values_csr = Kernel(_values_csr)
