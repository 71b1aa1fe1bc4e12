"""Gradients and values of generalised linear losses, many clients in one call.

A client's loss is the mean over its rows of φ(z_j, y_j) with z_j = a_jᵀx, plus the ridge ``½ Σ_j l2_j x_j²``.
``phi`` and ``slope`` are the addresses of φ and its derivative, p and q their parameters; ``weights`` multiply the
rows' losses, and ``shifts`` are added to their linear forms, both may be None. Gradients take the vector
``l2``, values the ridge itself, which all clients share.

A matrix is four arguments, here and in the kernels of other losses: a dense X, or ``data``, ``indices`` and ``indptr``
of a CSR matrix. The others are None, and Numba excludes what is done with them.

φ is a function (z, y, p, q) to a number that is compiled to machine code by itself, and kernels call it by its address,
which is a number. So a kernel is compiled once for all of them, and a new family of losses compiles only its own
functions.

``rows`` has the numbers of all rows, sorted by client: client i has ``rows[offsets[i]:offsets[i + 1]]``. Where
``draws`` is None, a client uses all of them. Otherwise it uses a random batch, and ``draws`` has what that is drawn
from: the two words of the key, tag, round, the size of a batch, and the clients' numbers in the whole federation.
``x`` has one row that all clients share, or one row for each.
"""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float64, int64, prange, uint64
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from fpdfp._kernels.jit import KeptCode, inline, reduction, serial, strictly_side_by_side, threaded
from fpdfp._kernels.philox import sample_subset
from fpdfp._typing import Array

#: p and q are parameters, two numbers that are the same for all rows.
SIGNATURE = float64(float64, float64, float64, float64)


class Scalar:
    """A function (z, y, p, q) that is compiled when it is first used; its machine code is kept on disk."""

    def __init__(self, function: Any) -> None:
        self.function = function

    @functools.cached_property
    def _compiled(self) -> Any:
        compiled: Any = CFunc(self.function, (SIGNATURE.args, SIGNATURE.return_type), {}, {"error_model": "numpy"})
        compiled._cache = KeptCode(self.function)
        compiled.compile()
        return compiled

    @property
    def address(self) -> int:
        """The address of the compiled function, valid as long as this object."""
        return int(self._compiled.address)

    def __call__(self, z: Array, y: Array, parameters: tuple[float, float] = (0.0, 0.0)) -> Array:
        """Return the function at each row."""
        out = np.empty(len(z))
        z, y = (np.ascontiguousarray(rows, dtype=np.float64) for rows in (z, y))
        evaluate_rows(self.address, z, y, *parameters, out)
        return out

    def bind(self, name: str, others: Mapping[str, Any]) -> Scalar:
        """Return the same function with other compiled functions in place of the names that it refers to."""
        made = types.FunctionType(self.function.__code__, self.function.__globals__ | dict(others))
        made.__name__ = made.__qualname__ = name  # machine code is kept by this name
        made.__module__ = self.function.__module__
        return Scalar(made)


@intrinsic  # type: ignore[untyped-decorator]
def call(typing: Any, address: Any, z: Any, y: Any, p: Any, q: Any) -> Any:
    """Call the function at an address."""

    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        double = ir.DoubleType()
        pointer = builder.inttoptr(given[0], ir.FunctionType(double, [double] * 4).as_pointer())
        return builder.call(pointer, given[1:])

    return float64(int64, float64, float64, float64, float64), generate


@serial
def evaluate_rows(address: Any, z: Any, y: Any, p: Any, q: Any, out: Any) -> None:
    for j in range(z.size):
        out[j] = call(address, z[j], y[j], p, q)


@Scalar
def logistic(z: Any, y: Any, p: Any, q: Any) -> Any:
    """The logistic loss of a row."""
    margin = y * z
    return max(-margin, 0.0) + math.log1p(math.exp(-abs(margin)))


@Scalar
def logistic_slope(z: Any, y: Any, p: Any, q: Any) -> Any:
    """Its derivative."""
    # exp may overflow to infinity for a confidently right row: the slope is then 0, as it should be.
    return -y / (1.0 + math.exp(y * z))


@Scalar
def squared(z: Any, y: Any, p: Any, q: Any) -> Any:
    """The squared loss of a row."""
    return 0.5 * (z - y) ** 2


@Scalar
def squared_slope(z: Any, y: Any, p: Any, q: Any) -> Any:
    """Its derivative."""
    return z - y


@reduction
def dot(a: Any, b: Any) -> Any:
    """Inner product of two dense vectors."""
    s = 0.0
    for j in range(a.size):
        s += a[j] * b[j]
    return s


@reduction
def four_dots(a: Any, b: Any, c: Any, e: Any, x: Any) -> Any:
    """Inner products of four dense vectors with one: their loads from memory overlap."""
    sa = sb = sc = se = 0.0
    for j in range(x.size):
        sa += a[j] * x[j]
        sb += b[j] * x[j]
        sc += c[j] * x[j]
        se += e[j] * x[j]
    return sa, sb, sc, se


@serial
def sparse_dot(data: Any, indices: Any, start: Any, stop: Any, x: Any) -> Any:
    """Inner product of a CSR row with a dense vector."""
    s = 0.0
    for p in range(start, stop):
        # unsigned, so that no code for negative indices is made
        s += float64(data[p]) * float64(x[uint64(indices[p])])
    return s


@serial
def draw_rows(offsets: Any, client: Any, draws: Any, i: Any) -> Any:
    """Return the numbers of the rows of a client's batch; it is the i-th of the clients that draw."""
    k0, k1, tag, round_, batch, names = draws
    first = offsets[client]
    count = offsets[client + 1] - first
    if batch >= count:
        return np.arange(first, first + count)
    size = 4
    while size < 2 * batch:
        size *= 2
    room = np.empty(size + batch, dtype=np.int64)  # one piece is sooner made than two
    rows = room[size:]
    sample_subset(k0, k1, tag, names[i], round_, count, batch, room[:size], rows)
    for t in range(batch):
        rows[t] += first
    return rows


@inline
def choose_rows(rows: Any, offsets: Any, client: Any, draws: Any, i: Any) -> Any:
    """Return the numbers of the rows that a client uses; Numba compiles one case alone, by the type of ``draws``."""
    if draws is None:
        return rows[offsets[client] : offsets[client + 1]]
    return draw_rows(offsets, client, draws, i)


@strictly_side_by_side
def linear_forms(X: Any, data: Any, indices: Any, indptr: Any, rows: Any, x: Any, z: Any) -> None:
    """Write a_jᵀx for the given rows."""
    if X is not None:
        t = 0
        while t + 4 <= rows.size:
            a, b, c, e = X[rows[t]], X[rows[t + 1]], X[rows[t + 2]], X[rows[t + 3]]
            z[t], z[t + 1], z[t + 2], z[t + 3] = four_dots(a, b, c, e, x)
            t += 4
        while t < rows.size:
            z[t] = dot(X[rows[t]], x)
            t += 1
    if data is not None:
        for t in range(rows.size):
            z[t] = sparse_dot(data, indices, indptr[rows[t]], indptr[rows[t] + 1], x)


@inline
def weigh(slope: Any, p: Any, q: Any, weights: Any, shifts: Any, y: Any, rows: Any, z: Any) -> None:
    """Turn linear forms into the weights of the rows in the gradient, in place."""
    if weights is None:
        for t in range(rows.size):
            z[t] = call(slope, z[t], y[rows[t]], p, q) / rows.size
    else:
        for t in range(rows.size):
            j = rows[t]
            z[t] = weights[j] * call(slope, z[t] + shifts[j], y[j], p, q) / rows.size


@inline
def start_with_ridge(l2: Any, x: Any, gradient: Any) -> None:
    """Write the gradient of the ridge."""
    for j in range(gradient.size):
        gradient[j] = l2[j] * x[j]


@strictly_side_by_side
def add_rows(X: Any, data: Any, indices: Any, indptr: Any, rows: Any, weights: Any, gradient: Any) -> None:
    """Add Σ_t w_t a_t over the given rows to a gradient."""
    if X is not None:
        t = 0
        while t + 4 <= rows.size:
            a, b, c, e = X[rows[t]], X[rows[t + 1]], X[rows[t + 2]], X[rows[t + 3]]
            wa, wb, wc, we = weights[t], weights[t + 1], weights[t + 2], weights[t + 3]
            for j in range(gradient.size):
                gradient[j] += (wa * a[j] + wb * b[j]) + (wc * c[j] + we * e[j])
            t += 4
        while t < rows.size:
            a, wa = X[rows[t]], weights[t]
            for j in range(gradient.size):
                gradient[j] += wa * a[j]
            t += 1
    if data is not None:
        for t in range(rows.size):
            weight = weights[t]
            for p in range(indptr[rows[t]], indptr[rows[t] + 1]):
                gradient[uint64(indices[p])] += weight * data[p]


@threaded
def gradients(
    slope: Any, p: Any, q: Any, weights: Any, shifts: Any, X: Any, data: Any, indices: Any, indptr: Any, y: Any,
    rows: Any, offsets: Any, clients: Any, draws: Any, x: Any, l2: Any, out: Any,
) -> None:  # fmt: skip
    shared = x.shape[0] == 1
    for i in prange(clients.size):
        own = choose_rows(rows, offsets, clients[i], draws, i)
        point = x[0] if shared else x[i]
        z = np.empty(own.size, dtype=np.float64)
        linear_forms(X, data, indices, indptr, own, point, z)
        weigh(slope, p, q, weights, shifts, y, own, z)
        start_with_ridge(l2, point, out[i])
        add_rows(X, data, indices, indptr, own, z, out[i])


@inline
def mean_loss(phi: Any, p: Any, q: Any, weights: Any, shifts: Any, y: Any, rows: Any, z: Any) -> Any:
    """The mean of φ over the given rows, given their linear forms."""
    total = 0.0
    if weights is None:
        for t in range(z.size):
            total += call(phi, z[t], y[rows[t]], p, q)
    else:
        for t in range(z.size):
            j = rows[t]
            total += weights[j] * call(phi, z[t] + shifts[j], y[j], p, q)
    return total / z.size


@threaded
def values(
    phi: Any, p: Any, q: Any, weights: Any, shifts: Any, X: Any, data: Any, indices: Any, indptr: Any, y: Any,
    rows: Any, offsets: Any, clients: Any, x: Any, ridge: Any, out: Any,
) -> None:  # fmt: skip
    for i in prange(clients.size):
        own = rows[offsets[clients[i]] : offsets[clients[i] + 1]]
        z = np.empty(own.size, dtype=np.float64)
        linear_forms(X, data, indices, indptr, own, x, z)
        out[i] = mean_loss(phi, p, q, weights, shifts, y, own, z) + ridge
