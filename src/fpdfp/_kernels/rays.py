"""The X-ray transform ray by ray, for any position of source and panel, and its transpose.

Joseph's method. A ray is sampled where it meets the planes of voxels across its main axis, the one along which it
passes most voxels, by bilinear interpolation on each plane. The sum is weighted with the way from plane to plane. See
``_kernels.scans.Frames`` for what is known of a view. ``axes`` names which axes may be main ones: 3 for all, 2 for
x and y alone, as in straight scans.

The forward kernel's threads own columns of data, the threads of the transpose own planes of the volume. Nothing is
written by two of them, and every sum is taken in an order that does not depend on their number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import get_num_threads, prange

from fpdfp._kernels.jit import inline, serial, threaded
from fpdfp._kernels.scans import ACROSS, SOURCE, UP, WAY
from fpdfp._typing import Array

#: At most so many planes belong to a thread of the transpose at a time.
PLANES = 16


@inline
def crossed(first: Any, step: Any, begin: Any, end: Any, size: Any) -> Any:
    """Return the range of those planes i of ``begin`` to ``end`` where first + i · step may lie in (−1, size).

    It is a plane too long on either side, so that rounding loses none; the caller looks at each plane.
    """
    if step == 0.0:
        return begin, end if -1.0 < first < size else begin
    a, b = (-1.0 - first) / step, (size - first) / step
    if a > b:
        a, b = b, a
    # Compared as floats: a line that is almost parallel to the planes' normal leaves them very far away.
    lo = begin if a <= begin else end if a >= end else math.floor(a)
    hi = end if b >= end - 1 else begin if b < begin else math.ceil(b) + 1
    return max(lo, begin), min(hi, end)


@inline
def neighbours(g: Any, size: Any) -> Any:
    """Return the two voxels besides g in (−1, size) and how far g is from the first; outside ones have no share.

    The result is (first, its share, second, its share).
    """
    below = math.floor(g)
    share = g - below
    if below < 0:
        return 0, 0.0, 0, share
    if below + 1 >= size:
        return below, 1.0 - share, below, 0.0
    return below, 1.0 - share, below + 1, share


@inline
def direct(way: Any, frame: Any, a: Any, b: Any) -> None:
    """Write the vector from the source to pixel (a, b)."""
    for e in range(3):
        way[e] = frame[WAY, e] + a * frame[ACROSS, e] + b * frame[UP, e]


@inline
def main_axis(way: Any, axes: Any) -> Any:
    main = 0
    for e in range(1, axes):
        if abs(way[e]) > abs(way[main]):
            main = e
    return main


@inline
def spacing(way: Any, voxel: Any, main: Any) -> Any:
    """The length of a ray from plane to plane."""
    square = (way[0] * voxel[0]) ** 2 + (way[1] * voxel[1]) ** 2 + (way[2] * voxel[2]) ** 2
    return math.sqrt(square) / abs(way[main])


@inline
def others(main: Any) -> Any:
    """Return the two axes that are not the main one."""
    return (1 if main == 0 else 0), (1 if main == 2 else 2)


@inline
def steps(shape: Any) -> Any:
    """The distance in memory of neighbours along each axis."""
    return shape[1] * shape[2], shape[2], 1


@serial
def sample_ray(x: Any, shape: Any, source: Any, way: Any, main: Any) -> Any:
    """Return the sum of a ray's samples of a volume, which is given flat."""
    p, q = others(main)
    apart = steps(shape)
    planes, width, height = shape[main], shape[p], shape[q]
    dt = 1.0 / way[main]
    t0 = -source[main] * dt
    lo, hi = crossed(source[p] + t0 * way[p], dt * way[p], 0, planes, width)
    lo, hi = crossed(source[q] + t0 * way[q], dt * way[q], lo, hi, height)
    total = 0.0
    for i in range(lo, hi):
        t = t0 + i * dt
        g, h = source[p] + t * way[p], source[q] + t * way[q]
        if g <= -1.0 or g >= width or h <= -1.0 or h >= height or t <= 0.0:
            continue
        j0, a0, j1, a1 = neighbours(g, width)
        k0, b0, k1, b1 = neighbours(h, height)
        at0, at1 = i * apart[main] + j0 * apart[p], i * apart[main] + j1 * apart[p]
        k0, k1 = k0 * apart[q], k1 * apart[q]
        total += a0 * (b0 * x[at0 + k0] + b1 * x[at0 + k1]) + a1 * (b0 * x[at1 + k0] + b1 * x[at1 + k1])
    return total


@serial
def smear_ray(
    x: Any, shape: Any, source: Any, way: Any, main: Any, value: Any, begin: Any, end: Any
) -> None:  # fmt: skip
    """Add a value along a ray to the planes ``begin`` to ``end`` of a volume, which is given flat."""
    p, q = others(main)
    apart = steps(shape)
    width, height = shape[p], shape[q]
    dt = 1.0 / way[main]
    t0 = -source[main] * dt
    lo, hi = crossed(source[p] + t0 * way[p], dt * way[p], begin, end, width)
    lo, hi = crossed(source[q] + t0 * way[q], dt * way[q], lo, hi, height)
    for i in range(lo, hi):
        t = t0 + i * dt
        g, h = source[p] + t * way[p], source[q] + t * way[q]
        if g <= -1.0 or g >= width or h <= -1.0 or h >= height or t <= 0.0:
            continue
        j0, a0, j1, a1 = neighbours(g, width)
        k0, b0, k1, b1 = neighbours(h, height)
        at0, at1 = i * apart[main] + j0 * apart[p], i * apart[main] + j1 * apart[p]
        k0, k1 = k0 * apart[q], k1 * apart[q]
        x[at0 + k0] += a0 * b0 * value
        x[at0 + k1] += a0 * b1 * value
        x[at1 + k0] += a1 * b0 * value
        x[at1 + k1] += a1 * b1 * value


@serial
def project_column(x: Any, frame: Any, voxel: Any, axes: Any, column: Any, out: Any) -> None:
    """Project one column of one view."""
    flat = x.reshape(x.size)
    way = np.empty(3)
    for b in range(out.size):
        direct(way, frame, column, b)
        main = main_axis(way, axes)
        out[b] = sample_ray(flat, x.shape, frame[SOURCE], way, main) * spacing(way, voxel, main)


@threaded
def forward(x: Array, frames: Array, voxel: Array, axes: int, views: Array, out: Array) -> None:
    """Project a volume ``(nx, ny, nz)``: ``out[n]`` is view number ``views[n]``, of shape ``(nu, nv)``."""
    nu = out.shape[1]
    for task in prange(len(views) * nu):
        n, column = task // nu, task % nu
        project_column(x, frames[views[n]], voxel, axes, column, out[n, column])


@serial
def smear_planes(
    x: Any, y: Any, frames: Any, voxel: Any, axes: Any, views: Any, axis: Any, begin: Any, end: Any
) -> None:
    """Add what all rays along an axis give to some planes."""
    flat = x.reshape(x.size)
    way = np.empty(3)
    for n in range(len(views)):
        frame = frames[views[n]]
        for a in range(y.shape[1]):
            for b in range(y.shape[2]):
                direct(way, frame, a, b)
                if main_axis(way, axes) == axis:
                    value = y[n, a, b] * spacing(way, voxel, axis)
                    smear_ray(flat, x.shape, frame[SOURCE], way, axis, value, begin, end)


@threaded
def smear(x: Array, y: Array, frames: Array, voxel: Array, axes: int, views: Array, axis: int, thickness: int) -> None:
    planes = x.shape[axis]
    for part in prange((planes + thickness - 1) // thickness):
        begin, end = part * thickness, min((part + 1) * thickness, planes)
        smear_planes(x, y, frames, voxel, axes, views, axis, begin, end)


def adjoint(y: Array, frames: Array, voxel: Array, axes: int, views: Array, x: Array) -> None:
    """Add to a volume the transpose of :func:`forward`, applied to the views ``y`` of the given numbers."""
    for axis in range(axes):
        # Thin enough for all threads to have work; the bits do not depend on it.
        thickness = min(PLANES, max(1, x.shape[axis] // (2 * get_num_threads())))
        smear(x, y, frames, voxel, axes, views, axis, thickness)
