"""NewtonPDFP: it is Newton's method where nothing is compressed, and learns Hessians where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import NewtonPDFP, compress, penalties
from fpdfp.methods.newton import raise_eigenvalues
from fpdfp.precondition.base import full, lower
from tests import helpers
from tests.loopback import Loopback


def test_with_everyone_and_exact_messages_it_is_newtons_method() -> None:
    X, y, owner = helpers.classification()
    losses = fpdfp.losses.Logistic(X, y, clients=owner, l2=0.05)
    problem = fpdfp.Problem(losses, penalties.Zero(), weights="samples")
    seen: list[Any] = []
    fpdfp.solve(problem, NewtonPDFP(), rounds=6, callbacks=[lambda run: seen.append(run.x.copy())])
    x = np.zeros(12)
    for ours in seen:
        hessian = problem.losses.hessian(x, problem.weights)
        assert hessian is not None
        x = x - np.linalg.solve(hessian, problem.gradient(x))
        np.testing.assert_allclose(ours, x, atol=1e-8)
    assert np.linalg.norm(problem.gradient(x)) < 1e-12


def test_it_is_the_rule_of_its_docstring() -> None:
    """In x, with dense matrices: two clients of five, half of each difference; the server's minimum by Clarabel."""
    import cvxpy

    problem = helpers.graph_guided()
    points: list[Any] = []
    fpdfp.solve(
        problem, NewtonPDFP(hessian_step=0.5), rounds=10, clients_per_round=2, seed=3,
        callbacks=[lambda run: points.append(run.x.copy())],
    )  # fmt: skip
    H: Any = problem.losses.curvatures(np.arange(5))
    q = problem.losses.gradients(np.zeros(12), np.arange(5))
    B, x = helpers.graph(12), np.zeros(12)
    for k, ours in enumerate(points):
        for i in fpdfp.rng.choose_clients(3, k, 5, 2):
            hessians: Any = problem.losses.hessians(x, np.array([i]))
            D = hessians[0] - H[i]
            q[i] = problem.losses.gradients(x, np.array([i]))[0] - H[i] @ x - 0.5 * D @ x
            H[i] = H[i] + 0.5 * D
        u = cvxpy.Variable(12)
        model = 0.5 * cvxpy.quad_form(u, cvxpy.psd_wrap(H.mean(axis=0))) + q.mean(axis=0) @ u
        cvxpy.Problem(cvxpy.Minimize(model + 0.02 * cvxpy.norm1(B @ u))).solve(solver="CLARABEL")
        assert u.value is not None
        np.testing.assert_allclose(ours, u.value, atol=0.03 * float(np.linalg.norm(u.value - x)) + 1e-6)
        x = ours


COMPRESSORS = [compress.TopK(0.05), fpdfp.QSGD(1, norm="max"), compress.RandK(0.2), compress.Full()]


@pytest.mark.parametrize("compressor", COMPRESSORS, ids=repr)
@pytest.mark.parametrize("n", [2, 5])
def test_it_converges_whatever_is_left_of_the_hessians(compressor: Any, n: int) -> None:
    problem = helpers.graph_guided(l2=0.01)
    best = fpdfp.minimize(problem, tol=1e-12).objective
    states: list[Any] = []

    def look(run: fpdfp.Run) -> bool:
        states.append((run.state, run.memory))
        return run.problem.objective(run.x) <= best * (1 + 1e-9)

    arguments: dict[str, Any] = {"clients_per_round": n, "compressor": {"hessian": compressor}}
    result = fpdfp.solve(problem, NewtonPDFP(), rounds=600, callbacks=[look], **arguments)
    assert abs(result.objective / best - 1) < 1e-9
    state, memory = states[-1]
    if memory.known.all():
        np.testing.assert_allclose(state.hessian, (memory.first_hessian + memory.hessian).mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(state.linear, (memory.first_linear + memory.linear).mean(axis=0), atol=1e-6)


def test_compressed_linear_terms_have_no_floor() -> None:
    problem = helpers.graph_guided(l2=0.01)
    best = fpdfp.minimize(problem, tol=1e-12).objective
    result = fpdfp.solve(problem, NewtonPDFP(), rounds=150, compressor=fpdfp.QSGD(15, norm="max"))
    assert abs(result.objective / best - 1) < 1e-10


def test_separable_data_is_no_trouble() -> None:
    """Weights grow large, and the Hessian at the solution is far below the bound it began with."""
    X = np.linspace(-1, 1, 40)[:, None] * np.array([[1.0, 0.5]])
    losses = fpdfp.losses.Logistic(X, np.sign(X[:, 0]), clients=np.arange(40) % 4, l2=1e-4)
    problem = fpdfp.Problem(losses, penalties.L1(1e-4))
    best = fpdfp.minimize(problem, tol=1e-9).objective
    assert fpdfp.solve(problem, NewtonPDFP(), rounds=200).objective <= best * (1 + 1e-6)


def test_matrices_and_triangles() -> None:
    matrix = np.random.default_rng(0).standard_normal((5, 5))
    matrix = matrix + matrix.T
    np.testing.assert_array_equal(full(lower(matrix)), matrix)
    raised = matrix + raise_eigenvalues(matrix, 0.1)
    values = np.linalg.eigvalsh(matrix)
    np.testing.assert_allclose(np.linalg.eigvalsh(raised), np.sort(np.maximum(values, 0.1)), atol=1e-12)


def test_what_it_needs_is_named() -> None:
    for name in ("isotropic TV", "softmax"):
        with pytest.raises(ValueError, match=r"losses must have known Hessians for NewtonPDFP.* with x of shape"):
            fpdfp.solve(helpers.zoo()[name], NewtonPDFP(), rounds=1)
    with pytest.raises(ValueError, match="hessian_step must be at most 1"):
        NewtonPDFP(hessian_step=1.5)
    with pytest.raises(ValueError, match="dual_steps must be an integer of at least 1"):
        NewtonPDFP(dual_steps=0)


def test_the_bits_sent_once_are_those_of_the_first_model() -> None:
    result = fpdfp.solve(helpers.graph_guided(), NewtonPDFP(), rounds=1)
    assert result.bits_once_up == 5 * (32 * 78 + 64 * 12 + 2 * 80)
    assert result.bits_once_down == 5 * (32 * 78 + 80)


@pytest.mark.parametrize("compressor", [None, {"hessian": compress.TopK(5)}], ids=["exact", "top"])
def test_sites_that_lose_everything_are_healed(compressor: Any) -> None:
    """Sites restart with nothing but their data, and requests come twice: the bits stay the same."""
    problem = helpers.graph_guided(clients=4, l2=0.01)
    options: dict[str, Any] = {"rounds": 12, "compressor": compressor, "clients_per_round": 3}
    here = fpdfp.solve(problem, NewtonPDFP(), **options)
    crew = Loopback(problem, sites=4, min_clients=3)
    crew.twice = True
    there = fpdfp.Problem(crew.losses(), problem.penalty, problem.linop)

    def restart(run: fpdfp.Run) -> None:
        if run.round in (3, 4, 8):
            crew.restart(run.round % 4)

    away = fpdfp.solve(there, NewtonPDFP(), engine=crew, callbacks=[restart], **options)
    np.testing.assert_array_equal(here.x, away.x)
    assert crew.totals.healed > 0


def test_a_run_at_sites_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    problem = helpers.graph_guided(clients=4, l2=0.01)
    whole = fpdfp.solve(problem, NewtonPDFP(), rounds=8, clients_per_round=2)
    for rounds in (4, 8):
        crew = Loopback(problem, sites=2)  # new processes
        there = fpdfp.Problem(crew.losses(), problem.penalty, problem.linop)
        result = fpdfp.solve(
            there, NewtonPDFP(), rounds=rounds, clients_per_round=2, engine=crew,
            checkpoint=tmp_path / "run.npz", resume=True,
        )  # fmt: skip
    np.testing.assert_array_equal(whole.x, result.x)
