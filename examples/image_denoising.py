"""Total variation: five cameras have noisy images of one scene, with missing pixels.

    python examples/image_denoising.py --output image_denoising.png

Each camera keeps its image, in which half of the pixels are missing. Together they
minimise

    1/5 Σ_i 1/2 ‖M_i (x − b_i)‖² + μ ‖∇x‖_{1,2}

where M_i selects the pixels of camera i. The losses are our own functions, given to
`losses.Custom`. The map B is `linops.Gradient` in two dimensions, and `GroupL12` sums
the length of the gradient over the pixels.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fpdfp

SIZE, CAMERAS = 64, 5


def scene() -> np.ndarray:
    """A disc, a ring and two bars."""
    x, y = np.meshgrid(
        np.linspace(-1, 1, SIZE), np.linspace(-1, 1, SIZE), indexing="ij"
    )
    picture = 0.15 + 0.0 * x
    picture[np.hypot(x + 0.3, y - 0.25) < 0.5] = 0.6
    ring = np.hypot(x - 0.45, y + 0.4)
    picture[(ring > 0.25) & (ring < 0.4)] = 0.95
    picture[(abs(x + 0.3) < 0.06) & (abs(y - 0.25) < 0.3)] = 1.0
    picture[(abs(x + 0.5) < 0.35) & (abs(y + 0.75) < 0.07)] = 0.8
    return picture


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("image_denoising.png"),
        help="where the picture goes",
    )
    path = parser.parse_args().output
    rng = np.random.default_rng(0)
    truth = scene()
    seen = rng.random((CAMERAS, SIZE, SIZE)) < 0.5
    noisy = np.where(seen, truth + 0.25 * rng.standard_normal(seen.shape), 0.0)

    losses = fpdfp.losses.Custom(
        value=lambda i, x: 0.5 * float(np.sum(seen[i] * (x - noisy[i]) ** 2)),
        gradient=lambda i, x: seen[i] * (x - noisy[i]),
        n_clients=CAMERAS,
        shape=(SIZE, SIZE),
        lipschitz=1.0,
    )
    tv = fpdfp.penalties.GroupL12(0.06, axis=0)
    problem = fpdfp.Problem(losses, tv, fpdfp.linops.Gradient((SIZE, SIZE)))
    result = fpdfp.solve(problem, rounds=25)
    mean = noisy.sum(axis=0) / np.maximum(seen.sum(axis=0), 1)

    figure = Figure(figsize=(10.0, 2.8), layout="constrained")
    axes = figure.subplots(1, 4)
    pictures = {
        "what one camera has": noisy[0],
        "mean of what was seen": mean,
        "together": result.x,
        "truth": truth,
    }
    for axis, (name, values) in zip(axes, pictures.items(), strict=True):
        quality = "" if name == "truth" else f", {fpdfp.ct.psnr(values, truth):.1f} dB"
        axis.imshow(
            values.T,
            vmin=0.0,
            vmax=1.0,
            cmap="gray",
            origin="lower",
            interpolation="nearest",
        )
        axis.set_title(name + quality, fontsize=10)
        axis.set_axis_off()
        print(name + quality)
    print(f"{result.rounds} rounds, {result.total_up / 1e6:.1f} Mbit up in all")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
