"""Fused lasso: eight sites find the jumps of a signal that none of them measures alone.

    python examples/fused_lasso.py --output fused_lasso.png

The signal has 200 ordered entries (times, places, doses) and is constant between a few
jumps. Each site has noisy measurements of combinations of the entries, fewer than it
would need alone. B takes differences of neighbours, so g(Bx) = μ Σ |x_{j+1} − x_j|
makes the solution constant unless the data says otherwise.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fpdfp

LENGTH, SITES, ROWS = 200, 8, 60


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("fused_lasso.png"),
        help="where the picture goes",
    )
    path = parser.parse_args().output
    rng = np.random.default_rng(0)
    truth = np.zeros(LENGTH)
    for start, stop, height in ((30, 70, 1.0), (90, 100, 3.0), (130, 180, -1.5)):
        truth[start:stop] = height
    X = rng.standard_normal((SITES * ROWS, LENGTH)) / np.sqrt(LENGTH)
    y = X @ truth + 0.3 * rng.standard_normal(len(X))
    site = np.repeat(np.arange(SITES), ROWS)

    def fused(rows: np.ndarray, clients: np.ndarray) -> fpdfp.Problem:
        losses = fpdfp.losses.LeastSquares(X[rows], y[rows], clients=clients, l2=1e-5)
        return fpdfp.Problem(
            losses, fpdfp.penalties.L1(3e-3), fpdfp.linops.Difference(LENGTH)
        )

    everyone = np.ones(len(X), dtype=bool)
    together = fpdfp.solve(fused(everyone, site), rounds=300, tol=1e-5)
    alone = fpdfp.minimize(fused(site == 0, np.zeros(ROWS, dtype=int)))
    ridge = np.linalg.solve(X.T @ X + 0.1 * np.eye(LENGTH), X.T @ y)
    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for axis, (name, x) in zip(
        axes,
        {
            "ridge, all rows": ridge,
            "fused, one site alone": alone.x,
            "fused, eight sites": together.x,
        }.items(),
        strict=True,
    ):
        axis.plot(truth, color="#bbbbbb", linewidth=3, label="truth")
        axis.plot(x, color="#4477aa", linewidth=1.2, label="found")
        axis.set(title=name, xlabel="entry")
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.3)
        print(
            f"{name}: root mean square error {np.sqrt(np.mean((x - truth) ** 2)):.2f}"
        )
    axes[0].legend(frameon=False)
    print(f"{together.rounds} rounds, {together.total_up / 1e6:.2f} Mbit up in all")
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
