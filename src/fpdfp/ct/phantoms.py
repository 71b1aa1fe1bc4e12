"""Phantoms: known images with exact projections, to test reconstructions.

Create data with :meth:`fpdfp.ct.Ellipsoids.project`, which does not use voxels, rather than by projecting the phantom's
voxels: a reconstruction with the projector that made its data looks better than it is.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.ct.ellipsoids import Ellipsoids
from fpdfp.ct.geometry import ConeBeam

__all__ = ["Ellipsoids", "shepp_logan", "thorax"]

#: Density; half axes along x, y, z; centre; degrees from x towards y. The volume is the cube from −1 to 1.
_HEAD = (
    (1.0, 0.69, 0.92, 0.81, 0.0, 0.0, 0.0, 0.0),
    (-0.8, 0.6624, 0.874, 0.78, 0.0, -0.0184, 0.0, 0.0),
    (-0.2, 0.11, 0.31, 0.22, 0.22, 0.0, 0.0, -18.0),
    (-0.2, 0.16, 0.41, 0.28, -0.22, 0.0, 0.0, 18.0),
    (0.1, 0.21, 0.25, 0.41, 0.0, 0.35, -0.15, 0.0),
    (0.1, 0.046, 0.046, 0.05, 0.0, 0.1, 0.25, 0.0),
    (0.1, 0.046, 0.046, 0.05, 0.0, -0.1, 0.25, 0.0),
    (0.1, 0.046, 0.023, 0.05, -0.08, -0.605, 0.0, 0.0),
    (0.1, 0.023, 0.023, 0.02, 0.0, -0.606, 0.0, 0.0),
    (0.1, 0.023, 0.046, 0.02, 0.06, -0.605, 0.0, 0.0),
)

#: As above. The front is at negative y. Soft tissue has density 1, air 0.
_BODY, _LUNG, _BONE = 1.0, 0.25, 1.8
_WALL = (0.93, 0.68, 0.95)
_ORGANS = (
    (_BODY, *_WALL, 0.0, 0.0, 0.0, 0.0),
    (_LUNG - _BODY, 0.27, 0.42, 0.74, -0.42, 0.0, 0.0, 8.0),
    (_LUNG - _BODY, 0.25, 0.4, 0.7, 0.44, 0.02, 0.0, -8.0),
    (0.06, 0.17, 0.15, 0.5, 0.03, -0.36, -0.1, 20.0),
    (0.04, 0.06, 0.06, 0.6, 0.02, 0.24, 0.0, 0.0),
    (_BONE - _BODY, 0.11, 0.09, 0.62, 0.0, 0.44, 0.0, 0.0),
    (_BODY - _BONE, 0.04, 0.03, 0.5, 0.0, 0.47, 0.0, 0.0),
    (_BONE - _BODY, 0.08, 0.025, 0.4, 0.0, -0.58, 0.0, 0.0),
)
#: Density above that of the lung; radius, of half the width of the volume; centre.
_NODULES = (
    (0.75, 0.045, -0.46, -0.12, 0.05),
    (0.75, 0.03, -0.36, 0.16, -0.2),
    (0.75, 0.02, 0.42, -0.14, 0.15),
    (0.35, 0.035, 0.48, 0.14, -0.05),
    (0.35, 0.015, -0.5, 0.05, 0.25),
)


def shepp_logan(geometry: ConeBeam) -> Ellipsoids:
    """Return the three-dimensional Shepp–Logan head, stretched to the volume of a geometry.

    Ten ellipsoids with Toft's densities, which have more contrast than the original ones: the image is from 0 to 1, the
    brain is at 0.2. In a flat volume the head is flat.

    References
    ----------
    L. A. Shepp and B. F. Logan, "The Fourier reconstruction of a head section", IEEE Trans. Nucl. Sci. 21 (1974);
    A. C. Kak and M. Slaney, "Principles of computerized tomographic imaging", IEEE Press (1988); P. A. Toft, "The Radon
    transform: theory and implementation", PhD thesis, Technical University of Denmark (1996), for the densities;
    M. Schabel, "3D Shepp–Logan phantom", MATLAB Central File Exchange 9416 (2006), for the extents along z.

    Examples
    --------
    >>> import fpdfp
    >>> scan = fpdfp.ct.ConeBeam.circular((32, 32, 8), (48, 16), views=10, source=60.0, panel=90.0)
    >>> head = fpdfp.ct.phantoms.shepp_logan(scan)
    >>> head.volume(scan).shape, head.project(scan).shape
    ((32, 32, 8), (10, 48, 16))
    >>> head.at([0.0, 0.0, 0.0]).round(3)
    np.float64(0.2)
    """
    return _fit(_from_table(_HEAD), geometry)


def thorax(geometry: ConeBeam) -> Ellipsoids:
    """Return a chest of ellipsoids that fits the volume of a geometry, also a flat one of 256 × 256 × 64 voxels.

    A body with two lungs, a heart, an aorta, a spine with its canal, a breastbone, three rings of ribs, and five round
    nodules in the lungs of 1.5 to 4.5 % of the width, which a chest scan is made to find. Densities are relative to
    soft tissue: 1, lung 0.25, bone 1.8, nodules 0.6 and 1, air 0. The front is at negative y.

    Examples
    --------
    >>> import fpdfp
    >>> scan = fpdfp.ct.ConeBeam.circular((64, 64, 16), (96, 32), views=10, source=150.0, panel=200.0)
    >>> chest = fpdfp.ct.phantoms.thorax(scan)
    >>> chest
    Ellipsoids(49 of them)
    >>> lung, spine, outside = chest.at([[-14.0, 4.0, 0.0], [-3.0, 14.0, 0.0], [31.0, 31.0, 0.0]])
    >>> round(lung, 3), round(spine, 3), outside
    (np.float64(0.25), np.float64(1.8), np.float64(0.0))
    """
    chest = _fit(_from_table((*_ORGANS, *_ribs())), geometry)
    half = 0.5 * np.array(geometry.volume) * geometry.voxel
    table = np.array(_NODULES)
    # Round in space, whatever the shape of the volume, but never larger than a lung.
    radii = np.minimum(table[:, 1] * half[:2].min(), 0.3 * half[2])
    nodules = Ellipsoids(table[:, 2:] * half + geometry.centre, np.tile(radii[:, None], 3), table[:, 0])
    return chest + nodules


def _ribs() -> list[tuple[float, ...]]:
    """Three rings of pieces of rib along the wall of the chest, each turned along it."""
    ribs: list[tuple[float, ...]] = []
    for ring, height in enumerate((-0.45, 0.0, 0.45)):
        # How much narrower the body is there.
        shrink = math.sqrt(1 - (height / _WALL[2]) ** 2)
        width, depth = (0.9 * shrink * half for half in _WALL[:2])
        for piece in range(6):
            # None at the front and the back, where breastbone and spine are; no two rings alike.
            turn = math.radians(-60 + 22 * piece + 5 * ring)
            for angle in (turn, math.pi - turn):
                x, y = width * math.cos(angle), depth * math.sin(angle)
                along = math.degrees(math.atan2(depth * math.cos(angle), -width * math.sin(angle)))
                ribs.append((_BONE - _BODY, 0.075, 0.022, 0.13, x, y, height, along))
    return ribs


def _from_table(rows: Any) -> Ellipsoids:
    table = np.array(rows)
    return Ellipsoids(table[:, 4:7], table[:, 1:4], table[:, 0], np.deg2rad(table[:, 7]))


def _fit(unit: Ellipsoids, geometry: ConeBeam) -> Ellipsoids:
    """Stretch what lies in the cube from −1 to 1 to the volume of a geometry."""
    if not isinstance(geometry, ConeBeam):
        raise TypeError(f"geometry must be a fpdfp.ct.ConeBeam, got {_checks.kind(geometry)}")
    half: Array = 0.5 * np.array(geometry.volume) * geometry.voxel
    return unit.stretched(half, geometry.centre)
