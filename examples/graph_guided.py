"""Graph-guided logistic regression with twenty clients, the paper's first problem.

    python examples/graph_guided.py --output graph_guided.png

Related measurements should have related coefficients. The graphical lasso estimates a
graph G of the thirty features, and B = [G; I] gives g(Bx) = μ‖Gx‖₁ + μ‖x‖₁. Ten of
twenty clients participate in a round. With default settings, `fpdfp.solve` needs tens
of rounds to an accuracy that the paper's FPDFP, with its automatic step, does not reach
in 1,500. An independent solver computes the minimum for comparison.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer

import fpdfp


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("graph_guided.png"),
        help="where the picture goes",
    )
    path = parser.parse_args().output
    X, y = load_breast_cancer(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    graph = fpdfp.datasets.feature_graph(X, alpha=0.1)
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(len(y)) % 20, l2=1e-2)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(2e-3), graph.stacked())
    best = fpdfp.minimize(problem, tol=1e-10)

    automatic = fpdfp.solve(problem, rounds=60, clients_per_round=10)
    twenty = fpdfp.QSGD(levels=20)
    paper = fpdfp.solve(
        problem, fpdfp.FPDFP(), rounds=1500, clients_per_round=10, compressor=twenty
    )

    figure = Figure(figsize=(9.0, 3.4), layout="constrained")
    errors, coefficients = figure.subplots(1, 2)
    for name, result, colour in (
        ("default", automatic, "#4477aa"),
        ("FPDFP, 20 levels", paper, "#ee6677"),
    ):
        error = result.history.objective / best.objective - 1
        sent = (
            result.history.total_up - result.history.evaluation_up
        )  # what drawing the curve takes is not shown
        errors.loglog(sent, np.maximum(error, 1e-12), color=colour, label=name)
        print(
            f"{name}: relative error {error[-1]:.0e} after {result.rounds} rounds, "
            f"{sent[-1] / 1e6:.2f} Mbit up in all"
        )
    errors.set(
        xlabel="all bits that clients have sent",
        ylabel="(F(x) − F*) / F*",
        title="against bits",
    )
    errors.legend(frameon=False)
    order = np.argsort(best.x)
    coefficients.bar(
        np.arange(30), best.x[order], color="#bbbbbb", width=0.9, label="the minimum"
    )
    coefficients.plot(
        np.arange(30), automatic.x[order], ".", color="#4477aa", label="default"
    )
    coefficients.set(
        xlabel="feature, sorted",
        ylabel="coefficient",
        title=f"a graph of {graph.edges} edges",
    )
    coefficients.legend(frameon=False)
    for axes in (errors, coefficients):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
