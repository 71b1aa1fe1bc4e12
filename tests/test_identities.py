"""What the methods must equal in special cases: the paper's remarks, one test each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import linops, penalties, steps
from fpdfp.methods.fpdfp import IdentityAlgorithm
from tests import helpers


def iterates(problem: fpdfp.Problem, method: Any, rounds: int, **kwargs: Any) -> list[tuple[Any, Any]]:
    """Return (x_k, v_k) after every round."""
    seen: list[tuple[Any, Any]] = []
    fpdfp.solve(problem, method, rounds=rounds, callbacks=[lambda run: seen.append((run.x.copy(), run.v))], **kwargs)
    return seen


def textbook_pdfp(problem: fpdfp.Problem, B: Any, gamma: float, lam: float, rounds: int) -> list[Any]:
    """Algorithm 3 with dense matrices, word for word."""
    x, v = np.zeros(B.shape[1]), np.zeros(B.shape[0])
    seen = []
    for _ in range(rounds):
        half = x - gamma * problem.gradient(x)
        v = problem.penalty.conjugate_prox(lam / gamma * B @ half + (np.eye(len(v)) - lam * B @ B.T) @ v, lam / gamma)
        x = half - gamma * B.T @ v
        seen.append(x)
    return seen


def test_pdfp_is_algorithm_three() -> None:
    problem = helpers.graph_guided()
    B = helpers.graph(12).toarray()
    lam = 0.9 / np.linalg.norm(B, 2) ** 2
    ours = iterates(problem, fpdfp.PDFP(step=0.3, lam=lam), 40)
    for (x, _), expected in zip(ours, textbook_pdfp(problem, B, 0.3, lam, 40), strict=True):
        np.testing.assert_allclose(x, expected, atol=1e-13)


def test_fpdfp_is_algorithm_four() -> None:
    """Word for word with dense matrices, for two clients of five, without quantizer."""
    problem = helpers.graph_guided()
    B = helpers.graph(12).toarray()
    lam = problem.model.largest_lambda
    schedule = steps.Decreasing(0.5, 0.1)
    ours = iterates(problem, fpdfp.FPDFP(step=schedule), 30, clients_per_round=2, seed=4)
    x, v = np.zeros(12), np.zeros(24)
    for k, (ours_x, ours_v) in enumerate(ours):
        gamma = schedule(k)
        replies = []
        for i in fpdfp.rng.choose_clients(4, k, 5, 2):
            half = x - gamma * problem.losses.gradients(x, np.array([i]))[0]
            dual = np.clip(lam / gamma * B @ half + (np.eye(24) - lam * B @ B.T) @ v, -0.02, 0.02)
            replies.append((half - gamma * B.T @ dual - x, dual))
        x = x + np.mean([change for change, _ in replies], axis=0)
        v = np.mean([dual for _, dual in replies], axis=0)
        np.testing.assert_allclose(ours_x, x, atol=1e-13)
        np.testing.assert_allclose(ours_v, v, atol=1e-13)


def equal_clients(**changes: Any) -> fpdfp.Problem:
    X, y, _ = helpers.classification(clients=1)
    owner = np.repeat(np.arange(4), len(y))
    losses = fpdfp.losses.Logistic(np.tile(X, (4, 1)), np.tile(y, 4), clients=owner, l2=0.05)
    return fpdfp.Problem(losses, penalties.L1(0.02), helpers.graph(12), **changes)


def test_everyone_equal_and_unquantized_is_pdfp() -> None:
    problem = equal_clients()
    federated = iterates(problem, fpdfp.FPDFP(step=0.4), 50)
    central = iterates(problem, fpdfp.PDFP(step=0.4), 50)
    for (x, v), (expected_x, expected_v) in zip(federated, central, strict=True):
        np.testing.assert_allclose(x, expected_x, atol=1e-14)
        np.testing.assert_allclose(v, expected_v, atol=1e-14)


@pytest.mark.parametrize("penalty", [penalties.L1(0.02), penalties.GroupL12(0.05, groups=np.arange(12) % 4)])
def test_algorithm_five_is_algorithm_four_for_the_identity(penalty: penalties.Penalty) -> None:
    """With B = I and λ = 1 the x-iterates agree, and no dual is sent."""
    X, y, owner = helpers.classification()
    losses = fpdfp.losses.Logistic(X, y, clients=owner, l2=0.05)
    short = fpdfp.Problem(losses, penalty)
    long = fpdfp.Problem(losses, penalty, linops.Matrix(np.eye(12)))
    arguments: dict[str, Any] = {"rounds": 60, "clients_per_round": 3, "seed": 1}
    method = fpdfp.FPDFP(step=steps.Decreasing(0.5, 0.05), batch_size=7)
    five = iterates(short, method, **arguments)
    four = iterates(long, fpdfp.FPDFP(step=method.step, batch_size=7, lam=1.0), **arguments)
    for (x, v), (expected, _) in zip(five, four, strict=True):
        np.testing.assert_allclose(x, expected, atol=1e-13)
        assert v is None
    one, two = (fpdfp.solve(p, method, **arguments) for p in (short, long))
    assert one.bits_up == 60 * 3 * (12 * 64 + 80)
    assert two.bits_up == 60 * 3 * (24 * 64 + 2 * 80)


def test_algorithm_five_is_chosen_by_itself() -> None:
    X, y, owner = helpers.classification()
    losses = fpdfp.losses.Logistic(X, y, clients=owner, l2=0.05)
    for linop in (None, linops.Identity(12)):
        problem = fpdfp.Problem(losses, penalties.L1(0.02), linop)

        def check(run: fpdfp.Run) -> None:
            assert isinstance(run.algorithm, IdentityAlgorithm)
            assert isinstance(run.method, fpdfp.FPDFP)

        assert fpdfp.solve(problem, fpdfp.FPDFP(), rounds=1, callbacks=[check]).rounds == 1


def test_algorithm_five_is_proximal_gradient_descent_for_one_client() -> None:
    X, y, _ = helpers.classification(clients=1)
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, l2=0.05), penalties.L1(0.05))
    x = np.zeros(12)
    for ours, _ in iterates(problem, fpdfp.FPDFP(step=0.5), 20):
        x = problem.penalty.prox(x - 0.5 * problem.gradient(x), 0.5)
        np.testing.assert_allclose(ours, x, atol=1e-15)


@pytest.mark.parametrize("linop", [None, "graph"])
@pytest.mark.parametrize("levels", [None, 5])
def test_without_penalty_it_is_fedpaq_and_fedavg_with_one_local_step(linop: str | None, levels: int | None) -> None:
    """g = 0: x_k+1 = x_k + (1/n) Σ Q(−γ ∇̃f_i(x_k)); without quantizer FedAvg with τ = 1."""
    X, y, owner = helpers.classification()
    losses = fpdfp.losses.Logistic(X, y, clients=owner, l2=0.05)
    problem = fpdfp.Problem(losses, penalties.Zero(), helpers.graph(12) if linop else None)
    quantizer = None if levels is None else fpdfp.QSGD(levels)
    ours = iterates(problem, fpdfp.FPDFP(step=0.5, batch_size=5), 30, clients_per_round=3, compressor=quantizer, seed=2)
    x = np.zeros(12)
    for k, (ours_x, _) in enumerate(ours):
        clients = fpdfp.rng.choose_clients(2, k, 5, 3)
        draws = fpdfp.rng.Draws(2, k, clients)
        changes = -0.5 * losses.gradients(x, clients, 5, draws)
        # what FPDFP sends is x_i − x_k with x_i rounded: quantize exactly that
        changes = (x + changes) - x
        if quantizer is not None:
            changes = quantizer.compress(changes, draws, fpdfp.rng.Purpose.QUANTIZE).values
        x = x + changes.mean(axis=0)
        np.testing.assert_allclose(ours_x, x, atol=1e-13)


def test_a_fixed_point_of_pdfp_is_optimal() -> None:
    """Run to rest; then Lemma 1 holds, and an independent solver agrees on F*."""
    problem = helpers.graph_guided()
    result = fpdfp.solve(problem, fpdfp.PDFP(), rounds=3000, evaluate_every=3000)
    np.testing.assert_allclose(problem.gradient(result.x) + problem.linop.adjoint(result.v), 0, atol=1e-10)
    image = problem.linop.apply(result.x)
    fenchel = problem.penalty.value(image) + problem.penalty.conjugate(result.v) - image @ result.v
    assert fenchel == pytest.approx(0.0, abs=1e-10)
    assert result.objective == pytest.approx(fpdfp.minimize(problem, tol=1e-12).objective, rel=1e-11)


def test_pdfp_does_not_depend_on_how_the_data_is_split() -> None:
    X, y, owner = helpers.classification()
    penalty = penalties.L1(0.02)
    many = fpdfp.Problem(
        fpdfp.losses.Logistic(X, y, clients=owner, l2=0.05), penalty, helpers.graph(12), weights="samples"
    )
    one = fpdfp.Problem(fpdfp.losses.Logistic(X, y, l2=0.05), penalty, helpers.graph(12))
    a = iterates(many, fpdfp.PDFP(step=0.4), 50)
    b = iterates(one, fpdfp.PDFP(step=0.4), 50)
    np.testing.assert_allclose(a[-1][0], b[-1][0], atol=1e-13)
