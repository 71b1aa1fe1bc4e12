"""Accelerated proximal steps for l1 norms of sparse maps: their proxes, and where `minimize` takes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fpdfp
from fpdfp.linops import Difference, Matrix
from fpdfp.pooled import composite, fit, lagrangian
from fpdfp.problem import Model
from fpdfp.quadratic import accelerated, newton
from fpdfp.quadratic.statement import Quadratic


def chain(count: int) -> Any:
    return scipy.sparse.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(count - 1, count)).tocsr()


def grid(side: int) -> Any:
    along, across = chain(side), scipy.sparse.identity(side)
    return scipy.sparse.vstack([scipy.sparse.kron(along, across), scipy.sparse.kron(across, along)]).tocsr()


@pytest.mark.parametrize("count", [2, 3, 10, 500])
@pytest.mark.parametrize("weight", [0.0, 0.01, 0.3, 100.0])
def test_the_prox_of_a_chain_fulfils_its_optimality_conditions(count: int, weight: float) -> None:
    rng = np.random.default_rng(count)
    metric, weights = rng.uniform(0.1, 3.0, count), weight * rng.integers(0, 3, count - 1)
    target = rng.standard_normal(count).round(1)  # some are equal
    prox = accelerated.find_prox(Difference(count), fpdfp.penalties.L1(weights))
    assert isinstance(prox, accelerated.ChainProx)
    u, v = prox.apply(target, metric, np.zeros(count - 1), 0.0)
    np.testing.assert_allclose(metric * (u - target) + Difference(count).adjoint(v), 0.0, atol=1e-12)
    assert (np.abs(v) <= weights).all()
    np.testing.assert_allclose((v * np.diff(u))[weights > 0], (weights * np.abs(np.diff(u)))[weights > 0], atol=1e-12)


def test_rows_of_a_chain_may_come_in_any_order_and_size() -> None:
    rng = np.random.default_rng(1)
    factors, order = rng.choice([-2.0, 0.5, 3.0], 29), rng.permutation(29)[:25]
    B = (scipy.sparse.diags_array(factors) @ chain(30)).tocsr()[order]
    weights, metric, target = rng.uniform(0.1, 0.5, 25), rng.uniform(0.5, 2.0, 30), rng.standard_normal(30)
    exact = accelerated.find_prox(Matrix(B), fpdfp.penalties.L1(weights))
    assert isinstance(exact, accelerated.ChainProx)
    u, v = exact.apply(target, metric, np.zeros(25), 0.0)
    np.testing.assert_allclose(metric * (u - target) + B.T @ v, 0.0, atol=1e-12)
    assert v @ (B @ u) == pytest.approx(weights @ np.abs(B @ u), rel=1e-12)
    near, dual = accelerated.SparseProx.of(B, weights).apply(target, metric, np.zeros(25), 1e-14)
    np.testing.assert_allclose(near, u, atol=1e-6)
    assert (np.abs(dual) <= weights).all()


@pytest.mark.parametrize(
    "B",
    [
        np.array([[-1.0, 0.0, 1.0]]),
        np.array([[-1.0, 2.0, 0.0]]),
        np.array([[-1.0, 1.0, 0.0], [1.0, -1.0, 0.0]]),
        np.array([[0.0, 1.0, 0.0]]),
    ],
    ids=["far", "unequal", "twice", "alone"],
)
def test_other_rows_make_no_chain(B: Any) -> None:
    found = accelerated.find_prox(Matrix(scipy.sparse.csr_array(B)), fpdfp.penalties.L1(0.1))
    assert isinstance(found, accelerated.SparseProx)


def test_what_has_no_such_prox() -> None:
    assert accelerated.find_prox(Matrix(np.eye(3)), fpdfp.penalties.L1(0.1)) is None
    assert accelerated.find_prox(Difference(5), fpdfp.penalties.GroupL12(0.1, groups=[0, 0, 1, 1])) is None


def test_the_prox_of_a_grid_has_the_gap_asked_for() -> None:
    rng = np.random.default_rng(2)
    B, metric, target = grid(12), rng.uniform(0.5, 2.0, 144), rng.standard_normal(144)
    prox = accelerated.SparseProx.of(B, np.full(B.shape[0], 0.3))
    u, v = prox.apply(target, metric, np.zeros(B.shape[0]), 1e-10)
    primal = 0.5 * metric @ (u - target) ** 2 + 0.3 * np.abs(B @ u).sum()
    back = B.T @ v
    dual = float(back @ target) - 0.5 * float((back**2 / metric).sum())
    assert 0 <= primal - dual <= 1.1e-10
    assert np.abs(v).max() <= 0.3


def problem_of(B: Any, *, kind: str, l2: float, scale: float = 1.0, dtype: Any = np.float64) -> fpdfp.Problem:
    rng = np.random.default_rng(3)
    count = B.shape[1]
    X = scale * rng.standard_normal((10 * count, count))
    y = X @ np.repeat([1.0, 0.0, -1.0, 0.5], count // 4) / scale + rng.standard_normal(len(X))
    losses: Any = fpdfp.losses.LeastSquares if kind == "squares" else fpdfp.losses.Logistic
    y = y if kind == "squares" else np.sign(y)
    owner = np.arange(len(X)) % 3
    return fpdfp.Problem(losses(X.astype(dtype), y, owner, l2=l2 * scale**2), fpdfp.penalties.L1(0.02 * scale), B)


@pytest.mark.parametrize("kind", ["squares", "logistic"])
@pytest.mark.parametrize("l2", [0.0, 0.01])
@pytest.mark.parametrize("make", [lambda: chain(36), lambda: grid(6)], ids=["chain", "grid"])
@pytest.mark.parametrize("direct", [True, False])
def test_agrees_with_the_augmented_lagrangian(
    make: Any, kind: str, l2: float, direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    grams = count_hessians(monkeypatch)
    if direct:
        monkeypatch.setattr(fit, "DENSE_STEP", 0.1)
    problem = problem_of(make(), kind=kind, l2=l2)
    best = fpdfp.minimize(problem, tol=1e-10)
    assert best.converged
    if l2 > 0 and kind == "squares":
        assert bool(grams) is not direct
    start = np.zeros(problem.model.shape)
    exact = lagrangian.AugmentedLagrangian(problem, 1e-11).solve(start)
    assert best.objective == pytest.approx(exact.certificate.objective, rel=1e-9)
    # nothing but accelerated steps
    if l2 > 0:
        assert best.newton_steps <= 8


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_units_and_precision(dtype: Any) -> None:
    for scale in (1e-14, 1e14) if dtype == np.float64 else (1e-3, 1e3):
        problem = problem_of(chain(80), kind="squares", l2=0.01, scale=scale, dtype=dtype)
        best = fpdfp.minimize(problem, tol=1e-9 if dtype == np.float64 else 1e-5)
        assert best.converged
        assert best.newton_steps <= 3


@pytest.mark.parametrize("l2", [0.0, 1e-3])
def test_a_start_far_away_is_not_the_measure(l2: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "DENSE_STEP", 0.1)
    rng = np.random.default_rng(7)
    X = rng.standard_normal((600, 60))
    y = X @ np.repeat([100.0, -50.0, 70.0], 20) + 1e-3 * rng.standard_normal(600)
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, l2=l2 * 1e-6), fpdfp.penalties.L1(1e-7), Difference(60))
    best = fpdfp.minimize(problem, tol=1e-8)
    assert best.converged


@pytest.mark.parametrize("sparse", [False, True])
def test_products_with_rows_are_those_of_the_hessian(sparse: bool) -> None:
    rng = np.random.default_rng(8)
    X = rng.standard_normal((500, 300)) * (rng.random((500, 300)) < 0.5)
    weights = np.repeat([0.7, 0.3], 250)
    losses = fpdfp.losses.LeastSquares(
        scipy.sparse.csr_array(X) if sparse else X, rng.standard_normal(500), np.repeat([0, 1], 250)
    )
    whole = fit.Fit(fpdfp.Problem(losses, fpdfp.penalties.L1(0.1), Difference(300), weights=[0.7, 0.3]))
    assert fit.Rows.count_steps(whole) == 25 if sparse else 12
    u = rng.standard_normal(300)
    expected = X.T @ (weights / 250 * (X @ u))
    np.testing.assert_allclose(fit.Rows(whole).multiply(u), expected, rtol=1e-12 if sparse else 1e-5, atol=1e-6)
    start, near = whole.at(np.zeros(300)), whole.at(np.full(300, 1e-300))
    assert start.value == near.value
    np.testing.assert_array_equal(start.slopes, near.slopes)
    expected = X.T @ start.slopes
    np.testing.assert_allclose(fit.Rows(whole).back(start.slopes), expected, rtol=1e-12 if sparse else 1e-5, atol=1e-6)


def test_rows_are_left_alone_where_features_are_alike() -> None:
    rng = np.random.default_rng(9)
    X = rng.standard_normal((700, 300)) + 3 * rng.standard_normal((700, 1))
    problem = fpdfp.Problem(
        fpdfp.losses.LeastSquares(X, X[:, :50].sum(axis=1), l2=0.01), fpdfp.penalties.L1(0.1), Difference(300)
    )
    assert fit.Rows.count_steps(fit.Fit(problem)) == 12
    solver = composite.Composite(fit.Fit(problem), 1e-8)
    found = solver.solve(np.zeros(300))
    assert solver.by_rows == 0
    assert found.reached.enough


def count_hessians(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets an entry for every Hessian that is made."""
    made: list[Any] = []
    gram = fit.Columns.gram

    def note(self: fit.Columns, weights: Any, stride: int, **options: Any) -> Any:
        made.append(stride)
        return gram(self, weights, stride, **options)

    monkeypatch.setattr(fit.Columns, "gram", note)
    return made


def ill_conditioned() -> fpdfp.Problem:
    rng = np.random.default_rng(5)
    X = np.cumsum(rng.standard_normal((400, 40)), axis=1)
    y = np.sign(X[:, 5] + rng.standard_normal(400))
    return fpdfp.Problem(fpdfp.losses.Logistic(X, y, l2=1e-6), fpdfp.penalties.L1(0.01), Difference(40))


def test_too_many_steps_go_to_newton_systems() -> None:
    best = fpdfp.minimize(ill_conditioned(), tol=1e-10)
    assert best.converged
    assert best.newton_steps > 8


def test_without_newton_systems_the_result_is_certified_too(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(grid(6), kind="logistic", l2=0.01)
    exact = fpdfp.minimize(problem, tol=1e-10)
    monkeypatch.setattr(newton, "DENSE_COLUMNS", 0)
    assert composite.is_composite(problem)
    best = fpdfp.minimize(problem, tol=1e-10)
    assert best.converged
    assert best.objective == pytest.approx(exact.objective, rel=1e-9)
    hard = ill_conditioned()
    rough = fpdfp.minimize(hard, tol=1e-6)
    assert rough.converged


def test_a_model_tells_whether_it_was_minimised() -> None:
    rng = np.random.default_rng(6)
    A = rng.standard_normal((60, 20))
    model = Quadratic(A.T @ A / 60 + 0.1 * np.eye(20), np.zeros(20), rng.standard_normal(20))
    linop, penalty = Difference(20), fpdfp.penalties.L1(0.1)
    space = Model(penalty, linop, (20,), np.float64)
    prox = accelerated.find_prox(linop, penalty)
    assert prox is not None
    few, many = (
        accelerated.take_steps(space, model, prox, np.zeros(19), np.full(20, 0.1), 1e-12, 0.0, most)
        for most in (3, 200)
    )
    assert few.work.unsolved == 1
    assert many.work.unsolved == 0
    rest = model.gradient(many.u) + linop.adjoint(many.v)
    assert np.abs(rest).max() < 1e-6
    assert penalty.value(np.diff(many.u)) == pytest.approx(float(np.diff(many.u) @ many.v), abs=1e-12)
