"""Views of tilted panels, resampled to upright ones, on which projections and filtered back-projection are fast."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from fpdfp._array import namespace, to_host
from fpdfp._typing import Array
from fpdfp.ct.circle import circle, nearest_circle
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.projector import rows_upwards
from fpdfp.ct.scans import check_projections

#: Views are resampled only if at least this share of the columns and of the rows remains.
KEPT = 0.8
#: In pixels: how far beyond the outermost centres a place may be. Half a pixel is the edge of the panel.
BEYOND = 0.5


def upright(geometry: ConeBeam) -> ConeBeam:
    """Return the scan with upright panels, opposite the sources of the nearest scan on a circle if there is one."""
    near = nearest_circle(geometry)
    up = np.array([0.0, 0.0, 1.0])
    if near is not None:
        outwards, along = (np.pad(near.positions[:, k], ((0, 0), (0, 1))) for k in (0, 1))
        ring = np.array([*near.axis, near.height]) + near.radius * outwards
        panels = ring - near.distance * outwards + near.offset[0] * along + near.offset[1] * up
        v = np.tile(near.pitch[1] * up, (geometry.n_views, 1))
        return dataclasses.replace(geometry, panels=panels, u=near.pitch[0] * along, v=v)
    u = geometry.u * [1.0, 1.0, 0.0]
    u *= (np.linalg.norm(geometry.u, axis=1) / np.linalg.norm(u, axis=1))[:, None]
    v = np.linalg.norm(geometry.v, axis=1)[:, None] * up
    return dataclasses.replace(geometry, u=u, v=v)


def rectify(projections: Array, geometry: ConeBeam) -> tuple[Array, ConeBeam]:
    """Return the views that upright panels would have seen from the same sources, and their geometry.

    The rays are lines through the same sources; values between pixels follow a cubic spline. Columns and rows
    that the tilted panels do not see are excluded. A scan with upright panels keeps its values; rows from the top are
    reversed. A scan that would lose more than a fifth of its columns or rows is returned unchanged.

    Parameters
    ----------
    projections
        Line integrals, ``(views, nu, nv)``, of NumPy or CuPy; they are resampled on the CPU.
    geometry
        The scan.
    """
    return rectify_checked(check_projections(projections, geometry), geometry)


def rectify_checked(data: Array, geometry: ConeBeam, order: int = 3) -> tuple[Array, ConeBeam]:
    """Do what :func:`rectify` does with projections that were checked; weights of rays take splines of order 1."""
    data, scan = _upwards(data, geometry)
    if scan.is_straight or (np.abs(scan.u[:, 2]) > 0.5 * np.linalg.norm(scan.u, axis=1)).any():
        return data, scan
    return _resampled(data, scan, upright(scan), order) or (data, scan)


def on_circle(data: Array, geometry: ConeBeam) -> tuple[Array, ConeBeam]:
    """Return views of a scan on a circle near to the given one; raise an error with the reason if no circle is near."""
    data, scan = _upwards(data, geometry)
    try:
        circle(scan)
    except ValueError:
        near = nearest_circle(scan)
        found = None if near is None else _resampled(data, scan, upright(scan))
        if near is None or found is None:
            raise
        middle = np.array([*near.axis, near.height])
        ring = middle + np.pad(near.radius * near.positions[:, 0], ((0, 0), (0, 1)))
        return found[0], dataclasses.replace(found[1], sources=ring)
    return data, scan


def _upwards(data: Array, geometry: ConeBeam) -> tuple[Array, ConeBeam]:
    scan = rows_upwards(geometry)
    return (data, scan) if scan is geometry else (namespace(data).ascontiguousarray(data[..., ::-1]), scan)


def _resampled(data: Array, geometry: ConeBeam, target: ConeBeam, order: int = 3) -> tuple[Array, ConeBeam] | None:
    """Return the views on other panels, cropped to what is seen; None if that is too little."""
    maps = homographies(target, geometry)
    kept = _inside(maps, geometry.detector)
    if min(kept[axis] / geometry.detector[axis] for axis in (0, 1)) < KEPT:
        return None
    return namespace(data).asarray(resample(to_host(data), maps, kept, order)), dataclasses.replace(
        target, detector=kept
    )


def homographies(target: ConeBeam, geometry: ConeBeam) -> Array:
    """Return matrices that take (a, b, 1), a place on the target panel, to a place on the panel: ``(views, 3, 3)``."""
    old, new = (
        np.stack([scan.u, scan.v, scan.panels - scan.sources], axis=2) for scan in (geometry, target)
    )  # the ray to (a, b) is this matrix times (a, b, 1)
    return np.linalg.solve(old, new)


def _inside(maps: Array, detector: tuple[int, int]) -> tuple[int, int]:
    """Return the largest panel of the same shape and centre whose corners are on the given one in every view."""
    count = detector
    while min(count) > 1:
        half = 0.5 * (np.array(count) - 1)
        corners = np.array([[a, b, 1.0] for a in (-half[0], half[0]) for b in (-half[1], half[1])])
        seen = maps @ corners.T
        reach = np.abs(seen[:, :2] / seen[:, 2:]).max(axis=(0, 2)) - 0.5 * (np.array(detector) - 1)
        over = np.maximum(reach - BEYOND, 0.0)
        if not over.any():
            break
        count = tuple(max(n - 2 * math.ceil(o), 1) for n, o in zip(count, over, strict=True))
    return count


def resample(views: Array, maps: Array, detector: tuple[int, int], order: int = 3) -> Array:
    """Return the values of views at the places that matrices assign to the pixels of a panel, by splines."""
    from scipy.ndimage import map_coordinates

    middle = 0.5 * (np.array(views.shape[1:]) - 1)
    a, b = (np.arange(n) - 0.5 * (n - 1) for n in detector)
    out: Array = np.empty((len(views), *detector), dtype=views.dtype)
    for view, m in enumerate(maps):
        u, v, depth = (m[i, 0] * a[:, None] + m[i, 1] * b + m[i, 2] for i in range(3))
        out[view] = map_coordinates(
            views[view], [u / depth + middle[0], v / depth + middle[1]], order=order, mode="nearest"
        )
    return out
