"""Cone-beam geometry: where the source, the panel and the volume are in every view."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Literal, cast

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray, Shape
from fpdfp.errors import ArgumentError

Triple = tuple[float, float, float]
Size = tuple[int, int, int]

#: Of the sizes of vectors: how far a panel may be from parallel to z and still count as parallel.
STRAIGHT = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class ConeBeam:
    """A volume of voxels, and for every view a source and a flat panel of pixels.

    Volumes are arrays of shape ``(nx, ny, nz)``, projections of shape ``(views, nu, nv)``; slices across the z axis are
    ``volume[:, :, k]``. Lengths have one unit, such as mm. The centre of voxel (i, j, k) is at
    ``centre + ((i, j, k) − (n − 1)/2) · voxel``. The centre of pixel (a, b) of a view is at
    ``panel + (a − (nu − 1)/2) · u + (b − (nv − 1)/2) · v``.

    Use :meth:`circular` or :meth:`helical` for most scans, and the constructor for any other.

    Parameters
    ----------
    volume
        Voxels along x, y and z.
    detector
        Pixels of the panel along u (columns) and v (rows).
    sources, panels
        For every view the position of the source, and of the centre of the panel: arrays ``(views, 3)``.
    u, v
        For every view the step from a column to the next, and from a row to the next: arrays ``(views, 3)``.
    voxel
        The sides of a voxel: one number, or three.
    centre
        The centre of the volume.

    Examples
    --------
    >>> import fpdfp
    >>> scan = fpdfp.ct.ConeBeam.circular((64, 64, 16), (128, 96), views=167, source=256.0, panel=384.0)
    >>> scan
    ConeBeam((64, 64, 16) voxels → 167 views of (128, 96) pixels)
    >>> scan.is_straight
    True
    >>> scan.subset([0, 5, 10]).n_views
    3
    """

    volume: Size
    detector: tuple[int, int]
    sources: Array
    panels: Array
    u: Array
    v: Array
    voxel: Triple = (1.0, 1.0, 1.0)
    centre: Triple = (0.0, 0.0, 0.0)

    def __post_init__(self) -> None:
        put = functools.partial(object.__setattr__, self)
        put("volume", _lengths("volume", self.volume, 3))
        put("detector", _lengths("detector", self.detector, 2))
        put("voxel", triple("voxel", self.voxel, positive=True))
        put("centre", triple("centre", self.centre))
        count = None
        for name in ("sources", "panels", "u", "v"):
            array = _checks.float_array(name, getattr(self, name), dtype=np.float64)
            if array.ndim != 2 or array.shape[1] != 3 or len(array) == 0:
                raise ArgumentError(name, f"must be an array of shape (views, 3), got shape {array.shape}")
            if count not in (None, len(array)):
                raise ArgumentError(name, f"must have a row for each of the {count} views, got {len(array)}")
            count = len(array)
            array = array.copy()
            array.flags.writeable = False
            put(name, array)
        self._check_positions()

    def _check_positions(self) -> None:
        normals = np.cross(self.u, self.v)
        flat = np.linalg.norm(normals, axis=1) <= 1e-9 * np.linalg.norm(self.u, axis=1) * np.linalg.norm(self.v, axis=1)
        if flat.any():
            raise ValueError(f"u and v must span a plane, but in view {int(flat.argmax())} they are parallel or zero")
        depth = np.einsum("ij,ij->i", self.panels - self.sources, normals)
        if (depth == 0).any():
            raise ValueError(f"sources: in view {int((depth == 0).argmax())} the source lies in the plane of the panel")
        corners = self._corners()
        # How far along the way from the source to the panel each corner of the volume is; 1 is at the panel.
        along = np.einsum("vci,vi->vc", corners[None] - self.sources[:, None], normals) / depth[:, None]
        behind = (along <= 0).any(axis=1)
        if behind.any():
            raise ValueError(
                f"sources: in view {int(behind.argmax())} part of the volume is next to or behind the source; "
                "the whole volume must lie in front of it, towards the panel"
            )

    def _corners(self) -> Array:
        """The eight corners of the volume."""
        half = 0.5 * np.array(self.volume) * self.voxel
        signs = np.array([[a, b, c] for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)])
        corners: Array = np.array(self.centre) + signs * half
        return corners

    @classmethod
    def circular(
        cls,
        volume: Size,
        detector: tuple[int, int],
        *,
        views: int | None = None,
        angles: Any = None,
        arc: float | None = None,
        source: float,
        panel: float,
        voxel: float | Triple = 1.0,
        pixel: tuple[float, float] | float | Literal["fit"] = "fit",
        offset: tuple[float, float] = (0.0, 0.0),
        centre: Triple = (0.0, 0.0, 0.0),
        unit: Literal["radians", "degrees"] | None = None,
    ) -> ConeBeam:
        """Return a scan on a circle around the z axis.

        Parameters
        ----------
        volume, detector, voxel, centre
            As above.
        views, arc
            The number of views, evenly spaced over an arc, by default a full turn: ``angles = arc · k/views``.
        angles
            The angles, instead of ``views``.
        unit
            The unit of ``angles`` and ``arc``: ``"radians"`` or ``"degrees"``. None, the default, means radians. It
            raises an error for angles that look like degrees: more than two turns with less than 20 views each, or
            about 24 turns or more with less than 126 views each.
        source
            The distance from the source to the axis.
        panel
            The distance from the source to the panel, not from the axis: at least ``source``. A panel at the axis is
            virtual; lines continue beyond it.
        pixel
            The sides of a pixel along u and v; ``"fit"`` makes them just large enough for the whole volume.
        offset
            The shift of the panel along u and v.

        Examples
        --------
        >>> import fpdfp
        >>> scan = fpdfp.ct.ConeBeam.circular((4, 4, 4), (8, 8), angles=[0.0, 1.5], source=20.0, panel=30.0)
        >>> scan.sources.round(1)
        array([[20. ,  0. ,  0. ],
               [ 1.4, 19.9,  0. ]])
        """
        angle = _angles(views, angles, arc, unit, turns=False)
        return cls._around(volume, detector, angle, np.zeros(len(angle)), source, panel, voxel, pixel, offset, centre)

    @classmethod
    def helical(
        cls,
        volume: Size,
        detector: tuple[int, int],
        *,
        views: int | None = None,
        angles: Any = None,
        arc: float | None = None,
        pitch: float,
        source: float,
        panel: float,
        voxel: float | Triple = 1.0,
        pixel: tuple[float, float] | float | Literal["fit"] = "fit",
        offset: tuple[float, float] = (0.0, 0.0),
        centre: Triple = (0.0, 0.0, 0.0),
        unit: Literal["radians", "degrees"] | None = None,
    ) -> ConeBeam:
        """Return a scan on a helix: with each turn source and panel rise by ``pitch``, through z = 0 half-way.

        Two turns by default; parameters as for :meth:`circular`. With ``unit=None``, angles that look like degrees
        raise an error: about 24 turns or more with less than 126 views each.

        >>> import fpdfp
        >>> scan = fpdfp.ct.ConeBeam.helical((8, 8, 8), (9, 9), views=5, pitch=4.0, source=30.0, panel=45.0)
        >>> scan.sources[:, 2]
        array([-3.2, -1.6,  0. ,  1.6,  3.2])
        """
        angle = _angles(views, angles, arc, unit, turns=True)
        pitch = _checks.real("pitch", pitch)
        heights = pitch * (angle - 0.5 * (angle[0] + angle[-1])) / (2 * math.pi)
        return cls._around(volume, detector, angle, heights, source, panel, voxel, pixel, offset, centre)

    @classmethod
    def from_matrices(
        cls,
        matrices: Any,
        volume: Size,
        detector: tuple[int, int],
        *,
        voxel: float | Triple = 1.0,
        pixel: tuple[float, float] | float = 1.0,
        origin: tuple[float, float] | None = None,
        centre: Triple = (0.0, 0.0, 0.0),
    ) -> ConeBeam:
        """Return a scan given by projection matrices.

        Parameters
        ----------
        matrices
            ``(views, 3, 4)``: each takes a point (x, y, z, 1) to a multiple of (a, b, 1), a place on the panel.
        volume, detector, voxel, centre
            As above.
        pixel
            The sides of a pixel in the unit of a and b.
        origin
            The place (a, b) of the first pixel's centre; (0, 0) is the middle of the panel by default.

        Examples
        --------
        >>> import fpdfp
        >>> matrix = [[[0, 30, 0, 0], [0, 0, 30, 0], [-1, 0, 0, 20]]]
        >>> scan = fpdfp.ct.ConeBeam.from_matrices(matrix, (4, 4, 4), (8, 8))
        >>> scan.sources, scan.panels
        (array([[20.,  0.,  0.]]), array([[-10.,   0.,   0.]]))
        """
        given = _checks.float_array("matrices", matrices, dtype=np.float64)
        if given.ndim != 3 or given.shape[1:] != (3, 4) or len(given) == 0:
            raise ArgumentError("matrices", f"must be an array of shape (views, 3, 4), got shape {given.shape}")
        square = given[:, :, :3]
        if (np.abs(np.linalg.det(square)) <= 1e-12 * np.linalg.norm(square, axis=(1, 2)) ** 3).any():
            raise ArgumentError(
                "matrices", "must have a source at a finite place: their first three columns are singular"
            )
        inverse = np.linalg.inv(square)
        sources = -np.einsum("vij,vj->vi", inverse, given[:, :, 3])
        sides = np.array([_checks.real("pixel", side, positive=True) for side in _pair("pixel", pixel)])
        counts = np.array(_lengths("detector", detector, 2))
        first = -0.5 * (counts - 1) * sides if origin is None else np.array(_pair("origin", origin), dtype=np.float64)
        middle = first + 0.5 * (counts - 1) * sides
        # The panel is where a unit of a is a unit of length, on the side of the volume.
        depth = np.einsum("vj,j->v", given[:, 2, :3], np.array(centre)) + given[:, 2, 3]
        factors = np.where(depth < 0, -1.0, 1.0) / np.linalg.norm(inverse[:, :, 0], axis=1)
        along, up, towards = (factors[:, None] * inverse[:, :, column] for column in range(3))
        panels = sources + towards + middle[0] * along + middle[1] * up
        lengths = triple("voxel", voxel, positive=True)
        return cls(volume, detector, sources + 0.0, panels + 0.0, sides[0] * along, sides[1] * up, lengths, centre)

    @classmethod
    def _around(
        cls, volume: Any, detector: Any, angle: Array, heights: Array, source: Any, panel: Any, voxel: Any, pixel: Any,
        offset: Any, centre: Any,
    ) -> ConeBeam:  # fmt: skip
        radius = _checks.real("source", source, positive=True)
        distance = _checks.real("panel", panel, positive=True)
        if distance < radius:
            raise ValueError(
                f"panel is the distance from the source to the panel and must be at least source={radius:g}, the "
                f"distance from the source to the axis, got {distance:g}"
            )
        shift = tuple(_checks.real("offset", part) for part in _pair("offset", offset))
        zero = np.zeros_like(angle)
        out = np.stack([np.cos(angle), np.sin(angle), zero], axis=1)
        along = np.stack([-np.sin(angle), np.cos(angle), zero], axis=1)
        up = np.array([0.0, 0.0, 1.0])
        sources = radius * out + heights[:, None] * up
        centres = sources - distance * out + shift[0] * along + shift[1] * up
        if isinstance(pixel, str):
            _checks.choice("pixel", pixel, ("fit",))
            # A panel of one pixel of one unit, to see how far the shadow of the volume reaches on it.
            probe = cls(volume, (1, 1), sources, centres, along, np.tile(up, (len(angle), 1)), voxel, centre)
            reach = np.abs(probe.shadow()).max(axis=(0, 1))
            sides = tuple(2 * float(r) / n for r, n in zip(reach, _lengths("detector", detector, 2), strict=True))
        else:
            sides = tuple(_checks.real("pixel", side, positive=True) for side in _pair("pixel", pixel))
        steps = np.tile(sides[1] * up, (len(angle), 1))
        return cls(volume, detector, sources, centres, sides[0] * along, steps, voxel, centre)

    def shadow(self) -> Array:
        """Return where the corners of the volume fall on the panel, in pixels from its centre: ``(views, 8, 2)``."""
        ways = self._corners()[None] - self.sources[:, None]
        # source + t · way = panel + a u + b v, solved for (t, a, b)
        system = np.stack(np.broadcast_arrays(ways, -self.u[:, None], -self.v[:, None]), axis=-1)
        right = np.broadcast_to((self.panels - self.sources)[:, None, :, None], (*system.shape[:2], 3, 1))
        solved: Array = np.linalg.solve(system, right)[..., 1:, 0]
        return solved

    @property
    def first_voxel(self) -> Array:
        """The centre of voxel (0, 0, 0)."""
        first: Array = np.array(self.centre) - 0.5 * (np.array(self.volume) - 1) * np.array(self.voxel)
        return first

    @property
    def n_views(self) -> int:
        """The number of views."""
        return len(self.sources)

    @property
    def data_shape(self) -> Shape:
        """The shape of the projections."""
        return (self.n_views, *self.detector)

    @functools.cached_property
    def is_straight(self) -> bool:
        """Whether in every view the columns of the panel run along z and its rows across: the fast projector's case."""
        u, v = self.u, self.v
        across = np.abs(v[:, :2]).max(axis=1) <= STRAIGHT * np.linalg.norm(v, axis=1)
        level = np.abs(u[:, 2]) <= STRAIGHT * np.linalg.norm(u, axis=1)
        return bool((across & level & (v[:, 2] > 0)).all())

    def subset(self, views: Any) -> ConeBeam:
        """Return the geometry of some of the views: their numbers, or a truth value for each."""
        chosen = np.asarray(views)
        if chosen.dtype == bool:
            if chosen.shape != (self.n_views,):
                raise ValueError(f"views must have a truth value for each of {self.n_views}, got shape {chosen.shape}")
            chosen = np.flatnonzero(chosen)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu" or chosen.size == 0:
            raise ValueError("views must be a list of numbers of views, at least one")
        if chosen.min() < 0 or chosen.max() >= self.n_views:
            raise IndexError(f"views must be numbers from 0 to {self.n_views - 1}")
        index = cast(IntArray, chosen)
        return dataclasses.replace(
            self, sources=self.sources[index], panels=self.panels[index], u=self.u[index], v=self.v[index]
        )

    def rays(self, view: int) -> Array:
        """Return the vectors from the source to the centres of the pixels of a view: ``(nu, nv, 3)``."""
        columns, rows = (np.arange(n) - 0.5 * (n - 1) for n in self.detector)
        first = self.panels[view] - self.sources[view]
        vectors: Array = first + columns[:, None, None] * self.u[view] + rows[None, :, None] * self.v[view]
        return vectors

    def __repr__(self) -> str:
        return f"ConeBeam({self.volume} voxels → {self.n_views} views of {self.detector} pixels)"


def check_geometry(geometry: Any) -> ConeBeam:
    """Return a geometry; raise an error for anything else."""
    if not isinstance(geometry, ConeBeam):
        raise TypeError(f"geometry must be a fpdfp.ct.ConeBeam, got {_checks.kind(geometry)}")
    return geometry


def triple(name: str, value: Any, *, positive: bool = False) -> Triple:
    """Return one number for each axis."""
    parts = tuple(value) if isinstance(value, tuple | list | np.ndarray) else (value,) * 3
    if len(parts) != 3:
        raise ArgumentError(name, f"must be one number or three, got {len(parts)}")
    x, y, z = (_checks.real(name, part, positive=positive) for part in parts)
    return x, y, z


def _lengths(name: str, value: Any, count: int) -> Any:
    lengths = _checks.shape(name, tuple(value) if isinstance(value, np.ndarray) else value)
    if len(lengths) != count or min(lengths) < 1:
        raise ArgumentError(name, f"must be {count} lengths of at least 1, got {lengths}")
    return lengths


def _pair(name: str, value: Any) -> tuple[Any, Any]:
    parts = tuple(value) if isinstance(value, tuple | list | np.ndarray) else (value, value)
    if len(parts) != 2:
        raise ArgumentError(name, f"must be one number or two, got {len(parts)}")
    return parts[0], parts[1]


def _angles(views: Any, angles: Any, arc: Any, unit: Any, *, turns: bool) -> Array:
    """Return angles in radians; ``turns``: whether many turns are usual."""
    if unit is not None:
        _checks.choice("unit", unit, ("radians", "degrees"))
    if arc is None:
        arc = (4 if turns else 2) * (180.0 if unit == "degrees" else math.pi)
    given = _given_angles(views, angles, arc)
    if unit is None:
        _check_radians("angles" if views is None else "views and arc", given, turns=turns)
    return np.radians(given) if unit == "degrees" else given


def _given_angles(views: Any, angles: Any, arc: Any) -> Array:
    if (views is None) == (angles is None):
        raise ValueError("give either views or angles")
    if angles is None:
        count = _checks.integer("views", views, at_least=1)
        spread: Array = np.arange(count) * (_checks.real("arc", arc, positive=True) / count)
        return spread
    given = _checks.float_array("angles", angles, dtype=np.float64)
    if given.ndim != 1 or given.size == 0:
        raise ValueError(f"angles must be a list of at least one angle, got shape {given.shape}")
    return given


def _check_radians(name: str, angles: Array, *, turns: bool) -> None:
    """Raise an error for angles that look like degrees; ``turns``: whether many turns are usual, as on a helix."""
    steps = np.diff(np.unique(angles))
    if not steps.size:
        return
    span, step = float(np.ptp(angles)), float(np.median(steps))
    # As radians: dozens of turns with few views each, or on a circle more than two turns with less than 20 views each.
    if (span >= 150 and step >= 0.05) or (not turns and span > 4 * math.pi and step > math.pi / 10):
        raise ValueError(
            f"{name} look like degrees: they span {span:g}, in steps of {step:.3g}, which as radians would be "
            f'{span / (2 * math.pi):.0f} turns; give unit="degrees", or unit="radians" if they are'
        )
