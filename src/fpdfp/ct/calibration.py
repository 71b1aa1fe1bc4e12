"""Calibration of a scan on a circle: sense of rotation, offset and tilt of the panel, found from its views."""

from __future__ import annotations

import dataclasses
import math
import os
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.ct.circle import Circle, circle
from fpdfp.ct.fdk import filter_projections
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.projector import XRayTransform
from fpdfp.ct.rectify import homographies, on_circle, resample, upright
from fpdfp.ct.scans import check_projections
from fpdfp.errors import AccuracyWarning, ArgumentError

#: Columns of the binned panel, and voxels across the volume, of the coarse search and of the fine one.
COARSE, FINE = (32, 32), (64, 48)
#: Views that are used at most, evenly spread.
VIEWS = 180
#: The standard deviation, in binned pixels, of the smoothing before views are turned: without it, the smoothing by the
#: interpolation itself would favour some angles.
SMOOTHING = 1.0
#: Steps of conjugate gradients after the back-projection where the tilt is sought. With none, the errors of
#: back-projection in a short scan moved the tilt by 0.66°, with two by 0.10°, with four by 0.05°. With four the offsets
#: of three of 50 synthetic scans (``benchmarks.calibration``) were off by more than 0.04 pixel, with eight none.
STEPS = 8
#: The tilts that are tried first, in degrees.
TILTS = (-4.0, -2.0, 0.0, 2.0, 4.0)
#: The last parabolas reach so far, in degrees and in binned pixels. With 0.5° the tilts of 4 of 50 synthetic scans were
#: off by more than 0.1°, all of them with 5 or 10 % noise; with 2° they were right. Wider parabolas of offsets are skew
#: in truncated scans: 0.4, 0.75 and 1.5 binned pixels moved one by 0.03, 0.05 and 0.15 pixels.
WIDE_TILT, WIDE_OFFSET = 2.0, 0.375
#: The part of the panel's sides that is not compared: a turned panel does not see it.
BORDER = 1 / 16
#: A tilt that moves no pixel by more than this, in pixels, is taken as zero.
INVISIBLE = 0.1
#: Widths of the volume that are tried, relative to what the panel sees at the axis: an object, or what holds it, may
#: reach beyond.
EXTENTS = (1.0, 1.125, 1.25, 1.5, 2.0)
#: Another sense of rotation, or the end of the search, that predicts almost as well as the best is worth a warning.
CLEAR = 1.02


class Trial(NamedTuple):
    """A setting, and the residual of left-out views with it, relative to these views."""

    sense: int
    offset: float
    tilt: float
    residual: float


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A corrected geometry, and how clearly the views determine it.

    Attributes
    ----------
    geometry
        The scan with the corrections.
    sense
        1 if the object turns in the given direction, −1 if in the other one.
    offset
        What was added to the panel's offset along u, in pixels.
    length
        The same in the unit of length.
    tilt
        The angle by which the panel is turned in its plane, from u towards v, in degrees.
    margin
        The residual with the other sense of rotation, over the residual with this one; nan if it was not tried.
    residual
        Relative to the left-out views: their residual with the corrections, and ``given`` that without, both with the
        same smoothed views.
    given
        See ``residual``.
    extent
        The width of the volume that predicts left-out views best, relative to the disc that every view shows whole:
        above 1 where views are truncated.
    curves
        What was tried near the optimum: ``"sense 1"``, ``"sense -1"`` (residuals by offset in pixels) and ``"tilt"``
        (by degrees): arrays ``(2, n)``.
    """

    geometry: ConeBeam
    sense: int
    offset: float
    length: float
    tilt: float
    margin: float
    residual: float
    given: float
    extent: float
    curves: dict[str, Array]

    def apply(self, geometry: ConeBeam) -> ConeBeam:
        """Return another scan of the same machine with these corrections: other views, voxels or binned pixels."""
        return misaligned(geometry, circle(geometry), self.sense, self.length, math.radians(self.tilt))

    def __str__(self) -> str:
        sense = "as given" if self.sense == 1 else "opposite to the given one"
        margin = "" if math.isnan(self.margin) else f" (the other one predicts {self.margin:.2f} times worse)"
        return (
            f"sense of rotation {sense}{margin}; offset {self.offset:+.2f} pixels; tilt {self.tilt:+.2f}°; "
            f"volume {self.extent:g} times as wide as seen; "
            f"residual of left-out views {self.residual:.4f}, {self.given:.4f} as given"
        )

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Return a figure of the curves; write it to a file if a path is given."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        for name, curve in self.curves.items():
            axes = right if name == "tilt" else left
            axes.plot(*curve, "o-", markersize=3, label=name)
        left.axvline(self.offset, color="0.7", zorder=0)
        right.axvline(self.tilt, color="0.7", zorder=0)
        left.set(xlabel="offset, pixels", ylabel="residual of left-out views")
        right.set(xlabel="tilt, degrees")
        left.legend()
        if path is not None:
            figure.savefig(path)
        return figure


def calibrate(
    projections: Any,
    geometry: ConeBeam,
    *,
    sense: bool = True,
    offset: bool = True,
    tilt: bool = True,
    reach: float | None = None,
) -> Calibration:
    """Find the sense of rotation, the offset of the panel and its tilt in its plane, by predicting left-out views.

    Half of the views are reconstructed and predict the other half, and the reverse. The setting whose predictions are
    nearest wins. The offset is sought on a grid for both senses of rotation, first with a coarsely binned panel;
    filtered back-projection predicts. The sense is then chosen, and the tilt and the offset are refined, with smoothed
    views, where a few steps of conjugate gradients improve the prediction. How far the axis leans towards the panel is
    not sought: views hardly depend on it.

    Parameters
    ----------
    projections
        Line integrals, ``(views, nu, nv)``.
    geometry
        The scan on a circle as far as it is known: distances, angles, pixels. Distances are not changed.
    sense, offset, tilt
        What to look for.
    reach
        The largest offset to consider, in pixels; a quarter of the columns by default.

    Returns
    -------
    Calibration
        With the corrected geometry, the margin, and the curves. An :class:`fpdfp.errors.AccuracyWarning` says when the
        views do not decide.

    Examples
    --------
    >>> import fpdfp
    >>> how = dict(angles=range(0, 360, 6), unit="degrees", source=100.0, panel=150.0, pixel=1.0)
    >>> true = fpdfp.ct.ConeBeam.circular((32, 32, 24), (64, 40), offset=(2.5, 0.0), **how)
    >>> data = fpdfp.ct.phantoms.thorax(true).project(true)
    >>> nominal = fpdfp.ct.ConeBeam.circular((32, 32, 24), (64, 40), **how)
    >>> found = fpdfp.ct.calibrate(data, nominal, tilt=False)
    >>> found.sense, round(found.offset, 1)
    (1, 2.5)
    """
    data, geometry = on_circle(check_projections(projections, geometry), geometry)
    data = to_host(data)
    for name, value in (("sense", sense), ("offset", offset), ("tilt", tilt)):
        _checks.flag(name, value)
    found = circle(geometry)
    columns = geometry.detector[0]
    if geometry.n_views < 4 or columns < 8:
        raise ArgumentError("projections", "must be at least 4 views of at least 8 columns to be calibrated")
    senses = (1, -1) if sense else (1,)
    largest = 0.25 * columns if reach is None else _checks.real("reach", reach, positive=True)
    some = np.unique(np.linspace(0, geometry.n_views - 1, min(VIEWS, geometry.n_views)).astype(int))
    few = geometry.subset(some)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)  # of FDK, about coverage
        first = _Search(data[some], few, COARSE, smoothing=0.0, steps=0)
        second = _Search(data[some], few, FINE, smoothing=0.0, steps=0)
        offsets = [(one, _offset(first, second, one, largest if offset else 0.0)) for one in senses]
        one, at = min(offsets, key=lambda each: second.residual(each[0], each[1], 0.0))
        wider = (_Search(data[some], few, FINE, smoothing=SMOOTHING, steps=STEPS, extent=share) for share in EXTENTS)
        third = min(wider, key=lambda each: each.residual(one, at, 0.0))
        # Back-projection alone predicts 30 views of a small fan 1.05 times better with the wrong sense.
        best, *others = sorted(
            (Trial(one, at, 0.0, third.residual(one, at, 0.0)) for one, at in offsets), key=lambda each: each.residual
        )
        trial = _tilt_and_offset(third, best, tilt=tilt, offset=offset)
        given = third.residual(1, 0.0, 0.0)
    result = _result(geometry, found, trial, best, others, given, (second, third))
    _judge(result, largest if offset else math.inf, tilt=tilt)
    return result


def _offset(first: _Search, second: _Search, sense: int, largest: float) -> float:
    """Return the best offset with a sense of rotation: from a grid, by halving steps, then by a parabola."""

    def residual(at: float) -> float:
        return second.residual(sense, at, 0.0)

    offset = 0.0
    if largest:
        grid = np.linspace(-largest, largest, 2 * math.ceil(largest / first.bin) + 1).tolist()
        offset = min(grid, key=lambda at: first.residual(sense, at, 0.0))
        width = grid[1] - grid[0]
        while width > 0.25 * second.bin:
            width *= 0.5
            offset = min((offset - width, offset, offset + width), key=residual)
        offset = _refine(residual, offset, 0.5 * second.bin)
    return offset


def _tilt_and_offset(search: _Search, start: Trial, *, tilt: bool, offset: bool) -> Trial:
    sense, at, angle = start.sense, start.offset, 0.0
    if tilt:
        angle = min(TILTS, key=lambda degrees: search.residual(sense, at, degrees))
        angle = _refine(lambda degrees: search.residual(sense, at, degrees), angle, 2.0)
    if offset:
        at = _refine(lambda place: search.residual(sense, place, angle), at, 0.5 * search.bin)
    if tilt:
        angle = _fit(lambda degrees: search.residual(sense, at, degrees), angle, WIDE_TILT)
    if offset:
        at = _fit(lambda place: search.residual(sense, place, angle), at, WIDE_OFFSET * search.bin)
    farthest = 0.5 * math.hypot(*search.full) * math.radians(abs(angle))
    if farthest < INVISIBLE:
        angle = 0.0
    return Trial(sense, at, angle, search.residual(sense, at, angle))


def _refine(residual: Callable[[float], float], middle: float, width: float) -> float:
    """Return the minimum of the parabola through the squares of three residuals, moving on while the end is best."""
    for _ in range(8):
        left, here, right = (residual(middle + step) ** 2 for step in (-width, 0.0, width))
        bend = left - 2 * here + right
        if bend > 0 and abs(left - right) <= 2 * bend:
            return middle + 0.5 * width * (left - right) / bend
        middle += width if right < left else -width
    return middle


def _fit(residual: Callable[[float], float], middle: float, width: float) -> float:
    """Return the minimum of the parabola that fits five residuals best: noise moves it less than with three."""
    steps = width * np.linspace(-1.0, 1.0, 5)
    bend, slope, _ = np.polyfit(steps, [residual(middle + step) for step in steps], 2)
    return middle if bend <= 0 else middle + float(np.clip(-0.5 * slope / bend, -width, width))


def _result(
    geometry: ConeBeam, found: Circle, trial: Trial, best: Trial, others: list[Trial], given: float,
    searches: tuple[_Search, _Search],
) -> Calibration:  # fmt: skip
    pitch = found.pitch[0]
    length = trial.offset * pitch
    corrected = misaligned(geometry, found, trial.sense, length, math.radians(trial.tilt))
    curves = {}
    for sense in (1, -1):
        tried = sorted((t.offset, t.residual) for t in searches[0].trials if t.sense == sense)
        if len(tried) > 1:
            curves[f"sense {sense}"] = np.array(tried).T
    # The tilts that were tried last, with one offset.
    at = [t.offset for t in searches[1].trials if t.sense == trial.sense and t.tilt]
    tilts = sorted((t.tilt, t.residual) for t in searches[1].trials if t.sense == trial.sense and [t.offset] == at[-1:])
    if len(tilts) > 1:
        curves["tilt"] = np.array(tilts).T
    margin = others[0].residual / best.residual if others else math.nan
    extent = searches[1].extent
    return Calibration(
        corrected, trial.sense, trial.offset, length, trial.tilt, margin, trial.residual, given, extent, curves
    )


def _judge(result: Calibration, largest: float, *, tilt: bool) -> None:
    """Warn where the views do not decide."""
    if result.margin < CLEAR:
        warn(
            f"projections: they hardly tell the sense of rotation: the other one predicts left-out views only "
            f"{result.margin:.3f} times worse",
            AccuracyWarning,
        )
    if abs(result.offset) >= largest:
        warn(f"reach: the offset found, {result.offset:.1f} pixels, is at the end of the search", AccuracyWarning)
    if tilt and abs(result.tilt) > max(TILTS):
        warn(f"projections: the tilt found, {result.tilt:.1f}°, is beyond the angles that were tried", AccuracyWarning)


def misaligned(geometry: ConeBeam, found: Circle, sense: int = 1, offset: float = 0.0, tilt: float = 0.0) -> ConeBeam:
    """Return a scan on a circle with another sense of rotation, offset along u, and panel turned in its plane.

    The panel turns about the central line from the source, by an angle in radians from u towards v.
    """
    angles = sense * found.angles
    cos, sin = np.cos(angles), np.sin(angles)
    zero, one = np.zeros_like(cos), np.ones_like(cos)
    outwards = np.stack([cos, sin, zero], axis=1)
    along, up = found.turn * np.stack([-sin, cos, zero], axis=1), np.stack([zero, zero, one], axis=1)
    c, s = math.cos(tilt), math.sin(tilt)
    columns, rows = c * along + s * up, c * up - s * along
    sources = np.array([*found.axis, found.height]) + found.radius * outwards
    panels = sources - found.distance * outwards + (found.offset[0] + offset) * columns + found.offset[1] * rows
    return dataclasses.replace(
        geometry, sources=sources, panels=panels, u=found.pitch[0] * columns, v=found.pitch[1] * rows
    )


class _Search:
    """Residuals of left-out views with a binned panel and a volume that holds all that the panel sees."""

    def __init__(
        self, data: Array, geometry: ConeBeam, size: tuple[int, int], *, smoothing: float, steps: int,
        extent: float = 1.0,
    ) -> None:  # fmt: skip
        from scipy.ndimage import gaussian_filter1d

        self.full = geometry.detector
        self.bin = max(1, math.ceil(geometry.detector[0] / size[0]))
        rows = max(1, min(geometry.detector[1], round(self.bin * geometry_ratio(geometry))))
        self.data, small = binned(data, geometry, (self.bin, rows))
        for axis in (1, 2) if smoothing else ():
            self.data = gaussian_filter1d(self.data, smoothing, axis=axis, mode="nearest")
        self.steps, self.circle = steps, circle(small)
        self.extent, self.geometry = extent, widened(_whole(small, self.circle, size[1]), extent)
        self.trials: list[Trial] = []

    def residual(self, sense: int, offset: float, tilt: float) -> float:
        """Return the residual of a setting, offset in pixels of the whole panel, tilt in degrees."""
        for trial in self.trials:
            if trial[:3] == (sense, offset, tilt):
                return trial.residual
        length = offset * self.circle.pitch[0] / self.bin
        scan = misaligned(self.geometry, self.circle, sense, length, math.radians(tilt))
        data = self.data
        if tilt:
            straight = upright(scan)
            data = resample(data, homographies(straight, scan), scan.detector)
            scan = straight
        value = math.sqrt(0.5 * sum(self._left_out(data, scan, half) for half in (0, 1)))
        self.trials.append(Trial(sense, offset, tilt, value))
        return value

    def _left_out(self, data: Array, scan: ConeBeam, half: int) -> float:
        """Return the squared residual of every second view, predicted from the others, relative to these views."""
        kept, left = np.arange(half, scan.n_views, 2), np.arange(1 - half, scan.n_views, 2)
        x = filter_projections(data[kept], scan.subset(kept), "hann")
        x = _least_squares(XRayTransform(scan.subset(kept)), data[kept], x, self.steps)
        inner = tuple(slice(max(1, int(n * BORDER)), n - max(1, int(n * BORDER))) if n > 4 else slice(None)
                      for n in scan.detector)  # fmt: skip
        seen, predicted = data[left][:, *inner], XRayTransform(scan.subset(left)).apply(x)[:, *inner]
        # The scale of a back-projection from a truncated panel is not what is judged.
        size = float((predicted * predicted).sum(dtype=np.float64))
        scale = float((predicted * seen).sum(dtype=np.float64)) / size if size else 0.0
        error = scale * predicted - seen
        return float((error * error).sum(dtype=np.float64) / max((seen * seen).sum(dtype=np.float64), 1e-300))


def geometry_ratio(geometry: ConeBeam) -> float:
    """The width of a pixel over its height."""
    return float(np.linalg.norm(geometry.u[0]) / np.linalg.norm(geometry.v[0]))


def _least_squares(projector: XRayTransform, data: Array, x: Array, steps: int) -> Array:
    """Take steps of conjugate gradients from x towards the least squares solution."""
    if not steps:
        return x
    residual = data - projector.apply(x)
    slope = projector.adjoint(residual)
    way, size = slope.copy(), float((slope * slope).sum(dtype=np.float64))
    for _ in range(steps):
        image = projector.apply(way)
        square = float((image * image).sum(dtype=np.float64))
        if not square:
            break
        x = x + x.dtype.type(size / square) * way
        residual = residual - x.dtype.type(size / square) * image
        slope = projector.adjoint(residual)
        before, size = size, float((slope * slope).sum(dtype=np.float64))
        way = slope + x.dtype.type(size / before) * way
    return x


def binned(data: Array, geometry: ConeBeam, factors: tuple[int, int]) -> tuple[Array, ConeBeam]:
    """Return the means of blocks of pixels, and their geometry; the last columns and rows may be excluded."""
    (nu, nv), (a, b) = geometry.detector, factors
    columns, rows = nu // a, nv // b
    small = data[:, : columns * a, : rows * b].reshape(len(data), columns, a, rows, b).mean(axis=(2, 4))
    moved = 0.5 * (columns * a - nu) * geometry.u + 0.5 * (rows * b - nv) * geometry.v
    scan = dataclasses.replace(
        geometry, detector=(columns, rows), panels=geometry.panels + moved, u=geometry.u * a, v=geometry.v * b
    )
    return np.ascontiguousarray(small, dtype=np.float32), scan


def widened(geometry: ConeBeam, extent: float) -> ConeBeam:
    """Return the scan with a volume that is wider across the axis."""
    x, y, z = geometry.volume
    return dataclasses.replace(geometry, volume=(round(extent * x), round(extent * y), z))


def _whole(geometry: ConeBeam, found: Circle, voxels: int) -> ConeBeam:
    """Return the scan with a volume that holds all that the panel sees."""
    reach = 0.5 * geometry.detector[0] * found.pitch[0] + abs(found.offset[0])
    width = 2 * found.radius * reach / math.hypot(reach, found.distance)
    side = width / voxels
    shrink = found.radius / found.distance
    layers = max(1, round(geometry.detector[1] * found.pitch[1] * shrink / side))
    middle = found.height + found.offset[1] * shrink
    return dataclasses.replace(
        geometry, volume=(voxels, voxels, layers), voxel=(side,) * 3, centre=(*found.axis, middle)
    )
