"""`minimize` for features of very different sizes, against solvers that get them in like sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import fpdfp
from fpdfp.losses import GLM, Cox, LeastSquares, Logistic, Softmax
from fpdfp.penalties import L1, Box, ElasticNet, GroupL12, NonNegative, Zero
from fpdfp.pooled.lagrangian import find_factors
from tests.test_minimize import cvxpy_objective


def draw(seed: int, kind: type) -> tuple[Any, Any, Any]:
    """Return alike features, targets, and the factors that make the features very different."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((150, 20)) + 0.5 * rng.standard_normal((150, 1))
    forms = X @ rng.standard_normal(20)
    y = np.where(rng.random(150) < 1 / (1 + np.exp(-forms)), 1.0, -1.0) if kind is Logistic else forms
    return X, y + (0.0 if kind is Logistic else rng.standard_normal(150)), 10 ** rng.uniform(-5, 5, 20)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # of cvxpy, by less than what is compared
@pytest.mark.parametrize("l1", [0.0, 0.02])
@pytest.mark.parametrize("kind", [LeastSquares, Logistic])
@pytest.mark.parametrize("seed", range(3))
def test_limits_agree_with_clarabel(seed: int, kind: Any, l1: float) -> None:
    X, y, factors = draw(seed, kind)
    lower, upper = np.full(20, -0.3), np.where(np.arange(20) % 3 == 0, np.inf, 0.5)
    penalty = ElasticNet(l1 * factors, 0.0, lower / factors, upper / factors)
    problem = fpdfp.Problem(kind(X * factors, y), penalty)
    best = fpdfp.minimize(problem, tol=1e-9)
    assert best.converged
    limits = np.isfinite(upper)
    other = cvxpy_objective(
        fpdfp.Problem(kind(X, y), Zero()), X, y, np.zeros(150, dtype=int), 0.0,
        lambda cp, x: (l1 * cp.norm1(x), [x >= lower, x[limits] <= upper[limits]]),
    )  # fmt: skip
    assert best.objective == pytest.approx(other, rel=1e-8)
    assert best.objective == pytest.approx(problem.objective(best.x), rel=1e-13)
    assert best.certificate.violation == 0


@pytest.mark.parametrize("seed", range(4))
def test_the_same_limits_for_all_features_agree_with_an_active_set_method(seed: int) -> None:
    X, y, factors = draw(seed, LeastSquares)
    problem = fpdfp.Problem(LeastSquares(X * factors, y), Box(-1.0, 1.0))
    best = fpdfp.minimize(problem, tol=1e-10)
    assert best.converged
    exact = scipy.optimize.lsq_linear(X, y, (-factors, factors), method="bvls", tol=1e-14)
    assert best.objective == pytest.approx(exact.cost / 150, rel=1e-9)
    np.testing.assert_allclose(best.x * factors, exact.x, atol=1e-4)
    assert np.abs(best.x).max() <= 1.0


def test_a_certificate_is_that_of_the_problem_as_given() -> None:
    X, y, factors = draw(0, LeastSquares)
    problem = fpdfp.Problem(LeastSquares(X * factors, y, l2=1e-3), NonNegative())
    best = fpdfp.minimize(problem, tol=1e-9)
    assert best.converged
    again = problem.certificate(best.x, best.v, dual_steps=0)
    assert again.gap is not None
    assert again.gap <= 1e-9 * again.scale
    assert best.certificate.residual == problem.residual(best.x, best.v)


@pytest.mark.parametrize("penalty", [L1(0.01), ElasticNet(0.01, 1e-3)])
@pytest.mark.parametrize("seed", range(3))
def test_norms_of_classes_converge_in_units_of_their_own(seed: int, penalty: Any) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((60, 6)) * 10 ** rng.uniform(-5, 5, 6)
    best = fpdfp.minimize(fpdfp.Problem(Softmax(rows, rng.integers(0, 3, 60)), penalty), tol=1e-6)
    assert best.converged


def test_violations_are_told_in_the_units_of_x() -> None:
    X, y, factors = draw(2, LeastSquares)
    limits = Box(-0.3 / factors, 0.5 / factors)
    problem = fpdfp.Problem(LeastSquares((X * factors).astype(np.float32), y), limits)
    best = fpdfp.minimize(problem, tol=1e-4)
    assert best.certificate.violation == problem.evaluate(best.x)[1]


def test_single_precision_and_sparse_rows() -> None:
    X, y, factors = draw(1, LeastSquares)
    X[np.abs(X) < 0.5] = 0.0
    limits = Box(-0.3 / factors, 0.5 / factors)
    for rows, tol in ((scipy.sparse.csr_array(X * factors), 1e-9), ((X * factors).astype(np.float32), 1e-4)):
        best = fpdfp.minimize(fpdfp.Problem(LeastSquares(rows, y), limits), tol=tol)
        assert best.converged
        exact = scipy.optimize.lsq_linear(X, y, (-0.3, 0.5), method="bvls", tol=1e-14)
        assert best.objective == pytest.approx(exact.cost / 150, rel=2 * tol)


@pytest.mark.parametrize("shape", [(6,), (3, 6)])
def test_penalties_in_other_units(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    factors, y, v = np.exp2(rng.integers(-9, 9, 6)), rng.standard_normal(shape), 0.1 * rng.standard_normal(shape)
    for penalty in (L1(0.3), L1(rng.random(shape)), Box(-5.0, 9.0), NonNegative(), ElasticNet(0.1, 0.2, -7.0), Zero()):
        other = penalty.rescale(np.broadcast_to(factors, shape)).bind(shape)
        assert other.value(y) == penalty.value(factors * y)
        assert other.conjugate(v) == pytest.approx(penalty.conjugate(v / factors))
        prox = penalty.prox(factors * y, 0.7 * factors**2) / factors
        np.testing.assert_allclose(other.prox(y, 0.7), prox, rtol=1e-14)
    # Groups whose entries have different units have no group norm in these.
    assert GroupL12(0.3, groups=[0, 0, 1]).rescale(np.array([1.0, 2.0, 1.0])) is None


def test_losses_in_other_units() -> None:
    rng = np.random.default_rng(0)
    X, factors = rng.standard_normal((40, 5)), np.exp2(rng.integers(-9, 9, 5))
    counts, classes, times = rng.poisson(2.0, 40), rng.integers(0, 3, 40), rng.exponential(size=40)
    for losses in (
        LeastSquares(X, counts, l2=0.1),
        Logistic(scipy.sparse.csr_array(X), np.sign(X[:, 0]), l2=np.arange(5.0)),
        GLM(X, counts, family="poisson", clients=np.arange(40) % 3),
        Softmax(X, classes, l2=0.1),
        Cox(X, times, np.ones(40)),
    ):
        problem, other = (fpdfp.Problem(one, Zero()) for one in (losses, losses.rescale(factors)))
        x = rng.standard_normal(losses.shape)
        assert other.objective(x / factors) == problem.objective(x)
        np.testing.assert_array_equal(other.gradient(x / factors), factors * problem.gradient(x))


def test_what_is_alike_or_not_known_is_left_as_it_is() -> None:
    X, y, factors = draw(0, LeastSquares)
    assert find_factors(fpdfp.Problem(LeastSquares(X, y), NonNegative())) is None
    assert find_factors(fpdfp.Problem(LeastSquares(X * factors, y), L1(1.0), fpdfp.linops.Difference(20))) is None
    sizes = np.linalg.norm(X * factors, axis=0) / 150**0.5
    found = find_factors(fpdfp.Problem(LeastSquares(X * factors, y), NonNegative()))
    assert found is not None
    assert (np.abs(np.log2(found * sizes)) <= 0.5 + 1e-9).all()
    assert not np.modf(np.log2(found))[0].any()
    softmax = Softmax(X[:, :6] * factors[:6], np.arange(150) % 3, l2=0.1)
    problem = fpdfp.Problem(softmax, GroupL12(0.1, axis=0))
    assert find_factors(problem) is not None
    assert fpdfp.minimize(problem, tol=1e-6).converged


@pytest.mark.parametrize("penalty", [NonNegative(), L1(0.0), Zero()])
def test_other_losses_have_the_same_minimum_in_any_units(penalty: Any) -> None:
    rng = np.random.default_rng(0)
    X, factors = rng.standard_normal((120, 6)), 10 ** rng.uniform(-5, 5, 6)
    times, classes, counts = rng.exponential(np.exp(-X[:, 0])), rng.integers(0, 3, 120), rng.poisson(np.exp(X[:, 1]))
    for make in (
        lambda X: Cox(X, times, np.ones(120)),
        lambda X: Softmax(X, classes),
        lambda X: GLM(X, counts, family="poisson"),
    ):
        alike, apart = (fpdfp.minimize(fpdfp.Problem(make(rows), penalty), tol=1e-8) for rows in (X, X * factors))
        assert apart.converged == alike.converged
        assert apart.objective == pytest.approx(alike.objective, rel=1e-7)
