"""The X-ray transform of straight scans, and its transpose.

All rays of a detector column share one path seen from above (see ``_kernels.scans.Columns``). Joseph's method
samples the volume where a ray meets the planes across the path's main axis. On one plane that is, for all rows of the
column, one line of voxels along z, blended from the two besides the path, at heights that rise evenly from row to row:

    z_b = height + s (b − middle),        s = t · scale.

Linear interpolation of the line c is piecewise linear in z. So as a function of the row it is a sum of ramps. They
begin at knots, the rows where z is a whole number k. The ramp at k rises by s (c_{k+1} − 2 c_k + c_{k−1}) from row to
row. Forward, each plane adds its ramps to one short array of changes of slope, which is summed up twice for the whole
column. A plane costs as many operations as there are voxels along z, whatever the number of rows. The transpose sums
each column of data up twice from its end, and each plane only looks its knots up.

A knot between two rows q and q + 1 is shared by them in proportion. One below the first row counts as a ramp there that
has risen already: the shares 1 − f and f with a negative f. Both sums are taken in float64: they are differences of
much larger numbers. Of a line of voxels only those that some row sees are taken into account.

The forward kernel's threads own columns of data, the threads of the transpose own planes of the volume. Nothing is
written by two of them, and every sum is taken in an order that does not depend on their number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import get_num_threads, prange, uint64

from fpdfp._kernels.jit import inline, serial, side_by_side, threaded
from fpdfp._kernels.rays import crossed, neighbours
from fpdfp._kernels.scans import AXIS, FIRST, HEIGHT, LENGTH, LEVEL, MIDDLE, ROW, SCALE, SLOPE, SQUARE, START, STEP
from fpdfp._typing import Array

#: Knots that processors treat side by side.
STEP_LENGTH = 4
#: Columns that a thread projects at a time.
COLUMNS = 32
#: Views whose sums the transpose keeps at a time: a part of the order of its additions, hence of the bits.
VIEWS = 32
#: Bytes of the planes that belong to a thread of the transpose at a time: they should stay in its cache.
NEAR = 1 << 18


@inline
def seen(height: Any, s: Any, middle: Any, rows: Any, size: Any) -> Any:
    """Return the first of the voxels along z that some row of the column sees, and the number of them."""
    bottom = height - s * middle
    top = bottom + s * (rows - 1)
    first = max(math.floor(bottom), 0)
    return first, min(math.floor(top) + 1, size - 1) - first + 1


@inline
def layout(shape: Any, along_y: Any) -> Any:
    """Return the number of planes, the voxels across the path in one, and how far apart in memory both are."""
    if along_y:
        return shape[1], shape[0], shape[2], shape[1] * shape[2]
    return shape[0], shape[1], shape[1] * shape[2], shape[2]


@inline
def whole_steps(count: Any) -> Any:
    """Round up to what processors do side by side: doing a few too many is quicker than a few one by one."""
    return (count + STEP_LENGTH - 1) // STEP_LENGTH * STEP_LENGTH


@side_by_side
def blend(line: Any, x: Any, near: Any, far: Any, count: Any, a: Any, b: Any) -> None:
    """Blend two lines of voxels, which begin at ``near`` and ``far``, between two zeros on either side."""
    for r in range(count):
        line[r + 2] = a * x[near + uint64(r)] + b * x[far + uint64(r)]
    line[count + 2] = 0
    line[count + 3] = 0


@side_by_side
def find_ramps(
    rows: Any, now: Any, later: Any, line: Any, numbers: Any, count: Any, first: Any, apart: Any, last: Any
) -> None:
    """Write the row of each knot of a plane, and the shares of its ramp that begin there and a row later."""
    for r in range(count):
        rise = (line[r + 2] - line[r + 1]) - (line[r + 1] - line[r])
        place = first + numbers[r] * apart
        row = np.int32(min(max(place, 0.0), last))
        share = (place - row) * rise
        rows[r] = row
        now[r] = rise - share
        later[r] = share


@inline
def add_ramps(bends: Any, rows: Any, now: Any, later: Any, count: Any) -> None:
    for r in range(count):
        row = uint64(rows[r])  # unsigned, so that no code for negative indices is made
        bends[row] += now[r]
        bends[row + uint64(1)] += later[r]


@side_by_side
def find_lengths(lengths: Any, square: Any, level: Any, row: Any, length: Any) -> None:
    """Write what the rays of a column travel from plane to plane."""
    for b in range(lengths.size):
        rise = level + b * row
        lengths[b] = math.sqrt(square + rise * rise) * length


@inline
def sum_ramps(out: Any, bends: Any, lengths: Any) -> None:
    """Sum the changes of slope up twice. Row b of the data is at b + 1 among the bends."""
    slope = value = 0.0
    for b in range(out.size):
        slope += bends[b]
        value += slope
        out[b] = value * lengths[b]


@serial
def project_columns(x: Any, shape: Any, paths: Any, view: Any, begin: Any, end: Any, out: Any) -> None:
    """Project some columns of one view of a volume, which is given flat."""
    nv = out.shape[1]
    knots = shape[2] + 2 + STEP_LENGTH
    line, numbers = np.zeros(knots + 2), np.arange(float(knots))
    rows, now, later = np.empty(knots, np.int32), np.empty(knots), np.empty(knots)
    bends, lengths = np.empty(nv + 2), np.empty(nv)
    height, scale, middle = view[HEIGHT], view[SCALE], view[MIDDLE]
    for column in range(begin, end):
        along_y = paths[column, AXIS] != 0.0
        first, step = paths[column, FIRST], paths[column, STEP]
        start, slope = paths[column, START], paths[column, SLOPE]
        planes, across, to_next, aside = layout(shape, along_y)
        bends[:] = 0.0
        lo, hi = crossed(start + first * slope, step * slope, 0, planes, across)
        for i in range(lo, hi):
            t = first + i * step
            g = start + t * slope
            if g <= -1.0 or g >= across or t <= 0.0:
                continue
            s = t * scale
            k, count = seen(height, s, middle, nv, shape[2])
            if count <= 0:
                continue
            j, a, q, b = neighbours(g, across)
            near, far = uint64(i * to_next + j * aside + k), uint64(i * to_next + q * aside + k)
            blend(line, x, near, far, count, x.dtype.type(s * a), x.dtype.type(s * b))
            apart = 1.0 / s
            first_row = middle + (k - 1 - height) * apart + 1.0
            find_ramps(rows, now, later, line, numbers, whole_steps(count + 2), first_row, apart, float(nv))
            add_ramps(bends, rows, now, later, count + 2)
        find_lengths(lengths, paths[column, SQUARE], view[LEVEL], view[ROW], paths[column, LENGTH])
        sum_ramps(out[column], bends, lengths)


@threaded
def forward(x: Array, paths: Array, frames: Array, views: Array, out: Array) -> None:
    """Project a volume ``(nx, ny, nz)``: ``out[n]`` is view number ``views[n]``, of shape ``(nu, nv)``."""
    nu = out.shape[1]
    parts = (nu + COLUMNS - 1) // COLUMNS
    for task in prange(len(views) * parts):
        n, part = task // parts, task % parts
        begin, end = part * COLUMNS, min((part + 1) * COLUMNS, nu)
        project_columns(x.reshape(x.size), x.shape, paths[views[n]], frames[views[n]], begin, end, out[n])


@inline
def sum_column(y: Any, lengths: Any, sums: Any) -> None:
    """The transpose of :func:`sum_ramps`."""
    slope = value = 0.0
    for b in range(y.size, sums.size):
        sums[b] = 0.0
    for b in range(y.size - 1, -1, -1):
        slope += y[b] * lengths[b]
        value += slope
        sums[b] = value


@threaded
def sum_columns(y: Array, paths: Array, frames: Array, views: Array, sums: Array) -> None:
    """Sum the columns of some views up twice, from their ends, weighted with the lengths of their rays."""
    for n in prange(len(views)):
        lengths = np.empty(y.shape[2])
        view = frames[views[n]]
        for column in range(y.shape[1]):
            path = paths[views[n], column]
            find_lengths(lengths, path[SQUARE], view[LEVEL], view[ROW], path[LENGTH])
            sum_column(y[n, column], lengths, sums[n, column])


@side_by_side
def find_knots(rows: Any, shares: Any, numbers: Any, count: Any, first: Any, apart: Any, last: Any) -> None:
    """Write the row of each knot of a plane, and the share of its ramp that begins a row later."""
    for r in range(count):
        place = first + numbers[r] * apart
        row = np.int32(min(max(place, 0.0), last))
        rows[r] = row
        shares[r] = place - row


@inline
def look_up(knots: Any, sums: Any, at: Any, rows: Any, shares: Any, count: Any) -> None:
    """Look the knots up in the sums of a column, which begin at ``at``."""
    for r in range(count):
        row = at + uint64(rows[r])
        knots[r] = sums[row] + shares[r] * (sums[row + uint64(1)] - sums[row])


@side_by_side
def bend(line: Any, knots: Any, count: Any) -> None:
    """Take the second differences of a line of knots."""
    for r in range(count):
        line[r] = (knots[r + 2] - knots[r + 1]) - (knots[r + 1] - knots[r])


@side_by_side
def add_line(x: Any, at: Any, line: Any, count: Any, weight: Any) -> None:
    """Add a multiple of a line to a line of voxels, which begins at ``at``."""
    for r in range(count):
        x[at + uint64(r)] += weight * line[r]


@serial
def smear_planes(
    x: Any, shape: Any, sums: Any, nv: Any, paths: Any, frames: Any, views: Any, axis: Any, begin: Any, end: Any
) -> None:
    """Add what all columns along an axis give to some planes: these stay in a near cache, and so does a column.

    The volume and the sums, ``nv + 2`` for each column, are given flat.
    """
    knots = shape[2] + 2 + STEP_LENGTH
    values, numbers = np.empty(knots), np.arange(float(knots))
    rows, shares = np.empty(knots, np.int32), np.empty(knots)
    line = np.empty(shape[2], x.dtype)
    _, across, to_next, aside = layout(shape, axis == 1)
    nu = paths.shape[1]
    for n in range(len(views)):
        view = views[n]
        height, scale, middle = frames[view, HEIGHT], frames[view, SCALE], frames[view, MIDDLE]
        for column in range(nu):
            if paths[view, column, AXIS] != axis:
                continue
            first, step = paths[view, column, FIRST], paths[view, column, STEP]
            start, slope = paths[view, column, START], paths[view, column, SLOPE]
            at = uint64((n * nu + column) * (nv + 2))
            for i in range(begin, end):
                t = first + i * step
                g = start + t * slope
                if g <= -1.0 or g >= across or t <= 0.0:
                    continue
                s = t * scale
                k, count = seen(height, s, middle, nv, shape[2])
                if count <= 0:
                    continue
                apart = 1.0 / s
                first_row = middle + (k - 1 - height) * apart + 1.0
                find_knots(rows, shares, numbers, whole_steps(count + 2), first_row, apart, float(nv))
                look_up(values, sums, at, rows, shares, count + 2)
                bend(line, values, count)
                j, a, q, b = neighbours(g, across)
                near, far = uint64(i * to_next + j * aside + k), uint64(i * to_next + q * aside + k)
                add_line(x, near, line, count, x.dtype.type(s * a))
                add_line(x, far, line, count, x.dtype.type(s * b))


@threaded
def smear(x: Array, sums: Array, paths: Array, frames: Array, views: Array, axis: int, thickness: int) -> None:
    """Add what all columns along an axis give to the volume."""
    planes = x.shape[axis]
    for part in prange((planes + thickness - 1) // thickness):
        begin, end = part * thickness, min((part + 1) * thickness, planes)
        flat, column_sums = x.reshape(x.size), sums.reshape(sums.size)
        smear_planes(flat, x.shape, column_sums, sums.shape[2] - 2, paths, frames, views, axis, begin, end)


def adjoint(y: Array, paths: Array, frames: Array, views: Array, x: Array) -> None:
    """Add to a volume the transpose of :func:`forward`, applied to the views ``y`` of the given numbers."""
    nu, nv = y.shape[1:]
    room = np.empty((min(VIEWS, len(views)), nu, nv + 2))
    for begin in range(0, len(views), VIEWS):
        block = slice(begin, begin + VIEWS)
        sums = room[: len(views[block])]
        sum_columns(y[block], paths, frames, views[block], sums)
        for axis in (0, 1):
            # Thin enough for all threads to have work; the bits do not depend on it.
            thickness = min(NEAR * x.shape[axis] // x.nbytes, x.shape[axis] // (2 * get_num_threads()))
            smear(x, sums, paths, frames, views[block], axis, max(thickness, 1))
