"""The weight that ``tv="auto"`` chooses, beside the best one in hindsight.

    python -m benchmarks.tv_weight --processes 16

A thorax, a head and a Shepp-Logan phantom of 48 × 48 × 12 voxels, 48 views, and noise of 0.5, 2 and 8 % of the largest
line integral. *Matched* data are projections of voxels by the projector of the reconstruction, *analytic* data exact
line integrals of the ellipsoids. The best weight in hindsight has the largest PSNR: over steps of half a decade, then
of a quarter around the best, with voxels as given and, for analytic data, with voxels of half the side and means of
eight of them. Each ``auto`` has one core; its seconds of the processor are given beside those of one reconstruction
with voxels as given and the weight that it found.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from benchmarks import _tools
from fpdfp import ct
from fpdfp._typing import Array
from fpdfp.ct.weight import coarser, finer

VOLUME, DETECTOR, VIEWS = (48, 48, 12), (72, 18), 48
NOISES = (0.005, 0.02, 0.08)
#: Density above what is around; half axes and centre, of half the volume; degrees.
HEAD = (
    (1.8, 0.74, 0.92, 0.92, 0.0, 0.0, 0.0, 0.0), (-0.78, 0.66, 0.84, 0.84, 0.0, 0.0, 0.0, 0.0),
    (-0.06, 0.08, 0.27, 0.4, -0.13, 0.08, 0.0, -12.0), (-0.06, 0.08, 0.27, 0.4, 0.13, 0.08, 0.0, 12.0),
    (0.08, 0.12, 0.09, 0.2, 0.34, -0.3, 0.1, 30.0), (0.04, 0.05, 0.05, 0.1, -0.36, -0.32, -0.1, 0.0),
    (-1.0, 0.13, 0.07, 0.3, 0.0, 0.67, 0.2, 0.0), (0.7, 0.035, 0.035, 0.12, -0.3, 0.45, 0.0, 0.0),
    (0.7, 0.02, 0.02, 0.08, 0.25, 0.5, 0.2, 0.0), (0.8, 0.1, 0.16, 0.5, 0.42, -0.6, -0.4, 40.0),
)  # fmt: skip


class Cell(NamedTuple):
    """One entry of the table."""

    phantom: str
    matched: bool
    noise: float


def head(geometry: ct.ConeBeam) -> ct.Ellipsoids:
    """Return a skull with a brain, its ventricles, two lesions, a sinus and dense bone."""
    table = np.array(HEAD)
    half = 0.5 * np.array(geometry.volume) * geometry.voxel
    return ct.Ellipsoids(table[:, 4:7] * half, table[:, 1:4] * half, table[:, 0], np.deg2rad(table[:, 7]))


def scan(cell: Cell) -> tuple[ct.ConeBeam, Array, Array]:
    """Return the geometry, the true volume, and noisy projections."""
    geometry = ct.ConeBeam.circular(VOLUME, DETECTOR, views=VIEWS, source=256.0, panel=384.0)
    phantom = head(geometry) if cell.phantom == "head" else getattr(ct.phantoms, cell.phantom)(geometry)
    truth = phantom.volume(geometry)
    clean = ct.XRayTransform(geometry).apply(truth) if cell.matched else phantom.project(geometry)
    noise = np.random.default_rng(7).standard_normal(clean.shape)
    return geometry, truth, (clean + cell.noise * clean.max() * noise).astype(np.float32)


def chosen(cell: Cell) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    geometry, truth, data = scan(cell)
    reconstruct = functools.partial(ct.reconstruct, data, geometry, device="cpu", progress=False)
    reconstruct(tv=0.01, iterations=1)  # compiles or reads the kernels
    began = time.process_time()
    found = reconstruct()
    middle = time.process_time()
    reconstruct(tv=found.tv)
    end = time.process_time()
    return {"tv": found.tv, "finer": found.finer, "psnr": ct.psnr(found.volume, truth), "seconds": middle - began,
            "trials": found.scores.shape[1], "one": end - middle}  # fmt: skip


def hindsight(cell: Cell, *, fine: bool) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    geometry, truth, data = scan(cell)
    used = finer(geometry) if fine else geometry
    known: dict[float, float] = {}

    def quality(place: float) -> float:
        if place not in known:
            how: Any = {"iterations": 30, "device": "cpu", "progress": False}
            volume = ct.reconstruct(data, used, tv=10.0**place, **how).volume
            known[place] = ct.psnr(coarser(volume) if fine else volume, truth)
        return known[place]

    at = uphill(quality, uphill(quality, -2.5, 0.5), 0.25)
    return {"tv": 10.0**at, "psnr": known[at]}


def uphill(quality: Callable[[float], float], at: float, step: float) -> float:
    """Walk by steps as long as that is better."""
    while True:
        best = max((at, at - step, at + step), key=quality)
        if best == at:
            return at
        at = best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--phantoms", nargs="+", default=["thorax", "head", "shepp_logan"])
    parser.add_argument("--noises", nargs="+", type=float, default=NOISES)
    options = parser.parse_args()
    cells = [
        Cell(phantom, matched, noise)
        for phantom in options.phantoms for matched in (True, False) for noise in options.noises
    ]  # fmt: skip
    # Not forked: Numba's OpenMP threads do not survive that.
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        # The longest first; each result is printed when it is there.
        halves = {cell: pool.submit(hindsight, cell, fine=True) for cell in cells if not cell.matched}
        ours = {cell: pool.submit(chosen, cell) for cell in cells}
        plain = {cell: pool.submit(hindsight, cell, fine=False) for cell in cells}
        results = []
        for cell in cells:
            result = {**cell._asdict(), **ours[cell].result(), "given": plain[cell].result()}
            result["half"] = halves[cell].result() if cell in halves else None
            best = max(one["psnr"] for one in (result["given"], result["half"]) if one)
            results.append({**result, "lost": best - result["psnr"]})
            print(json.dumps(results[-1]), flush=True)
    rows = [
        [f"{result['phantom']}, {'matched' if result['matched'] else 'analytic'}, {100 * result['noise']:g} %",
         f"{result['tv']:.2g}" + (", half" if result["finer"] else ""), f"{result['psnr']:.2f}",
         *(f"{one['psnr']:.2f} ({one['tv']:.2g})" if one else "" for one in (result["given"], result["half"])),
         f"{result['lost']:.2f}", f"{result['seconds']:.1f} ({result['one']:.1f})"]
        for result in results
    ]  # fmt: skip
    header = (
        "data, noise", "tv chosen", "PSNR, dB", "best, voxels as given", "best, half the side", "lost, dB",
        "seconds (one call)",
    )  # fmt: skip
    _tools.show("the weight of tv='auto' beside the best in hindsight", header, rows)
    within = sum(result["lost"] <= 0.2 for result in results)
    _tools.finish({"cells": results, "within 0.2 dB": within})


if __name__ == "__main__":
    main()
