"""What the fast projectors know of each detector column: the path that all its rays share, seen from above."""

from __future__ import annotations

import numpy as np

from fpdfp._kernels.scans import AXIS, FIRST, LENGTH, SLOPE, SQUARE, START, STEP, Columns
from fpdfp.ct.geometry import ConeBeam


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
