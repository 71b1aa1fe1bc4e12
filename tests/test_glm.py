"""Losses of generalised linear models, ProximalNewton, and FederatedGLM on rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import minimize

import fpdfp
from fpdfp.families import Binomial, Gamma, InverseGaussian, NegativeBinomial, Poisson, Quantile, Tweedie


def study(rows: int = 180, seed: int = 0) -> Any:
    """Return rows with an intercept, the site of each, counts, weights and offsets."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.standard_normal((rows, 3)), np.ones(rows)])
    offset = 0.3 * rng.standard_normal(rows)
    y = rng.poisson(np.exp(X @ [0.4, -0.3, 0.0, 0.5] + offset)).astype(float)
    return X, np.arange(rows) % 3, y, rng.random(rows) + 0.5, offset


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_and_hessians_are_those_of_values(sparse: bool, weighted: bool) -> None:
    X, sites, y, weights, offset = study()
    rows = scipy.sparse.csr_array(X) if sparse else X
    given = {"weights": weights, "offset": offset, "weight_scale": 0.9} if weighted else {}
    losses = fpdfp.losses.GLM(rows, y, clients=sites, family="poisson", l2=0.01, **given)
    x, everyone, step = np.array([0.2, -0.1, 0.3, 0.4]), np.arange(3), 1e-6
    slopes = [(losses.values(x + step * e, everyone) - losses.values(x - step * e, everyone)) for e in np.eye(4)]
    np.testing.assert_allclose(losses.gradients(x, everyone), np.array(slopes).T / (2 * step), atol=1e-8)
    bends = [(losses.gradients(x + step * e, everyone) - losses.gradients(x - step * e, everyone)) for e in np.eye(4)]
    expected = np.array(bends).transpose(1, 2, 0) / (2 * step)
    found = losses.hessians(x, everyone)
    assert found is not None
    np.testing.assert_allclose(found, expected, atol=1e-7)
    shares = np.full(3, 1 / 3)
    pooled = losses.hessian(x, shares)
    assert pooled is not None
    np.testing.assert_allclose(pooled, found.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(losses.hessian_product(x, x, shares), pooled @ x, atol=1e-12)
    part = losses.part(np.array([2]))
    np.testing.assert_array_equal(part.gradients(x, np.array([0])), losses.gradients(x, np.array([2])))
    few = losses.restrict(np.array([0, 3]))
    np.testing.assert_allclose(
        few.gradients(x[[0, 3]], everyone), losses.gradients(x * [1, 0, 0, 1], everyone)[:, [0, 3]], atol=1e-13
    )


def test_weights_are_repeated_rows() -> None:
    X, sites, y, _, offset = study(60)
    counts = np.random.default_rng(1).integers(1, 4, 60)
    again = np.repeat(np.arange(60), counts)
    one = fpdfp.FederatedGLM("poisson", penalty=fpdfp.L1(0.01)).fit(
        X[:, :3], y, sites, sample_weight=counts, offset=offset
    )
    other = fpdfp.FederatedGLM("poisson", penalty=fpdfp.L1(0.01)).fit(
        X[again, :3], y[again], sites[again], offset=offset[again]
    )
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-6, atol=1e-9)


FAMILIES = [
    "gaussian", "poisson", Poisson("sqrt"), Poisson("identity"), Binomial(), Binomial("probit"), Binomial("cloglog"),
    "gamma", Gamma("log"), InverseGaussian("log"), "inverse gaussian", NegativeBinomial(theta=2.0), Tweedie(power=1.4),
    Quantile(level=0.7, width=0.3),
]  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_newton_finds_the_minimum_of_a_general_solver(family: Any) -> None:
    X, sites, y, weights, _ = study()
    family = fpdfp.families.make(family)
    if isinstance(family, Binomial):
        y = (y > 1).astype(float)
    elif family.name in ("gamma", "inverse gaussian") or family.link in ("identity", "sqrt"):
        y = y + 2.0
    losses = fpdfp.losses.GLM(X, y, clients=sites, family=family, weights=weights)
    problem = fpdfp.Problem(losses, fpdfp.penalties.Zero(), weights="samples")
    result = fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=50, tol=1e-10)
    assert result.status in ("converged", "stationary")
    assert result.rounds <= 12
    best = minimize(
        problem.smooth_value, result.x, jac=problem.gradient, method="BFGS", options={"gtol": 1e-12, "maxiter": 300}
    )
    assert problem.smooth_value(result.x) <= best.fun + 1e-10 * abs(best.fun)
    np.testing.assert_allclose(problem.gradient(result.x), 0.0, atol=5e-6)


@pytest.mark.parametrize("start", [8.0, -30.0])
def test_any_start_will_do(start: float) -> None:
    X, sites, y, _, _ = study()
    losses = fpdfp.losses.GLM(X, y, clients=sites, family="poisson")
    problem = fpdfp.Problem(losses, fpdfp.penalties.Zero())
    found = fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=200, tol=1e-9, x0=np.full(4, start))
    expected = fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=50, tol=1e-9)
    assert found.status == "converged"
    np.testing.assert_allclose(found.x, expected.x, atol=1e-6)
    objectives = np.array(found.history.objective[1:])
    assert (np.diff(objectives) <= 1e-12 * np.abs(objectives[:-1])).all()


@pytest.mark.parametrize("family", ["poisson", Gamma("log"), Binomial("probit"), NegativeBinomial(theta=2.0)])
@pytest.mark.parametrize("penalty", ["l1", "fused", "group"])
def test_with_penalties_it_agrees_with_the_pooled_solver(family: Any, penalty: str) -> None:
    X, sites, y, weights, offset = study()
    family = fpdfp.families.make(family)
    y = (y > 1).astype(float) if family.name == "binomial" else y + 0.5 * (family.name == "gamma")
    losses = fpdfp.losses.GLM(X, y, clients=sites, family=family, weights=weights, offset=offset, l2=1e-3)
    g: Any = {"l1": fpdfp.penalties.L1(0.03), "fused": fpdfp.penalties.L1(0.03)}.get(
        penalty, fpdfp.penalties.GroupL12(0.05, groups=[0, 0, 1, 1])
    )
    problem = fpdfp.Problem(losses, g, fpdfp.linops.Difference(4) if penalty == "fused" else None)
    result = fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=60, tol=1e-9)
    assert result.status == "converged"
    best = fpdfp.minimize(problem)
    assert result.objective - best.objective <= 1e-8 * abs(best.objective)


def test_a_gap_is_never_claimed_without_convexity() -> None:
    X, sites, y, _, _ = study()
    losses = fpdfp.losses.GLM(X, y + 0.5, clients=sites, family=InverseGaussian("log"), l2=0.1)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.01))
    assert not losses.is_convex
    assert losses.least_convexity == 0.0
    assert problem.certificate(np.zeros(4)).gap is None
    assert problem.duality_gap(np.zeros(4), np.zeros(4)) is None


def test_methods_that_need_a_constant_are_refused() -> None:
    X, sites, y, _, _ = study()
    problem = fpdfp.Problem(fpdfp.losses.GLM(X, y, clients=sites, family="poisson"), fpdfp.penalties.Zero())
    with pytest.raises(ValueError, match="losses must have Lipschitz continuous gradients"):
        fpdfp.solve(problem, fpdfp.FPDFP(), rounds=2)


def test_bounded_families_go_with_every_method() -> None:
    X, sites, y, _, offset = study()
    losses = fpdfp.losses.GLM(X, (y > 1).astype(float), clients=sites, family="binomial", offset=offset, l2=0.01)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.01))
    found = fpdfp.solve(problem, rounds=300, tol=1e-8)
    assert found.status == "converged"
    newton = fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=50, tol=1e-8)
    assert abs(found.objective - newton.objective) <= 1e-7 * abs(newton.objective)


def test_the_binomial_family_has_the_bits_of_logistic_losses() -> None:
    X, sites, y, _, _ = study()
    labels = (y > 1).astype(float)
    one, other = fpdfp.losses.Logistic(X, labels, sites), fpdfp.losses.GLM(X, labels, sites, family="binomial")
    x = np.array([0.1, 0.2, -0.3, 0.4])
    np.testing.assert_allclose(one.gradients(x, np.arange(3)), other.gradients(x, np.arange(3)), rtol=1e-13)
    found, expected = (losses.sums_at(x, np.arange(3), robust=True) for losses in (one, other))
    assert found is not None
    assert expected is not None
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)


class TestEstimator:
    def test_exposure_is_an_offset(self) -> None:
        X, sites, y, _, offset = study()
        one = fpdfp.FederatedGLM("poisson").fit(X[:, :3], y, sites, exposure=np.exp(offset))
        other = fpdfp.FederatedGLM("poisson").fit(X[:, :3], y, sites, offset=offset)
        np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9)
        np.testing.assert_allclose(one.predict(X[:, :3], offset=offset).sum(), y.sum())

    def test_standardising_changes_nothing_without_a_penalty(self) -> None:
        X, sites, y, _, _ = study()
        wide = X[:, :3] * [1.0, 100.0, 0.01] + [5.0, 0.0, 1.0]
        one = fpdfp.FederatedGLM("poisson").fit(wide, y, sites)
        other = fpdfp.FederatedGLM("poisson", standardize=True).fit(wide, y, sites)
        np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-6)
        np.testing.assert_allclose(one.table().covariance, other.table().covariance, rtol=1e-6)

    def test_site_effects_are_indicator_columns(self) -> None:
        X, sites, y, _, _ = study()
        one = fpdfp.FederatedGLM("poisson", site_effects="fixed").fit(X[:, :3], y, sites)
        wide = np.column_stack([X[:, :3], sites == 1, sites == 2])
        other = fpdfp.FederatedGLM("poisson").fit(wide, y, sites)
        np.testing.assert_allclose(one.coef_, other.coef_[:3], rtol=1e-7)
        np.testing.assert_allclose(one.table().standard_errors[4:], other.table().standard_errors[4:], rtol=1e-6)
        assert list(one.coefficients_) == ["Intercept", "x0", "x1", "x2", "site[1]", "site[2]"]
        np.testing.assert_allclose(one.predict(X[:, :3], site=sites), other.predict(wide), rtol=1e-7)
        with pytest.raises(ValueError, match="site must say where rows are from"):
            one.predict(X[:, :3])
        with pytest.raises(ValueError, match="site must be one of 0, 1, 2"):
            one.predict(X[:, :3], site="4")

    def test_the_null_model_has_the_mean(self) -> None:
        X, sites, y, weights, _ = study()
        model = fpdfp.FederatedGLM("poisson").fit(X[:, :3], y, sites, sample_weight=weights)
        mean = np.average(y, weights=weights)
        expected = 2.0 * (weights * Poisson().functions.value(np.full(180, np.log(mean)), y)).sum()
        np.testing.assert_allclose(model.null_deviance_, expected, rtol=1e-9)
        np.testing.assert_allclose(model.score(X[:, :3], y, weights), 1 - model.deviance_ / expected, rtol=1e-9)

    def test_a_penalty_has_no_standard_errors(self) -> None:
        X, sites, y, _, _ = study()
        model = fpdfp.FederatedGLM("poisson", penalty=fpdfp.L1(0.01)).fit(X[:, :3], y, sites)
        assert model.information_ is None
        assert "no standard errors" in str(model.summary())
        with pytest.raises(ValueError, match="inference must be True"):
            model.table()

    @pytest.mark.parametrize(
        ("options", "given", "message"),
        [
            ({"family": "poisson"}, {"exposure": -1.0}, "exposure must be positive"),
            ({"family": "gaussian"}, {"exposure": 1.0}, "exposure must be None for the link identity"),
            ({"family": "poisson"}, {"offset": [1.0]}, "offset must be a number for each of the 180 rows"),
            ({"family": "poisson"}, {"sample_weight": -1.0}, "sample_weight must be at least 0"),
            ({"family": "poisson"}, {"weights": "w"}, "weights must be None without a formula"),
            ({"family": "gamma"}, {}, "y must be positive for the family gamma"),
            ({"family": "poisson", "site_effects": "some"}, {}, "site_effects must be one of"),
            ({"family": "poisson", "inference": "yes"}, {}, "inference must be"),
        ],
    )
    def test_what_is_refused(self, options: Any, given: Any, message: str) -> None:
        X, sites, y, _, _ = study()
        with pytest.raises((ValueError, TypeError), match=message):
            fpdfp.FederatedGLM(**options).fit(X[:, :3], y, sites, **given)
