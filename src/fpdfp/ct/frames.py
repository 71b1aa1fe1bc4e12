"""What the ray-by-ray projectors know of each view, for any position of source and panel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.ct.geometry import ConeBeam

#: What a view consists of, in the order of the second axis of ``Frames.frames``.
SOURCE, WAY, ACROSS, UP = range(4)


class Frames(NamedTuple):
    """The views of any scan, in units of voxels.

    Positions are numbers of voxels: the centre of voxel (i, j, k) is at (i, j, k). From the source to the centre of
    pixel (a, b) it is

        way + a · across + b · up.

    Attributes
    ----------
    frames
        ``(views, 4, 3)``: the source, and the vectors way, across and up.
    voxel
        The three sides of a voxel, in the unit of the geometry.
    """

    frames: Array
    voxel: Array


def frames(geometry: ConeBeam) -> Frames:
    """Return the views of a scan."""
    nu, nv = geometry.detector
    voxel = np.array(geometry.voxel)
    origin = np.array(geometry.centre) - 0.5 * (np.array(geometry.volume) - 1) * voxel
    way = geometry.panels - geometry.sources - 0.5 * (nu - 1) * geometry.u - 0.5 * (nv - 1) * geometry.v
    return Frames(np.stack([geometry.sources - origin, way, geometry.u, geometry.v], axis=1) / voxel, voxel)
