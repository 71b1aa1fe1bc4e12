"""Back projection of filtered views, voxel by voxel."""

from __future__ import annotations

import math
from typing import Any

from numba import prange, uint64

from fpdfp._kernels.jit import serial, threaded

#: How far beyond the centres of the outermost pixels these are taken: half a pixel, and so much that rounding does not
#: decide about a voxel whose shadow is just there.
EDGE = 0.5 + 1e-9


@serial
def add_line(start: Any, step: Any, near: Any, far: Any, for_near: Any, for_far: Any, line: Any) -> None:
    """Add to the voxels k of a line along z what two columns show at row ``start + k · step``."""
    nz, nv = line.size, near.size
    kind = line.dtype.type
    # Up to half a pixel beyond the first and the last row, these are taken; in between, two rows are blended.
    first = min(max(math.ceil((-EDGE - start) / step), 0), nz)
    stop = max(min(math.floor((nv - 1 + EDGE - start) / step) + 1, nz), first)
    begin = min(max(math.ceil(-start / step), first), stop)
    end = max(min(math.ceil((nv - 1 - start) / step), stop), begin)
    for k in range(first, begin):
        line[k] += for_near * near[0] + for_far * far[0]
    for k in range(begin, end):
        v = start + k * step
        # Rounding may put the first or the last one a hair's breadth outside.
        b = uint64(min(max(int(v), 0), nv - 2))
        p = kind(v - b)
        low = for_near * near[b] + for_far * far[b]
        high = for_near * near[b + uint64(1)] + for_far * far[b + uint64(1)]
        line[k] += low + p * (high - low)
    for k in range(end, stop):
        line[k] += for_near * near[nv - 1] + for_far * far[nv - 1]


@threaded
def back_project(filtered: Any, tables: Any, out: Any) -> None:
    """Add to every voxel what the views show at its shadow, between pixels by bilinear interpolation.

    ``filtered`` is ``(views, nu, nv)``; the columns of ``tables`` are described at :func:`fpdfp.ct.fdk.tables`. Up to
    half a pixel beyond the centres of the outermost pixels, these are taken; farther out there is nothing. Threads
    share the planes of the volume, so that the order of sums is always the same.
    """
    nx, ny, _ = out.shape
    n_views, nu, _ = filtered.shape
    kind = out.dtype.type
    for i in prange(nx):
        for view in range(n_views):
            t = tables[view]
            for j in range(ny):
                depth = t[0] + i * t[1] + j * t[2]
                u = (t[3] + i * t[4] + j * t[5]) / depth + t[6]
                if not (-EDGE <= u <= nu - 1 + EDGE):
                    continue
                u = min(max(u, 0.0), nu - 1.0)
                a = int(u)
                weight = 1.0 / (depth * depth)
                add_line(
                    t[7] / depth + t[9],
                    t[8] / depth,
                    filtered[view, a],
                    filtered[view, min(a + 1, nu - 1)],
                    kind(weight * (1.0 - (u - a))),
                    kind(weight * (u - a)),
                    out[i, j],
                )
