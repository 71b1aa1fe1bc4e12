"""Phantoms: known images with exact projections, to test reconstructions.

Create data with :meth:`fpdfp.ct.Ellipsoids.project`, which does not use voxels, rather than by projecting the phantom's
voxels: a reconstruction with the projector that made its data looks better than it is.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import namespace
from fpdfp._typing import Array
from fpdfp.ct.geometry import ConeBeam, check_geometry

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

    A body with two lungs, a heart, an aorta, a spine with its canal, a breastbone, and three rings of ribs. The lungs
    have five round nodules of 1.5 to 4.5 % of the width, which a chest scan is made to find. Densities are relative to
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
    half: Array = 0.5 * np.array(check_geometry(geometry).volume) * geometry.voxel
    return unit.stretched(half, geometry.centre)


def psnr(image: Any, truth: Any, *, peak: float | None = None) -> float:
    """Return the peak signal-to-noise ratio in dB: 10 log₁₀(peak² / mean of squared errors).

    Parameters
    ----------
    image, truth
        Arrays of the same shape, both of NumPy or both of CuPy.
    peak
        The largest value that the truth may have; by default the largest that it has.

    Examples
    --------
    >>> import numpy as np
    >>> psnr(np.array([0.9, 0.1]), np.array([1.0, 0.0]))
    20.0
    """
    xp = namespace(truth) if hasattr(truth, "__cuda_array_interface__") else np
    wanted = _checks.float_array("truth", truth, xp=xp)
    found = _checks.float_array("image", image, xp=xp)
    if found.shape != wanted.shape or wanted.size == 0:
        raise ValueError(f"image must have the shape {wanted.shape} of the truth, not empty, got {found.shape}")
    height = _checks.real("peak", float(wanted.max()) if peak is None else peak, positive=True)
    error = float(xp.mean(xp.square(found - wanted, dtype=np.float64)))
    return math.inf if error == 0 else 10.0 * math.log10(height**2 / error)


@dataclasses.dataclass(frozen=True, eq=False)
class Ellipsoids:
    """A sum of ellipsoids, each of constant density.

    :meth:`project` gives the line integrals of the ellipsoids themselves, in closed form, not of voxels.
    Projections that are computed from voxels by the same projector as in the reconstruction make any method look better
    than it is (the "inverse crime"); these projections avoid that.

    Parameters
    ----------
    centres
        ``(n, 3)``, in the unit of length of the geometry.
    axes
        The half axes, ``(n, 3)``, greater than 0.
    densities
        The value that each ellipsoid adds to the image inside it, ``(n,)``; may be negative.
    rotations
        Where the half axes point. ``None``: Along x, y and z; an array ``(n,)``: turned about z by these angles, in
        radians, from x towards y; an array ``(n, 3, 3)``: matrices whose columns are the directions of the half axes.

    Examples
    --------
    A ball of radius 3 and density 2, seen along a line through its middle:

    >>> import fpdfp
    >>> ball = fpdfp.ct.Ellipsoids([[0, 0, 0]], [[3, 3, 3]], [2.0])
    >>> scan = fpdfp.ct.ConeBeam.circular((9, 9, 9), (1, 1), views=1, source=20.0, panel=30.0)
    >>> ball.project(scan)
    array([[[12.]]], dtype=float32)
    >>> round(ball.mass, 1)
    226.2
    """

    centres: Array
    axes: Array
    densities: Array
    rotations: Any = None

    def __post_init__(self) -> None:
        densities = _checks.float_array("densities", self.densities, dtype=np.float64)
        if densities.ndim != 1 or densities.size == 0:
            raise ValueError(f"densities must be a list of at least one number, got shape {densities.shape}")
        count = densities.size
        axes = _checks.float_array("axes", self.axes, shape=(count, 3), dtype=np.float64)
        if (axes <= 0).any():
            raise ValueError(f"axes must be greater than 0, got {axes.min():g}")
        centres = _checks.float_array("centres", self.centres, shape=(count, 3), dtype=np.float64)
        rotations = _rotations(self.rotations, count)
        for name, array in zip(
            ("centres", "axes", "densities", "rotations"), (centres, axes, densities, rotations), strict=True
        ):
            copy = array.copy()
            copy.flags.writeable = False
            object.__setattr__(self, name, copy)

    def __len__(self) -> int:
        return len(self.densities)

    @property
    def _shapes(self) -> Array:
        """The matrices that make each ellipsoid, about its centre, of the unit ball."""
        shapes: Array = self.rotations * self.axes[:, None, :]
        return shapes

    @property
    def mass(self) -> float:
        """The integral of the image over all space."""
        return float(4 / 3 * math.pi * (self.densities * self.axes.prod(axis=1)).sum())

    @property
    def bounds(self) -> Array:
        """The lowest and the highest x, y and z of all ellipsoids together: ``(2, 3)``."""
        reach = np.linalg.norm(self._shapes, axis=2)
        corners: Array = np.stack([(self.centres - reach).min(axis=0), (self.centres + reach).max(axis=0)])
        return corners

    def at(self, points: Any) -> Array:
        """Return the image at points ``(…, 3)``.

        >>> from fpdfp.ct import Ellipsoids
        >>> Ellipsoids([[0, 0, 0]], [[1, 2, 3]], [5.0]).at([[0.9, 0, 0], [0, 0, 2.9], [0, 2.1, 0]])
        array([5., 5., 0.])
        """
        place = _checks.float_array("points", points, dtype=np.float64)
        if place.ndim == 0 or place.shape[-1] != 3:
            raise ValueError(f"points must have three coordinates along the last axis, got shape {place.shape}")
        total: Array = np.zeros(place.shape[:-1])
        for centre, inverse, density in zip(self.centres, np.linalg.inv(self._shapes), self.densities, strict=True):
            total += density * ((((place - centre) @ inverse.T) ** 2).sum(axis=-1) <= 1)
        return total

    def volume(self, geometry: ConeBeam, supersample: int = 3, dtype: Any = np.float32) -> Array:
        """Return the means of the image over the voxels of a geometry, ``(nx, ny, nz)``.

        Along z they are exact; across, the mean is taken over ``supersample²`` lines through each voxel.

        Parameters
        ----------
        geometry
            The scan, which defines the voxels.
        supersample
            Lines through a voxel along x, and along y.
        dtype
            float32 or float64.

        Examples
        --------
        >>> import fpdfp
        >>> scan = fpdfp.ct.ConeBeam.circular((8, 8, 8), (1, 1), views=1, source=20.0, panel=30.0)
        >>> image = fpdfp.ct.Ellipsoids([[0, 0, 0]], [[3, 3, 3]], [2.0]).volume(scan)
        >>> image[4, 4].round(3)
        array([0.   , 1.778, 2.   , 2.   , 2.   , 2.   , 1.778, 0.   ], dtype=float32)
        """
        check_geometry(geometry)
        fine = _checks.integer("supersample", supersample, at_least=1)
        kind = _kind(dtype)
        voxel = np.array(geometry.voxel)
        origin = np.array(geometry.centre) - 0.5 * np.array(geometry.volume) * voxel
        # In units of voxels, 0 at the lowest corner of the volume.
        centres = (self.centres - origin) / voxel
        shapes = self._shapes / voxel[:, None]
        reach = np.linalg.norm(shapes, axis=2)
        low = np.clip(np.floor(centres - reach), 0, geometry.volume).astype(int)
        high = np.clip(np.ceil(centres + reach), 0, geometry.volume).astype(int)
        inverses = np.linalg.inv(shapes)
        image: Array = np.empty(geometry.volume, dtype=kind)
        parts = (np.arange(fine) + 0.5) / fine
        for i in range(geometry.volume[0]):
            plane = np.zeros(geometry.volume[1:])
            for e in np.flatnonzero((low[:, 0] <= i) & (i < high[:, 0]) & (low < high).all(axis=1)):
                rows, layers = (np.arange(low[e, axis], high[e, axis]) for axis in (1, 2))
                x, y = i + parts, (rows[:, None] + parts).ravel()
                bottom, top = _chords(inverses[e], centres[e], x[:, None], y)
                share = np.clip(top[..., None] - layers, 0, 1) - np.clip(bottom[..., None] - layers, 0, 1)
                mean = share.reshape(fine, rows.size, fine, layers.size).mean(axis=(0, 2))
                plane[low[e, 1] : high[e, 1], low[e, 2] : high[e, 2]] += self.densities[e] * mean
            image[i] = plane
        return image

    def project(self, geometry: ConeBeam, dtype: Any = np.float32) -> Array:
        """Return the exact integrals of the image along the whole lines through sources and centres of pixels.

        Parameters
        ----------
        geometry
            The scan, which defines the lines; tilted and helical scans are allowed.
        dtype
            float32 or float64, in which all is computed.

        Returns
        -------
        Array
            ``(views, nu, nv)``.
        """
        check_geometry(geometry)
        out: Array = np.empty(geometry.data_shape, dtype=_kind(dtype))
        inverses = np.linalg.inv(self._shapes)
        middle = 0.5 * (np.array(geometry.detector) - 1)
        columns, rows = (np.arange(n) - m for n, m in zip(geometry.detector, middle, strict=True))
        for view in range(geometry.n_views):
            ways = np.stack([geometry.u[view], geometry.v[view], geometry.panels[view] - geometry.sources[view]])
            seen = _shadows(inverses, self.centres - geometry.sources[view], ways)
            begins, stops = _boxes(seen, middle, geometry.detector)
            total = np.zeros(geometry.detector)
            for e in np.flatnonzero((begins < stops).all(axis=1)):
                box = (slice(begins[e, 0], stops[e, 0]), slice(begins[e, 1], stops[e, 1]))
                a, b = columns[box[0]] - seen.places[e, 0], rows[box[1]] - seen.places[e, 1]
                chord = np.sqrt(np.maximum(_quadratic(seen.inside[e], a, b), 0.0))
                total[box] += self.densities[e] * chord / _quadratic(seen.squares[e], a, b)
            out[view] = 2.0 * total * np.sqrt(_quadratic(ways @ ways.T, columns, rows))
        return out

    def stretched(self, factors: Any, move: Any = (0.0, 0.0, 0.0)) -> Ellipsoids:
        """Return the ellipsoids scaled about the origin, by a factor along each of x, y and z, and then moved.

        >>> from fpdfp.ct import Ellipsoids
        >>> Ellipsoids([[1, 0, 0]], [[1, 1, 1]], [1.0]).stretched((10, 5, 5), (0, 0, 2)).centres
        array([[10.,  0.,  2.]])
        """
        scale = _checks.float_array("factors", factors, shape=(3,), dtype=np.float64)
        if (scale <= 0).any():
            raise ValueError(f"factors must be greater than 0, got {scale.min():g}")
        move = _checks.float_array("move", move, shape=(3,), dtype=np.float64)
        # A stretched ellipsoid that is turned has other half axes than the stretched ones.
        rotations, axes, _ = np.linalg.svd(self._shapes * scale[:, None])
        return Ellipsoids(self.centres * scale + move, axes, self.densities, rotations)

    def __add__(self, other: Ellipsoids) -> Ellipsoids:
        if not isinstance(other, Ellipsoids):
            return NotImplemented
        names = ("centres", "axes", "densities", "rotations")
        return Ellipsoids(*(np.concatenate([getattr(self, name), getattr(other, name)]) for name in names))

    def __repr__(self) -> str:
        return f"Ellipsoids({len(self)} of them)"


class _Shadows(NamedTuple):
    """A view, for each ellipsoid in the coordinates in which that is the unit ball.

    From the source, p, the way to a pixel is w = first + a u + b v. So that no digits are lost, (a, b) are counted
    from the place at which the centre of the ellipsoid is seen. Its line misses the centre by |p × w|/|w|, so that
    inside the ball it is 2 √(|w|² − |p × w|²)/|w| long, which is 2 √(|w|² − |p × w|²)/|w|² of the way.

    Attributes
    ----------
    places
        Where the centres are seen, in pixels from the middle of the panel: ``(n, 2)``.
    squares, inside
        |w|² and |w|² − |p × w|² as quadratic forms of (a, b, 1): ``(n, 3, 3)``.
    """

    places: Array
    squares: Array
    inside: Array


def _shadows(inverses: Array, centres: Array, ways: Array) -> _Shadows:
    """Return the shadows of ellipsoids with centres relative to the source; ``ways`` are u, v and that to the panel."""
    # part · centre = first + a u + b v: the depths say the part
    normal = np.cross(ways[0], ways[1])
    depths = centres @ normal
    # A centre besides the source is seen nowhere: any other place serves, at some digits' cost.
    seen = np.abs(depths) > 1e-9 * np.linalg.norm(centres, axis=1) * np.linalg.norm(normal)
    parts = np.divide(ways[2] @ normal, depths, out=np.zeros(len(centres)), where=seen)
    places = (parts[:, None] * centres - ways[2]) @ np.linalg.pinv(ways[:2])
    places[~seen] = 0.0
    towards = np.repeat(ways[None], len(centres), axis=0)
    towards[:, 2] += places @ ways[:2]
    balls = towards @ inverses.swapaxes(1, 2)
    points = -np.einsum("nij,nj->ni", inverses, centres)
    missed = np.cross(points[:, None], balls)
    squares = balls @ balls.swapaxes(1, 2)
    return _Shadows(places, squares, squares - missed @ missed.swapaxes(1, 2))


def _boxes(seen: _Shadows, middle: Array, detector: tuple[int, int]) -> tuple[Array, Array]:
    """Return the first pixels that the shadows may reach, along u and v, and those after the last ones: ``(n, 2)``."""
    # An ellipse, unless part of the ellipsoid is besides or behind the source: the whole panel is then looked at.
    bounded = np.linalg.eigvalsh(seen.inside[:, :2, :2])[:, -1] < 0
    forms = np.where(bounded[:, None, None], seen.inside, np.diag([-1.0, -1.0, 1.0]))
    duals = np.linalg.inv(forms)
    # The lines a = constant, or b, that touch the ellipse.
    means = duals[:, :2, 2] / duals[:, 2:, 2]
    spreads = np.sqrt(np.maximum(means**2 - duals[:, (0, 1), (0, 1)] / duals[:, 2:, 2], 0.0)) * (1 + 1e-9) + 1e-6
    at = seen.places + middle + means
    begins, stops = np.ceil(at - spreads), np.floor(at + spreads) + 1
    begins = np.where(bounded[:, None], np.clip(begins, 0, detector), 0)
    stops = np.where(bounded[:, None], np.clip(stops, 0, detector), detector)
    return begins.astype(int), stops.astype(int)


def _quadratic(form: Array, a: Array, b: Array) -> Array:
    """The values of a quadratic form of (a, b, 1)."""
    a = a[:, None]
    values: Array = 2 * (form[0, 1] * a + form[1, 2]) + form[1, 1] * b
    values *= b
    values += (form[0, 0] * a + 2 * form[0, 2]) * a + form[2, 2]
    return values


def _chords(inverse: Array, centre: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """The points where upright lines at (x, y) enter and leave an ellipsoid; the same place for lines that miss it."""
    across = inverse[:, :2]
    up = inverse[:, 2]
    start = (x - centre[0])[..., None] * across[:, 0] + (y - centre[1])[..., None] * across[:, 1]
    square = up @ up
    middle = -(start @ up) / square
    missed = start + middle[..., None] * up
    half = np.sqrt(np.maximum(1.0 - (missed**2).sum(axis=-1), 0.0) / square)
    return centre[2] + middle - half, centre[2] + middle + half


def _rotations(given: Any, count: int) -> Array:
    if given is None:
        return np.tile(np.eye(3), (count, 1, 1))
    array = _checks.float_array("rotations", given, dtype=np.float64)
    if array.shape == (count,):
        matrices = np.zeros((count, 3, 3))
        matrices[:, 0, 0] = matrices[:, 1, 1] = np.cos(array)
        matrices[:, 1, 0] = np.sin(array)
        matrices[:, 0, 1] = -matrices[:, 1, 0]
        matrices[:, 2, 2] = 1.0
        return matrices
    if array.shape != (count, 3, 3):
        raise ValueError(
            f"rotations must be {count} angles or {count} matrices of 3 × 3, got an array of shape {array.shape}"
        )
    off = np.abs(array.swapaxes(1, 2) @ array - np.eye(3)).max(axis=(1, 2))
    if (off > 1e-6).any():
        raise ValueError(f"rotations: the columns of matrix {int((off > 1e-6).argmax())} are not orthonormal")
    return array


def _kind(dtype: Any) -> Any:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = None
    if kind not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {dtype!r}")
    return kind
