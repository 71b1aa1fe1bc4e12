"""What the fast projectors know of each detector column: the path that all its rays share, seen from above."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.ct.geometry import ConeBeam

#: The numbers of a column, in the order of the last axis of ``Columns.paths``.
AXIS, FIRST, STEP, START, SLOPE, LENGTH, SQUARE = range(7)
#: The numbers of a view, in the order of the last axis of ``Columns.views``.
HEIGHT, SCALE, MIDDLE, ROW, LEVEL, SOURCE_X, SOURCE_Y, WAY_X, WAY_Y, ACROSS_X, ACROSS_Y = range(11)


class Columns(NamedTuple):
    """The columns of all views of a straight scan, in units of voxels.

    In a straight scan all rays of a column lie in one upright plane. Seen from above they are one line, which steps
    through the planes i of the volume along x or along y, whichever it is more aligned with. On plane i the line is at

        t = first + i · step,        g = start + t · slope,

    t in multiples of the way from source to panel, g the other coordinate, and the ray of row b is at height

        z = height + t · scale · (b − middle).

    Attributes
    ----------
    paths
        ``(views, nu, 7)``: axis (0 for x, 1 for y), first, step, start, slope, length (|step|), and the squared length
        in the unit of the geometry, from above, of the way from the source to the panel.
    views
        ``(views, 11)``: height, scale, middle; the distance between rows and the height of the panel's row of number
        0 above the source, both in the unit of the geometry: the way from source to pixel rises by level + b · row; and
        seen from above the source, the way from it to the column of number 0, and the step to the next column.
    """

    paths: Array
    views: Array


def columns(geometry: ConeBeam) -> Columns:
    """Return the columns of a straight scan."""
    if not geometry.is_straight:
        raise ValueError("geometry must be straight: the panel's columns along z and its rows across")
    nu, nv = geometry.detector
    voxel = np.array(geometry.voxel)
    origin = np.array(geometry.centre) - 0.5 * (np.array(geometry.volume) - 1) * voxel
    source = (geometry.sources - origin) / voxel
    first = geometry.panels - geometry.sources
    offsets = np.arange(nu) - 0.5 * (nu - 1)
    way = first[:, None, :2] + offsets[None, :, None] * geometry.u[:, None, :2]
    steps = way / voxel[:2]
    along_y = np.abs(steps[..., 0]) < np.abs(steps[..., 1])
    main, other = (np.where(along_y, steps[..., 1 - a], steps[..., a]) for a in (0, 1))
    p, q = (np.where(along_y, source[:, None, 1 - a], source[:, None, a]) for a in (0, 1))
    paths = np.empty((geometry.n_views, nu, 7))
    paths[..., AXIS] = along_y
    paths[..., FIRST] = -p / main
    paths[..., STEP] = 1.0 / main
    paths[..., START] = q
    paths[..., SLOPE] = other
    paths[..., LENGTH] = np.abs(1.0 / main)
    paths[..., SQUARE] = (way**2).sum(axis=-1)
    row = geometry.v[:, 2]
    level = first[:, 2] - 0.5 * (nv - 1) * row
    heights = np.stack([source[:, 2], row / voxel[2], -level / row, row, level], axis=1)
    views = np.concatenate([heights, source[:, :2], steps[:, 0], geometry.u[:, :2] / voxel[:2]], axis=1)
    return Columns(paths, views)
