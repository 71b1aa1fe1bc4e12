"""Three sites reconstruct a volume from projections that stay at the sites.

    python examples/tomography.py

Each site holds a third of the views of a cone-beam scan of a thorax-like phantom.
Together they minimise

    1/V Σ_views ½ ‖A_view x − b_view‖² + μ ‖∇x‖_{1,2}

with the default settings of `fpdfp.solve`. For comparison, a reconstruction with all
projections in one place follows.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import fpdfp
from fpdfp import ct


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output", type=Path, default=Path(), help="where the picture goes"
    )
    output = parser.parse_args().output

    scan = ct.ConeBeam.circular(
        (48, 48, 12), (96, 64), views=45, source=19.2, panel=28.8, voxel=0.1
    )
    chest = ct.phantoms.thorax(scan)
    truth = chest.volume(scan)
    # Exact line integrals of the ellipsoids: those of voxels would flatter the result.
    noise = np.random.default_rng(0).standard_normal(scan.data_shape)
    projections = (chest.project(scan) + 0.15 * noise).astype(np.float32)

    site = np.arange(scan.n_views) % 3
    losses = ct.ProjectionLosses(projections, scan, clients=site)
    gradient, tv = (
        fpdfp.linops.Gradient(scan.volume),
        fpdfp.penalties.GroupL12(1e-3, axis=0),
    )
    problem = fpdfp.Problem(losses, tv, gradient, weights=np.full(3, 1 / scan.n_views))
    result = fpdfp.solve(problem, rounds=40)
    print(f"together:  {ct.psnr(result.x, truth):.1f} dB after {result.rounds} rounds")
    print(
        f"sent:      {result.total_up / 1e6:.1f} Mbit up, "
        f"{result.total_down / 1e6:.1f} Mbit down in all"
    )

    whole = ct.reconstruct(
        projections, scan, tv=1.1e-3, bounds=(-np.inf, np.inf), device="cpu"
    )
    print(
        f"one place: {ct.psnr(whole.volume, truth):.1f} dB after {whole.iterations} "
        "iterations"
    )
    print(f"FDK:       {ct.psnr(ct.fdk(projections, scan), truth):.1f} dB")
    draw(truth, result.x, output / "tomography.png")


def draw(truth: np.ndarray, found: np.ndarray, file: Path) -> None:
    """Show the middle slice as it is and as it was found, and the difference."""
    import matplotlib.pyplot as plt

    middle = truth.shape[2] // 2
    pictures = {
        "truth": truth,
        "three sites together": found,
        "difference": found - truth,
    }
    figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
    for axis, (title, volume) in zip(axes, pictures.items(), strict=True):
        low, high = (-0.2, 0.2) if title == "difference" else (0.0, float(truth.max()))
        axis.imshow(
            volume[:, :, middle].T, vmin=low, vmax=high, cmap="gray", origin="lower"
        )
        axis.set_title(title)
        axis.set_axis_off()
    figure.savefig(file, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main()
