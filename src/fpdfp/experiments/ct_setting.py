"""The paper's second experiment: cone-beam CT with total variation among 17 clients, each of which holds some views.

    min  1/V Σ_views a/2 ‖A_view x − b_view‖² + μ ‖∇x‖_{1,2},   b = A x₀ + noise

What the paper leaves open is fixed here. Distances: the source goes round the volume at 4 times its width; the panel is
6 times its width away from the source and just sees the volume. The side of a voxel is 0.1, so that line integrals
of values from 0 to 1 are a few units, as those of scans are, and the noise is a few per cent of them. The data term is
a mean over the V views and an integral over the panel: a is the area of a pixel, seen at the axis, in faces of voxels.
So it does not depend on the numbers of views and pixels, and μ = 10⁻³ is about what gives the best image; with the
plain sum over all rays it would have no effect.
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
VOXEL = 0.1
#: The seed of the noise and of who holds which view.
SEED = 0


class Size(NamedTuple):
    """Voxels, pixels, views, and how many rounds FPDFP and our method have."""

    name: str
    volume: tuple[int, int, int]
    detector: tuple[int, int]
    views: int
    rounds: int
    few: int

    @property
    def geometry(self) -> ConeBeam:
        """The scan."""
        source, panel = self.distances
        return ConeBeam.circular(
            self.volume, self.detector, views=self.views, source=source, panel=panel, voxel=VOXEL, pixel="fit"
        )

    @property
    def distances(self) -> tuple[float, float]:
        """From the source to the axis and to the panel."""
        width = VOXEL * self.volume[0]
        return 4 * width, 6 * width

    @property
    def weight(self) -> float:
        """What a ray counts, a: the area of its pixel, seen at the axis, in faces of voxels."""
        geometry, (source, panel) = self.geometry, self.distances
        area = float(np.linalg.norm(geometry.u[0]) * np.linalg.norm(geometry.v[0]))
        return area * (source / panel) ** 2 / VOXEL**2


SIZES = {
    "tiny": Size("tiny", (16, 16, 8), (24, 16), 34, 40, 20),
    "small": Size("small", (64, 64, 16), (128, 96), 167, 200, 30),
    "paper": Size("paper", (256, 256, 64), (512, 384), 668, 400, 40),
}


class Setting(NamedTuple):
    """The problem, the truth and the noisy projections, all on one device, and what tells them apart from others."""

    size: Size
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

    @property
    def middle(self) -> int:
        """The slice that is shown."""
        return self.size.volume[2] // 2


def setting(size: Size, module: ModuleType = np, volume: Path | None = None) -> Setting:
    """Make the scan of a volume, of the analytic thorax phantom if none is given, and deal its views out."""
    geometry = size.geometry
    clean: Array
    if volume is None:
        phantom = phantoms.thorax(geometry)
        truth, clean = phantom.volume(geometry), phantom.project(geometry)
        top = truth.max()
        truth, clean = truth / top, clean / top
        source, kind = "the analytic thorax phantom", "its line integrals are exact"
    else:
        truth = fitted(load_volume(volume).data, size.volume)
        clean = XRayTransform(geometry).apply(moved(truth, module))
        source, kind = f"a slab of {volume.name}", "its line integrals are those of the projector that reconstructs"
    generator = np.random.default_rng(SEED)
    noise = generator.standard_normal(clean.shape, dtype=np.float32) * np.float32(math.sqrt(NOISE_VARIANCE))
    noisy = moved(clean, module).astype(np.float32) + moved(noise, module)
    owner = np.empty(size.views, dtype=np.int64)
    owner[generator.permutation(size.views)] = np.arange(size.views) % CLIENTS
    file = "" if volume is None else volume.name
    return Setting(
        size, geometry, problem_of(noisy, size, owner), moved(truth, module), noisy, owner, file, source, kind,
        digest(truth, owner, size),
    )  # fmt: skip


def problem_of(projections: Array, size: Size, owner: IntArray) -> fpdfp.Problem:
    """The problem among the owners of the views."""
    losses = ProjectionLosses(projections, size.geometry, clients=owner, scale="sum")
    weights = np.full(losses.n_clients, size.weight / size.views)
    penalty, gradient = fpdfp.penalties.GroupL12(TV, axis=0), fpdfp.linops.Gradient(size.volume)
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


def digest(truth: Array, owner: IntArray, size: Size) -> str:
    """A digest of everything that a run's data comes from."""
    summary = hashlib.sha256(repr((size[:4], size.weight, TV, NOISE_VARIANCE, VOXEL, SEED)).encode())
    geometry = size.geometry
    for array in (truth, owner, geometry.sources, geometry.panels, geometry.u, geometry.v):
        summary.update(np.ascontiguousarray(array).tobytes())
    return summary.hexdigest()[:12]
