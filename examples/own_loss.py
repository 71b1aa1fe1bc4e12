"""Custom loss: Huber's loss, which is robust against outliers.

    python examples/own_loss.py --output own_loss.png

Six weather stations have measured the same yearly curve; one in ten of their values is
an outlier. `losses.Custom` takes two functions, the value and the gradient of client i.
Everything else works as with the losses of the package: methods, quantized messages,
participation, checkpoints. Squared errors are shown for comparison.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import fpdfp

STATIONS, DAYS, WAVES, WIDTH = 6, 120, 6, 0.3


def waves(day: Any) -> np.ndarray:
    """A constant, and sines and cosines of the year."""
    angle = 2 * np.pi * np.arange(1, WAVES + 1) * np.asarray(day)[..., None] / 365
    return np.concatenate(
        [np.ones((*np.shape(day), 1)), np.cos(angle), np.sin(angle)], axis=-1
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("own_loss.png"),
        help="where the picture goes",
    )
    path = parser.parse_args().output
    rng = np.random.default_rng(0)
    truth = np.concatenate(
        [[8.0, -9.0], np.zeros(WAVES - 1), [-3.0, 1.5], np.zeros(WAVES - 2)]
    )
    day = rng.uniform(0, 365, (STATIONS, DAYS))
    A = waves(day)
    b = A @ truth + 1.0 * rng.standard_normal(day.shape)
    wrong = rng.random(day.shape) < 0.1
    b[wrong] += rng.uniform(20, 60, wrong.sum())

    def value(i: int, x: Any) -> float:
        r = np.abs(A[i] @ x - b[i])
        return float(
            np.mean(np.where(r < WIDTH, 0.5 * r**2, WIDTH * (r - 0.5 * WIDTH)))
        )

    def gradient(i: int, x: Any) -> Any:
        return A[i].T @ np.clip(A[i] @ x - b[i], -WIDTH, WIDTH) / DAYS

    lipschitz = [float(np.linalg.norm(A[i], 2) ** 2) / DAYS for i in range(STATIONS)]
    huber = fpdfp.losses.Custom(
        value, gradient, n_clients=STATIONS, shape=A.shape[-1], lipschitz=lipschitz
    )
    station = np.repeat(np.arange(STATIONS), DAYS)
    squares = fpdfp.losses.LeastSquares(
        A.reshape(-1, A.shape[-1]), b.ravel(), clients=station
    )
    weights = np.full(A.shape[-1], 0.02)
    weights[0] = 0.0  # the constant is not penalised

    year = np.arange(366)
    figure = Figure(figsize=(7.5, 3.6), layout="constrained")
    axis = figure.subplots()
    axis.plot(
        day.ravel(), b.ravel(), ".", color="#bbbbbb", markersize=3, label="measured"
    )
    axis.plot(year, waves(year) @ truth, color="black", linewidth=2.5, label="truth")
    for name, losses, colour in (
        ("squared errors", squares, "#ee6677"),
        ("Huber's loss", huber, "#4477aa"),
    ):
        result = fpdfp.solve(
            fpdfp.Problem(losses, fpdfp.penalties.L1(weights)),
            rounds=400,
            clients_per_round=4,
        )
        error = np.sqrt(np.mean((waves(year) @ (result.x - truth)) ** 2))
        axis.plot(year, waves(year) @ result.x, color=colour, linewidth=1.5, label=name)
        print(
            f"{name}: {error:.2f} degrees off, {np.count_nonzero(result.x)} of "
            f"{A.shape[-1]} waves"
        )
    axis.set(xlabel="day of the year", ylabel="degrees", ylim=(-6, 46))
    axis.legend(ncols=4, fontsize=9, loc="upper center", framealpha=1.0)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=100)


if __name__ == "__main__":
    main()
