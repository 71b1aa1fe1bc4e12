"""RandProx: its rule, no drift, and how its rounds grow with the condition number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import RandProx, compress, losses, penalties
from tests import helpers

QUANTIZE = int(fpdfp.rng.Purpose.QUANTIZE)


def lasso(l2: float = 0.01, spread: float = 1.0, clients: int = 5) -> fpdfp.Problem:
    X, y, owner = helpers.classification(clients=clients)
    X = X * np.geomspace(1.0, spread, 12)
    return fpdfp.Problem(losses.LeastSquares(X, y, clients=owner, l2=l2), penalties.L1(0.05), weights="samples")


def test_it_is_the_rule_of_its_docstring() -> None:
    """Word for word with exact local solves: two clients of five, quantized."""
    problem, quantizer = lasso(), fpdfp.QSGD(4, norm="max")
    seen: list[Any] = []
    fpdfp.solve(
        problem, RandProx(local_steps=1000), rounds=20, clients_per_round=2, seed=4, compressor=quantizer,
        callbacks=[lambda run: seen.append((run.x.copy(), run.algorithm))],
    )  # fmt: skip
    method = seen[0][1]
    gamma, tau, mu, alpha = method.step(0), method.tau, 0.01, method.shift_step
    X, y, owner = helpers.classification()
    H = [X[owner == i].T @ X[owner == i] / 40 for i in range(5)]
    b = [X[owner == i].T @ y[owner == i] / 40 for i in range(5)]
    omega = quantizer.omega(12)
    assert alpha == pytest.approx(1 / (1 + omega))
    assert gamma * tau == pytest.approx(0.9 / (1 + 3 / 8 + omega / 2))
    x, u, u_mean = np.zeros(12), np.zeros((5, 12)), np.zeros(12)
    for k, (ours, _) in enumerate(seen):
        clients = fpdfp.rng.choose_clients(4, k, 5, 2)
        points = [np.linalg.solve(H[i] + tau * np.eye(12), b[i] + u[i] + tau * x) for i in clients]
        slopes = np.stack([H[i] @ point - b[i] for i, point in zip(clients, points, strict=True)])
        m = quantizer.compress(slopes - u[clients], fpdfp.rng.Draws(4, k, clients), QUANTIZE).values
        u[clients] += alpha * m
        u_mean = u_mean + alpha / 5 * m.sum(axis=0)
        point = (x - gamma * m.mean(axis=0) - gamma * u_mean) / (1 + gamma * mu)
        x = np.sign(point) * np.maximum(abs(point) - 0.05 * gamma / (1 + gamma * mu), 0)
        np.testing.assert_allclose(ours, x, atol=1e-9)


COMPRESSORS = [fpdfp.QSGD(1, norm="max"), compress.RandK(3), compress.Full()]


@pytest.mark.parametrize("local_steps", [None, 2])
@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
@pytest.mark.parametrize("n", [2, helpers.slow(6, True)])
def test_local_steps_leave_no_bias(compressor: Any, n: int, local_steps: int | None) -> None:
    """To 1e-10 at a constant step, for any number of local steps, clients and messages that are right in the mean."""
    problem = helpers.fused_regression(spread=0.3)
    # Few local steps go with a γ of the size of a gradient step.
    step: Any = "auto" if local_steps is None else 0.2 / float(problem.lipschitz.max())
    method = RandProx(step, local_steps=local_steps)
    assert helpers.reaches(problem, method, 20_000, clients_per_round=n, compressor=compressor)


def test_rounds_grow_with_the_root_of_the_condition_number() -> None:
    def rounds(l2: float) -> int:
        problem = lasso(l2=l2, spread=30.0)
        best = fpdfp.minimize(problem, tol=1e-12).objective

        def close(run: fpdfp.Run) -> bool:
            return run.problem.objective(run.x) <= best * (1 + 1e-8)

        return fpdfp.solve(problem, RandProx(), rounds=5000, evaluate_every=5000, callbacks=[close]).rounds

    easy, hard = rounds(1.0), rounds(0.01)
    assert hard < 20 * easy  # κ is 100 times as large


@pytest.mark.parametrize("name", ["graph-guided", "box", "isotropic TV", "smooth"])
def test_it_takes_constraints_and_any_linear_map(name: str) -> None:
    problem = helpers.zoo()[name]
    best = fpdfp.minimize(problem, tol=1e-10).objective
    objective, violation = problem.evaluate(fpdfp.solve(problem, RandProx(), rounds=300).x)
    assert abs(objective - best) < 1e-5 * max(1.0, abs(best))
    assert violation < 1e-5


def test_the_dual_is_known() -> None:
    problem = lasso(l2=0.05)
    result = fpdfp.solve(problem, RandProx(), rounds=300)
    np.testing.assert_allclose(result.v, -problem.gradient(result.x), atol=1e-8)


def test_one_client_alone() -> None:
    problem = lasso(clients=1)
    best = fpdfp.minimize(problem, tol=1e-10).objective
    assert fpdfp.solve(problem, RandProx(), rounds=300).objective <= best * (1 + 1e-8)


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="local_steps must be an integer of at least 1"):
        RandProx(local_steps=0)
    with pytest.raises(ValueError, match="dual_steps must be an integer of at least 1"):
        RandProx(dual_steps=0)
    with pytest.raises(ValueError, match="step must be a finite number greater than 0"):
        RandProx(-1.0)
