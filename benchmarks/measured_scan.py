"""The measured scan that comes with the package: left-out views before and after calibration.

    python -m benchmarks.measured_scan --picture docs/images/measured-scan.png

Every fourth of the 120 views takes no part in anything and is predicted. The distances and the size of pixels are all
that is given. *As given*: the disc that every view shows whole, with the weight ``--tv``, or the default one where it
is auto.
*Calibrated*: sense of rotation, offset, tilt and width of the volume as ``ct.calibrate`` finds them.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _tools
from fpdfp import ct
from fpdfp._typing import Array
from fpdfp.ct.command import EXAMPLE, enlarged, read_scan
from fpdfp.errors import AccuracyWarning


def residual(volume: Array, data: Array, geometry: ct.ConeBeam) -> float:
    views, upright = ct.rectify(data, geometry)
    return float(np.linalg.norm(ct.XRayTransform(upright).apply(volume) - views) / np.linalg.norm(views))


def draw(volumes: dict[str, Array], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 7.0), layout="constrained")
    for row, (name, volume) in zip(figure.subplots(2, 2), volumes.items(), strict=True):
        for axes, axis in zip(row, (1, 2), strict=True):
            middle = np.take(volume, volume.shape[axis] // 2, axis=axis)
            axes.imshow(middle.T, cmap="gray", origin="lower", vmin=0.0, vmax=0.03)
            axes.set(title=f"{name}, across {'xyz'[axis]}", xticks=[], yticks=[])
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tv", default="auto", help="a number, or auto")
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--picture", type=Path, default=None)
    given = parser.parse_args()
    warnings.simplefilter("ignore", AccuracyWarning)
    how: dict[str, Any] = {
        "tv": given.tv if given.tv == "auto" else float(given.tv),
        "iterations": given.iterations,
        "device": "cpu",
        "progress": False,
    }
    data, nominal = read_scan(EXAMPLE)
    left = np.arange(2, len(data), 4)
    kept = np.setdiff1d(np.arange(len(data)), left)
    rows: dict[str, tuple[float, float]] = {}
    began = time.perf_counter()
    before = ct.reconstruct(data[kept], nominal.subset(kept), **how).volume
    seconds = time.perf_counter() - began
    rows["as given"] = residual(before, data[left], nominal.subset(left)), seconds
    began = time.perf_counter()
    found = ct.calibrate(data[kept], nominal.subset(kept))
    used = enlarged(found.geometry, found.extent)
    after = ct.reconstruct(data[kept], used, **how).volume
    others = dataclasses.replace(found.apply(nominal), volume=used.volume).subset(left)
    rows["calibrated"] = residual(after, data[left], others), time.perf_counter() - began
    print(found)
    if given.picture is not None:
        draw({"as given": before, "calibrated": after}, given.picture)
    table = [(name, f"{error:.4f}", f"{seconds:.0f}") for name, (error, seconds) in rows.items()]
    _tools.show("the measured scan", ("", "residual of left-out views", "seconds"), table)
    _tools.finish({"residuals": {name: error for name, (error, _) in rows.items()}, "tv": how["tv"]})


if __name__ == "__main__":
    main()
