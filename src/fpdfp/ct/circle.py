"""The circle on which a scan was made, found from the positions of its sources and panels."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.ct.geometry import ConeBeam

#: Of the radius: how far positions may be off the circle.
TOLERANCE = 1e-6
#: Of the radius: how far sources and panels may be off the circle that stands for them in :func:`nearest_circle`.
NEAR = 0.01


class Circle(NamedTuple):
    """A scan on a circle around an axis along z, with an upright panel opposite the source.

    Seen from above, the source of a view is at ``axis + radius · (cos, sin)(angle)``. The panel is square to the line
    from the source to the axis. Its centre is shifted from that line by ``offset[0]`` along u, and is ``offset[1]``
    above the plane of the sources, which is at ``height``.

    Attributes
    ----------
    axis
        x and y of the axis.
    radius, distance
        From the source to the axis, and to the panel.
    angles
        Of the sources, for every view.
    turn
        1 if u grows in the direction in which angles grow, −1 if in the other one.
    pitch
        The distances between columns and between rows.
    offset, height
        As above.
    """

    axis: tuple[float, float]
    radius: float
    distance: float
    angles: Array
    turn: int
    pitch: tuple[float, float]
    offset: tuple[float, float]
    height: float

    @property
    def positions(self) -> Array:
        """For every view the directions from the axis to the source and along u, from above: ``(views, 2, 2)``."""
        cos, sin = np.cos(self.angles), np.sin(self.angles)
        directions: Array = np.stack([np.stack([cos, sin], 1), self.turn * np.stack([-sin, cos], 1)], axis=1)
        return directions


def circle(geometry: ConeBeam) -> Circle:
    """Return the circle of a scan; raise an error with the reason if it has none."""
    if not geometry.is_straight:
        raise ValueError(_refusal("the panel is tilted: its columns must be along z and its rows across"))
    pitch_u, pitch_v = np.hypot(geometry.u[:, 0], geometry.u[:, 1]), geometry.v[:, 2]
    along = geometry.u[:, :2] / pitch_u[:, None]
    ways = geometry.sources - geometry.panels
    normals = np.stack([along[:, 1], -along[:, 0]], axis=1)
    distances = np.einsum("ij,ij->i", ways[:, :2], normals)
    turns = np.sign(distances)
    normals, distances = normals * turns[:, None], np.abs(distances)
    beside = -np.einsum("ij,ij->i", ways[:, :2], along)
    # source = axis + radius · normal, for x and for y of every view: three unknowns
    system = np.zeros((2 * geometry.n_views, 3))
    system[: geometry.n_views, 0] = system[geometry.n_views :, 1] = 1.0
    system[:, 2] = normals.T.ravel()
    sides = geometry.sources[:, :2].T.ravel()
    found, _, rank, _ = np.linalg.lstsq(system, sides, rcond=1e-9)
    if rank < 3:
        raise ValueError(_refusal("it needs at least two views, from different angles"))
    x, y, radius = (float(part) for part in found)
    slack = TOLERANCE * abs(radius)
    if radius <= 0 or np.abs(system @ found - sides).max() > slack:
        raise ValueError(_refusal("the sources are not on a circle around an axis that every panel is square to"))
    if (turns != turns[0]).any():
        raise ValueError(_refusal("the direction of u changes between views"))
    numbers = {
        "the distance from source to panel": distances,
        "the distance between columns": pitch_u,
        "the distance between rows": pitch_v,
        "the panel's offset along u": beside,
        "the panel's height above the source": -ways[:, 2],
        "the height of the source (a helix?)": geometry.sources[:, 2],
    }
    for what, values in numbers.items():
        if np.ptp(values) > slack:
            raise ValueError(_refusal(f"{what} changes between views"))
    distance, width, row, offset_u, offset_v, height = (float(values.mean()) for values in numbers.values())
    angles = np.arctan2(normals[:, 1], normals[:, 0])
    return Circle((x, y), radius, distance, angles, int(turns[0]), (width, row), (offset_u, offset_v), height)


def nearest_circle(geometry: ConeBeam) -> Circle | None:
    """Return the scan on a circle that a geometry is near to; None if its sources are not near a circle across z."""
    x, y, z = geometry.sources.T
    # |source|² = 2 axis · source + constant
    system = np.stack([2 * x, 2 * y, np.ones_like(x)], axis=1)
    found, _, rank, _ = np.linalg.lstsq(system, x**2 + y**2, rcond=1e-9)
    if rank < 3:
        return None
    axis = found[:2]
    ways = geometry.sources[:, :2] - axis
    radii = np.linalg.norm(ways, axis=1)
    radius, height = float(radii.mean()), float(z.mean())
    if max(np.ptp(radii), np.ptp(z)) > NEAR * radius:
        return None
    angles = np.arctan2(ways[:, 1], ways[:, 0])
    outwards = ways / radii[:, None]
    along = np.stack([-outwards[:, 1], outwards[:, 0]], axis=1)
    turns = np.sign(np.einsum("ij,ij->i", geometry.u[:, :2], along))
    if (turns != turns[0]).any() or turns[0] == 0:
        return None
    # Seen from where the source would be on the circle.
    panels = geometry.panels[:, :2] - axis - radius * outwards
    distances = -np.einsum("ij,ij->i", panels, outwards)
    beside = turns[0] * np.einsum("ij,ij->i", panels, along)
    above = geometry.panels[:, 2] - height
    if max(np.ptp(distances), np.ptp(beside), np.ptp(above)) > NEAR * radius or distances.min() <= 0:
        return None
    pitch = tuple(float(np.linalg.norm(step, axis=1).mean()) for step in (geometry.u, geometry.v))
    return Circle(
        (float(axis[0]), float(axis[1])), radius, float(distances.mean()), angles, int(turns[0]),
        (pitch[0], pitch[1]), (float(beside.mean()), float(above.mean())), height,
    )  # fmt: skip


def _refusal(why: str) -> str:
    return f"geometry must be a scan on a circle around an axis along z for FDK, but {why}"


class Coverage(NamedTuple):
    """The angles of a scan.

    Attributes
    ----------
    shares
        For every view how much of the circle it stands for; they add up to ``arc``.
    begin, arc
        Where the views begin, and how far they reach: 2π for a full turn.
    """

    shares: Array
    begin: float
    arc: float

    @property
    def is_full(self) -> bool:
        """Whether views come from all around."""
        return self.arc == 2 * math.pi


def coverage(angles: Array) -> Coverage:
    """Return which part of the circle views stand for, evenly spread or not, in any order, over any number of turns."""
    turned = angles % (2 * math.pi)
    order = np.argsort(turned, kind="stable")
    gaps = np.diff(turned[order], append=turned[order[0]] + 2 * math.pi)
    widest = int(gaps.argmax())
    shares = np.empty_like(gaps)
    # A gap of some views' width is one that a full turn with uneven angles may have.
    if gaps[widest] <= 3 * 2 * math.pi / np.count_nonzero(gaps > 1e-9):
        shares[order] = 0.5 * (gaps + np.roll(gaps, 1))
        return Coverage(shares, 0.0, 2 * math.pi)
    order, gaps = np.roll(order, -widest - 1), np.roll(gaps, -widest - 1)[:-1]
    # The first and the last view stand for as much on the side where there is no other.
    shares[order] = 0.5 * (np.concatenate([gaps[:1], gaps]) + np.concatenate([gaps, gaps[-1:]]))
    return Coverage(shares, float(turned[order[0]] - 0.5 * gaps[0]), float(shares.sum()))


def redundancy(covered: Coverage, angles: Array, fans: Array, needed: float) -> Array:
    """Return how much each column of each view counts, so that every line counts once: ``(views, nu)``.

    A line is seen from both of its ends where views come from there. In a full turn each of the two counts a half. In a
    short scan some lines are seen once; from those to the ones seen twice, Parker's weights lead smoothly over. Where
    the panel is shifted so that it sees one half of the object only, and a full turn the other, Wang's weights do so.

    Parameters
    ----------
    covered, angles
        The angles of the views, and what part of the circle they cover.
    fans
        The angles of the columns off the central line, growing with the angles of views.
    needed
        The angle off the central line at which the volume ends.
    """
    if not covered.is_full:
        near = _inside(covered, angles[:, None])
        far = _inside(covered, angles[:, None] + math.pi - 2 * fans)
        total = near + far
        part = np.divide(near, total, out=np.full(total.shape, 0.5), where=total > 0)
        weights: Array = np.sin(0.5 * math.pi * part) ** 2
        return weights
    one, other = max(float(fans.max()), 0.0), max(-float(fans.min()), 0.0)
    short, column = min(one, other), float(np.abs(np.diff(fans)).max()) if fans.size > 1 else math.inf
    if short >= needed - column or abs(one - other) <= 2 * column:
        return np.full((len(angles), len(fans)), 0.5)
    towards = fans if one > other else -fans
    part = np.clip(towards / max(short, column), -1.0, 1.0)
    return np.tile(0.5 + 0.5 * np.sin(0.5 * math.pi * part), (len(angles), 1))


def _inside(covered: Coverage, angles: Array) -> Array:
    """The distance of angles to the nearer end of the arc; 0 outside."""
    along = (angles - covered.begin) % (2 * math.pi)
    inside: Array = np.maximum(np.minimum(along, covered.arc - along), 0.0)
    return inside
