"""The paper's second experiment: cone-beam CT with total variation among 17 clients, each of which holds some views.

    printed:  min  ½ ‖A x − b‖² + μ ‖∇x‖_{1,2}
    mean:     min  1/V Σ_views a/2 ‖A_view x − b_view‖² + μ ‖∇x‖_{1,2}

``printed`` is the paper's model: a plain sum over all rays, voxels with a side of 1, b = A x₀ + noise with the very A
that reconstructs. ``mean`` is a variant for which μ = 10⁻³ is about what gives the best image: a mean over the V views
and an integral over the panel (a is the area of a pixel, seen at the axis, in faces of voxels), and voxels with a side
of 0.1, so that line integrals are a few units, as those of scans are. The projections of the thorax phantom are then
its exact line integrals.

What the paper leaves open is fixed here. Distances: the source goes round the volume at 4 times its width; the panel is
6 times its width away from the source and just sees the volume.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp._typing import Array, IntArray
from fpdfp.ct import phantoms
from fpdfp.ct.device import moved
from fpdfp.ct.files import load_volume
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.losses import ProjectionLosses
from fpdfp.ct.projector import XRayTransform
from fpdfp.ct.quality import psnr

CLIENTS = 17
TV = 1e-3
NOISE_VARIANCE = 0.02
#: The seed of the noise and of who holds which view.
SEED = 0
#: The models, and the side of their voxels.
PRINTED, MEAN = "printed", "mean"
VOXELS = {PRINTED: 1.0, MEAN: 0.1}


class Scan(NamedTuple):
    """A model of the experiment at a size: voxels, pixels, views, and the rounds of FPDFP and of the shifted method."""

    name: str
    volume: tuple[int, int, int]
    detector: tuple[int, int]
    views: int
    rounds: int
    few: int
    model: str

    @property
    def voxel(self) -> float:
        """The side of a voxel."""
        return VOXELS[self.model]

    @property
    def geometry(self) -> ConeBeam:
        """The scan."""
        source, panel = self.distances
        return ConeBeam.circular(
            self.volume, self.detector, views=self.views, source=source, panel=panel, voxel=self.voxel, pixel="fit"
        )

    @property
    def distances(self) -> tuple[float, float]:
        """From the source to the axis and to the panel."""
        width = self.voxel * self.volume[0]
        return 4 * width, 6 * width

    @property
    def pixel_area(self) -> float:
        """The area of a pixel, seen at the axis, in faces of voxels."""
        geometry, (source, panel) = self.geometry, self.distances
        area = float(np.linalg.norm(geometry.u[0]) * np.linalg.norm(geometry.v[0]))
        return area * (source / panel) ** 2 / self.voxel**2

    @property
    def weight(self) -> float:
        """The factor of a ray's ½ (Ax − b)² in the objective."""
        return 1.0 if self.model == PRINTED else self.pixel_area / self.views


SCANS = {
    (one.model, one.name): one
    for one in (
        Scan("tiny", (16, 16, 8), (24, 16), 34, 64, 20, PRINTED),
        Scan("small", (32, 32, 8), (64, 48), 85, 2400, 60, PRINTED),
        Scan("paper", (256, 256, 64), (512, 384), 668, 5600, 100, PRINTED),
        Scan("tiny", (16, 16, 8), (24, 16), 34, 40, 20, MEAN),
        Scan("small", (64, 64, 16), (128, 96), 167, 200, 30, MEAN),
        Scan("paper", (256, 256, 64), (512, 384), 668, 400, 40, MEAN),
    )
}
SAME_PROJECTOR = "its line integrals are those of the projector that reconstructs"


class Setting(NamedTuple):
    """The problem, the truth and the noisy projections, all on one device, and what tells them apart from others."""

    scan: Scan
    geometry: ConeBeam
    problem: fpdfp.Problem
    truth: Array
    projections: Array
    owner: IntArray
    file: str
    source: str
    kind: str
    digest: str

    def psnr(self, x: Array) -> float:
        """PSNR of a volume, in dB; the truth's values are from 0 to 1."""
        return psnr(x, self.truth, peak=1.0)

    def slice_psnr(self, x: Array) -> float:
        """PSNR of the middle slice of a volume, in dB, with the same peak of 1."""
        return psnr(x[:, :, self.middle], self.truth[:, :, self.middle], peak=1.0)

    @property
    def middle(self) -> int:
        """The slice that is shown."""
        return self.scan.volume[2] // 2


def setting(chosen: Scan, module: ModuleType = np, volume: Path | None = None) -> Setting:
    """Make the scan of a volume, of the analytic thorax phantom if none is given, and deal its views out."""
    geometry = chosen.geometry
    clean: Array | None = None
    if volume is None:
        phantom = phantoms.thorax(geometry)
        truth = phantom.volume(geometry)
        top = truth.max()
        truth = truth / top
        source, kind = "the analytic thorax phantom", SAME_PROJECTOR
        if chosen.model == MEAN:
            clean, kind = phantom.project(geometry) / top, "its line integrals are exact"
    else:
        truth = fitted(load_volume(volume).data, chosen.volume)
        source, kind = f"a slab of {volume.name}", SAME_PROJECTOR
    if clean is None:
        clean = XRayTransform(geometry).apply(moved(truth, module))
    generator = np.random.default_rng(SEED)
    noise = generator.standard_normal(clean.shape, dtype=np.float32) * np.float32(math.sqrt(NOISE_VARIANCE))
    noisy = moved(clean, module).astype(np.float32) + moved(noise, module)
    owner = np.empty(chosen.views, dtype=np.int64)
    owner[generator.permutation(chosen.views)] = np.arange(chosen.views) % CLIENTS
    file = "" if volume is None else volume.name
    return Setting(
        chosen, geometry, problem_of(noisy, chosen, owner), moved(truth, module), noisy, owner, file, source, kind,
        digest(truth, owner, chosen, source),
    )  # fmt: skip


def problem_of(projections: Array, chosen: Scan, owner: IntArray) -> fpdfp.Problem:
    """The problem among the owners of the views."""
    losses = ProjectionLosses(projections, chosen.geometry, clients=owner, scale="sum")
    weights = np.full(losses.n_clients, chosen.weight)
    penalty, gradient = fpdfp.penalties.GroupL12(TV, axis=0), fpdfp.linops.Gradient(chosen.volume)
    return fpdfp.Problem(losses, penalty, gradient, weights=weights)


def fitted(volume: Any, shape: tuple[int, int, int]) -> Array:
    """Return a volume on a grid of another shape, with values from 0 to 1.

    In x and y the whole is resampled; along z it is a slab around the middle, as wide as it is high in proportion.
    """
    from scipy.ndimage import uniform_filter, zoom

    whole: Array = np.asarray(volume, dtype=np.float32)
    # Slices as thick as the voxels of the new grid are wide.
    slices = min(whole.shape[2], round(shape[2] * whole.shape[0] / shape[0]))
    first = (whole.shape[2] - slices) // 2
    slab = whole[:, :, first : first + slices]
    if slab.shape != shape:
        ratios = [wanted / have for wanted, have in zip(shape, slab.shape, strict=True)]
        smooth = uniform_filter(slab, [max(1, round(1 / ratio)) for ratio in ratios])
        slab = zoom(smooth, ratios, order=1, mode="nearest", grid_mode=True)
    low, high = float(slab.min()), float(slab.max())
    if not high > low:
        raise ValueError("volume must not have the same value everywhere")
    scaled: Array = ((slab - low) / (high - low)).astype(np.float32)
    return scaled


def digest(truth: Array, owner: IntArray, chosen: Scan, source: str) -> str:
    """A digest of everything that a run's data comes from; the last bits of the truth may differ between machines."""
    moments = [f"{float(np.mean(truth.astype(np.float64) ** power)):.6e}" for power in (1, 2)]
    known = (
        chosen.model,
        *chosen[:4],
        f"{chosen.weight:.9g}",
        TV,
        NOISE_VARIANCE,
        SEED,
        source,
        moments,
        owner.tolist(),
    )
    return hashlib.sha256(repr(known).encode()).hexdigest()[:12]
