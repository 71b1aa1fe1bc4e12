"""Volumes larger than the memory of a device: filtered back-projection and total variation in slabs.

    python -m benchmarks.ct_slabs                      seconds, on the CPU
    python -m benchmarks.ct_slabs --full --pool 16     on a GPU: 1024³ with total variation, 2048³ with FDK

The object is a set of balls, whose projections are known in closed form. Each case prints a line when it ends: seconds,
voxels times views per second, the largest amount of memory in the GPU's pool, and the error in the middle. ``--limit``
bounds the seconds of a case: it ends between two slabs, and the next one begins. ``--plot`` draws time against size.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks import _tools
from fpdfp import ct
from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp.ct.device import device_name, module_for

#: Sides of the volume and numbers of views: FDK, and total variation.
SMALL = {"fdk": [(32, 48), (64, 64)], "tv": [(32, 48)]}
FULL = {"fdk": [(512, 256), (1024, 256), (2048, 256)], "tv": [(512, 256), (1024, 256)]}
ITERATIONS = 3
#: Balls: centres and radii, relative to half the side of the volume; each has the value 1.
BALLS = np.array([[0.0, 0.0, 0.0, 0.4], [0.55, 0.1, 0.2, 0.2], [-0.3, 0.55, -0.3, 0.15]])


def scan_of(side: int, views: int) -> ct.ConeBeam:
    return ct.ConeBeam.circular((side,) * 3, (side, side), views=views, source=4.0 * side, panel=6.0 * side)


def balls(geometry: ct.ConeBeam, xp: ModuleType) -> Array:
    """Return the projections of the balls: twice the half chord of each ray."""
    half = 0.5 * geometry.volume[0]
    out = np.empty(geometry.data_shape, dtype=np.float32)
    nu, nv = geometry.detector
    a = xp.asarray(np.arange(nu) - 0.5 * (nu - 1), dtype=np.float32)[:, None, None]
    b = xp.asarray(np.arange(nv) - 0.5 * (nv - 1), dtype=np.float32)[None, :, None]
    for view in range(geometry.n_views):
        u, v, first, source = (
            xp.asarray(array, dtype=np.float32)
            for array in (
                geometry.u[view], geometry.v[view],
                geometry.panels[view] - geometry.sources[view], geometry.sources[view],
            )
        )  # fmt: skip
        way = first + a * u + b * v
        way = way / xp.sqrt((way * way).sum(axis=2, keepdims=True))
        total = xp.zeros((nu, nv), dtype=np.float32)
        for *centre, radius in (half * BALLS).tolist():
            to_centre = xp.asarray(centre, dtype=np.float32) - source
            along = (way * to_centre).sum(axis=2)
            square = (to_centre * to_centre).sum() - along**2
            total += 2.0 * xp.sqrt(xp.maximum(radius**2 - square, 0.0))
        out[view] = to_host(total)
    return out


def middle_error(volume: Array) -> float:
    """Return how far the mean of the middle of the first ball is from 1."""
    side = volume.shape[0]
    inner = slice(side // 2 - max(1, side // 16), side // 2 + max(1, side // 16))
    return abs(float(volume[inner, inner, inner].mean()) - 1.0)


def case(
    kind: str, side: int, views: int, memory: float, device: str, limit: float, workers: int
) -> dict[str, Any]:  # fmt: skip
    module, geometry = module_for(device), scan_of(side, views)
    began = time.monotonic()
    data = balls(geometry, module)
    made = time.monotonic() - began
    until = time.monotonic() + limit
    row: dict[str, Any] = {"case": kind, "side": side, "views": views, "workers": workers, "data_s": round(made, 1)}
    if module is not np:
        module.get_default_memory_pool().free_all_blocks()
    began = time.monotonic()
    work: dict[str, Callable[[], Array]] = {
        "fdk": lambda: ct.fdk_in_slabs(data, geometry, memory=memory, device=device, until=until, workers=workers),
        "tv": lambda: ct.reconstruct_in_slabs(
            data, geometry, tv=0.003, iterations=ITERATIONS, memory=memory, device=device, until=until
        ),
    }
    try:
        volume = work[kind]()
        row["seconds"] = round(time.monotonic() - began, 2)
        row["error"] = round(middle_error(volume), 4)
        row["rate"] = side**3 * views / row["seconds"]
    except (TimeoutError, MemoryError) as error:
        row["failed"] = f"{type(error).__name__}: {error}"
    if module is not np:
        row["pool_GB"] = round(module.get_default_memory_pool().total_bytes() / 1e9, 2)
    return row


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.4), layout="constrained")
    axes = figure.subplots()
    for kind in ("fdk", "tv"):
        some = [(row["side"], row["seconds"]) for row in rows if row["case"] == kind and "seconds" in row]
        if some:
            axes.loglog(*zip(*some, strict=True), "o-", label={"fdk": "FDK", "tv": "total variation"}[kind])
    axes.set(xlabel="voxels along a side", ylabel="seconds")
    axes.legend()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the sizes for a GPU")
    parser.add_argument("--device", default=None, help="cpu or cuda; cuda with --full, else cpu")
    parser.add_argument("--pool", type=float, default=16.0, help="the limit of the GPU's memory pool, in GB")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of a case")
    parser.add_argument("--total", type=float, default=100.0, help="seconds of all cases: no case begins after them")
    parser.add_argument("--plot", type=Path, default=None)
    given = parser.parse_args()
    device = given.device or ("cuda" if given.full else "cpu")
    module = module_for(device)
    memory = 2e6 if not given.full else 0.5e9 * given.pool
    if module is not np:
        module.get_default_memory_pool().set_limit(size=int(given.pool * 1e9))
    began, rows = time.monotonic(), []
    sizes = FULL if given.full else SMALL
    cases = [(kind, side, views, 1) for kind in ("fdk", "tv") for side, views in sizes[kind]]
    cases.sort(key=lambda one: one[1] ** 3 * (10 if one[0] == "tv" else 1))
    cases.insert(1, ("fdk", *sizes["fdk"][0], 2))  # two streams
    for kind, side, views, workers in cases:
        left = given.total - (time.monotonic() - began)
        if left <= 0:
            print(json.dumps({"case": kind, "side": side, "failed": "no time is left"}), flush=True)
            continue
        try:
            row = case(kind, side, views, memory, device, min(given.limit, left), workers)
        except Exception as error:  # the other cases are measured nevertheless
            row = {"case": kind, "side": side, "workers": workers, "failed": f"{type(error).__name__}: {error}"}
        rows.append(row)
        print(json.dumps(row), flush=True)
    header = ("case", "voxels", "views", "streams", "seconds", "voxels · views / s", "pool, GB", "error in the middle")
    _tools.show(
        f"slabs on {device_name(module)}",
        header,
        [
            [row["case"], f"{row['side']}³", str(row.get("views", "")), str(row.get("workers", 1)),
             f"{row.get('seconds', math.nan):.2f}", f"{row.get('rate', math.nan):.2e}", str(row.get("pool_GB", "")),
             row.get("failed", f"{row.get('error', math.nan):.4f}")]
            for row in rows
        ],
    )  # fmt: skip
    if given.plot is not None:
        plot(rows, given.plot)
    _tools.finish({"rows": rows})


if __name__ == "__main__":
    main()
