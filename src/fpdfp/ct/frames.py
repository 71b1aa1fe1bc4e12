"""What the ray-by-ray projectors know of each view, for any position of source and panel."""

from __future__ import annotations

import numpy as np

from fpdfp._kernels.scans import Frames
from fpdfp.ct.geometry import ConeBeam


def frames(geometry: ConeBeam) -> Frames:
    """Return the views of a scan."""
    nu, nv = geometry.detector
    voxel = np.array(geometry.voxel)
    origin = np.array(geometry.centre) - 0.5 * (np.array(geometry.volume) - 1) * voxel
    way = geometry.panels - geometry.sources - 0.5 * (nu - 1) * geometry.u - 0.5 * (nv - 1) * geometry.v
    return Frames(np.stack([geometry.sources - origin, way, geometry.u, geometry.v], axis=1) / voxel, voxel)
