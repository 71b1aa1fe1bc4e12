"""Objective, the optimality residual of Lemma 1, the duality gap."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from tests import helpers


@pytest.mark.parametrize("name", helpers.zoo())
def test_lemma_one_holds_at_the_solution_for_any_step_and_lambda(name: str) -> None:
    """∇f(x*) + Bᵀv* = 0 and v* = T(x*, v*) for every γ > 0 and λ > 0."""
    problem = helpers.zoo()[name]
    best = fpdfp.minimize(problem, tol=1e-12)
    assert best.converged
    gradient = problem.gradient(best.x)
    np.testing.assert_allclose(gradient + problem.linop.adjoint(best.v), 0, atol=1e-7)
    assert problem.residual(best.x, best.v).norm < 1e-6
    image = problem.linop.apply(best.x)
    for gamma in (0.1, 1.0, 7.0):
        for lam in (0.05, 0.3, 2.0):
            sigma = lam / gamma
            back = problem.linop.apply(best.x - gamma * gradient) * sigma
            again = problem.penalty.conjugate_prox(
                back + best.v - lam * problem.linop.apply(problem.linop.adjoint(best.v)), sigma
            )
            np.testing.assert_allclose(again, best.v, atol=2e-6)
    # v* is a subgradient of g at Bx*, up to how far Bx* may be from the domain of g
    nearest = problem.penalty.project(image)
    fenchel = problem.penalty.value(nearest) + problem.penalty.conjugate(best.v) - float(np.vdot(nearest, best.v))
    assert fenchel == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize("name", helpers.zoo())
def test_the_residual_vanishes_nowhere_else(name: str, rng: np.random.Generator) -> None:
    problem = helpers.zoo()[name]
    best = fpdfp.minimize(problem, tol=1e-10)
    for size in (1e-2, 1.0):
        x = best.x + size * rng.standard_normal(problem.model.shape)
        assert problem.residual(x, best.v).norm > 1e-4 * size


@pytest.mark.parametrize("name", [name for name, problem in helpers.zoo().items() if problem.penalty.finite])
def test_the_gap_bounds_the_distance_to_the_optimum(name: str, rng: np.random.Generator) -> None:
    problem = helpers.zoo()[name]
    best = fpdfp.minimize(problem, tol=1e-12)
    for size in (0.0, 1e-3, 1e-1, 10.0):
        x = best.x + size * rng.standard_normal(problem.model.shape)
        certificate = problem.certificate(x)
        excess = problem.objective(x) - best.objective
        assert certificate.objective == pytest.approx(problem.objective(x), rel=1e-14)
        assert certificate.gap is not None
        assert certificate.gap >= excess - 1e-12
        at_this_point = problem.duality_gap(x, certificate.v)
        assert at_this_point is None or at_this_point >= excess - 1e-12
        better = problem.certificate(x, dual_steps=400)
        assert better.gap is not None
        assert excess - 1e-12 <= better.gap <= certificate.gap
    assert problem.certificate(best.x, best.v).gap == pytest.approx(0.0, abs=1e-10)


@pytest.mark.parametrize(("dtype", "size"), [(np.float32, 1e6), (np.float64, 1e15)])
def test_the_gap_allows_for_the_rounding_of_the_gradient(dtype: Any, size: float) -> None:
    """f(x) = (3x − y)²/2: the computed gradient at y/3 is 0, the true one is not."""
    losses = fpdfp.losses.LeastSquares(np.array([[3.0]], dtype), np.array([size], dtype))
    problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    x = np.array([size / 3], dtype)
    excess = (3 * np.longdouble(x[0]) - np.longdouble(dtype(size))) ** 2 / 2
    gap = problem.certificate(x).gap
    assert gap is not None
    assert gap >= excess


def test_without_strong_convexity_the_dual_point_is_made_feasible() -> None:
    X, y, owner = helpers.classification()
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner), fpdfp.penalties.L1(0.1))
    assert problem.strong_convexity == 0.0
    best = fpdfp.minimize(problem, tol=1e-12)
    excess = problem.objective(np.zeros(12)) - best.objective
    for gap in (problem.duality_gap(np.zeros(12), np.zeros(12)), problem.certificate(np.zeros(12)).gap):
        assert gap is not None
        assert gap >= excess


def test_a_violated_constraint_is_told_and_not_hidden() -> None:
    problem = helpers.zoo()["box"]
    x = np.full(12, 0.5)
    assert problem.objective(x) == np.inf
    certificate = problem.certificate(x)
    assert certificate.violation == pytest.approx(0.3)
    assert np.isfinite(certificate.objective)
    # A bound for f(x) + g at the nearest point of the box, which says nothing of x itself.
    assert certificate.gap is not None
    assert certificate.gap >= certificate.objective - fpdfp.minimize(problem, tol=1e-10).objective


def test_gap_is_the_fenchel_rockafellar_gap_of_ridge_logistic_regression(rng: np.random.Generator) -> None:
    """Against the dual written out: −Σ c_j φ*(θ_j) − g*(v) − ‖Aᵀθ + Bᵀv‖²/2μ with θ = φ'(Ax)."""
    X, y, _ = helpers.classification(clients=1)
    mu = 0.05
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, l2=mu), fpdfp.penalties.L1(0.02), helpers.graph(12))
    x = rng.standard_normal(12)
    v = problem.penalty.conjugate_prox(rng.standard_normal(24), 1.0)
    p = 1 / (1 + np.exp(y * (X @ x)))
    entropy = p * np.log(p) + (1 - p) * np.log1p(-p)  # φ*(−y p)
    mismatch = X.T @ (-y * p) / len(y) + problem.linop.adjoint(v)
    dual = -entropy.mean() - mismatch @ mismatch / (2 * mu)
    assert problem.duality_gap(x, v) == pytest.approx(problem.objective(x) - dual, rel=1e-10)


BAD: list[tuple[Any, str]] = [
    (lambda p: fpdfp.Problem(p.penalty, p.penalty), "losses must be one of fpdfp.losses"),
    (lambda p: fpdfp.Problem(p.losses, 0.1), "penalty must be one of fpdfp.penalties"),
    (lambda p: fpdfp.Problem(p.losses, p.penalty, np.eye(5)), r"linop acts on arrays of shape \(5,\), but x has"),
    (lambda p: fpdfp.Problem(p.losses, p.penalty, np.full((12, 12), np.nan)), "linop must be finite"),
    (lambda p: fpdfp.Problem(p.losses, p.penalty, "identity"), "linop must be an array"),
    (lambda p: fpdfp.Problem(p.losses, p.penalty, weights="equal"), "weights must be one of 'uniform', 'samples'"),
    (lambda p: fpdfp.Problem(p.losses, p.penalty, weights=[1.0]), r"weights must have shape \(5,\)"),
    (lambda p: fpdfp.Problem(p.losses, p.penalty, weights=[1, 1, 0, 1, 1]), "must be positive, got 0 for client 2"),
    (lambda p: fpdfp.Problem(p.losses, p.penalty, weights=None), "weights must be 'uniform', 'samples' or .* got None"),
    (lambda p: fpdfp.Problem(p.losses, p.penalty, weights=[True] * 5), "for each of the 5 clients, got truth values"),
    (lambda p: fpdfp.minimize(p, x0=np.full(12, 1e200)), "x0 must be a point where the objective is finite"),
    (lambda p: fpdfp.minimize(p, x0=np.full(12, 1e308)), "x0 must be a point where the objective is finite"),
    (lambda p: fpdfp.Problem(p.losses, fpdfp.penalties.L1(np.ones(5))), "weight must be one number or have the shape"),
    (lambda p: p.objective(np.ones(3)), r"x must have shape \(12,\), got \(3,\)"),
    (lambda p: p.objective(np.full(12, np.nan)), "x must be finite"),
    (lambda p: p.residual(np.ones(12), np.ones(3)), r"v must have shape \(24,\)"),
    (lambda p: p.duality_gap(np.ones(12), np.ones(3)), r"v must have shape \(24,\)"),
    (lambda p: p.certificate(np.ones(12), [0.0, 0.0]), r"v must have shape \(24,\)"),
    (lambda p: p.smooth_value(np.ones(3)), r"x must have shape \(12,\)"),
    (lambda p: p.gradient(np.ones(60)), r"x must have shape \(12,\)"),
    (lambda p: fpdfp.minimize(p, tol=0.0), "tol must be a finite number greater than 0"),
    (lambda p: fpdfp.minimize(p.losses), "problem must be an fpdfp.Problem"),
    (lambda p: fpdfp.minimize(p, x0=np.ones(3)), r"x0 must have shape \(12,\)"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make(helpers.graph_guided())


def test_given_weights_are_used_as_they_are() -> None:
    problem = helpers.graph_guided(weights=[1.0, 2.0, 0.5, 1.0, 3.0])
    x = np.ones(12)
    values = problem.losses.values(x, np.arange(5))
    assert problem.smooth_value(x) == pytest.approx(float(values @ [1.0, 2.0, 0.5, 1.0, 3.0]))
    np.testing.assert_allclose(problem.local(np.arange(5)).gradients(x).mean(axis=0), problem.gradient(x))
