"""Working sets and proximal Newton steps against scikit-learn, optimality conditions and another solver."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from sklearn.linear_model import ElasticNet

import fpdfp
from fpdfp.pooled import composite, fit, lagrangian, working_set

Drawn = tuple[Any, Any, Any, Any]


def draw(seed: int, rows: int, features: int, kind: str) -> Drawn:
    """Draw awkward rows on four clients of unequal size; return X, y, clients and weights of the l1 norm."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, features))
    X[:, 2] = 0.0
    X[:, 4] = X[:, 3]
    if seed % 2:
        X = X @ np.tril(np.full((features, features), features**-0.5))
    X *= 10.0 ** (rng.uniform(-2, 2, features) if seed % 3 == 0 else 0.0) * 10.0 ** (6 * rng.integers(-1, 2))
    X[:, -1] = 1.0  # an intercept
    forms = X[:, :3] @ (1 / np.maximum(np.abs(X[:, :3]).mean(axis=0), 1e-9))
    y = np.where(rng.random(rows) < 1 / (1 + np.exp(-forms)), 1.0, -1.0)
    y = y if kind == "logistic" else forms + rng.standard_normal(rows)
    clients = np.minimum(rng.integers(0, 8, rows), 3)
    clients[:4] = range(4)
    weights = 0.05 * np.abs(X[:, :-1].T @ y).max() / rows * 10.0 ** rng.uniform(-0.5, 0.5, features)
    weights[-1] = 0.0
    return X, y, clients, weights


def losses_of(drawn: Drawn, kind: str, **others: Any) -> Any:
    X, y, clients, _ = drawn
    return (fpdfp.losses.Logistic if kind == "logistic" else fpdfp.losses.LeastSquares)(X, y, clients=clients, **others)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", ["logistic", "squares"])
@pytest.mark.parametrize(("rows", "features"), [(120, 30), (40, 90), (60, 250)])
def test_optimality_conditions_hold(rows: int, features: int, kind: str, seed: int) -> None:
    drawn = draw(seed, rows, features, kind)
    X, y, clients, weights = drawn
    problem = fpdfp.Problem(losses_of(drawn, kind), fpdfp.penalties.L1(weights))
    best = fpdfp.minimize(problem, tol=1e-9)
    assert best.converged
    # In plain NumPy: f is the mean over clients of the means of their losses.
    shares = 1.0 / (4 * np.bincount(clients)[clients])
    z = X @ best.x
    slopes = -y / (1 + np.exp(y * z)) if kind == "logistic" else z - y
    values = np.logaddexp(0, -y * z) if kind == "logistic" else (z - y) ** 2 / 2
    objective = shares @ values + weights @ np.abs(best.x)
    assert best.objective == pytest.approx(objective, rel=1e-11)
    gradient = X.T @ (shares * slopes)
    # θ scaled into the dual feasible set, and the gap of Fenchel's inequality
    sizes = np.abs(X).T @ (shares * np.abs(slopes)) + 1e-300
    assert np.abs(gradient[-1]) <= 1e-7 * sizes[-1]
    seen = weights > 0
    assert (np.abs(gradient[seen]) <= weights[seen] * (1 + 1e-7)).all()
    assert float(best.x @ gradient + weights @ np.abs(best.x)) <= 1e-8 * objective


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("l1_ratio", [0.5, 1.0])
def test_agrees_with_scikit_learn(scale: float, l1_ratio: float, sparse: bool) -> None:
    rng = np.random.default_rng(1)
    X = scale * rng.standard_normal((150, 400)) * (rng.random((150, 400)) < 0.2)
    y = X[:, :5].sum(axis=1) / scale + rng.standard_normal(150)
    weight = 0.05 * float(np.abs(X.T @ y).max()) / 150
    l1, l2 = l1_ratio * weight, (1 - l1_ratio) * weight
    rows = scipy.sparse.csr_array(X) if sparse else X
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(rows, y, l2=l2), fpdfp.penalties.L1(l1))
    best = fpdfp.minimize(problem, tol=1e-10)
    assert best.converged
    peer = ElasticNet(alpha=weight, l1_ratio=l1_ratio, fit_intercept=False, tol=1e-13, max_iter=10**6).fit(X, y)
    assert best.objective == pytest.approx(problem.objective(peer.coef_), rel=1e-9)


def lagrangian_objective(problem: fpdfp.Problem) -> float:
    return lagrangian.AugmentedLagrangian(problem, 1e-11).solve(np.zeros(problem.model.shape)).certificate.objective


@pytest.mark.parametrize("kind", ["logistic", "squares"])
@pytest.mark.parametrize("l2", [0.0, 0.01])
def test_groups_agree_with_the_augmented_lagrangian(kind: str, l2: float) -> None:
    rng = np.random.default_rng(2)
    X = rng.standard_normal((80, 300))
    y = np.sign(X[:, :6].sum(axis=1) + rng.standard_normal(80))
    groups = rng.permutation(np.arange(300) // 3)
    losses = losses_of((X, y, np.arange(80) % 3, None), kind, l2=l2)
    problem = fpdfp.Problem(losses, fpdfp.penalties.GroupL12(rng.uniform(0.02, 0.05, 100), groups=groups))
    best = fpdfp.minimize(problem, tol=1e-10)
    assert best.converged
    assert best.objective == pytest.approx(lagrangian_objective(problem), rel=1e-9)


@pytest.mark.parametrize("kind", ["logistic", "squares"])
@pytest.mark.parametrize("l2", [0.0, 0.01])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_differences_agree_with_the_augmented_lagrangian(kind: str, l2: float, scale: float) -> None:
    rng = np.random.default_rng(3)
    X = scale * rng.standard_normal((200, 30))
    y = np.sign(X @ np.repeat([1.0, 0.0, -1.0], 10) + scale * rng.standard_normal(200))
    losses = losses_of((X, y, np.arange(200) % 3, None), kind, l2=l2 * scale**2)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.02 * scale), fpdfp.linops.Difference(30))
    assert composite.is_composite(problem)
    best = fpdfp.minimize(problem, tol=1e-10)
    assert best.converged
    assert best.objective == pytest.approx(lagrangian_objective(problem), rel=1e-9)


def sparse_problem(kind: str = "logistic", l2: float = 0.0) -> fpdfp.Problem:
    rng = np.random.default_rng(4)
    X = scipy.sparse.random_array((300, 2000), density=0.02, format="csr", rng=rng)
    y = np.sign(X[:, :5].sum(axis=1) - X[:, 5:10].sum(axis=1) + 0.1 * rng.standard_normal(300))
    weight = 0.3 * float(np.abs(X.T @ y).max()) / 300
    return fpdfp.Problem(losses_of((X, y, None, None), kind, l2=l2), fpdfp.penalties.L1(weight))


@pytest.mark.parametrize("kind", ["logistic", "squares"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("inner", [1, 12])
@pytest.mark.parametrize("grouped", [False, True])
def test_columns_in_their_place_and_copies_lead_to_the_same(
    kind: str, sparse: bool, inner: int, grouped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many rounds on small working sets; columns of dense rows are in their place for the first step, then a copy."""
    monkeypatch.setattr(working_set, "FEW", 4)
    monkeypatch.setattr(working_set, "MAX_INNER", inner)
    rng = np.random.default_rng(7)
    X = rng.standard_normal((300, 400)) * (rng.random((300, 400)) < 0.3)
    y = np.sign(X[:, :12].sum(axis=1) + 0.1 * rng.standard_normal(300))
    losses = losses_of((scipy.sparse.csr_array(X) if sparse else X, y, None, None), kind)
    groups = rng.permutation(np.arange(400) // 4)
    penalty = fpdfp.penalties.GroupL12(0.02, groups=groups) if grouped else fpdfp.penalties.L1(0.02)
    problem = fpdfp.Problem(losses, penalty)
    best = fpdfp.minimize(problem, tol=1e-10)
    assert best.converged
    # in plain NumPy, every optimality condition
    z = X @ best.x
    gradient = X.T @ (-y / (1 + np.exp(y * z)) if kind == "logistic" else z - y) / 300
    for group in range(100) if grouped else np.arange(400):
        own = groups == group if grouped else np.array([group])
        x, slope = best.x[own], gradient[own]
        size = float(np.linalg.norm(x))
        rest = slope + 0.02 * x / size if size > 0 else slope * max(0.0, 1 - 0.02 / float(np.linalg.norm(slope)))
        assert float(np.linalg.norm(rest)) <= 1e-6


def test_gaps_are_bounds() -> None:
    problem = sparse_problem()
    exact = fpdfp.minimize(problem, tol=1e-13)
    for tol in (1e-1, 1e-3, 1e-5, 1e-7):
        rough = fpdfp.minimize(problem, tol=tol)
        assert rough.converged
        assert rough.certificate.gap is not None
        assert exact.certificate.gap is not None
        assert rough.objective - exact.objective <= rough.certificate.gap + exact.certificate.gap
        assert problem.objective(rough.x) == pytest.approx(rough.objective, rel=1e-13)
        assert problem.certificate(rough.x).gap == pytest.approx(rough.certificate.gap, rel=1e-2, abs=1e-12)


@pytest.mark.parametrize("linop", [None, fpdfp.linops.Difference(20)], ids=["l1", "differences"])
def test_a_part_of_the_rows_gives_a_start(linop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    X = rng.standard_normal((6000, 20))
    y = np.sign(X[:, :3].sum(axis=1) + rng.standard_normal(6000))
    problem = fpdfp.Problem(
        losses_of((X, y, np.arange(6000) // 600, None), "logistic"), fpdfp.penalties.L1(0.01), linop
    )
    cold = fpdfp.minimize(problem, x0=np.zeros(20))
    monkeypatch.setattr(fit, "START_ROWS", 600)
    monkeypatch.setattr(fit, "START_OVER", 30)
    seen = []
    made = fit.Fit.__init__

    def make(self: fit.Fit, problem: fpdfp.Problem, stride: int = 1) -> None:
        seen.append(stride)
        made(self, problem, stride)

    monkeypatch.setattr(fit.Fit, "__init__", make)
    best = fpdfp.minimize(problem)
    assert seen == [10, 1]
    assert best.converged
    assert best.objective == pytest.approx(cold.objective, rel=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_single_precision_is_not_widened(dtype: Any) -> None:
    rng = np.random.default_rng(6)
    X = rng.standard_normal((40_000, 80)).astype(dtype)
    y = np.sign(X[:, :3].sum(axis=1) + rng.standard_normal(40_000))
    X.setflags(write=False)
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, l2=0.01), fpdfp.penalties.L1(0.01))
    fpdfp.minimize(problem, tol=1e-3)
    tracemalloc.start()
    best = fpdfp.minimize(problem, tol=1e-4)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert best.converged
    assert peak < X.size * 8


def test_a_warm_start_takes_no_more_than_a_step() -> None:
    problem = sparse_problem()
    cold = fpdfp.minimize(problem)
    assert fpdfp.minimize(problem, x0=cold.x).newton_steps <= 1


def test_more_nonzeros_than_fit_go_to_the_augmented_lagrangian(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = sparse_problem()
    best = fpdfp.minimize(problem)
    monkeypatch.setattr(working_set, "MOST", 5)
    other = fpdfp.minimize(problem)
    assert other.converged
    assert other.objective == pytest.approx(best.objective, rel=1e-9)


THREADS = """
import hashlib
import numpy as np
import fpdfp

rng = np.random.default_rng(0)
X = rng.standard_normal((3000, 1000))
y = X[:, :500].sum(axis=1) / 30 + rng.standard_normal(3000)
fused = fpdfp.penalties.L1(0.01), fpdfp.linops.Difference(1000)
for penalty, linop in (fused, (fpdfp.penalties.GroupL12(0.02, groups=np.arange(1000) // 5), None)):
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, l2=1e-3), penalty, linop)
    print(hashlib.sha256(fpdfp.minimize(problem, tol=1e-6).x.tobytes()).hexdigest())
"""


def test_bits_do_not_depend_on_threads() -> None:
    """More than 512 features, for which BLAS has all threads."""

    def run(threads: str) -> str:
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
        environment = os.environ | dict.fromkeys(names, threads)
        done = subprocess.run([sys.executable, "-c", THREADS], env=environment, capture_output=True, check=True)
        return done.stdout.decode()

    assert run("1") == run("2")
