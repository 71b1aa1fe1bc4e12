"""Every method against its rule, written out with dense matrices; and what they must equal in special cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import linops, penalties, steps
from fpdfp.errors import StepTooLargeWarning
from tests import helpers
from tests.test_identities import iterates

SCHEDULE = steps.Decreasing(0.4, 0.1)
QUANTIZE = int(fpdfp.rng.Purpose.QUANTIZE)


def smooth(weights: Any = "uniform", linop: Any = None) -> fpdfp.Problem:
    X, y, owner = helpers.classification()
    owner[:20] = 4  # clients of unequal sizes
    return fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner, l2=0.05), penalties.Zero(), linop, weights=weights)


def lasso(weights: Any = "uniform", weight: float = 0.05) -> fpdfp.Problem:
    X, y, owner = helpers.classification()
    return fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner, l2=0.05), penalties.L1(weight), weights=weights)


def gradient(problem: fpdfp.Problem, i: int, x: Any, k: int, t: int, batch: int | None, seed: int) -> Any:
    """∇̃f_i(x) in local step t of round k."""
    only = np.array([i])
    return problem.losses.gradients(x, only, batch, fpdfp.rng.Draws(seed, k, only, t))[0]


def soft(y: Any, t: float) -> Any:
    return np.sign(y) * np.maximum(abs(y) - t, 0)


@pytest.mark.parametrize("averaging", ["weighted", "plain"])
@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("kind", [fpdfp.FedAvg, fpdfp.FedPAQ, fpdfp.FedProx])
def test_local_sgd_is_what_the_papers_write(kind: Any, weights: str, averaging: str) -> None:
    problem = smooth(weights)
    rho = 0.7 if kind is fpdfp.FedProx else 0.0
    arguments = {"rho": rho} if rho else {}
    method = kind(step=SCHEDULE, local_steps=3, batch_size=4, averaging=averaging, **arguments)
    quantizer = None if kind is fpdfp.FedAvg else fpdfp.QSGD(6)
    ours = iterates(problem, method, 12, clients_per_round=3, seed=3, compressor=quantizer)
    scale = 5 * problem.weights
    x = np.zeros(12)
    for k, (ours_x, _) in enumerate(ours):
        clients = fpdfp.rng.choose_clients(3, k, 5, 3)
        changes = np.empty((3, 12))
        for row, i in enumerate(clients):
            z = x
            for t in range(3):
                g = gradient(problem, i, z, k, t, 4, 3) * (scale[i] if averaging == "plain" else 1.0)
                z = z - SCHEDULE(k) * (g + rho * (z - x))
            changes[row] = (z - x) * (scale[i] if averaging == "weighted" else 1.0)
        if quantizer is not None:
            changes = quantizer.compress(changes, fpdfp.rng.Draws(3, k, clients), QUANTIZE).values
        x = x + changes.mean(axis=0)
        np.testing.assert_allclose(ours_x, x, atol=1e-12)


def test_fedsgd_is_one_step_along_the_mean_of_quantized_gradients() -> None:
    problem, quantizer = smooth("samples"), fpdfp.QSGD(6)
    ours = iterates(
        problem, fpdfp.FedSGD(SCHEDULE, batch_size=4), 12, clients_per_round=3, seed=3, compressor=quantizer
    )
    x = np.zeros(12)
    for k, (ours_x, _) in enumerate(ours):
        clients = fpdfp.rng.choose_clients(3, k, 5, 3)
        gradients = np.stack([5 * problem.weights[i] * gradient(problem, i, x, k, 0, 4, 3) for i in clients])
        x = x - SCHEDULE(k) * quantizer.compress(gradients, fpdfp.rng.Draws(3, k, clients), QUANTIZE).values.mean(0)
        np.testing.assert_allclose(ours_x, x, atol=1e-12)


@pytest.mark.parametrize("server_prox", [False, True])
def test_fedmid_is_local_proximal_steps(server_prox: bool) -> None:
    problem = lasso()
    method = fpdfp.FedMiD(SCHEDULE, local_steps=3, batch_size=4, server_step=0.8, server_prox=server_prox)
    x = np.zeros(12)
    for k, (ours_x, _) in enumerate(iterates(problem, method, 12, clients_per_round=3, seed=3)):
        gamma, locals_ = SCHEDULE(k), []
        for i in fpdfp.rng.choose_clients(3, k, 5, 3):
            z = x
            for t in range(3):
                z = soft(z - gamma * gradient(problem, i, z, k, t, 4, 3), 0.05 * gamma)
            locals_.append(z)
        x = x + 0.8 * (np.mean(locals_, axis=0) - x)
        if server_prox:
            x = soft(x, 0.05 * 0.8 * gamma * 3)
        np.testing.assert_allclose(ours_x, x, atol=1e-13)


def test_feddualavg_averages_before_the_prox() -> None:
    problem = lasso()
    method = fpdfp.FedDualAvg(SCHEDULE, local_steps=3, batch_size=4, server_step=0.8)
    start = np.linspace(-1, 1, 12)
    z, a = start, 0.0
    for k, (ours_x, _) in enumerate(iterates(problem, method, 12, clients_per_round=3, seed=3, x0=start)):
        gamma, duals = SCHEDULE(k), []
        for i in fpdfp.rng.choose_clients(3, k, 5, 3):
            y = z
            for t in range(3):
                y = y - gamma * gradient(problem, i, soft(y, 0.05 * (a + gamma * t)), k, t, 4, 3)
            duals.append(y)
        z, a = z + 0.8 * (np.mean(duals, axis=0) - z), a + 0.8 * gamma * 3
        np.testing.assert_allclose(ours_x, soft(z, 0.05 * a), atol=1e-13)


def test_fast_feddualavg_minimises_the_sum_of_lower_models() -> None:
    """With sums of gradients and iterates, as the authors write it, and a restart after round 5."""
    problem, gamma, mu = lasso(), 0.3, 0.05 / 2
    method = fpdfp.FastFedDualAvg(gamma, local_steps=3, batch_size=4, restarts=(5,))

    def minimiser(gradients: Any, points: Any, j: int, centre: Any) -> Any:
        """argmin_x ⟨Σg, x⟩ + (μ̃/2) Σ‖x − x_j‖² + ‖x − centre‖²/2γ + j g(x)."""
        curvature = mu * j + 1 / gamma
        return soft((mu * points - gradients + centre / gamma) / curvature, 0.05 * j / curvature)

    centre, x, since = np.zeros(12), np.zeros(12), 0
    gradients, points = np.zeros(12), np.zeros(12)
    for k, (ours_x, _) in enumerate(iterates(problem, method, 12, clients_per_round=3, seed=3)):
        if k == 5:
            centre, since, gradients, points = x, 0, np.zeros(12), np.zeros(12)
        sums = []
        for i in fpdfp.rng.choose_clients(3, k, 5, 3):
            g, p, z = gradients, points, x
            for t in range(3):
                g, p = g + gradient(problem, i, z, k, t, 4, 3), p + z
                z = minimiser(g, p, since * 3 + t + 1, centre)
            sums.append((g, p))
        since += 1
        gradients, points = (np.mean(part, axis=0) for part in zip(*sums, strict=True))
        x = minimiser(gradients, points, since * 3, centre)
        np.testing.assert_allclose(ours_x, x, atol=1e-13)


def test_condat_vu_and_chambolle_pock_are_their_textbook_forms() -> None:
    X, y, _ = helpers.classification(clients=1)
    B = helpers.graph(12).toarray()
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, l2=0.05), penalties.L1(0.02), helpers.graph(12))
    gamma, sigma = 0.2, 0.3
    x, v = np.zeros(12), np.zeros(24)
    for ours_x, ours_v in iterates(problem, fpdfp.CondatVu(gamma, sigma), 30):
        new = x - gamma * (problem.gradient(x) + B.T @ v)
        v = np.clip(v + sigma * B @ (2 * new - x), -0.02, 0.02)
        x = new
        np.testing.assert_allclose(ours_x, x, atol=1e-13)
        np.testing.assert_allclose(ours_v, v, atol=1e-13)
    H, b = X.T @ X / len(y) + 0.05 * np.eye(12), X.T @ y / len(y)
    x = bar = np.zeros(12)
    v = np.zeros(24)
    for ours_x, _ in iterates(problem, fpdfp.ChambollePock(gamma, sigma), 30):
        v = np.clip(v + sigma * B @ bar, -0.02, 0.02)
        new = np.linalg.solve(H + np.eye(12) / gamma, b + (x - gamma * B.T @ v) / gamma)  # prox_{γf}
        x, bar = new, 2 * new - x
        np.testing.assert_allclose(ours_x, x, atol=1e-7)


def same(a: Any, b: Any, atol: float = 1e-14) -> None:
    assert len(a) == len(b)
    for (x, _), (expected, _) in zip(a, b, strict=True):
        np.testing.assert_allclose(x, expected, atol=atol)


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("kind", [fpdfp.FedAvg, fpdfp.FedSGD, fpdfp.FedPAQ])
def test_with_one_full_step_fedavg_is_gradient_descent(kind: Any, weights: str) -> None:
    problem = smooth(weights)
    x = np.zeros(12)
    for ours, _ in iterates(problem, kind(step=0.5), 40):
        x = x - 0.5 * problem.gradient(x)
        np.testing.assert_allclose(ours, x, atol=1e-14)


@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_without_quantizer_fedpaq_is_fedavg(weights: str) -> None:
    problem = smooth(weights)
    arguments: dict[str, Any] = {"step": SCHEDULE, "local_steps": 4, "batch_size": 7}
    run: dict[str, Any] = {"rounds": 40, "clients_per_round": 3, "seed": 8}
    same(iterates(problem, fpdfp.FedPAQ(**arguments), **run), iterates(problem, fpdfp.FedAvg(**arguments), **run))


@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_without_proximal_term_fedprox_is_fedavg(weights: str) -> None:
    problem = smooth(weights)
    arguments: dict[str, Any] = {"step": SCHEDULE, "local_steps": 4, "batch_size": 7}
    run: dict[str, Any] = {"rounds": 40, "clients_per_round": 3, "seed": 8}
    same(iterates(problem, fpdfp.FedProx(0.0, **arguments), **run), iterates(problem, fpdfp.FedAvg(**arguments), **run))


@pytest.mark.parametrize("linop", [None, "graph"])
@pytest.mark.parametrize("quantizer", [None, fpdfp.QSGD(5)], ids=repr)
def test_without_penalty_fpdfp_is_fedpaq_with_one_step(linop: str | None, quantizer: Any) -> None:
    problem = smooth("samples", helpers.graph(12) if linop else None)
    run: dict[str, Any] = {"rounds": 40, "clients_per_round": 3, "seed": 8, "compressor": quantizer}
    paq = fpdfp.FedPAQ(SCHEDULE, batch_size=7, averaging="plain")
    ours, expected = iterates(problem, fpdfp.FPDFP(SCHEDULE, 7), **run), iterates(problem, paq, **run)
    same(ours, expected, 0.0 if linop is None else 1e-14)


@pytest.mark.parametrize("local_steps", [1, 3])
def test_fedmid_is_fpdfp_for_the_identity(local_steps: int) -> None:
    run: dict[str, Any] = {"rounds": 40, "clients_per_round": 3, "seed": 8}
    for problem in (
        lasso("samples"),
        fpdfp.Problem(lasso().losses, penalties.GroupL12(0.05, groups=np.arange(12) % 4)),
    ):
        mid = fpdfp.FedMiD(SCHEDULE, local_steps=local_steps, batch_size=7)
        same(iterates(problem, mid, **run), iterates(problem, fpdfp.FPDFP(SCHEDULE, 7, None, local_steps), **run), 0.0)


def test_spdfp_with_full_batches_is_pdfp() -> None:
    problem = helpers.graph_guided()
    same(iterates(problem, fpdfp.SPDFP(step=0.4), 40), iterates(problem, fpdfp.PDFP(step=0.4), 40), 0.0)
    same(iterates(problem, fpdfp.SPDFP(step=0.4, batch_size=10**6), 9), iterates(problem, fpdfp.PDFP(step=0.4), 9), 0.0)
    automatic = (fpdfp.solve(problem, method, rounds=30) for method in (fpdfp.SPDFP(), fpdfp.PDFP()))
    np.testing.assert_array_equal(*(result.x for result in automatic))


def test_without_curvature_fast_feddualavg_is_feddualavg() -> None:
    run: dict[str, Any] = {"rounds": 40, "clients_per_round": 3, "seed": 8}
    fast = fpdfp.FastFedDualAvg(0.3, local_steps=3, batch_size=7, strong_convexity=0.0)
    same(
        iterates(lasso(), fast, **run),
        iterates(lasso(), fpdfp.FedDualAvg(0.3, local_steps=3, batch_size=7), **run),
        1e-13,
    )


def test_without_penalty_dual_averaging_is_fedavg() -> None:
    run: dict[str, Any] = {"rounds": 40, "clients_per_round": 3, "seed": 8}
    arguments: dict[str, Any] = {"step": SCHEDULE, "local_steps": 4, "batch_size": 7}
    same(iterates(smooth(), fpdfp.FedDualAvg(**arguments), **run), iterates(smooth(), fpdfp.FedAvg(**arguments), **run))


@pytest.mark.parametrize("linop", [None, "graph"])
def test_local_steps_of_one_client_are_steps_of_pdfp(linop: str | None) -> None:
    X, y, _ = helpers.classification(clients=1)
    B = helpers.graph(12) if linop else np.eye(12)
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, l2=0.05), penalties.L1(0.02), B if linop else None)
    central = fpdfp.Problem(problem.losses, penalties.L1(0.02), linops.aslinop(B))
    lam = None if linop else 1.0
    ours = iterates(problem, fpdfp.FPDFP(step=0.4, local_steps=5), 10)
    same(ours, iterates(central, fpdfp.PDFP(step=0.4, lam=lam), 50)[4::5], 1e-13)


CENTRAL = {
    "PDFP": fpdfp.PDFP(),
    "SPDFP": fpdfp.SPDFP(),
    "Condat–Vũ": fpdfp.CondatVu(),
    "Chambolle–Pock": fpdfp.ChambollePock(),
    "FPDFP, 5 local steps": fpdfp.FPDFP(local_steps=5),
    "FedMiD": fpdfp.FedMiD(inner=fpdfp.InnerSolve(1e-9)),
    "FedDualAvg": fpdfp.FedDualAvg(inner=fpdfp.InnerSolve(1e-7, 5000)),
}


@pytest.mark.parametrize("loss", ["logistic", "squares"])
@pytest.mark.parametrize("name", CENTRAL)
def test_all_centralised_methods_reach_the_same_optimum(name: str, loss: str) -> None:
    X, y, _ = helpers.classification()
    kind = fpdfp.losses.Logistic if loss == "logistic" else fpdfp.losses.LeastSquares
    problem = fpdfp.Problem(kind(X, y, l2=0.05), penalties.L1(0.02), helpers.graph(12))
    best = fpdfp.minimize(problem, tol=1e-12).objective
    rounds = 3000 if name != "FedDualAvg" else 600
    result = fpdfp.solve(problem, CENTRAL[name], rounds=rounds, evaluate_every=rounds)
    assert result.objective == pytest.approx(best, rel=1e-8)


@pytest.mark.parametrize("averaging", ["weighted", "plain"])
@pytest.mark.parametrize("kind", [fpdfp.FedAvg, fpdfp.FedPAQ])
@pytest.mark.parametrize("total", [0.1, 20.0])
def test_weights_may_have_any_sum(kind: Any, averaging: str, total: float) -> None:
    """f = Σ w_i f_i as it stands: with a penalty its size matters, and the automatic step must know it."""
    losses = lasso().losses
    shares = total * np.array([0.1, 0.15, 0.2, 0.25, 0.3])
    problem = fpdfp.Problem(losses, penalties.L1(0.05 * total), weights=shares)
    best = fpdfp.minimize(problem)
    method = kind(averaging=averaging, penalty="subgradient", local_steps=3)
    result = fpdfp.solve(problem, method, rounds=3000, evaluate_every=100)
    assert result.status == "finished"
    assert result.objective < 1.01 * best.objective
    np.testing.assert_allclose(result.x, best.x, atol=0.05)


@pytest.mark.parametrize("kind", [fpdfp.FedMiD, fpdfp.FedDualAvg])
@pytest.mark.parametrize("local_steps", [1, 5])
def test_automatic_steps_know_the_server_step(kind: Any, local_steps: int) -> None:
    problem = lasso()
    best = fpdfp.minimize(problem).objective
    result = fpdfp.solve(problem, kind(server_step=8.0, local_steps=local_steps), rounds=400)
    assert result.status == "finished"
    assert result.objective < 1.02 * best
    step = 1.5 / float(problem.lipschitz.mean())
    with pytest.warns(StepTooLargeWarning):
        fpdfp.solve(problem, kind(step, server_step=2.0), rounds=1)


class TestStateless:
    """Clients that keep nothing between rounds."""

    def test_the_default_is_the_method_for_it(self) -> None:
        problem = helpers.graph_guided()
        result = fpdfp.solve(problem, rounds=5, stateless=True)
        assert isinstance(result.method, fpdfp.StatelessPDFP)
        assert result.compression[1] == "Full()"

    def test_what_remembers_is_refused(self) -> None:
        problem = helpers.graph_guided()
        with pytest.raises(ValueError, match=r"stateless must be False for ShiftedPDFP.*StatelessPDFP"):
            fpdfp.solve(problem, fpdfp.ShiftedPDFP(), rounds=5, stateless=True)
        with pytest.raises(ValueError, match="downlink must be None with stateless=True"):
            fpdfp.solve(problem, rounds=5, stateless=True, downlink=fpdfp.QSGD(31))
        assert fpdfp.solve(problem, fpdfp.FPDFP(), rounds=5, stateless=True).status == "finished"

    @pytest.mark.parametrize("preconditioner", [None, "moments", "diagonal"])
    def test_without_noise_it_is_the_proximal_gradient_method(self, preconditioner: Any) -> None:
        problem = helpers.graph_guided()
        method = fpdfp.StatelessPDFP(preconditioner=preconditioner)
        result = fpdfp.solve(problem, method, rounds=3000, tol=1e-6)
        assert result.status == "converged"

    def test_noise_falls_with_the_steps(self) -> None:
        problem = helpers.graph_guided()
        best = fpdfp.minimize(problem, tol=1e-10).objective
        quantizer = fpdfp.QSGD(7, norm="max")
        errors = [
            fpdfp.solve(problem, rounds=rounds, stateless=True, clients_per_round=2, compressor=quantizer).objective
            / best
            - 1
            for rounds in (30, 1000)
        ]
        assert errors[1] < min(0.2 * errors[0], 1e-2)

    def test_hyper_parameters_are_checked_as_those_of_the_shifted_method(self) -> None:
        with pytest.raises(TypeError, match="preconditioner must be one of"):
            fpdfp.StatelessPDFP(preconditioner=3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="dual_steps must be an integer of at least 1"):
            fpdfp.StatelessPDFP(dual_steps=0)
        wrong = fpdfp.precondition.Scaling(np.ones(5))
        with pytest.raises(ValueError, match=r"preconditioner must be for x of shape \(12,\), got one for \(5,\)"):
            fpdfp.solve(helpers.graph_guided(), fpdfp.StatelessPDFP(preconditioner=wrong), rounds=1)
