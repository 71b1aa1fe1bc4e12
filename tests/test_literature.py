"""What the literature reports of these methods, seen again here with fixed seeds."""

from __future__ import annotations

import numpy as np
import pytest

import fpdfp
from fpdfp import penalties
from tests import helpers


@pytest.fixture(scope="module")
def sparse() -> fpdfp.Problem:
    """An l1 problem whose clients agree on five coefficients and each have some of their own."""
    generator = np.random.default_rng(0)
    clients, rows, d = 10, 30, 50
    owner = np.repeat(np.arange(clients), rows)
    X = generator.standard_normal((clients * rows, d))
    own = generator.standard_normal((clients, d)) * (generator.random((clients, d)) < 0.2)
    y = (X * (np.where(np.arange(d) < 5, 2.0, 0.0) + own)[owner]).sum(axis=1) + 0.1 * generator.standard_normal(len(X))
    return fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, clients=owner, l2=0.01), penalties.L1(0.1))


@pytest.mark.parametrize("local_steps", [1, 5, 10])
def test_the_curse_of_primal_averaging(sparse: fpdfp.Problem, local_steps: int) -> None:
    """Means of sparse models are dense; proxes of mean dual models are not (Yuan et al. 2021)."""
    step = 0.5 / float(sparse.lipschitz.max())

    def density(method: fpdfp.methods.Method) -> np.ndarray:
        metrics = {"density": lambda x: float(np.mean(x != 0))}
        history = fpdfp.solve(sparse, method, rounds=300, clients_per_round=5, metrics=metrics).history
        return history.density[history["round"] >= 50]

    primal = density(fpdfp.FedMiD(step, local_steps))
    dual = density(fpdfp.FedDualAvg(step, local_steps))
    fast = density(fpdfp.FastFedDualAvg(step, local_steps))
    assert primal.min() > 0.9
    assert max(dual.max(), fast.max()) < 0.75


def test_dual_averaging_gets_nearer_than_mirror_descent(sparse: fpdfp.Problem) -> None:
    step = 0.5 / float(sparse.lipschitz.max())
    best = fpdfp.minimize(sparse).objective
    methods = (fpdfp.FedMiD(step, 5), fpdfp.FedDualAvg(step, 5), fpdfp.FastFedDualAvg(step, 5))
    mirror, dual, fast = (
        fpdfp.solve(sparse, method, rounds=300, clients_per_round=5).objective / best - 1 for method in methods
    )
    assert fast < 0.2 * dual < 0.2 * 0.7 * mirror


@pytest.fixture(scope="module")
def differing() -> fpdfp.Problem:
    """Least squares whose clients have other solutions and other scales of their features."""
    generator = np.random.default_rng(1)
    clients, d = 8, 10
    parts = [
        generator.standard_normal((20, d)) * np.geomspace(1, 0.2, d)[generator.permutation(d)] for _ in range(clients)
    ]
    targets = [part @ (1 + generator.standard_normal(d)) for part in parts]
    return fpdfp.Problem(fpdfp.losses.LeastSquares.from_clients(parts, targets, l2=1e-3), penalties.Zero())


def errors(problem: fpdfp.Problem, method: fpdfp.methods.Method, rounds: int = 1000) -> np.ndarray:
    """The relative error of the objective after every round."""
    best = fpdfp.minimize(problem).objective
    return fpdfp.solve(problem, method, rounds=rounds, evaluate_every=1).history.objective / best - 1


def test_local_steps_help_at_first_and_then_bias(differing: fpdfp.Problem) -> None:
    """At a constant step: nearer after five rounds, farther in the end (the more steps, the farther)."""
    step = 0.5 / float(differing.lipschitz.max())
    one, two, ten, fifty = (errors(differing, fpdfp.FedAvg(step, tau)) for tau in (1, 2, 10, 50))
    assert ten[5] < 0.3 * two[5] < 0.3 * 0.6 * one[5]
    assert abs(one[-1]) < 1e-12
    assert 1e-4 < two[-1] < 0.1 * ten[-1] < 0.1 * 0.5 * fifty[-1]


def test_local_steps_of_fpdfp_help_at_first_and_then_bias(sparse: fpdfp.Problem) -> None:
    step = 0.2 / float(sparse.lipschitz.max())
    one, five = (errors(sparse, fpdfp.FPDFP(step, local_steps=tau), 300) for tau in (1, 5))
    assert five[5] < 0.5 * one[5]
    assert one[-1] < 0.5 * five[-1]


def test_falling_steps_undo_the_bias_of_local_steps(differing: fpdfp.Problem) -> None:
    step = 0.5 / float(differing.lipschitz.max())
    constant = errors(differing, fpdfp.FedAvg(step, 10))
    falling = errors(differing, fpdfp.FedAvg(fpdfp.steps.Decreasing(step, 0.1), 10))
    assert falling[-1] < 0.02 * constant[-1]


@pytest.mark.slow
def test_fedprox_damps_the_drift_of_clients(differing: fpdfp.Problem) -> None:
    """The fixed point comes nearer to the solution as ρ grows (Li et al. 2020), at the same step and local steps."""
    smoothness = float(differing.lipschitz.max())
    ends = [
        errors(differing, fpdfp.FedProx(rho, 0.5 / (smoothness + 3.0), local_steps=50))[-1]
        for rho in (0.0, 0.3, 1.0, 3.0)
    ]
    assert ends[0] > 0.04
    for less, more in zip(ends[1:], ends[:-1], strict=True):
        assert less < 0.6 * more


def test_fedprox_clients_stay_nearer_to_the_server(differing: fpdfp.Problem) -> None:
    """One round from the solution: how far clients go on their own."""
    x = fpdfp.minimize(differing).x
    smoothness = float(differing.lipschitz.max())
    drifts = []
    for rho in (0.0, 1.0, 10.0):
        method = helpers.prepare(differing, fpdfp.FedProx(rho, 0.5 / (smoothness + 10.0), local_steps=200))
        clients = np.arange(8)
        message = method.broadcast(method.init(x))
        update = method.client_update(differing.local(clients), message, 0, fpdfp.rng.Draws(0, 0, clients))
        drifts.append(float(np.linalg.norm(update.reply.x, axis=1).mean()))
    assert drifts[2] < 0.3 * drifts[1] < 0.3 * 0.5 * drifts[0]
