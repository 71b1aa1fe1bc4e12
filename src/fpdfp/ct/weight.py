"""The weight of the total variation: its unit, and its choice by views that are excluded."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import numpy as np

from fpdfp._array import namespace, to_host
from fpdfp._typing import Array
from fpdfp.ct.geometry import ConeBeam, Triple
from fpdfp.ct.projector import XRayTransform
from fpdfp.ct.solver import Bounds, Solver, fft_of

#: Every fifth view is excluded and predicted, beginning with the third.
FOLD, FIRST = 5, 2
#: The logarithm of the first weight that is tried, the step to the next, and the least and the largest.
START, STEP, LEAST, LARGEST = -2.5, 0.5, -6.0, 1.0
#: Iterations at most for a weight; they end when the score changes by less than ``SETTLED`` of itself, twice in a row.
MOST, SETTLED = 25, 1e-3
#: Of weights whose scores are level up to this part, the largest is taken. With little noise the error of the voxel
#: model keeps the score level over decades: on exact data of a thorax with 0.5 % noise the least score lost 2.5 dB,
#: and this rule 0.25 dB.
LEVEL = 0.005
#: Voxels of half the side are tried where a voxel is larger than this, in pixels at the axis.
COARSE = 0.5
#: They are not tried beyond this number: the solver holds some sixteen volumes, of 4 GiB together in float32.
MOST_VOXELS = 1 << 26
#: They are used if they lower the score to this part.
BETTER = 0.99
#: The share of views and the quantile that the size of line integrals is taken from.
VIEWS, QUANTILE = 48, 0.999


def size_of(data: Array) -> float:
    """Return the largest line integral, but for a thousandth of the pixels."""
    views = np.unique(np.linspace(0, len(data) - 1, min(VIEWS, len(data))).astype(int))
    return float(np.quantile(np.abs(to_host(data[views.tolist()])), QUANTILE))


def pixel_at_axis(geometry: ConeBeam) -> float:
    """Return the side of a pixel seen at the centre of the volume: the root of its area, a mean over views."""
    normals = np.cross(geometry.u, geometry.v)
    to_panel = np.einsum("ij,ij->i", geometry.panels - geometry.sources, normals)
    to_centre = np.einsum("ij,ij->i", np.array(geometry.centre) - geometry.sources, normals)
    areas = np.linalg.norm(normals, axis=1) * (to_centre / to_panel) ** 2
    return math.sqrt(float(areas.mean()))


def absolute_weight(tv: float, data: Array, geometry: ConeBeam) -> float:
    r"""Return the factor of the sum of ‖∇x‖ over voxels in the objective of :class:`Solver`.

    S is the largest line integral, p the side of a pixel at the axis, V the volume of a voxel, and ∇ the gradient in
    units of length. Up to a factor, the objective is 1/(2 views) Σ p² (Ax − b)² + tv · S · p Σ V |∇x|. Its minimiser is
    the same with other units, other voxels, and binned pixels of the same dose per area with the same tv · p.
    """
    volume = float(np.prod(geometry.voxel))
    return tv * size_of(data) * volume / (pixel_at_axis(geometry) * float(np.cbrt(volume)))


def finer(geometry: ConeBeam) -> ConeBeam:
    """Return the scan with voxels of half the side."""
    x, y, z = geometry.volume
    a, b, c = geometry.voxel
    return dataclasses.replace(geometry, volume=(2 * x, 2 * y, 2 * z), voxel=(a / 2, b / 2, c / 2))


def coarser(volume: Array) -> Array:
    """Return the means over blocks of 2 × 2 × 2 voxels."""
    x, y, z = (n // 2 for n in volume.shape)
    means: Array = volume.reshape(x, 2, y, 2, z, 2).mean(axis=(1, 3, 5), dtype=np.float64).astype(volume.dtype)
    return means


def left_out(count: int) -> tuple[Array, Array]:
    """Return the numbers of the views that are kept, and of those that are excluded and predicted."""
    left = np.arange(min(FIRST, count - 1), count, FOLD)
    return np.setdiff1d(np.arange(count), left), left


class Choice(NamedTuple):
    """A weight that was chosen.

    Attributes
    ----------
    tv
        The weight.
    finer
        Whether voxels of half the side predict better.
    iterations
        After how many the score did not change any more.
    curve
        The weights that were tried, and their scores: ``(2, n)``.
    residual
        That of the left-out views, relative to them, with the best weight that was tried.
    """

    tv: float
    finer: bool
    iterations: int
    curve: Array
    residual: float


class Trials:
    """The weights that were tried: score, residual and iterations of each, with voxels as given or of half the side.

    ``note`` is called when there is another one.
    """

    def __init__(self, known: dict[tuple[bool, float], tuple[float, float, int]], note: Callable[[], None]) -> None:
        self.known, self.note = known, note


def choose(
    data: Array, geometry: ConeBeam, bounds: Bounds, module: ModuleType, ray_weights: Array | None = None,
    trials: Trials | None = None, axes: Triple = (1.0, 1.0, 1.0), second: float | None = None,
) -> Choice:  # fmt: skip
    """Return the weight with which the other views predict every fifth view best.

    The score is the power spectrum of the residual along u, weighted with the frequency. Back-projection has a response
    that falls with the frequency; the weight undoes that, so that, up to a constant, the expected score is the squared
    error of the image.
    """
    trials = trials or Trials({}, lambda: None)
    search = _Search(data, geometry, bounds, module, ray_weights, trials, axes, second, fine=False)
    best = search.walk(START)
    coarse = max(geometry.voxel) > COARSE * pixel_at_axis(geometry)
    if coarse and math.prod(finer(geometry).volume) <= MOST_VOXELS:
        fine = _Search(data, finer(geometry), bounds, module, ray_weights, trials, axes, second, fine=True)
        if fine.score(best) < BETTER * min(search.scores.values()):
            fine.walk(best)
            return fine.choice(True)
    return search.choice(False)


class _Search:
    def __init__(
        self, data: Array, geometry: ConeBeam, bounds: Bounds, module: ModuleType, ray_weights: Array | None,
        trials: Trials, axes: Triple, second: float | None, *, fine: bool,
    ) -> None:  # fmt: skip
        kept, left = left_out(geometry.n_views)
        self.whole, self.geometry = data, geometry
        self.data, self.projector = data[left.tolist()], XRayTransform(geometry.subset(left))
        own = None if ray_weights is None else ray_weights[kept.tolist()]
        self.root = None if ray_weights is None else namespace(data).sqrt(ray_weights[left.tolist()])
        self.begin = functools.partial(
            Solver, data[kept.tolist()], geometry.subset(kept), 0.0, bounds, module, own, axes=axes, second=second
        )
        self.trials, self.fine = trials, fine
        known = {place: trial for (kind, place), trial in trials.known.items() if kind == fine}
        self.scores = {place: score for place, (score, _, _) in known.items()}
        self.residuals = {place: residual for place, (_, residual, _) in known.items()}
        self.iterations = max((count for _, _, count in known.values()), default=1)

    @functools.cached_property
    def solver(self) -> Solver:
        return self.begin()

    def walk(self, start: float) -> float:
        """Walk downhill by steps from a logarithm of the weight; return the best one."""
        at = start
        while True:
            around = [p for p in (at + STEP, at - STEP) if LEAST <= p <= LARGEST]
            better = [p for p in around if self.score(p) < self.score(at)]
            if not better:
                break
            at = min(better, key=self.score)
        while at + STEP <= LARGEST and self.score(at + STEP) <= (1 + LEVEL) * min(self.scores.values()):
            at += STEP
        return at

    def score(self, place: float) -> float:
        """Return the score of a weight, given by its logarithm."""
        place = round(place, 6)
        if place not in self.scores:
            self.solver.restart(absolute_weight(10.0**place, self.whole, self.geometry))
            value, calm, count = math.inf, 0, 0
            while calm < 2 and count < MOST:
                self.solver.advance()
                count += 1
                residual = self.projector.apply(self.solver.x) - self.data
                residual = residual if self.root is None else residual * self.root
                before, value = value, ramp_power(residual)
                calm = calm + 1 if abs(value - before) <= SETTLED * value else 0
            self.iterations = max(self.iterations, count)
            self.scores[place] = value
            seen = self.data if self.root is None else self.data * self.root
            square = float((seen * seen).sum(dtype=np.float64))
            error = float((residual * residual).sum(dtype=np.float64))
            self.residuals[place] = math.sqrt(error / square) if square else 0.0
            self.trials.known[self.fine, place] = value, self.residuals[place], count
            self.trials.note()
        return self.scores[place]

    def choice(self, fine: bool) -> Choice:
        least = min(self.scores.values())
        best = max(place for place, score in self.scores.items() if score <= (1 + LEVEL) * least)
        place = best
        sides = [self.scores.get(round(best + step, 6)) for step in (-STEP, STEP)]
        if sides[0] is not None and sides[1] is not None:
            bend = sides[0] - 2 * self.scores[best] + sides[1]
            if self.scores[best] == least and bend > 0:
                place += 0.5 * STEP * (sides[0] - sides[1]) / bend
        curve = np.array(sorted((10.0**p, score) for p, score in self.scores.items())).T
        return Choice(10.0**place, fine, self.iterations, curve, self.residuals[best])


def ramp_power(residual: Array) -> float:
    """Return the mean power of residuals along u, weighted with the frequency."""
    size = 2 * residual.shape[1]
    spectrum = fft_of(namespace(residual)).rfft(residual, size, axis=1)
    power = (spectrum.real**2 + spectrum.imag**2).mean(axis=(0, 2))
    return float(to_host(power).astype(np.float64) @ np.arange(len(power)) / size)
