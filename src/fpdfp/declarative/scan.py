"""Problems on scans: a phantom or a volume, its noisy projections, who holds which views, and a penalty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fpdfp
from fpdfp import ct
from fpdfp._array import to_host
from fpdfp.ct.device import module_for, moved
from fpdfp.declarative.build import Built, dealt
from fpdfp.experiments.ct_setting import MEAN, Scan, fitted

#: Iterations for the minimum, and the relative change at which they end.
ITERATIONS, ENOUGH = 100, 1e-6


def build(settings: dict[str, Any]) -> Built:
    """Make the problem; distances and the weight of a ray are those of ``fpdfp reproduce ct --model mean``."""
    data, penalty = settings["data"], settings["penalty"]
    nx, ny, nz = data["shape"]
    nu, nv = data["detector"]
    size = Scan("declared", (nx, ny, nz), (nu, nv), data["views"], 0, 0, MEAN)
    geometry, module = size.geometry, module_for(data["device"])
    if "volume" in data:
        truth = fitted(ct.load_volume(Path(data["volume"])).data, size.volume)
        clean = to_host(ct.XRayTransform(geometry).apply(moved(truth, module)))
    else:
        kind = ct.phantoms.thorax if data["phantom"] == "thorax" else ct.phantoms.shepp_logan
        phantom = kind(geometry)
        truth = phantom.volume(geometry)
        top = truth.max()
        truth, clean = truth / top, phantom.project(geometry) / top
    noise = np.random.default_rng(data["seed"]).standard_normal(clean.shape, dtype=np.float32)
    noisy = moved((clean + np.float32(data["noise"]) * noise).astype(np.float32), module)
    owners = dealt(settings["split"], size.views)
    losses = ct.ProjectionLosses(noisy, geometry, clients=owners, l2=settings["loss"]["l2"], scale="sum")
    weights = np.full(losses.n_clients, size.weight)
    problem = fpdfp.Problem(losses, _penalty(penalty), _map(penalty, size), weights=weights)
    there = moved(truth, module)

    def reference() -> float:
        # x ≥ 0 is not asked for, and so the minimum is that of the problem.
        tv = penalty["weight"] / (size.views * size.weight)
        found = ct.reconstruct(
            noisy, geometry, tv=tv, nonnegative=False, iterations=ITERATIONS, tol=ENOUGH, progress=False,
            device="cpu" if module is np else "cuda",
        )  # fmt: skip
        if found.status == "interrupted":
            raise KeyboardInterrupt
        return problem.objective(found.volume)

    return Built(
        problem, {"psnr": lambda x: ct.psnr(x, there, peak=1.0)}, reference, truth=to_host(truth), voxel=size.voxel
    )  # fmt: skip


def _penalty(penalty: dict[str, Any]) -> fpdfp.penalties.Penalty:
    if penalty["kind"] == "tv":
        return fpdfp.penalties.GroupL12(penalty["weight"], axis=0)
    if penalty["kind"] == "box":
        return fpdfp.penalties.Box(penalty["lower"], penalty["upper"])
    return fpdfp.penalties.NonNegative() if penalty["kind"] == "non-negative" else fpdfp.penalties.Zero()


def _map(penalty: dict[str, Any], size: Scan) -> fpdfp.linops.LinOp | None:
    return fpdfp.linops.Gradient(size.volume) if penalty["kind"] == "tv" else None
