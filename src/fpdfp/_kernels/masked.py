"""Differences inside a mask, their adjoint, and several dual steps of a total variation at once.

``following`` and ``preceding`` have, for each axis and entry of the mask, the number of its neighbour, −1 for none.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import prange

from fpdfp._kernels.jit import serial, threaded


@serial
def apply(x: Any, following: Any, out: Any) -> None:
    """Write the differences of each row of x, ``(rows, axes, entries)``."""
    axes, entries = following.shape
    for row in range(x.shape[0]):
        for axis in range(axes):
            for j in range(entries):
                k = following[axis, j]
                out[row, axis, j] = x[row, k] - x[row, j] if k >= 0 else x[row, j] - x[row, j]


@serial
def adjoint(v: Any, following: Any, preceding: Any, out: Any) -> None:
    """Write Bᵀv for each row of v; entries of ``out`` beyond the mask become zero."""
    axes, entries = following.shape
    for row in range(v.shape[0]):
        for j in range(entries):
            total = v[row, 0, j] - v[row, 0, j]
            for axis in range(axes):
                k = preceding[axis, j]
                if k >= 0:
                    total += v[row, axis, k]
                if following[axis, j] >= 0:
                    total -= v[row, axis, j]
            out[row, j] = total
        out[row, entries:] = 0


#: Entries that a thread treats at a time; sums are added up in the order of these blocks.
BLOCK = 2048


def dual_steps(
    following: Any, preceding: Any, isotropic: Any, weight: Any, limits: Any, factors: Any, y: Any, gamma: Any,
    sigma: Any, previous: Any, point: Any, theta: Any, steps: Any,
) -> Any:  # fmt: skip
    """Take accelerated dual steps for the prox of one y in double precision, and return θ.

    The map is [B; I]S or BS, S diagonal with some factors: with the identity there are ``limits``, the weights of the
    l1 norm, else none. The dual of the l1 norm is the best one for that of B, entry by entry, so that steps are for the
    dual of B alone. ``previous`` and ``point``, the last dual and where the next step starts, are written over.
    """
    size = following.size
    last, start = previous[:size], point[:size]
    # Points are not kept: they are v + m (v - w), with v the last dual and w the one before.
    before = 2.0 * last - start
    state = np.array([theta, 1.0])
    x, uphill = np.empty(y.size), np.empty((y.size + BLOCK - 1) // BLOCK)
    step_blocks(
        following, preceding, isotropic, weight, limits, factors, y, gamma, sigma, last, before, x, uphill, state, steps
    )
    if steps % 2:
        last[:], before = before, last.copy()
    np.subtract(last, before, out=start)
    start *= state[1]
    start += last
    if limits.size:
        primal_block(following, preceding, limits, factors, y, gamma, last, last, 0.0, 0, y.size, x, previous[size:])
        point[size:] = previous[size:]
    return state[0]


@threaded
def step_blocks(
    following: Any, preceding: Any, isotropic: Any, weight: Any, limits: Any, factors: Any, y: Any, gamma: Any,
    sigma: Any, one: Any, other: Any, x: Any, uphill: Any, state: Any, steps: Any,
) -> None:  # fmt: skip
    """Take the steps from the duals ``one`` and, before it, ``other``: each step writes over the older of the two."""
    nothing = np.empty(0)
    for step in range(steps):
        v, w = (other, one) if step % 2 else (one, other)
        momentum = state[1]
        for block in prange(uphill.size):
            first, stop = block * BLOCK, min((block + 1) * BLOCK, y.size)
            primal_block(following, preceding, limits, factors, y, gamma, v, w, momentum, first, stop, x, nothing)
        for block in prange(uphill.size):
            first, stop = block * BLOCK, min((block + 1) * BLOCK, y.size)
            uphill[block] = dual_block(following, isotropic, weight, x, sigma, v, w, momentum, first, stop)
        total = 0.0
        for block in range(uphill.size):
            total += uphill[block]
        # Momentum that points uphill is dropped.
        theta = 1.0 if total > 0.0 else state[0]
        state[0] = (1.0 + math.sqrt(1.0 + 4.0 * (theta * theta))) / 2.0
        state[1] = (theta - 1.0) / state[0]


@serial
def primal_block(
    following: Any, preceding: Any, limits: Any, factors: Any, y: Any, gamma: Any, v: Any, w: Any, momentum: Any,
    first: Any, stop: Any, x: Any, single: Any,
) -> None:  # fmt: skip
    """Write S(y − γS(Bᵀp + q)) for the point p = v + m (v − w) and the best q; into ``single`` q, if it has room."""
    axes, entries = following.shape
    for j in range(first, stop):
        total = 0.0
        if j < entries:
            for axis in range(axes):
                k, place = preceding[axis, j], axis * entries + j
                if k >= 0:
                    other = axis * entries + k
                    total += v[other] + momentum * (v[other] - w[other])
                if following[axis, j] >= 0:
                    total -= v[place] + momentum * (v[place] - w[place])
        if limits.size:
            best = min(max(y[j] / (gamma * factors[j]) - total, -limits[j]), limits[j])
            total += best
            if single.size:
                single[j] = best
        x[j] = factors[j] * (y[j] - gamma * (factors[j] * total))


@serial
def dual_block(
    following: Any, isotropic: Any, weight: Any, x: Any, sigma: Any, v: Any, w: Any, momentum: Any, first: Any,
    stop: Any,
) -> Any:  # fmt: skip
    """Write the next dual over w; return how much it points back from the point."""
    axes, entries = following.shape
    points, found = np.empty(axes), np.empty(axes)
    uphill = 0.0
    for j in range(first, min(stop, entries)):
        square = 0.0
        for axis in range(axes):
            k, place = following[axis, j], axis * entries + j
            points[axis] = v[place] + momentum * (v[place] - w[place])
            new = points[axis] + (sigma * (x[k] - x[j]) if k >= 0 else 0.0)
            found[axis] = new if isotropic else min(max(new, -weight), weight)
            square += new * new
        share = weight / math.sqrt(square) if isotropic and square > weight * weight else 1.0
        for axis in range(axes):
            place, new = axis * entries + j, share * found[axis]
            uphill += (points[axis] - new) * (new - v[place])
            w[place] = new
    return uphill
