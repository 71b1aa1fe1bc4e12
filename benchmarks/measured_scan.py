"""The measured scan that comes with the package: left-out views before and after calibration.

    python -m benchmarks.measured_scan --picture docs/images/measured-scan.png
    python -m benchmarks.measured_scan --bin 2 --tv 1e-3 --iterations 12 --rtk

Every fourth of the 120 views takes no part in anything and is predicted. The distances and the size of pixels are all
that is given. *As given*: the disc that every view shows whole, with the weight ``--tv``, or the default one where it
is auto.
*Calibrated*: sense of rotation, offset, tilt and width of the volume as ``ct.calibrate`` finds them. With ``--rtk``,
ITK-RTK on the calibrated views, with the same volume: filtered back-projection with the best of several Hann windows,
and conjugate gradients with the best of several numbers of steps, both the best in hindsight for the left-out views.
``--bin`` averages blocks of pixels first, and takes voxels as much larger.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _tools
from benchmarks._rtk import Rtk
from fpdfp import ct
from fpdfp._typing import Array
from fpdfp.ct.command import EXAMPLE, enlarged, read_scan
from fpdfp.ct.scanners import binned
from fpdfp.errors import AccuracyWarning

#: Cut-off frequencies of RTK's Hann window, 0 for none, and steps of its conjugate gradients.
HANN, STEPS = (0.0, 0.5, 1.0), (5, 10, 20, 40)


def residual(volume: Array, data: Array, geometry: ct.ConeBeam) -> float:
    views, upright = ct.rectify(data, geometry)
    return float(np.linalg.norm(ct.XRayTransform(upright).apply(volume) - views) / np.linalg.norm(views))


def smaller(data: Array, geometry: ct.ConeBeam, factor: int) -> tuple[Array, ct.ConeBeam]:
    """Return means of blocks of pixels, and the scan with these and with voxels as much larger."""
    data = binned(data, factor)
    (x, y, z), (a, b, c) = geometry.volume, geometry.voxel
    return data, dataclasses.replace(
        geometry, detector=(data.shape[1], data.shape[2]), u=factor * geometry.u, v=factor * geometry.v,
        volume=(-(-x // factor), -(-y // factor), -(-z // factor)), voxel=(factor * a, factor * b, factor * c),
    )  # fmt: skip


def with_rtk(
    data: Array, geometry: ct.ConeBeam, left: Array, others: ct.ConeBeam
) -> dict[str, tuple[Array, float, float]]:
    """Return RTK's volumes, their residuals and the seconds of the processor that each took."""
    views, upright = ct.rectify(data, geometry)
    peer = Rtk(upright)
    ways: dict[str, list[tuple[str, Callable[[], Array]]]] = {
        "ITK-RTK, FDK": [(f"Hann {hann:g}", functools.partial(peer.fdk, views, hann)) for hann in HANN],
        "ITK-RTK, CG": [(f"{n} steps", functools.partial(peer.conjugate_gradients, views, n)) for n in STEPS],
    }
    found = {}
    for name, tried in ways.items():
        rows = []
        for how, work in tried:
            began = time.process_time()
            volume = work()
            rows.append((residual(volume, left, others), f"{name}, {how}", volume, time.process_time() - began))
            print(f"{name}, {how}: {rows[-1][0]:.4f}, {rows[-1][3]:.1f} s of the processor", flush=True)
        error, best, volume, seconds = min(rows, key=lambda row: row[0])
        found[best] = volume, error, seconds
    return found


def draw(volumes: dict[str, Array], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 3.5 * len(volumes)), layout="constrained")
    for row, (name, volume) in zip(figure.subplots(len(volumes), 2), volumes.items(), strict=True):
        for axes, axis in zip(row, (1, 2), strict=True):
            middle = np.take(volume, volume.shape[axis] // 2, axis=axis)
            axes.imshow(middle.T, cmap="gray", origin="lower", vmin=0.0, vmax=0.03)
            axes.set(title=f"{name}, across {'xyz'[axis]}", xticks=[], yticks=[])
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tv", default="auto", help="a number, or auto")
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--bin", type=int, default=1, help="blocks of so many pixels a side are averaged")
    parser.add_argument("--rtk", action="store_true", help="also ITK-RTK on the calibrated views")
    parser.add_argument("--picture", type=Path, default=None)
    given = parser.parse_args()
    warnings.simplefilter("ignore", AccuracyWarning)
    how: dict[str, Any] = {
        "tv": given.tv if given.tv == "auto" else float(given.tv),
        "iterations": given.iterations,
        "device": "cpu",
        "progress": False,
    }
    data, nominal = smaller(*read_scan(EXAMPLE), given.bin)
    left = np.arange(2, len(data), 4)
    kept = np.setdiff1d(np.arange(len(data)), left)
    rows: dict[str, tuple[float, float]] = {}
    began = time.process_time()
    before = ct.reconstruct(data[kept], nominal.subset(kept), **how).volume
    seconds = time.process_time() - began
    rows["as given"] = residual(before, data[left], nominal.subset(left)), seconds
    began = time.process_time()
    found = ct.calibrate(data[kept], nominal.subset(kept))
    used = enlarged(found.geometry, found.extent)
    after = ct.reconstruct(data[kept], used, **how).volume
    others = dataclasses.replace(found.apply(nominal), volume=used.volume).subset(left)
    rows["calibrated"] = residual(after, data[left], others), time.process_time() - began
    print(found, flush=True)
    print({name: f"{error:.4f}" for name, (error, _) in rows.items()}, flush=True)
    volumes = {"as given": before, "calibrated": after}
    if given.rtk:
        for name, (volume, error, taken) in with_rtk(data[kept], used, data[left], others).items():
            rows[name], volumes[name] = (error, taken), volume
    if given.picture is not None:
        draw(volumes, given.picture)
    table = [(name, f"{error:.4f}", f"{seconds:.0f}") for name, (error, seconds) in rows.items()]
    _tools.show("the measured scan", ("", "residual of left-out views", "seconds of the processor"), table)
    _tools.finish({"residuals": {name: error for name, (error, _) in rows.items()}, "tv": how["tv"]})


if __name__ == "__main__":
    main()
