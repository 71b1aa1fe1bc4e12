"""A small cone-beam CT problem for the benchmarks: a phantom of ellipsoids, a matched projector, total variation.

The volume is x[nx, nx, nz] of cubic voxels with a side of 0.1, so that line integrals are a few units, as those of
scans are; lengths below are in voxels. It is centred at the origin; the source goes round it in the plane z = 0 at a
distance of 4 nx, and the flat panel, parallel to z, is 6 nx away from the source and just sees the volume. Rays are
sampled by Joseph's method (P. M. Joseph, IEEE Transactions on Medical Imaging 1, 1982): linear interpolation on the
planes of the axis along which a ray runs most. The adjoint is the exact transpose; it is computed plane by plane, so
that no two threads write to the same voxel, and the bits do not depend on the number of threads.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numba
import numpy as np

import fpdfp
from fpdfp._kernels.jit import serial, threaded
from fpdfp._typing import Array

NX, NZ, NU, NV, VIEWS, CLIENTS = 64, 16, 128, 96, 167, 17
VOXEL, TV, NOISE_VARIANCE = 0.1, 1e-3, 0.02


class Geometry(NamedTuple):
    """Sizes and distances, in voxels."""

    nx: int
    nz: int
    nu: int
    nv: int

    @property
    def source(self) -> float:
        """From the source to the axis."""
        return 4.0 * self.nx

    @property
    def panel(self) -> float:
        """From the source to the panel."""
        return 6.0 * self.nx

    @property
    def pixel(self) -> tuple[float, float]:
        """Width and height of a pixel: the panel just sees the volume."""
        radius = self.nx / math.sqrt(2)
        width = 2 * self.panel * radius / math.sqrt(self.source**2 - radius**2)
        return width / self.nu, self.panel * self.nz / (self.source - radius) / self.nv


@serial
def _column(beta: float, ju: int, nu: int, du: float, source: float, panel: float) -> Any:
    """The ray of a detector column in the plane z = 0: along x or y, start and direction along it and across it."""
    c, s = math.cos(beta), math.sin(beta)
    u = (ju - 0.5 * (nu - 1)) * du
    dx, dy = -panel * c - u * s, -panel * s + u * c
    if abs(dx) >= abs(dy):
        return True, source * c, source * s, dx, dy
    return False, source * s, source * c, dy, dx


@serial
def _row(v: int, nv: int, dv: float, t: float, nz: int) -> Any:
    """The voxel below the point where the ray of row v meets a plane, and how far above it the point is."""
    z = t * (v - 0.5 * (nv - 1)) * dv + 0.5 * (nz - 1)
    k = math.floor(z)
    return k, z - k


@threaded
def _forward(x: Array, angles: Array, du: float, dv: float, source: float, panel: float, out: Array) -> None:
    nx, _, nz = x.shape
    views, nu, nv = out.shape
    for a in numba.prange(views):
        line = np.zeros(nz + 2)
        for ju in range(nu):
            along_x, p, q, dp, dq = _column(angles[a], ju, nu, du, source, panel)
            total = np.zeros(nv)
            for i in range(nx):
                t = (i - 0.5 * (nx - 1) - p) / dp
                g = q + t * dq + 0.5 * (nx - 1)
                j = math.floor(g)
                if j < -1 or j >= nx:
                    continue
                line[:] = 0.0
                for side in range(2):
                    at, weight = j + side, g - j if side else 1.0 - (g - j)
                    if 0 <= at < nx:
                        for k in range(nz):
                            line[k + 1] += weight * (x[i, at, k] if along_x else x[at, i, k])
                for v in range(nv):
                    k, f = _row(v, nv, dv, t, nz)
                    if -1 <= k < nz:
                        total[v] += (1.0 - f) * line[k + 1] + f * line[k + 2]
            for v in range(nv):
                w = (v - 0.5 * (nv - 1)) * dv
                out[a, ju, v] = VOXEL * total[v] * math.sqrt(dp * dp + dq * dq + w * w) / abs(dp)


@threaded
def _adjoint(
    y: Array, angles: Array, du: float, dv: float, source: float, panel: float, x_rays: bool, out: Array
) -> None:
    nx, _, nz = out.shape
    views, nu, nv = y.shape
    for i in numba.prange(nx):
        line = np.zeros(nz + 2)
        for a in range(views):
            for ju in range(nu):
                along_x, p, q, dp, dq = _column(angles[a], ju, nu, du, source, panel)
                t = (i - 0.5 * (nx - 1) - p) / dp
                g = q + t * dq + 0.5 * (nx - 1)
                j = math.floor(g)
                if along_x != x_rays or j < -1 or j >= nx:
                    continue
                line[:] = 0.0
                for v in range(nv):
                    k, f = _row(v, nv, dv, t, nz)
                    if -1 <= k < nz:
                        w = (v - 0.5 * (nv - 1)) * dv
                        value = VOXEL * y[a, ju, v] * math.sqrt(dp * dp + dq * dq + w * w) / abs(dp)
                        line[k + 1] += (1.0 - f) * value
                        line[k + 2] += f * value
                for side in range(2):
                    at, weight = j + side, g - j if side else 1.0 - (g - j)
                    if 0 <= at < nx:
                        for k in range(nz):
                            if along_x:
                                out[i, at, k] += weight * line[k + 1]
                            else:
                                out[at, i, k] += weight * line[k + 1]


class ConeBeam(fpdfp.linops.LinOp):
    """The X-ray transform at some angles."""

    def __init__(self, geometry: Geometry, angles: Array) -> None:
        self.geometry, self.angles = geometry, np.asarray(angles, dtype=np.float64)
        self.in_shape = (geometry.nx, geometry.nx, geometry.nz)
        self.out_shape = (len(angles), geometry.nu, geometry.nv)

    def _squared_norm(self) -> float:
        """The bound of Collatz and Wielandt: for A ≥ 0 and w > 0, ‖A‖² is at most the largest (AᵀAw)_j/w_j."""
        w = np.ones(self.in_shape)
        for _ in range(10):
            image = self.adjoint(self.apply(w))
            bound = float((image / w).max())
            w = image / image.max() + 1e-6  # so that voxels that no ray meets stay positive
        return bound

    @property
    def _numbers(self) -> tuple[float, float, float, float]:
        return *self.geometry.pixel, self.geometry.source, self.geometry.panel

    def apply(self, x: Array) -> Array:
        if self.batch_of(x, self.in_shape, "x") is not None:
            return np.stack([self.apply(one) for one in x])
        out = np.empty(self.out_shape, dtype=x.dtype)
        _forward(np.ascontiguousarray(x), self.angles, *self._numbers, out)
        return out

    def adjoint(self, v: Array) -> Array:
        if self.batch_of(v, self.out_shape, "v") is not None:
            return np.stack([self.adjoint(one) for one in v])
        out = np.zeros(self.in_shape)
        for x_rays in (True, False):
            _adjoint(np.ascontiguousarray(v), self.angles, *self._numbers, x_rays, out)
        return out.astype(v.dtype, copy=False)


#: Ellipsoids of a head: value, half axes, centre, angle in the plane, all but the angle relative to half the volume.
ELLIPSOIDS = (
    (1.0, (0.69, 0.92, 0.90), (0.0, 0.0, 0.0), 0.0),
    (-0.8, (0.6624, 0.874, 0.88), (0.0, -0.0184, 0.0), 0.0),
    (-0.2, (0.11, 0.31, 0.22), (0.22, 0.0, 0.0), -18.0),
    (-0.2, (0.16, 0.41, 0.28), (-0.22, 0.0, 0.0), 18.0),
    (0.1, (0.21, 0.25, 0.41), (0.0, 0.35, -0.15), 0.0),
    (0.1, (0.046, 0.046, 0.05), (0.0, 0.1, 0.25), 0.0),
    (0.1, (0.046, 0.046, 0.05), (0.0, -0.1, 0.25), 0.0),
    (0.1, (0.046, 0.023, 0.05), (-0.08, -0.605, 0.0), 0.0),
    (0.1, (0.023, 0.023, 0.02), (0.0, -0.605, 0.0), 0.0),
    (0.1, (0.023, 0.046, 0.02), (0.06, -0.605, 0.0), 0.0),
)


def phantom(nx: int, nz: int) -> Array:
    """The three-dimensional Shepp–Logan phantom with high contrast."""
    side, height = ((np.arange(n) - 0.5 * (n - 1)) / (0.5 * n) for n in (nx, nz))
    x, y, z = np.meshgrid(side, side, height, indexing="ij")
    volume = np.zeros((nx, nx, nz))
    for value, axes, centre, degrees in ELLIPSOIDS:
        c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        u, v, w = x - centre[0], y - centre[1], z - centre[2]
        inside = ((c * u + s * v) / axes[0]) ** 2 + ((c * v - s * u) / axes[1]) ** 2 + (w / axes[2]) ** 2
        volume[inside <= 1.0] += value
    return volume


@functools.cache
def tomography(dtype: type[np.floating] = np.float32) -> fpdfp.Problem:
    """Mean over views of ½‖A_view x − b_view‖² plus isotropic TV; views are dealt out at random."""
    geometry = Geometry(NX, NZ, NU, NV)
    generator = np.random.default_rng(0)
    angles = np.arange(VIEWS) * (2 * np.pi / VIEWS)
    truth = phantom(NX, NZ).astype(np.float32)
    clean = ConeBeam(geometry, angles).apply(truth)
    noisy = clean + math.sqrt(NOISE_VARIANCE) * generator.standard_normal(clean.shape)
    parts = np.array_split(generator.permutation(VIEWS), CLIENTS)
    losses = fpdfp.losses.OperatorLeastSquares(
        [ConeBeam(geometry, angles[part]) for part in parts],
        [noisy[part].astype(np.float32).astype(dtype) for part in parts],
        scale="sum",
    )
    weights = np.full(CLIENTS, 1.0 / VIEWS)
    penalty = fpdfp.penalties.GroupL12(TV, axis=0)
    return fpdfp.Problem(losses, penalty, fpdfp.linops.Gradient((NX, NX, NZ)), weights=weights)
