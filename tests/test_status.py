"""Statuses are true: what a run says of its end is compared with solutions that were found in another way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import fpdfp


def steep_logistic(seed: int, penalty: Any, linop: Any = None, **options: Any) -> fpdfp.Problem:
    """Few rows whose features differ by up to 12 orders of magnitude."""
    r = np.random.default_rng(seed)
    scales = 10.0 ** r.uniform(-6, 6, 10)
    X = r.standard_normal((40, 10)) * scales
    y = (r.integers(0, 3, 40) > 0) * 1.0
    return fpdfp.Problem(fpdfp.losses.Logistic(X, y, np.arange(40) % 4, **options), penalty, linop)


@pytest.mark.parametrize("penalty", [fpdfp.penalties.NonNegative(), fpdfp.penalties.Box(-1e-3, 1e-3)], ids=repr)
@pytest.mark.parametrize("seed", [5, 4, 1])
def test_constraints_on_x_hold_exactly_where_a_run_has_converged(seed: int, penalty: Any) -> None:
    problem = steep_logistic(seed, penalty)
    result = fpdfp.solve(problem, rounds=300, tol=1e-3)
    assert result.certificate.violation == 0
    best = fpdfp.minimize(problem, tol=1e-9).objective
    assert result.objective >= best * (1 - 1e-6)
    assert result.status != "converged" or result.objective <= best * (1 + 1e-3)


@pytest.mark.parametrize("method", [None, fpdfp.ShiftedPDFP()], ids=repr)
def test_constraints_on_x_hold_where_clients_certify_the_gap(method: Any) -> None:
    generator = np.random.default_rng(0)
    X, y = generator.standard_normal((60, 5)), np.where(generator.random(60) < 0.5, -1.0, 1.0)
    losses = fpdfp.losses.Logistic(X, y, np.arange(60) % 3, l2=0.1)
    problem = fpdfp.Problem(losses, fpdfp.penalties.NonNegative())
    result = fpdfp.solve(problem, method, rounds=500, tol=1e-4)
    assert (result.status, result.certificate.violation) == ("converged", 0)
    assert (result.x >= 0).all()
    assert result.objective == problem.objective(result.x)


@pytest.mark.parametrize("seed", range(3))
def test_violations_of_bx_are_compared_with_their_own_entries(seed: int) -> None:
    # The first row of B is steep, so violations of the others are small beside the largest entry of Bx.
    linop = np.diag([1e3, 1.0, 1e-3]) @ (np.eye(3) - np.eye(3, k=1))
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((40, 3))
    y = X @ np.array([3.0, 1.0, 2.0]) + 0.1 * generator.standard_normal(40)
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, np.arange(40) % 4), fpdfp.penalties.NonNegative(), linop)
    result = fpdfp.solve(problem, rounds=5000, tol=1e-2)
    violations = np.maximum(-problem.linop.apply(result.x), 0.0)
    # In u = Bx it is a problem of non-negative least squares.
    best = 0.5 * scipy.optimize.nnls(X @ np.linalg.inv(linop), y)[1] ** 2 / 40
    if result.status == "converged":
        assert (violations <= 1e-2 * (np.abs(linop) @ np.abs(result.x))).all()
        assert result.objective == pytest.approx(best, rel=2e-2)
    assert ("violates constraints" in result.message) == (violations.max() > 0)


def test_a_total_variation_with_a_constraint_gives_a_feasible_image() -> None:
    from tests.helpers import zoo

    problem = zoo()["TV and non-negative"]
    result = fpdfp.solve(problem, rounds=3000, tol=1e-4)
    assert (result.status, result.certificate.violation) == ("converged", 0)
    assert (result.x >= 0).all()


def test_a_run_without_tol_says_by_how_much_x_violates_constraints() -> None:
    generator = np.random.default_rng(0)
    losses = fpdfp.losses.LeastSquares(generator.standard_normal((20, 4)), -np.ones(20), np.arange(20) % 2)
    problem = fpdfp.Problem(losses, fpdfp.penalties.NonNegative(), fpdfp.linops.Difference(4))
    result = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=3)
    assert result.certificate.violation > 0
    assert "violates constraints" in result.message
