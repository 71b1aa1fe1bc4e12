"""Calibration of synthetic scans whose errors are known: sense of rotation, offset and tilt.

    python -m benchmarks.calibration --scans 50 --processes 16 --picture docs/images/calibration.png

Each scan has its own seed: a thorax or a Shepp-Logan phantom with exact projections, 60 views, a full turn or an
arc of 225°, a panel that sees all of the object or three quarters of its width, an offset of up to 8 pixels, a tilt of
up to 2° and noise of 0 to 10 % of the largest line integral. A line is printed when a scan is done.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import _tools
from fpdfp import ct
from fpdfp._typing import Array
from fpdfp.ct import calibration

SIZE = {"views": 60, "source": 256.0, "panel": 384.0}
PHANTOMS, NOISES = ("thorax", "shepp_logan"), (0.0, 0.02, 0.05, 0.1)


def turned(axis: int, angle: float) -> Array:
    """Return the textbook rotation about an axis."""
    c, s = np.cos(angle), np.sin(angle)
    matrix = np.eye(3)
    a, b = (axis + 1) % 3, (axis + 2) % 3
    matrix[a, a], matrix[a, b], matrix[b, a], matrix[b, b] = c, -s, s, c
    return matrix


def scan_of(sense: int, offset: float, tilt: float, *, arc: float, share: float) -> tuple[ct.ConeBeam, ct.ConeBeam]:
    """Return the scan as it was made, and as it is believed to be: a source and a panel that go round, by matrices."""
    volume, detector = (64, 64, 48), (96, 72)
    fit = ct.ConeBeam.circular(volume, detector, **SIZE)  # type: ignore[arg-type]
    pixel = share * float(np.linalg.norm(fit.u[0]))
    angles = np.arange(60) * arc / 60
    nominal = ct.ConeBeam.circular(volume, detector, angles=angles, source=256.0, panel=384.0, pixel=pixel)
    source, panel = np.array([256.0, 0, 0]), np.array([-128.0, offset * pixel, 0])
    lean = turned(0, np.deg2rad(tilt))
    ways = [turned(2, sense * angle) @ lean for angle in angles]
    made = ct.ConeBeam(
        volume, detector,
        np.array([way @ source for way in ways]), np.array([way @ panel for way in ways]),
        np.array([way @ [0, pixel, 0] for way in ways]), np.array([way @ [0, 0, pixel] for way in ways]),
    )  # fmt: skip
    return made, nominal


def one(seed: int, steps: int) -> dict[str, Any]:
    """Make a scan, calibrate it, and return what was true and what was found."""
    warnings.simplefilter("ignore")
    calibration.STEPS = steps
    rng = np.random.default_rng(seed)
    sense, offset, tilt = int(rng.choice([1, -1])), float(rng.uniform(-8, 8)), float(rng.uniform(-2, 2))
    arc, share = float(rng.choice([360.0, 225.0])), float(rng.choice([1.0, 0.75]))
    noise, phantom = NOISES[seed % len(NOISES)], PHANTOMS[seed // len(NOISES) % len(PHANTOMS)]
    made, nominal = scan_of(sense, offset, tilt, arc=np.deg2rad(arc), share=share)
    data = getattr(ct.phantoms, phantom)(nominal).project(made)
    data += noise * data.max() * rng.standard_normal(data.shape, dtype=np.float32)
    began = time.process_time()
    found = ct.calibrate(data, nominal)
    return {
        "seed": seed, "phantom": phantom, "arc": arc, "share": share, "noise": noise, "offset": offset, "tilt": tilt,
        "sense": found.sense == sense, "offset error": abs(found.offset - offset), "tilt error": abs(found.tilt - tilt),
        "margin": found.margin, "seconds": time.process_time() - began,
    }  # fmt: skip


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    panels = figure.subplots(1, 3)
    noises = np.array([row["noise"] for row in rows])
    places = noises + 0.002 * np.linspace(-1, 1, len(rows))
    for axes, name, bound in zip(panels, ("tilt error", "offset error", "margin"), (0.1, None, 1.02), strict=True):
        axes.plot(places, [row[name] for row in rows], "o", markersize=3)
        if bound is not None:
            axes.axhline(bound, color="0.7", zorder=0)
        units = {"tilt error": ", degrees", "offset error": ", pixels"}
        axes.set(xlabel="noise", title=name + units.get(name, ""))
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scans", type=int, default=50)
    parser.add_argument("--processes", type=int, default=1, help="scans that are calibrated at a time")
    parser.add_argument(
        "--steps", type=int, default=calibration.STEPS, help="of conjugate gradients where tilts are sought"
    )
    parser.add_argument("--picture", type=Path, default=None)
    given = parser.parse_args()
    rows = []
    # Not forked: Numba's OpenMP threads do not survive that.
    with ProcessPoolExecutor(given.processes, multiprocessing.get_context("spawn")) as pool:
        for row in pool.map(functools.partial(one, steps=given.steps), range(given.scans)):
            rows.append(row)
            print(json.dumps(row), flush=True)
    table = []
    for noise in NOISES:
        some = [row for row in rows if row["noise"] == noise]
        if some:
            tilts, offsets = (np.array([row[f"{name} error"] for row in some]) for name in ("tilt", "offset"))
            table.append(
                [f"{noise:g}", str(len(some)), str(sum(row["sense"] for row in some)),
                 f"{np.median(tilts):.3f} ({tilts.max():.3f})", f"{np.median(offsets):.3f} ({offsets.max():.3f})",
                 str(int((tilts <= 0.1).sum()))]
            )  # fmt: skip
    header = (
        "noise",
        "scans",
        "sense right",
        "tilt error, °: median (largest)",
        "offset error, pixels",
        "tilt to 0.1°",
    )
    _tools.show("calibration of synthetic scans", header, table)
    if given.picture is not None:
        draw(rows, given.picture)
    _tools.finish({"scans": len(rows), "tilt to 0.1": sum(row["tilt error"] <= 0.1 for row in rows)})


if __name__ == "__main__":
    main()
