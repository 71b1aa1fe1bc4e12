"""Accelerated proximal gradient steps for total variation, in the metric of a convolution."""

from __future__ import annotations

import logging
import math
from types import ModuleType
from typing import Any

import numpy as np

from fpdfp._array import namespace
from fpdfp._numbers import accelerate
from fpdfp._typing import Array
from fpdfp.ct.fdk import filter_projections
from fpdfp.ct.geometry import ConeBeam, Triple
from fpdfp.ct.projector import XRayTransform
from fpdfp.linops import Gradient
from fpdfp.linops.maps import tv_kernels
from fpdfp.penalties import GroupL12

#: Frequencies with less than this share of the largest response are treated as if they had it.
FLOOR = 0.05
#: Dual steps of the regulariser after which the gap of the proximal step is looked at, and how often at most.
DUAL_STEPS, DUAL_ROUNDS = 10, 10
#: The gap of a proximal step that is good enough, relative to the squared length of the step.
INEXACT = 0.1
#: A gap of this share of the objective is always good enough.
ENOUGH = 1e-6
#: The middle serves for the response where it is seen at least this well, relative to the voxel that is seen best.
HALF = 0.5
#: Steps that are tried in an iteration at most.
MOST_TRIALS = 40
#: What a curvature that turned out too small is multiplied with beyond what was seen.
MARGIN = 1.05
#: The pairs of axes of a symmetrized gradient, and the factor of the sum of its two equal components in their norm.
PAIRS, ROOT = ((0, 1), (0, 2), (1, 2)), math.sqrt(0.5)

_log = logging.getLogger("fpdfp.ct")

#: The least and the largest value that a voxel may have.
Bounds = tuple[float, float]


class Solver:
    """Accelerated proximal gradient steps in the metric of a convolution.

    ::

        y     = z − P∇f(z)/L
        x⁺    = argmin_x  L/2 ‖x − y‖²_{P⁻¹} + g(x),   by dual steps: x = y − PBᵀv/L
        z⁺    = x⁺ + (θ − 1)/θ⁺ (x⁺ − x)

    with P the inverse of the convolution, and L such that ‖A(x⁺ − z)‖² is at most L‖x⁺ − z‖² in that metric.
    Projections of x and z are kept, so that this and the objective cost nothing.

    With ``second`` the regulariser is the total generalized variation min_s tv Σ‖∇x − s‖ + second · tv Σ‖Es‖, E the
    symmetrized gradient. Then x stands for the pair (x, s), and the metric of s is a multiple of the identity: the
    data term does not depend on s.
    """

    def __init__(
        self, data: Array, geometry: ConeBeam, tv: float, bounds: Bounds, module: ModuleType,
        ray_weights: Array | None = None, start: Array | None = None, axes: Triple = (1.0, 1.0, 1.0),
        second: float | None = None,
    ) -> None:  # fmt: skip
        self.xp, self.data, self.ray_weights = module, data, ray_weights
        self.least, self.largest = bounds
        self.bounded = self.least > -math.inf or self.largest < math.inf
        self.projector = XRayTransform(geometry)
        self.views = geometry.n_views
        self.gradient = _Differences(geometry, axes, module, data.dtype)
        self.filter = self._inverse_response()
        self.curvature = 1.0
        self.x = self._start(geometry) if start is None else start
        self.image = self.projector.apply(self.x)
        self.second = second
        self.v = module.zeros((3 if second is None else 9, *geometry.volume), dtype=data.dtype)
        self.w = module.zeros(geometry.volume, dtype=data.dtype)
        #: The slopes s of the last step, and where the next one starts; empty for a total variation.
        self.slopes: Array = module.zeros((3, *((0, 0, 0) if second is None else geometry.volume)), dtype=data.dtype)
        self.slopes_start = self.slopes
        self.restart(tv)

    def restart(self, tv: float) -> None:
        """Begin with another weight, at the volume that was found."""
        self.tv, self.penalty = tv, GroupL12(tv, axis=0)
        self.bends = GroupL12(tv * (self.second or 0.0), axis=0)
        self.theta, self.z, self.z_image, self.slopes_start = 1.0, self.x, self.image, self.slopes
        #: How far the last proximal step was from its minimum.
        self.gap = 0.0
        self.objective = self._objective(self.x, self.image, self.slopes)

    def _start(self, geometry: ConeBeam) -> Array:
        try:
            start = filter_projections(self.data, geometry)
        except ValueError as reason:
            _log.warning("starting from zero instead of a filtered back-projection: %s", reason)
            start = self.xp.zeros(geometry.volume, dtype=self.data.dtype)
        return self._clip(start)

    def _clip(self, x: Array) -> Array:
        """Return the nearest volume within the bounds."""
        if self.least > -math.inf:
            x = self.xp.maximum(x, self.least)
        if self.largest < math.inf:
            x = self.xp.minimum(x, self.largest)
        return x

    def _support(self, w: Array) -> float:
        """Return the conjugate of the bounds at −w."""
        value = 0.0
        if self.least not in (0.0, -math.inf):
            value -= self.least * float(self.xp.maximum(w, 0.0).sum(dtype=np.float64))
        if self.largest not in (0.0, math.inf):
            value -= self.largest * float(self.xp.minimum(w, 0.0).sum(dtype=np.float64))
        return value

    def _bound_dual(self, w: Array, sigma: float) -> Array:
        """Return the prox of the conjugate of the bounds, with the sign of w turned."""
        if self.largest == math.inf:
            positive: Array = self.xp.maximum(w + sigma * self.least if self.least else w, 0.0)
            return positive
        return w + sigma * self._clip(w / -sigma)

    def _inverse_response(self) -> Array:
        """The gains of P: one over the Fourier transform of the response of AᵀA/V to an impulse in the middle.

        Where hardly any ray meets the middle, the impulse is where most do.
        """
        xp, shape = self.xp, self.projector.in_shape
        seen = self.projector.adjoint(self._weighted(xp.ones_like(self.data)))
        place = tuple(n // 2 for n in shape)
        most = float(seen.max())
        if most <= 0:
            raise ValueError("geometry: no ray of any view meets the volume")
        if float(seen[place]) < HALF * most:
            place = tuple(int(at) for at in np.unravel_index(int(seen.argmax()), shape))
        impulse = xp.zeros(shape, dtype=self.data.dtype)
        impulse[place] = 1.0
        response = self.projector.adjoint(self._weighted(self.projector.apply(impulse))) / self.views
        spectrum = xp.fft.rfftn(xp.roll(response, [-at for at in place], range(3))).real
        gains: Array = 1.0 / xp.maximum(spectrum, FLOOR * spectrum.max())
        return gains.astype(self.data.dtype)

    def _weighted(self, image: Array) -> Array:
        return image if self.ray_weights is None else image * self.ray_weights

    def metric(self, x: Array, gains: Array) -> Array:
        """Multiply the Fourier transform of x with gains."""
        fft = fft_of(self.xp)
        product: Array = fft.irfftn(fft.rfftn(x) * gains, s=x.shape)
        return product.astype(x.dtype, copy=False)

    def _objective(self, x: Array, image: Array, slopes: Array) -> float:
        residual = image - self.data
        data_term = dot(residual, self._weighted(residual)) / (2 * self.views)
        return data_term + self._variation(x, slopes)

    def _variation(self, x: Array, slopes: Array) -> float:
        if not self.tv:
            return 0.0
        if self.second is None:
            return self.penalty.value(self.gradient.apply(x))
        steep = self.penalty.value(self.gradient.apply(x) - slopes)
        return steep + self.bends.value(self.gradient.symmetrized(slopes))

    def rehearse(self) -> None:
        """Do the expensive part of an iteration without changing anything, to time it."""
        self.projector.adjoint(self.projector.apply(self.x))

    def advance(self) -> float:
        """Do an iteration; return how much the volume has changed, relative to itself."""
        residual = self._weighted(self.z_image - self.data)
        slope = self.metric(self.projector.adjoint(residual) / self.views, self.filter)
        for _ in range(MOST_TRIALS):
            x, slopes = self._prox(self.z - slope / self.curvature)
            image = self.projector.apply(x)
            step, moved_image = x - self.z, image - self.z_image
            length = dot(step, self.metric(step, 1.0 / self.filter))
            seen = dot(moved_image, self._weighted(moved_image)) / self.views
            if seen <= self.curvature * length * (1 + 1e-4) or length == 0:
                break
            self.curvature = MARGIN * seen / length
        else:
            raise FloatingPointError("no step was found: projections or geometry are badly scaled")
        objective = self._objective(x, image, slopes)
        change = x - self.x
        if objective > self.objective:
            self.theta = 1.0
        beta, self.theta = accelerate(self.theta)
        self.z, self.z_image = x + beta * change, image + beta * (image - self.image)
        self.slopes_start = slopes + beta * (slopes - self.slopes)
        self.x, self.image, self.slopes, self.objective = x, image, slopes, objective
        size = dot(x, x)
        return math.sqrt(dot(change, change) / size) if size else 0.0

    def _prox(self, y: Array) -> tuple[Array, Array]:
        """Accelerated dual steps, until the gap is small besides the step; the duals are kept for the next call."""
        self.gap = 0.0
        if not self.tv and not self.bounded:
            return y, self.slopes
        scaled, before = self.filter / self.curvature, self.slopes_start
        largest = float(scaled.max())
        squared_norm = self.gradient.squared_norm * (1 if self.second is None else 2) + (self.second is not None)
        sigma = 1.0 / ((squared_norm + 1.0) * largest)
        v, w, theta = self.v, self.w, 1.0
        v_point, w_point = v, w
        for _ in range(DUAL_ROUNDS):
            for _ in range(DUAL_STEPS):
                u = y - self.metric(self.gradient.adjoint(v_point[:3]) - w_point, scaled)
                v_new = self._ascend(u, before - largest * self._pull_of_slopes(v_point), v_point, sigma)
                w_new = self._bound_dual(w_point - sigma * u, sigma) if self.bounded else w
                beta, theta = accelerate(theta)
                v_point, w_point = _ahead(v_new, v, beta), _ahead(w_new, w, beta)
                v, w = v_new, w_new
            pull, aside = self.gradient.adjoint(v[:3]) - w, self._pull_of_slopes(v)
            moved, slopes = self.metric(pull, scaled), before - largest * aside
            x = self._clip(y - moved)
            inverse = 1.0 / scaled
            # Half the squared distance from y, in the metric, of x and of the point that the duals stand for.
            away = x - y
            primal = 0.5 * dot(away, self.metric(away, inverse)) + 0.5 * largest * dot(aside, aside)
            dual = dot(pull, y) - 0.5 * dot(pull, moved) + dot(aside, before) - 0.5 * largest * dot(aside, aside)
            self.gap = primal + self._variation(x, slopes) - (dual - self._support(w))
            step = x - self.z
            if self.gap <= max(INEXACT * dot(step, self.metric(step, inverse)), ENOUGH * self.objective):
                break
        self.v, self.w = v, w
        return x, slopes

    def _pull_of_slopes(self, v: Array) -> Array:
        """Return what the duals pull the slopes with."""
        if self.second is None:
            return self.slopes
        pull: Array = self.gradient.symmetrized_adjoint(v[3:]) - v[:3]
        return pull

    def _ascend(self, u: Array, slopes: Array, v: Array, sigma: float) -> Array:
        """Return the prox of the conjugate at v + σB(u, slopes)."""
        if not self.tv:
            return v
        if self.second is not None:
            first = self.penalty.conjugate_prox(v[:3] + sigma * (self.gradient.apply(u) - slopes), sigma)
            bends = self.bends.conjugate_prox(v[3:] + sigma * self.gradient.symmetrized(slopes), sigma)
            both: Array = self.xp.concatenate([first, bends])
            return both
        if self.gradient.factors is not None:
            return self.penalty.conjugate_prox(v + sigma * self.gradient.apply(u), sigma)
        new_v: Array = self.xp.empty_like(v)
        constants = np.array([1.0, 0.0, sigma, self.tv], dtype=u.dtype)
        nothing = self.xp.empty((1, 0, 0, 0), dtype=u.dtype)
        tv_kernels(u).dual_step(u[None], v[None], True, constants, False, new_v[None], nothing)
        return new_v


def _ahead(new: Array, old: Array, beta: float) -> Array:
    """Return new + β (new − old), with one array that is written once."""
    ahead: Array = new - old
    ahead *= beta
    ahead += new
    return ahead


class _Differences:
    """The gradient in units in which a cubic voxel of the same volume has the side 1, with a factor for each axis."""

    def __init__(self, geometry: ConeBeam, axes: Triple, module: ModuleType, dtype: Any) -> None:
        self.plain = Gradient(geometry.volume)
        sides = np.array(geometry.voxel)
        factors = np.array(axes) * np.cbrt(sides.prod()) / sides
        self.factors: Any = None
        self.squared_norm = self.plain.squared_norm
        if np.ptp(sides) > 1e-9 * sides.max() or tuple(axes) != (1.0, 1.0, 1.0):
            self.factors = module.asarray(factors, dtype=dtype)[:, None, None, None]
            self.squared_norm *= float(factors.max()) ** 2

    def apply(self, x: Array) -> Array:
        differences = self.plain.apply(x)
        return differences if self.factors is None else differences * self.factors

    def adjoint(self, v: Array) -> Array:
        return self.plain.adjoint(v if self.factors is None else v * self.factors)

    def symmetrized(self, s: Array) -> Array:
        """Return the six components of the symmetrized gradient of three; mixed ones stand for both orders."""
        xp = namespace(s)
        parts = xp.stack([self.apply(one) for one in s])
        mixed = [(parts[i, j] + parts[j, i]) * ROOT for i, j in PAIRS]
        six: Array = xp.stack([*(parts[i, i] for i in range(3)), *mixed])
        return six

    def symmetrized_adjoint(self, q: Array) -> Array:
        xp = namespace(q)
        parts = xp.zeros((3, 3, *q.shape[1:]), dtype=q.dtype)
        for i in range(3):
            parts[i, i] = q[i]
        for one, (i, j) in zip(q[3:], PAIRS, strict=True):
            parts[i, j] = parts[j, i] = ROOT * one
        three: Array = xp.stack([self.adjoint(one) for one in parts])
        return three


def dot(a: Array, b: Array) -> float:
    """The inner product, summed in float64, in the same order whatever the number of threads."""
    return float((a * b).sum(dtype=np.float64))


def fft_of(module: ModuleType) -> Any:
    """Return the module with Fourier transforms that keep single precision."""
    if module is np:
        import scipy.fft

        return scipy.fft
    return module.fft
