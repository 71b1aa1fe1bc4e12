"""Paths and many problems at once, against dense solutions: structured penalties, hard data, estimated gaps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.datasets import load_breast_cancer

import fpdfp
from fpdfp.selection.paths import multiply

ROWS, FEATURES, SITES = 160, 8, 4


def draw(seed: int = 0, rows: int = ROWS, features: int = FEATURES) -> tuple[Any, Any]:
    """Return correlated features and labels."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, features)) + 0.7 * rng.standard_normal((rows, 1))
    x = np.repeat(rng.standard_normal(-(-features // 2)), 2)[:features]
    return X, (X @ x / 2 + rng.standard_normal(rows) > 0).astype(float)


def losses_of(kind: str, X: Any, y: Any, **options: Any) -> fpdfp.losses.Losses:
    """Return losses among sites."""
    owner = np.arange(len(y)) % SITES
    if kind == "gaussian":
        return fpdfp.losses.LeastSquares(X, y, clients=owner, **options)
    if kind == "binomial":
        return fpdfp.losses.Logistic(X, y, clients=owner, **options)
    return fpdfp.losses.GLM(X, y, owner, kind, **options)


GRAPH = scipy.sparse.csr_array(
    ([1.0, -1.0] * 5, ([0, 0, 1, 1, 2, 2, 3, 3, 4, 4], [0, 1, 1, 2, 2, 0, 3, 4, 5, 6])), shape=(5, FEATURES)
)
CHAIN = scipy.sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(FEATURES - 1, FEATURES)).tocsr()
STRUCTURES: dict[str, tuple[Any, Any]] = {
    "group": (fpdfp.penalties.GroupL12(1.0, groups=np.arange(FEATURES) // 2), None),
    "sparse group": (fpdfp.penalties.SparseGroup(0.5, 0.7, groups=np.arange(FEATURES) // 2), None),
    "fused": (fpdfp.penalties.L1(1.0), fpdfp.linops.Matrix(CHAIN)),
    "graph": (fpdfp.penalties.L1(1.0), fpdfp.linops.Matrix(GRAPH)),
}


def solve_dense(kind: str, X: Any, y: Any, structure: str, alpha: float) -> Any:
    """Return the solution by cvxpy with Clarabel, for logistic losses (whose cones it solves less exactly) pooled."""
    penalty, linop = STRUCTURES[structure]
    if kind == "binomial":
        losses = fpdfp.losses.Logistic(X, y)
        return fpdfp.minimize(fpdfp.Problem(losses, multiply(penalty, alpha), linop), tol=1e-11).x
    cvxpy = pytest.importorskip("cvxpy")
    x = cvxpy.Variable(X.shape[1])
    if linop is not None:
        g = cvxpy.norm1(np.asarray(linop.apply(np.eye(X.shape[1]))).T @ x)
    else:
        pairs = sum(cvxpy.norm2(x[j : j + 2]) for j in range(0, X.shape[1], 2))
        g = pairs if structure == "group" else 0.5 * cvxpy.norm1(x) + 0.7 * pairs
    accuracy = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)
    loss = 0.5 * cvxpy.sum_squares(X @ x - y) / len(y)
    cvxpy.Problem(cvxpy.Minimize(loss + alpha * g)).solve(cvxpy.CLARABEL, **accuracy)
    return x.value


@pytest.mark.parametrize("kind", ["gaussian", pytest.param("binomial", marks=pytest.mark.slow)])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_structured_path(structure: str, kind: str) -> None:
    X, y = draw(1)
    penalty, linop = STRUCTURES[structure]
    problem = fpdfp.Problem(losses_of(kind, X, y), penalty, linop, weights="samples")
    path = fpdfp.path(problem, alphas=20, tol=1e-9)
    assert path.status == ("converged",) * 20
    for alpha, x in zip(path.alphas, path.coef, strict=True):
        known = solve_dense(kind, X, y, structure, float(alpha))
        one = fpdfp.Problem(problem.losses, multiply(penalty, float(alpha)), linop, weights="samples")
        assert one.objective(x) <= one.objective(known) * (1 + 3e-9)
        np.testing.assert_allclose(x, known, atol=3e-4)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_largest_weight(structure: str) -> None:
    """Just above the largest weight the dense solution is trivial, and just below it is not."""
    X, y = draw(2)
    penalty, linop = STRUCTURES[structure]
    problem = fpdfp.Problem(losses_of("binomial", X, y), penalty, linop, weights="samples")
    (alpha,) = fpdfp.path(problem, alphas=1).alphas

    def size(factor: float) -> float:
        x = solve_dense("binomial", X, y, structure, factor * alpha)
        return float(np.abs(x if linop is None else linop.apply(x)).max())

    assert size(1.01) < 1e-6
    assert size(0.99) > 1e-5


def hard_cases() -> dict[str, tuple[str, Any, Any, dict[str, Any]]]:
    """Return data that are hard in one way each: family, X, y, options of the losses."""
    X, y = draw(3)
    rng = np.random.default_rng(4)
    rare = X.copy()
    rare[:, 0] = np.arange(len(y)) == 7
    twice = np.column_stack([X, X[:, 0], np.ones(len(y)), np.zeros(len(y))])
    few, labels = draw(5, 24, 40)
    apart = X.copy()
    apart[:, 1] = 4 * y + rng.uniform(0, 3.9, len(y))
    scales = X * 10.0 ** rng.uniform(-3, 3, X.shape[1])
    counts = rng.poisson(np.exp(0.3 * X[:, 0] + 0.2)).astype(float)
    costs = rng.gamma(2.0, np.exp(0.2 * X[:, 1]) / 2)
    return {
        "gaussian": ("gaussian", X, y, {}),
        "correlated": ("binomial", X + 20 * rng.standard_normal((len(y), 1)), y, {}),
        "rare": ("binomial", rare, y, {}),
        "duplicate, constant": ("binomial", twice, y, {}),
        "few rows": ("binomial", few, labels, {}),
        "separated": ("binomial", apart, y, {}),
        "scales": ("binomial", scales, y, {}),
        "poisson": ("poisson", X, counts, {}),
        "offset, weights": ("poisson", X, counts, {"offset": 0.3 * X[:, 2], "weights": rng.uniform(0.2, 3.0, len(y))}),
        "gamma": ("gamma", X, costs, {"link": "log"}),
    }


@pytest.mark.parametrize("name", hard_cases())
def test_estimated_gaps(name: str) -> None:
    """Gaps are estimates: true ones are at most 2 times as large, and at least a quarter, above what is rounding."""
    kind, X, y, options = hard_cases()[name]
    losses = losses_of(kind, X, y, **options)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(1.0), weights="samples")
    for tol in (1e-3, 1e-6):
        path = fpdfp.path(problem, alphas=8, ratio=1e-2, tol=tol)
        assert path.status == ("converged",) * 8
        for alpha, x, objective, gap in zip(path.alphas, path.coef, path.objective, path.gap, strict=True):
            one = fpdfp.Problem(losses, fpdfp.penalties.L1(float(alpha)), weights="samples")
            least = one.objective(fpdfp.minimize(one, tol=1e-12).x)
            true = (one.objective(x) - least) / abs(objective)
            assert objective == pytest.approx(one.objective(x), rel=1e-12)
            assert gap <= tol
            if max(true, gap) > 1e-9:
                assert gap / 4 <= true <= 2 * gap, (alpha, gap, true)


@pytest.mark.parametrize("standardize", [True, False])
def test_nearly_separated(standardize: bool) -> None:
    """All problems converge on the raw and on the standardised breast cancer data."""
    X, y = load_breast_cancer(return_X_y=True)
    site = (X[:, 0] > 12).astype(int) + (X[:, 0] > 15)
    X = (X - X.mean(axis=0)) / X.std(axis=0) if standardize else X / np.abs(X).max(axis=0)
    losses = fpdfp.losses.Logistic(X, y, clients=site)
    weights = np.abs(X.T @ (y - 0.5)).max() / len(y) * np.logspace(0, -3, 20)
    problems = [fpdfp.Problem(losses, fpdfp.penalties.L1(float(one)), weights="samples") for one in weights]
    held = [fold for fold in (None, *range(5)) for _ in problems]
    found = fpdfp.solve_many(problems * 6, folds=5, held_out=held, tol=1e-4)
    assert found.converged
    assert found.rounds <= 80


def test_nearly_separated_with_a_small_weight() -> None:
    """From a start far away, long steps are shortened until they are good."""
    X, y = load_breast_cancer(return_X_y=True)
    X = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(len(y))])
    losses = fpdfp.losses.Logistic(X, y, clients=np.arange(len(y)) % 20)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(np.append(np.full(30, 2e-4), 0.0)))
    found = fpdfp.solve_many([problem], tol=1e-6)
    assert found.converged
    assert found.objective[0] <= (1 + 3e-6) * fpdfp.minimize(problem, tol=1e-10).objective
    short = fpdfp.solve_many([problem], tol=1e-6, rounds=4)
    assert np.isfinite(short.objective[0])
