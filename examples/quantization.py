"""Bits against accuracy: what fewer quantization levels save, and what they cost.

    python examples/quantization.py --output quantization.png

Logistic regression with a ridge and a fused penalty, with twenty clients, all of them
in every round. FPDFP with a constant step sends its iterates through QSGD with 1, 5 or
20 levels, or exactly. The fewer the levels, the larger the error at which it stalls,
and it stalls even with exact messages. The shifted method sends differences that
vanish, so few levels slow it down but do not limit its accuracy. Every bit is counted.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import fpdfp

ROWS, FEATURES, CLIENTS = 3000, 60, 20
LEVELS = {1: "#ee6677", 5: "#ccbb44", 20: "#228833", None: "#777777"}


def problem() -> fpdfp.Problem:
    """Rows of two classes, dealt out in turn."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, FEATURES))
    truth = rng.standard_normal(FEATURES) * (rng.random(FEATURES) < 0.3)
    y = X @ truth + rng.logistic(size=ROWS) > 0
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(ROWS) % CLIENTS, l2=1e-2)
    return fpdfp.Problem(
        losses, fpdfp.penalties.L1(2e-3), fpdfp.linops.Difference(FEATURES)
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("quantization.png"),
        help="where the picture goes",
    )
    path = parser.parse_args().output
    chosen = problem()
    best = fpdfp.minimize(chosen, tol=1e-11).objective
    constant = fpdfp.FPDFP(step=1 / chosen.losses.lipschitz().mean())

    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    rounds, bits = figure.subplots(1, 2, sharey=True)
    for family, method, line in (
        ("FPDFP", constant, ":"),
        ("shifted", fpdfp.ShiftedPDFP(), "-"),
    ):
        for levels, colour in LEVELS.items():
            compressor = None if levels is None else fpdfp.QSGD(levels=levels)
            result = fpdfp.solve(chosen, method, rounds=150, compressor=compressor)
            # Below 1e-9 the reference solution itself is no nearer.
            error = np.where(
                (gap := result.history.objective / best - 1) > 1e-9, gap, np.nan
            )
            name = f"{family}, {'exact' if levels is None else f's = {levels}'}"
            rounds.semilogy(result.history.round, error, color=colour, linestyle=line)
            sent = (
                result.history.total_up - result.history.evaluation_up
            )  # what drawing the curve takes is not shown
            bits.loglog(sent, error, color=colour, linestyle=line, label=name)
            print(
                f"{name}: relative error {max(gap[-1], 1e-9):.0e}, "
                f"{sent[-1] / 1e6:.2f} Mbit up in all"
            )
    rounds.set(xlabel="round", ylabel="(F(x) − F*) / F*", title="against rounds")
    bits.set(xlabel="all bits that clients have sent", title="against bits")
    bits.legend(frameon=False, fontsize=8, loc="lower right")
    for axes in (rounds, bits):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
