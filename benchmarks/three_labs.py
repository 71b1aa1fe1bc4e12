"""One object at three machines: three labs made from the measured scan, calibrated alone and reconstructed together.

    python -m benchmarks.three_labs --picture docs/images/three-labs.png

Each lab has 40 of the 120 views of the scan that comes with the package, another part of the panel, so that its axis
is elsewhere, and another dose: its counts are thinned to 4, 2 and 1 % (a binomial number of each count). The labs
know the distances and the size of pixels alone. Each calibrates its own scan; ``ct.reconstruct_together`` chooses the
weight from curves of scores, which are all that a lab sends for it. Every fourth view of a lab takes no part in
anything and is predicted; the residual is relative to the views before thinning. *Alone* is the best of several
weights in hindsight.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks import _tools
from fpdfp import ct
from fpdfp._typing import Array
from fpdfp.ct.calibration import misaligned
from fpdfp.ct.circle import circle
from fpdfp.ct.command import EXAMPLE, enlarged, read_scan
from fpdfp.ct.scanners import binned
from fpdfp.errors import AccuracyWarning, DataWarning

#: The parts of the counts that labs have, and the first column of each one's panel, in columns of the binned scan.
DOSES, CUTS = (0.04, 0.02, 0.01), (0, 3, 6)
WEIGHTS = (1e-3, 3e-3, 1e-2, 3e-2)


class Lab(NamedTuple):
    """Views as a lab measures them, those before thinning, and the geometry as the lab believes it to be."""

    views: Array
    clean: Array
    geometry: ct.ConeBeam


def make_labs(factor: int, seed: int) -> list[Lab]:
    whole = read_scan(EXAMPLE).geometry
    # As the command reads it: rows of the image are columns of the panel, from the top.
    counts = ct.from_rows(np.load(EXAMPLE / "views.npy").swapaxes(1, 2)[:, ::-1], first="top")
    rng = np.random.default_rng(seed)
    nu, nv = (side // factor for side in counts.shape[1:])
    width = nu - max(CUTS)
    labs = []
    for number, (dose, cut) in enumerate(zip(DOSES, CUTS, strict=True)):
        numbers = np.arange(number, whole.n_views, len(DOSES))
        own = counts[numbers]
        thinned = binned(rng.binomial(own, dose) / dose, factor)[:, cut : cut + width]
        before = binned(own, factor)
        flat = ct.air(before)[cut : cut + width]
        known = whole.subset(numbers)
        (x, y, z), (a, b, c) = known.volume, known.voxel
        small = dataclasses.replace(
            known, detector=(width, nv), u=factor * known.u, v=factor * known.v,
            volume=(-(-x // factor), -(-y // factor), -(-z // factor)), voxel=(factor * a, factor * b, factor * c),
        )  # fmt: skip
        lines = [
            ct.line_integrals(np.maximum(some, 1.0), flat, clip=1e-3)
            for some in (thinned, before[:, cut : cut + width])
        ]
        labs.append(Lab(lines[0], lines[1], small))
    return labs


def residual(volume: Array, views: Array, geometry: ct.ConeBeam) -> float:
    straight, upright = ct.rectify(views, geometry)
    return float(np.linalg.norm(ct.XRayTransform(upright).apply(volume) - straight) / np.linalg.norm(straight))


def measure(factor: int, rounds: int, seed: int) -> tuple[dict[str, Any], dict[str, Array]]:
    labs = make_labs(factor, seed)
    lefts = [np.arange(3, lab.geometry.n_views, 4) for lab in labs]
    kepts = [np.setdiff1d(np.arange(lab.geometry.n_views), left) for lab, left in zip(labs, lefts, strict=True)]
    found = [ct.calibrate(lab.views[kept], lab.geometry.subset(kept)) for lab, kept in zip(labs, kepts, strict=True)]
    for one in found:
        print(one, flush=True)
    # The volume is public: it is as wide as the widest that a lab needs.
    extent = max(one.extent for one in found)
    volume = enlarged(found[0].geometry, extent).volume
    scans, others = [], []
    for lab, kept, left, one, dose in zip(labs, kepts, lefts, found, DOSES, strict=True):
        calibrated = misaligned(lab.geometry, circle(lab.geometry), one.sense, one.length, np.radians(one.tilt))
        whole = dataclasses.replace(calibrated, volume=volume)
        rays = np.full((len(kept), *whole.detector), dose / max(DOSES), dtype=np.float32)
        scans.append((lab.views[kept], whole.subset(kept), rays))
        others.append((lab.clean[left], whole.subset(left)))
    began = time.process_time()
    together = ct.reconstruct_together(scans, rounds=rounds, seed=seed)
    seconds = time.process_time() - began
    alone: list[Array] = []
    for data, geometry, _ in scans:
        tried = [
            ct.reconstruct(data, geometry, tv=tv, iterations=rounds, device="cpu", progress=False).volume
            for tv in WEIGHTS
        ]
        alone.append(min(tried, key=lambda x: residual(x, *others[len(alone)])))
    results = {
        "together": [residual(together.volume, *other) for other in others],
        "alone": [residual(x, *other) for x, other in zip(alone, others, strict=True)],
        "tv": together.tv, "curves": together.curves.tolist(), "offsets": [one.offset for one in found],
        "tilts": [one.tilt for one in found], "senses": [one.sense for one in found],
        "bits": together.result.total_up, "seconds": seconds,
    }  # fmt: skip
    return results, {**{f"lab {n + 1} alone": x for n, x in enumerate(alone)}, "together": together.volume}


def draw(volumes: dict[str, Array], results: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 2.9), layout="constrained")
    panels = figure.subplots(1, 1 + len(volumes))
    for axes, (name, volume) in zip(panels, volumes.items(), strict=False):
        axes.imshow(volume[:, :, volume.shape[2] // 2].T, cmap="gray", origin="lower", vmin=0.0, vmax=0.03)
        axes.set(title=name, xticks=[], yticks=[])
    weights, *curves = results["curves"]
    for number, curve in enumerate(curves):
        panels[-1].loglog(weights, np.array(curve) / min(curve), "o-", markersize=3, label=f"lab {number + 1}")
    panels[-1].axvline(results["tv"], color="0.7", zorder=0)
    panels[-1].set(xlabel="tv", title="scores that labs send")
    panels[-1].legend()
    figure.savefig(path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=int, default=4, help="blocks of so many pixels a side are averaged")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, default=None)
    given = parser.parse_args()
    for kind in (AccuracyWarning, DataWarning):
        warnings.simplefilter("ignore", kind)
    results, volumes = measure(given.bin, given.rounds, given.seed)
    if given.picture is not None:
        draw(volumes, results, given.picture)
    rows = [
        [f"lab {n + 1}, {100 * dose:g} % of the counts", f"{results['offsets'][n]:+.2f}", f"{results['alone'][n]:.4f}",
         f"{results['together'][n]:.4f}"]
        for n, dose in enumerate(DOSES)
    ]  # fmt: skip
    header = ("", "offset found, pixels", "alone: residual of left-out views", "together")
    _tools.show(f"three labs, weight {results['tv']:.2g} chosen together", header, rows)
    _tools.finish(results)


if __name__ == "__main__":
    main()
