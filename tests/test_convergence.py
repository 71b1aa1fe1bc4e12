"""“converged” means converged: every such claim is compared with an independent solution, over many scales."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.errors import AccuracyWarning, DivergenceWarning
from tests import helpers

KINDS = ("least squares", "logistic", "softmax")
METHODS: tuple[Any, ...] = (None, fpdfp.ShiftedPDFP(), fpdfp.PDFP(), fpdfp.FPDFP(), fpdfp.methods.CondatVu())


def draw(seed: int) -> tuple[fpdfp.Problem, dict[str, Any]]:
    """A problem, and how to run it: scales of features, labels, start, ridge and penalty over many powers of ten."""
    rng = np.random.default_rng(seed)
    kind = KINDS[rng.choice(3, p=[0.4, 0.4, 0.2])]
    rows, d, clients = int(rng.integers(15, 60)), int(rng.integers(2, 25)), int(rng.integers(2, 6))
    X = rng.standard_normal((rows, d)) + rng.choice([0.0, 10.0, 1000.0], p=[0.6, 0.3, 0.1])
    X *= 10.0 ** rng.uniform(-3, 3, d) if rng.random() < 0.3 else 10.0 ** rng.uniform(-3, 3)
    weight = 10.0 ** rng.uniform(-4, 0) * float(np.abs(X).mean())
    weights = np.full(d, weight)
    if rng.random() < 0.5:
        X, weights = np.column_stack([X, np.ones(rows)]), np.append(weights, 0.0)  # an intercept
    ridge = float(rng.choice([0.0, 1e-9, 1e-6, 1e-3, 1.0]))
    owner = np.arange(rows) % clients
    losses: Any
    if kind == "least squares":
        scale = 10.0 ** rng.uniform(-6, 8)
        y = scale * (rng.standard_normal() * 10 + rng.standard_normal(rows))
        losses, weights = fpdfp.losses.LeastSquares(X, y, clients=owner, l2=ridge), weights * scale
    elif kind == "logistic":
        losses = fpdfp.losses.Logistic(X, np.where(np.arange(rows) % 3 == 0, 1.0, -1.0), clients=owner, l2=ridge)
    else:
        losses = fpdfp.losses.Softmax(X, np.arange(rows) % 3, clients=owner, l2=ridge)
        weights = np.tile(weights, (3, 1))
    linop: Any = None
    penalty: Any = fpdfp.penalties.L1(weights)
    if kind != "softmax" and rng.random() < 0.4:
        linop, penalty = fpdfp.linops.Difference(X.shape[1]), fpdfp.penalties.L1(float(weights[0]))
    run: dict[str, Any] = {"rounds": 300, "tol": float(10.0 ** rng.uniform(-8, -2)), "seed": seed}
    run["method"] = METHODS[rng.integers(len(METHODS))]
    if rng.random() < 0.3:
        run["clients_per_round"] = 1
    if rng.random() < 0.2:
        run["x0"] = np.full(losses.shape, 10.0 ** rng.uniform(-2, 6))
    return fpdfp.Problem(losses, penalty, linop), run


@pytest.mark.slow
@pytest.mark.parametrize("block", [helpers.slow(block, block > 0) for block in range(7)])
def test_every_claim_of_convergence_is_true(block: int) -> None:
    claims = 0
    for seed in range(25 * block, 25 * (block + 1)):
        problem, run = draw(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AccuracyWarning)
            warnings.simplefilter("ignore", DivergenceWarning)
            if run["method"] in METHODS[2:] and problem.n_clients != run.get("clients_per_round", problem.n_clients):
                run.pop("clients_per_round")
            result = fpdfp.solve(problem, **run)
            if result.status != "converged":
                continue
            best = fpdfp.minimize(problem, tol=1e-10)
        claims += 1
        allowed = run["tol"] * max(abs(result.objective), problem.least_scale)
        assert result.objective - best.objective <= allowed, (seed, result.message)
        assert result.certificate.relative_gap <= run["tol"], (seed, result.message)
    assert claims >= 5


@pytest.mark.parametrize("method", [None, fpdfp.PDFP(), fpdfp.methods.CondatVu()], ids=repr)
def test_labels_near_a_million(method: Any) -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_normal((200, 10)), np.ones(200)])
    y = 1e6 + X @ rng.standard_normal(11) + rng.standard_normal(200)
    weights = np.append(np.full(10, 0.1), 0.0)
    losses = fpdfp.losses.LeastSquares(X, y, clients=np.arange(200) % 10)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(weights))
    result = fpdfp.solve(problem, method, rounds=1000, tol=1e-6)
    assert result.status == "converged"
    best = np.linalg.lstsq(X, y, rcond=None)[0]
    assert result.objective <= problem.objective(best)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AccuracyWarning)
        assert result.objective / fpdfp.minimize(problem).objective - 1 <= 1e-6


def test_a_far_start_is_no_excuse() -> None:
    problem = helpers.zoo()["lasso"]
    x0 = np.full(problem.model.shape, 1e6)
    result = fpdfp.solve(problem, fpdfp.PDFP(), rounds=3000, tol=1e-6, x0=x0)
    assert result.status == "converged"
    assert result.objective / fpdfp.minimize(problem).objective - 1 <= 1e-6


def test_rounding_is_told_and_the_gap_that_was_reached() -> None:
    X, y, owner = helpers.classification()
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner, l2=0.01), fpdfp.penalties.L1(0.01))
    result = fpdfp.solve(problem, rounds=3000, tol=1e-20)
    assert result.status == "rounding"
    assert "float64" in result.message
    assert result.certificate.relative_gap is not None
    assert 1e-20 < result.certificate.relative_gap < 1e-12
    assert result.rounds < 1000


def test_single_precision_is_certified_in_double() -> None:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((400, 30)).astype(np.float32)
    y = np.where(rng.random(400) < 1 / (1 + np.exp(-X[:, :3].sum(axis=1))), 1.0, -1.0)
    rounds = {}
    for dtype in (np.float32, np.float64):
        losses = fpdfp.losses.Logistic(X.astype(dtype), y, clients=np.arange(400) % 8, l2=1e-3)
        result = fpdfp.solve(fpdfp.Problem(losses, fpdfp.penalties.L1(1e-3)), rounds=500, tol=1e-6)
        assert result.status == "converged"
        rounds[dtype] = result.rounds
    assert rounds[np.float32] <= 2 * rounds[np.float64] + 50


def test_columns_of_very_different_sizes_are_certified() -> None:
    X, y, owner = helpers.classification()
    scales = np.where(np.arange(X.shape[1]) % 2, 1e6, 1e-6)
    losses = fpdfp.losses.Logistic(X * scales, y, clients=owner, l2=1e-3)
    result = fpdfp.solve(fpdfp.Problem(losses, fpdfp.penalties.L1(1e-3)), rounds=1000, tol=1e-6)
    assert result.status == "converged"


def test_without_a_bound_a_run_is_stationary_and_never_converged() -> None:
    losses = fpdfp.losses.Custom(
        value=lambda i, x: float(np.logaddexp(x - i, i - x).sum()),
        gradient=lambda i, x: np.tanh(x - i),
        n_clients=2, shape=(3,), lipschitz=1.0,
    )  # fmt: skip
    result = fpdfp.solve(fpdfp.Problem(losses, fpdfp.penalties.L1(0.1)), fpdfp.PDFP(), rounds=2000, tol=1e-6)
    assert result.status == "stationary"
    assert "converged" not in result.message
    assert result.certificate.gap is None


def test_when_to_ask_does_not_depend_on_the_rounds_allowed() -> None:
    problem = helpers.graph_guided()
    short, long = (fpdfp.solve(problem, rounds=rounds, tol=1e-5) for rounds in (500, 20000))
    assert short.rounds == long.rounds


def test_resuming_a_run_that_has_converged_changes_nothing(tmp_path: Path) -> None:
    problem, path = helpers.graph_guided(), tmp_path / "run.checkpoint"
    first = fpdfp.solve(problem, rounds=500, tol=1e-5, checkpoint=path)
    for _ in range(2):
        again = fpdfp.solve(problem, rounds=500, tol=1e-5, checkpoint=path, resume=True)
        assert (again.status, again.rounds, again.bits_up) == ("converged", first.rounds, first.bits_up)
        np.testing.assert_array_equal(again.x, first.x)
        assert again.certificate.relative_gap is not None
        assert again.certificate.relative_gap <= 1e-5
    further = fpdfp.solve(problem, rounds=500, tol=1e-9, checkpoint=path, resume=True)
    assert further.rounds > first.rounds
    assert further.status == "converged"
