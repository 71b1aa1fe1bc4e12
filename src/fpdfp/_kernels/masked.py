"""Differences inside a mask, their adjoint, and several dual steps of a total variation at once.

``following`` and ``preceding`` have, for each axis and entry of the mask, the number of its neighbour, −1 for none.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpdfp._kernels.jit import serial


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


@serial
def dual_steps(
    following: Any, preceding: Any, isotropic: Any, weight: Any, limits: Any, factors: Any, y: Any, gamma: Any,
    sigma: Any, previous: Any, point: Any, theta: Any, steps: Any,
) -> Any:  # fmt: skip
    """Take accelerated dual steps for the prox of one y in double precision, and return θ.

    The map is [B; I]S or BS, S diagonal with some factors: with the identity there are ``limits``, the weights of the
    l1 norm, else none. ``previous`` and ``point``, the last dual and where the next step starts, are written over.
    """
    axes, entries = following.shape
    size = axes * entries
    x, images = np.empty(y.size), np.empty(point.size)
    for _ in range(steps):
        for j in range(y.size):
            total = 0.0
            if j < entries:
                for axis in range(axes):
                    k = preceding[axis, j]
                    if k >= 0:
                        total += point[axis * entries + k]
                    if following[axis, j] >= 0:
                        total -= point[axis * entries + j]
            if limits.size:
                total += point[size + j]
            x[j] = factors[j] * (y[j] - gamma * (factors[j] * total))
        uphill = 0.0
        for j in range(entries):
            square = 0.0
            for axis in range(axes):
                k, place = following[axis, j], axis * entries + j
                new = point[place] + (sigma * (x[k] - x[j]) if k >= 0 else 0.0)
                if not isotropic:
                    new = min(max(new, -weight), weight)
                images[place] = new
                square += new * new
            share = weight / math.sqrt(square) if isotropic and square > weight * weight else 1.0
            for axis in range(axes):
                place = axis * entries + j
                new = share * images[place]
                images[place] = new
                uphill += (point[place] - new) * (new - previous[place])
        for j in range(limits.size):
            place = size + j
            new = min(max(sigma * x[j] + point[place], -limits[j]), limits[j])
            images[place] = new
            uphill += (point[place] - new) * (new - previous[place])
        # Momentum that points uphill is dropped.
        theta = 1.0 if uphill > 0.0 else theta
        later = (1.0 + np.sqrt(1.0 + 4.0 * (theta * theta))) / 2.0
        momentum = (theta - 1.0) / later
        theta = later
        for row in range(point.size):
            point[row] = images[row] + momentum * (images[row] - previous[row])
            previous[row] = images[row]
    return theta
