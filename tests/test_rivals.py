"""Recent rivals against their published rules, written out one client at a time; their limits and special cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import penalties
from tests import helpers
from tests.test_identities import iterates
from tests.test_methods import gradient, lasso, same, smooth, soft

N, D = 5, 12


def drawn(seed: int, k: int, n: int) -> Any:
    return fpdfp.rng.choose_clients(seed, k, N, n)


def scaled(problem: fpdfp.Problem, i: int, x: Any, k: int, t: int, batch: int | None, seed: int) -> Any:
    """N w_i ∇̃f_i(x)."""
    return N * problem.weights[i] * gradient(problem, i, x, k, t, batch, seed)


def local_prox(problem: fpdfp.Problem, i: int, y: Any, eta: float, steps: int, start: Any, scale: float) -> Any:
    """prox_{ηf_i}(y) by Nesterov's method for strongly convex functions, as a textbook has it."""
    step = 1.0 / (scale + 1.0 / eta)
    q = np.sqrt(step / eta)
    x = z = start
    for _ in range(steps):
        new = z - step * (scaled(problem, i, z, 0, 0, None, 0) + (z - y) / eta)
        z = new + (1 - q) / (1 + q) * (new - x)
        x = new
    return x


@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_scaffold_is_algorithm_one_with_option_two(weights: str) -> None:
    problem, schedule = smooth(weights), fpdfp.steps.Decreasing(0.1, 0.05)
    method = fpdfp.Scaffold(schedule, local_steps=3, batch_size=4, server_step=0.8)
    x, c, own = np.zeros(D), np.zeros(D), np.zeros((N, D))
    for k, (ours, _) in enumerate(iterates(problem, method, 15, clients_per_round=3, seed=3)):
        models, controls = [], []
        for i in drawn(3, k, 3):
            y = x
            for t in range(3):
                y = y - schedule(k) * (scaled(problem, i, y, k, t, 4, 3) - own[i] + c)
            new = own[i] - c + (x - y) / (3 * schedule(k))
            models.append(y - x)
            controls.append(new - own[i])
            own[i] = new
        x, c = x + 0.8 * np.mean(models, axis=0), c + 3 / N * np.mean(controls, axis=0)
        np.testing.assert_allclose(ours, x, atol=1e-13)
        np.testing.assert_allclose(c, own.mean(axis=0), atol=1e-13)


def test_scaffold_with_one_step_and_everyone_is_gradient_descent() -> None:
    problem, x = smooth("samples"), np.zeros(D)
    for ours, _ in iterates(problem, fpdfp.Scaffold(0.5, server_step=0.5), 40):
        x = x - 0.25 * problem.gradient(x)
        np.testing.assert_allclose(ours, x, atol=1e-14)


@pytest.mark.parametrize("alpha", [1.0, 1.6])
@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_feddr_is_randomized_douglas_rachford(weights: str, alpha: float) -> None:
    problem, eta = lasso(weights), 0.7
    scale = float(problem.lipschitz.max())
    method = fpdfp.FedDR(eta, alpha, local_steps=7)
    bar, y, x, hat = np.zeros(D), np.zeros((N, D)), np.zeros((N, D)), np.zeros((N, D))
    for k, (ours, _) in enumerate(iterates(problem, method, 15, clients_per_round=3, seed=3)):
        for i in drawn(3, k, 3):
            y[i] = y[i] + alpha * (bar - x[i])
            x[i] = local_prox(problem, i, y[i], eta, 7, bar, scale)
            hat[i] = 2 * x[i] - y[i]
        bar = soft(hat.mean(axis=0), 0.05 * eta)
        np.testing.assert_allclose(ours, bar, atol=1e-12)


@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_fedadmm_is_the_augmented_lagrangian(weights: str) -> None:
    problem, rho, schedule = smooth(weights), 0.4, fpdfp.steps.Decreasing(0.3, 0.05)
    method = fpdfp.FedADMM(rho, schedule, local_steps=4, batch_size=4)
    x, w, y = np.zeros(D), np.zeros((N, D)), np.zeros((N, D))
    for k, (ours, _) in enumerate(iterates(problem, method, 15, clients_per_round=3, seed=3)):
        changes = []
        for i in drawn(3, k, 3):
            old, w[i] = w[i] + y[i] / rho, x
            for t in range(4):
                w[i] = w[i] - schedule(k) * (scaled(problem, i, w[i], k, t, 4, 3) + y[i] + rho * (w[i] - x))
            y[i] = y[i] + rho * (w[i] - x)
            changes.append(w[i] + y[i] / rho - old)
        x = x + 3 / N * np.mean(changes, axis=0)  # the paper's η is |S|/N
        np.testing.assert_allclose(ours, x, atol=1e-12)


def test_with_exact_solves_fedadmm_is_feddr_without_penalty() -> None:
    problem, rho = smooth("samples"), 2.0
    run: dict[str, Any] = {"rounds": 20, "clients_per_round": 2, "seed": 5}
    admm = fpdfp.FedADMM(rho, 1.0 / (float(problem.lipschitz.max()) + rho), local_steps=400)
    same(iterates(problem, admm, **run), iterates(problem, fpdfp.FedDR(1 / rho, local_steps=200), **run), 1e-11)


@pytest.mark.parametrize("server_step", [1.0, 1.5])
@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_decoupled_prox_is_the_algorithm_of_zhang_hu_and_johansson(weights: str, server_step: float) -> None:
    problem, gamma, tau = lasso(weights), 0.1, 3
    method = fpdfp.FedDecoupledProx(gamma, tau, batch_size=4, server_step=server_step)
    reach = server_step * gamma * tau
    bar, c = np.zeros(D), np.zeros((N, D))
    for k, (ours, _) in enumerate(iterates(problem, method, 15, seed=3)):
        after, sent, means = soft(bar, 0.05 * reach), [], []
        for i in range(N):
            hat = z = after
            total = np.zeros(D)
            for t in range(tau):
                slope = scaled(problem, i, z, k, t, 4, 3)
                hat, total = hat - gamma * (slope + c[i]), total + slope
                z = soft(hat, 0.05 * (t + 1) * gamma)
            sent.append(hat)
            means.append(total / tau)
        new = after + server_step * (np.mean(sent, axis=0) - after)
        c = (after - new) / reach - np.array(means)
        np.testing.assert_allclose(c.mean(axis=0), 0.0, atol=1e-13)
        bar = new
        np.testing.assert_allclose(ours, soft(bar, 0.05 * reach), atol=1e-13)


def test_decoupled_prox_with_one_step_is_proximal_gradient_descent() -> None:
    problem, x = lasso("samples"), np.zeros(D)
    for ours, _ in iterates(problem, fpdfp.FedDecoupledProx(0.3, server_step=0.5), 40):
        x = soft(x - 0.15 * problem.gradient(x), 0.05 * 0.15)
        np.testing.assert_allclose(ours, x, atol=1e-13)


@pytest.mark.parametrize("local_steps", [2, 5])
def test_the_solution_is_a_fixed_point_of_the_decoupled_prox(local_steps: int) -> None:
    """x̄ = x* − ηγτ∇f(x*) and c_i = ∇f(x*) − ∇f_i(x*) stay, whatever the number of local steps (their Section 3)."""
    problem = lasso()
    best, clients = fpdfp.minimize(problem, tol=1e-14).x, np.arange(N)
    method = helpers.prepare(problem, fpdfp.FedDecoupledProx(0.2, local_steps))
    before = best - method.reach * problem.gradient(best)
    own = problem.losses.gradients(best, clients)
    memory = type(method.init_memory(N))(np.repeat(best[None], N, axis=0), own, np.ones(N, dtype=bool))
    state = method.init(best)._replace(before=before)
    draws = fpdfp.rng.Draws(0, 1, clients)
    update = method.client_update(problem.local(clients, memory), method.broadcast(state), 1, draws)
    after = method.server_update(state, helpers.mean_of(update.reply, ()), 1, N)
    np.testing.assert_allclose(after.before, before, atol=1e-7)
    np.testing.assert_allclose(after.x, best, atol=1e-7)


def test_svrg_pdfp_is_pdfp_with_snapshots() -> None:
    problem, gamma, epoch = helpers.graph_guided(clients=1, rows=200), 0.1, 6
    B, lam = helpers.graph(D).toarray(), 0.02
    method = fpdfp.SVRGPDFP(gamma, batch_size=5, epoch=epoch, lam=lam)
    x, v, snapshot = np.zeros(D), np.zeros(24), np.zeros(D)
    seen: list[Any] = []
    for k, (ours, dual) in enumerate(iterates(problem, method, 40, seed=3)):
        if k % epoch == 0 and k:
            snapshot, seen = np.mean(seen, axis=0), []
        u = gradient(problem, 0, x, k, 0, 5, 3) - gradient(problem, 0, snapshot, k, 0, 5, 3)
        half = x - gamma * (u + problem.gradient(snapshot))
        v = np.clip(lam / gamma * B @ half + (np.eye(24) - lam * B @ B.T) @ v, -0.02, 0.02)
        x = half - gamma * B.T @ v
        seen.append(x)
        np.testing.assert_allclose(ours, x, atol=1e-13)
        np.testing.assert_allclose(dual, v, atol=1e-13)


def test_svrg_pdfp_without_mini_batches_is_pdfp() -> None:
    problem = helpers.graph_guided()
    same(iterates(problem, fpdfp.SVRGPDFP(0.4, epoch=7), 30), iterates(problem, fpdfp.PDFP(0.4), 30), 0.0)


CONVERGE: dict[str, tuple[Any, fpdfp.Problem, dict[str, Any]]] = {
    "SCAFFOLD": (fpdfp.Scaffold(local_steps=5), smooth("samples"), {"clients_per_round": 2, "rounds": 3000}),
    "FedDR": (fpdfp.FedDR(), lasso("samples"), {"clients_per_round": 2, "rounds": 600}),
    "FedDR, general B": (
        fpdfp.FedDR(inner=fpdfp.InnerSolve(1e-9, 5000)),
        helpers.graph_guided(),
        {"clients_per_round": 2, "rounds": 600},
    ),
    "FedADMM": (fpdfp.FedADMM(), smooth("samples"), {"clients_per_round": 2, "rounds": 2000}),
    "decoupled prox": (fpdfp.FedDecoupledProx(local_steps=5), lasso("samples"), {"rounds": 1000}),
    "decoupled prox, general B": (
        fpdfp.FedDecoupledProx(local_steps=5, inner=fpdfp.InnerSolve(1e-9, 5000)),
        helpers.graph_guided(),
        {"rounds": 600},
    ),
    "SVRG-PDFP": (
        fpdfp.SVRGPDFP(batch_size=10, epoch=20),
        helpers.graph_guided(clients=1, rows=200),
        {"rounds": 6000},
    ),
}


@pytest.mark.parametrize("name", CONVERGE)
def test_they_converge_to_the_solution_at_a_constant_step(name: str) -> None:
    """Though clients differ, some take part, and there are local steps or mini-batches: no floor."""
    method, problem, options = CONVERGE[name]
    assert helpers.reaches(problem, method, **options, error=1e-10)


def test_a_start_is_taken() -> None:
    """From x0 the first round of FedDR and FedADMM solves local problems around it."""
    problem, start = smooth(), np.linspace(-1, 1, D)
    dr = iterates(problem, fpdfp.FedDR(0.5, local_steps=60), 1, x0=start)[0][0]
    admm = iterates(problem, fpdfp.FedADMM(2.0, local_steps=300), 1, x0=start)[0][0]
    scale = float(problem.lipschitz.max())
    expected = np.mean([2 * local_prox(problem, i, start, 0.5, 200, start, scale) - start for i in range(N)], axis=0)
    np.testing.assert_allclose(dr, expected, atol=1e-8)
    np.testing.assert_allclose(admm, expected, atol=1e-8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fpdfp.FedDR(relaxation=2.0), "relaxation must be above 0 and below 2, got 2"),
        (lambda: fpdfp.FedDR(relaxation=0.0), "relaxation must be a finite number greater than 0"),
        (lambda: fpdfp.FedDR(fpdfp.steps.Decreasing(1.0, 0.1)), "step must be a number greater than 0 or 'auto'"),
        (lambda: fpdfp.FedADMM(0.0), "rho must be greater than 0 for FedADMM"),
        (lambda: fpdfp.FedDecoupledProx(server_step=0.0), "server_step must be a finite number greater than 0"),
        (lambda: fpdfp.SVRGPDFP(epoch=0), "epoch must be an integer of at least 1"),
    ],
)
def test_wrong_hyper_parameters_are_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_the_server_prox_of_fedmid_applies_the_penalty_twice() -> None:
    """As Yuan et al. write it: with one client and one step its fixed point minimises f + 2g."""
    X, y, _ = helpers.classification()
    losses = fpdfp.losses.Logistic(X, y, l2=0.05)
    once, twice = (fpdfp.Problem(losses, penalties.L1(weight)) for weight in (0.05, 0.1))
    for server_prox, problem in ((True, twice), (False, once)):
        x = fpdfp.solve(once, fpdfp.FedMiD(0.3, server_prox=server_prox), rounds=3000).x
        np.testing.assert_allclose(x, fpdfp.minimize(problem, tol=1e-13).x, atol=1e-6)


def test_the_weighted_mean_of_fedavg_is_right_on_average() -> None:
    """Over all draws of n clients, x + (1/n) Σ N w_i Δ_i has the mean Σ w_i x_i; Σ w_i x_i / Σ w_i has not."""
    from itertools import combinations

    generator = np.random.default_rng(0)
    weights = np.array([0.05, 0.1, 0.15, 0.3, 0.4])
    x, models = generator.standard_normal(4), generator.standard_normal((N, 4))
    chosen = [list(some) for some in combinations(range(N), 2)]
    ours = [x + np.mean(N * weights[some, None] * (models[some] - x), axis=0) for some in chosen]
    normalised = [weights[some] @ models[some] / weights[some].sum() for some in chosen]
    np.testing.assert_allclose(np.mean(ours, axis=0), weights @ models, atol=1e-14)
    assert abs(np.mean(normalised, axis=0) - weights @ models).max() > 0.05
    problem = fpdfp.Problem(lasso().losses, penalties.Zero(), weights=weights)
    clients, x = fpdfp.rng.choose_clients(0, 0, N, 2), np.zeros(D)
    moved = np.stack([-0.3 * gradient(problem, i, x, 0, 0, None, 0) for i in clients])
    expected = np.mean(N * weights[clients, None] * moved, axis=0)
    np.testing.assert_allclose(iterates(problem, fpdfp.FedAvg(0.3), 1, clients_per_round=2)[0][0], expected, atol=1e-14)
