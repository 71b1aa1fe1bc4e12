"""A coefficient map over sites: which pixels of an image predict a diagnosis.

    python examples/coefficient_map.py --output coefficient_map.png

Five sites have 80 subjects each, with a noisy image of 24 × 24 pixels and a diagnosis.
Two regions of the image matter. The model is logistic regression with total variation,
so that neighbouring pixels share a coefficient. Images stay at their sites. The picture
compares the map of one site alone with the map of all sites.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from scipy import sparse

import fpdfp

SIDE = 24


def regions() -> np.ndarray:
    """Return the true map: a square that raises the risk, and a disc that lowers it."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    truth = np.zeros((SIDE, SIDE))
    truth[4:10, 4:10] = 0.25
    truth[(rows - 16) ** 2 + (columns - 16) ** 2 < 12] = -0.25
    return truth


def differences() -> sparse.csr_array:
    """Return the map B: the differences of neighbouring pixels on both axes."""
    steps = sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(SIDE - 1, SIDE))
    same = sparse.eye_array(SIDE)
    return sparse.csr_array(
        sparse.vstack([sparse.kron(steps, same), sparse.kron(same, steps)])
    )


def fit(
    images: np.ndarray, diagnosis: np.ndarray, site: np.ndarray, weight: float
) -> fpdfp.Result:
    """Fit a map with total variation and a small ridge."""
    losses = fpdfp.losses.Logistic(images, diagnosis, clients=site, l2=1e-3)
    return fpdfp.solve(
        fpdfp.Problem(losses, fpdfp.penalties.L1(weight), differences()),
        rounds=300,
        tol=1e-3,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("coefficient_map.png"),
        help="where the picture goes",
    )
    path = parser.parse_args().output
    rng = np.random.default_rng(0)
    truth = regions()
    site = np.repeat(np.arange(5), 80)
    images = rng.standard_normal((400, SIDE * SIDE))
    diagnosis = images @ truth.ravel() + rng.logistic(size=400) > 0

    here = site == 0
    alone = fit(images[here], diagnosis[here], np.zeros(80, dtype=int), weight=0.03)
    together = fit(images, diagnosis, site, weight=0.012)
    maps = {
        "truth": truth.ravel(),
        "one site alone": alone.x,
        "five sites together": together.x,
    }
    figure = Figure(figsize=(9.0, 3.2), layout="constrained")
    for axes, (name, values) in zip(figure.subplots(1, 3), maps.items(), strict=True):
        likeness = np.corrcoef(values, truth.ravel())[0, 1]
        shown = axes.imshow(
            values.reshape(SIDE, SIDE), vmin=-0.25, vmax=0.25, cmap="RdBu_r"
        )
        axes.set_title(
            name if name == "truth" else f"{name}, r = {likeness:.2f}",
            fontsize="medium",
        )
        axes.set_axis_off()
        if name != "truth":
            print(f"{name}: correlation with the true map {likeness:.2f}")
    figure.colorbar(
        shown, ax=figure.axes, shrink=0.8, label="log odds per unit of a pixel"
    )
    print(
        f"{together.status} after {together.rounds} rounds, "
        f"{together.total_up / 1e6:.2f} Mbit sent by sites"
    )
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
