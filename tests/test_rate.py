"""Theorem 2: E‖x_k − x*‖² + γ_k²/λ ‖v_k − v*‖² = O(1/k) for γ_k = 2/(D₁k + 1) and B of full row rank.

Clients differ, three of six take part, gradients are of mini-batches, and both messages are quantized, so
every source of noise of the theorem is there. The error, averaged over seeds and over neighbouring rounds, falls
as k^slope between rounds 200 and 8,000. The theorem is a bound, so it says slope at most −1 in the long run. The
same measurement with a constant step, and with a prox that is wrong by 10 %, must fail: the margin means something.
``python -m tests.test_rate`` prints the three slopes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from tests import helpers

SEEDS = 8
WEIGHT = 0.5
EDGES = np.geomspace(200, 8000, 13).astype(int)
MARGIN = 0.15


def strongly_convex() -> fpdfp.Problem:
    return helpers.fused_regression(spread=0.5, weight=WEIGHT)


class TenPerCentOff(fpdfp.penalties.L1):
    """A prox of g* that clips at 1.1 times the right bound."""

    def conjugate_prox(self, y: Any, sigma: float) -> Any:
        return np.clip(y, -1.1 * self.weight, 1.1 * self.weight)


def slope(step: Any, penalty: fpdfp.penalties.Penalty | None = None) -> float:
    """The slope of log E[distance²] against log k."""
    right = strongly_convex()
    best = fpdfp.reference_solution(right, tol=1e-13)
    problem = right if penalty is None else fpdfp.Problem(right.losses, penalty, right.linop)
    lam = problem.model.largest_lambda
    errors = np.zeros(len(EDGES) + 1)

    def record(run: fpdfp.Run) -> None:
        gamma = run.method.schedule()(run.round)
        assert run.v is not None
        error = np.sum((run.x - best.x) ** 2) + gamma**2 / lam * np.sum((run.v - best.v) ** 2)
        errors[np.searchsorted(EDGES, run.round, side="right")] += error

    for seed in range(SEEDS):
        fpdfp.solve(
            problem,
            fpdfp.FPDFP(step=step, batch_size=5),
            rounds=int(EDGES[-1]) - 1,
            clients_per_round=3,
            compressor=fpdfp.QSGD(levels=8),
            seed=seed,
            evaluate_every=int(EDGES[-1]),
            callbacks=[record],
        )
    means = errors[1:-1] / np.diff(EDGES)
    middles = np.sqrt(EDGES[:-1] * EDGES[1:])
    return float(np.polyfit(np.log(middles), np.log(means), 1)[0])


def theorem_two() -> fpdfp.steps.Theorem2:
    return fpdfp.steps.Theorem2(1.5 * strongly_convex().strong_convexity)


@pytest.mark.slow
def test_one_over_k() -> None:
    assert slope(theorem_two()) < -1.0 + MARGIN


@pytest.mark.slow
def test_a_constant_step_would_fail() -> None:
    assert slope(0.05) > -1.0 + 2 * MARGIN


@pytest.mark.slow
def test_a_wrong_prox_would_fail() -> None:
    assert slope(theorem_two(), TenPerCentOff(WEIGHT)) > -1.0 + 2 * MARGIN


if __name__ == "__main__":  # python -m tests.test_rate prints the slopes
    print(f"Theorem 2       {slope(theorem_two()):+.2f}")
    print(f"constant step   {slope(0.05):+.2f}")
    print(f"prox 10 % off   {slope(theorem_two(), TenPerCentOff(WEIGHT)):+.2f}")
