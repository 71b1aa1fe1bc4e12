"""Problems on scans: a phantom or a volume, its noisy projections, who holds which views, and a penalty.

    printed:  min  ½ ‖A x − b‖² + g(Bx)
    mean:     min  1/V Σ_views a/2 ‖A_view x − b_view‖² + g(Bx)

``printed`` is the paper's model: a plain sum over all rays, voxels with a side of 1, b = A x₀ + noise with the very A
that reconstructs. ``mean`` is a variant for which a total variation with the weight 10⁻³ gives about the best image.
It is a mean over the V views and an integral over the panel (a is the area of a pixel, seen at the axis, in faces of
voxels). Its voxels have a side of 0.1, so that line integrals are a few units, as in real scans. The projections of
phantoms are then their exact line integrals.

The source goes round the volume at 4 times its width; the panel is 6 times its width away from the source and just sees
the volume.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp import ct
from fpdfp._array import namespace, to_host
from fpdfp._typing import Array, IntArray
from fpdfp.ct.device import device_name, module_for, move_to
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.reconstruction import minimise
from fpdfp.declarative.build import Built, deal, make_penalty
from fpdfp.declarative.settings import MEAN, PRINTED

#: The side of a voxel.
VOXELS = {PRINTED: 1.0, MEAN: 0.1}
#: Iterations for the minimum, and the relative change at which they end.
ITERATIONS, ENOUGH = 100, 1e-6
SAME_PROJECTOR = "its line integrals are those of the projector that reconstructs"


class Scan(NamedTuple):
    """The model and the size of a scan: voxels, pixels, views."""

    model: str
    volume: tuple[int, int, int]
    detector: tuple[int, int]
    views: int

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


@dataclasses.dataclass(frozen=True)
class BuiltScan(Built):
    """A problem on a scan: with the noisy projections, the owner of each view, and a key that identifies the problem.

    ``there`` is the truth on the device of the projections; ``source`` and ``kind`` describe what it is and what its
    projections are; ``device`` is the name of that device.
    """

    scan: Any = None
    geometry: Any = None
    projections: Any = None
    owner: Any = None
    there: Any = None
    tv: float = 0.0
    source: str = ""
    kind: str = ""
    device: str = ""

    @property
    def middle(self) -> int:
        """The slice that is shown."""
        return int(self.scan.volume[2] // 2)

    def psnr(self, x: Array) -> float:
        """PSNR of a volume, in dB; the truth's values are from 0 to 1."""
        return ct.psnr(x, self.there, peak=1.0)

    def slice_psnr(self, x: Array) -> float:
        """PSNR of the middle slice of a volume, in dB, with the same peak of 1."""
        return ct.psnr(x[:, :, self.middle], self.there[:, :, self.middle], peak=1.0)

    def reconstruct(self) -> Any:
        """Minimise with all views in one place; x ≥ 0 is not requested, so it is the minimum of the problem."""
        found = minimise(
            self.projections, self.geometry, self.tv / (self.scan.views * self.scan.weight), bounds=(-np.inf, np.inf),
            iterations=ITERATIONS, tol=ENOUGH, progress=False,
            device="cpu" if namespace(self.projections) is np else "cuda",
        )  # fmt: skip
        if found.status == "interrupted":
            raise KeyboardInterrupt
        return found


def build(settings: dict[str, Any]) -> BuiltScan:
    """Make the problem."""
    data, penalty = settings["data"], settings["penalty"]
    scan = Scan(data["model"], tuple(data["shape"]), tuple(data["detector"]), data["views"])
    geometry, module = scan.geometry, module_for(data["device"])
    clean: Array | None = None
    kind = SAME_PROJECTOR
    if "volume" in data:
        file = Path(data["volume"])
        truth, source = fit_volume(ct.load_volume(file).data, scan.volume), f"a slab of {file.name}"
    else:
        phantom = (ct.phantoms.thorax if data["phantom"] == "thorax" else ct.phantoms.shepp_logan)(geometry)
        truth, source = phantom.volume(geometry), f"the analytic {data['phantom']} phantom"
        top = truth.max()
        truth = truth / top
        if scan.model == MEAN:
            clean, kind = phantom.project(geometry) / top, "its line integrals are exact"
    there = move_to(truth, module)
    if clean is None:
        clean = ct.XRayTransform(geometry).apply(there)
    generator = np.random.default_rng(data["seed"])
    noise = generator.standard_normal(clean.shape, dtype=np.float32) * np.float32(data["noise"])
    noisy = move_to(clean, module).astype(np.float32) + move_to(noise, module)
    if module is np:
        noisy.setflags(write=False)  # shared with the losses, which would copy it otherwise
    owner = deal(settings["split"], scan.views, generator.permutation)
    problem = make_problem(noisy, scan, owner, penalty, settings["loss"]["l2"])
    built = BuiltScan(
        problem, {}, lambda: problem.objective(built.reconstruct().volume), truth=to_host(truth), voxel=scan.voxel,
        scan=scan, geometry=geometry, projections=noisy, owner=owner, there=there, tv=penalty.get("weight", 0.0),
        source=source, kind=kind, device=device_name(module),
    )  # fmt: skip
    built.metrics.update(psnr=built.psnr, slice_psnr=built.slice_psnr)
    return built


def make_problem(projections: Array, scan: Scan, owner: IntArray, penalty: dict[str, Any], l2: float) -> fpdfp.Problem:
    """The problem among the owners of the views."""
    losses = ct.ProjectionLosses(projections, scan.geometry, clients=owner, l2=l2, scale="sum")
    linop = fpdfp.linops.Gradient(scan.volume) if penalty["kind"] == "tv" else None
    return fpdfp.Problem(losses, make_penalty(penalty), linop, weights=np.full(losses.n_clients, scan.weight))


def fit_volume(volume: Any, shape: tuple[int, int, int]) -> Array:
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
