"""Eight methods on one sparse problem, with the same rounds and the same clients.

    python examples/methods_compared.py --output methods_compared.png

Ten sites agree on five of fifty coefficients and differ in some others. All methods
minimise the same least squares with an l1 penalty, with five sites per round, each
method with its own step. The plots show how close to the minimum they come and how many
coefficients they keep. The mean of sparse models is dense (FedMiD); the prox of a mean
is sparse (dual averaging, the shifted method); subgradient steps never give exact zeros
(FedAvg). Messages are sent at full precision, except by the default of `fpdfp.solve`,
which quantizes them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fpdfp

ROUNDS = 300


def problem() -> fpdfp.Problem:
    """Ten sites whose coefficients differ."""
    rng = np.random.default_rng(0)
    site = np.repeat(np.arange(10), 30)
    X = rng.standard_normal((300, 50))
    own = rng.standard_normal((10, 50)) * (rng.random((10, 50)) < 0.2)
    y = (X * (np.where(np.arange(50) < 5, 2.0, 0.0) + own)[site]).sum(axis=1)
    return fpdfp.Problem(
        fpdfp.losses.LeastSquares(X, y, clients=site, l2=0.01), fpdfp.penalties.L1(0.1)
    )


#: By name: a colour and the method. None is the default of `solve`.
METHODS: dict[str, tuple[str, fpdfp.methods.Method | None]] = {
    "FedSGD (∂)": ("#bbbbbb", fpdfp.FedSGD(step=0.1, penalty="subgradient")),
    "FedAvg (∂), τ = 5": (
        "#ccbb44",
        fpdfp.FedAvg(step=0.02, local_steps=5, penalty="subgradient"),
    ),
    "FedMiD, τ = 5": ("#ee6677", fpdfp.FedMiD(step=0.1, local_steps=5)),
    "FedDualAvg, τ = 5": ("#aa3377", fpdfp.FedDualAvg(step=0.1, local_steps=5)),
    "Fast-FedDualAvg, τ = 5": (
        "#66ccee",
        fpdfp.FastFedDualAvg(step=0.1, local_steps=5),
    ),
    "FPDFP": ("#228833", fpdfp.FPDFP()),
    "RandProx": ("black", fpdfp.RandProx()),
    "default": ("#4477aa", None),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("methods_compared.png"),
        help="where the picture goes",
    )
    path = parser.parse_args().output
    chosen = problem()
    best = fpdfp.minimize(chosen, tol=1e-11)
    sparse = np.count_nonzero(np.abs(best.x) > 1e-9)

    figure = Figure(figsize=(10.0, 3.8), layout="constrained")
    errors, kept = figure.subplots(1, 2)
    for index, (name, (colour, method)) in enumerate(METHODS.items()):
        result = fpdfp.solve(chosen, method, rounds=ROUNDS, clients_per_round=5)
        error = np.maximum(result.history.objective / best.objective - 1, 1e-10)
        count = np.count_nonzero(result.x)
        errors.semilogy(result.history.round, error, color=colour)
        kept.barh(index, count, color=colour)
        print(f"{name}: relative error {error[-1]:.0e}, {count} of 50 coefficients")
    errors.set(
        ylim=(1e-9, 5.0),
        xlabel="round",
        ylabel="(F(x) − F*) / F*",
        title="five of ten sites in a round",
    )
    kept.axvline(sparse, color="black", linewidth=1, linestyle="--")
    kept.set_yticks(range(len(METHODS)), list(METHODS), fontsize=9)
    kept.invert_yaxis()
    kept.set(
        xlabel=f"coefficients that are not zero; {sparse} at the minimum",
        title="how sparse the model is",
    )
    for axes in (errors, kept):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
