"""Random intercepts of sites: closed forms, a dense mixed model, and dense penalised quasi-likelihood."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar

import fpdfp
from fpdfp import FederatedGLM
from fpdfp.errors import ArgumentError
from tests.test_cohort import SitesCohort


def study(sites: int = 12, rows: Any = 15, spread: float = 0.7, seed: int = 3) -> tuple[Any, Any, Any, Any]:
    """Two covariates, the linear predictor with effects of sites, the sites, and the generator."""
    rng = np.random.default_rng(seed)
    sizes = np.full(sites, rows) if np.ndim(rows) == 0 else rows
    site = np.repeat(np.arange(sites), sizes)
    X = rng.standard_normal((len(site), 2)) + 0.3 * rng.standard_normal((sites, 2))[site]
    return X, 0.3 + X @ [0.5, -0.4] + spread * rng.standard_normal(sites)[site], site, rng


def test_a_balanced_layout_has_a_closed_form() -> None:
    _, eta, site, rng = study()
    y = eta + 0.5 * rng.standard_normal(len(site))
    model = FederatedGLM(site_effects="random", run=fpdfp.RunOptions(tol=1e-12)).fit(
        np.zeros((len(y), 1)), y, groups=site
    )
    groups = y.reshape(12, 15)
    between, within = 15 * groups.mean(axis=1).var(ddof=1), groups.var(axis=1, ddof=1).mean()
    assert model.site_variance_ == pytest.approx((between - within) / 15, rel=1e-6)
    assert model.intercept_ == pytest.approx(y.mean(), rel=1e-7)
    shrunk = (1 - within / between) * (groups.mean(axis=1) - y.mean())
    np.testing.assert_allclose([model.coefficients_[f"site[{i}]"] for i in range(12)], shrunk, atol=1e-6)
    np.testing.assert_allclose(
        model.predict(np.zeros((2, 1)), site=[3, 99]), [y.mean() + shrunk[3], y.mean()], rtol=1e-6
    )
    np.testing.assert_allclose(model.predict(np.zeros((2, 1))), y.mean(), rtol=1e-6)


def restricted(X: Any, z: Any, weights: Any, site: Any, dispersion: float | None) -> tuple[float, float, Any, Any]:
    """Restricted maximum likelihood of a linear mixed model with known weights, by a search over dense covariances."""
    Z = (site[:, None] == np.unique(site)).astype(float)
    n, p = X.shape

    def parts(log_ratio: float) -> Any:
        V = np.diag(1 / weights) + np.exp(log_ratio) * Z @ Z.T
        inverse = np.linalg.inv(V)
        M = X.T @ inverse @ X
        beta = np.linalg.solve(M, X.T @ inverse @ z)
        left = float((z - X @ beta) @ inverse @ (z - X @ beta))
        phi = left / (n - p) if dispersion is None else dispersion
        return V, M, beta, left, phi

    def criterion(log_ratio: float) -> float:
        V, M, _, left, phi = parts(log_ratio)
        logs = np.linalg.slogdet(V)[1] + np.linalg.slogdet(M)[1]
        return float(logs + (n - p) * np.log(phi) + left / phi)

    best = minimize_scalar(criterion, bounds=(-12, 6), method="bounded", options={"xatol": 1e-9}).x
    _, M, beta, _, phi = parts(best)
    return float(np.exp(best) * phi), phi, beta, np.sqrt(phi * np.diag(np.linalg.inv(M)))


def test_an_unbalanced_linear_mixed_model() -> None:
    X, eta, site, rng = study(rows=rng_sizes())
    y = eta + 0.6 * rng.standard_normal(len(site))
    w = rng.uniform(0.5, 2.0, len(site))
    A = np.column_stack([X, np.ones(len(y))])
    for weights in (np.ones(len(y)), w):
        variance, phi, beta, errors = restricted(A, y, weights, site, None)
        model = FederatedGLM(site_effects="random", run=fpdfp.RunOptions(tol=1e-12))
        model.fit(X, y, groups=site, sample_weight=None if weights is not w else w)
        assert model.site_variance_ == pytest.approx(variance, rel=1e-5)
        np.testing.assert_allclose([*model.coef_, model.intercept_], beta, rtol=1e-5)
        found = model.table()
        np.testing.assert_allclose(found.standard_errors, errors[[2, 0, 1]], rtol=1e-5)
        assert model.summary().dispersion == pytest.approx(phi, rel=1e-5)
        assert model.summary().aic is None


def rng_sizes() -> Any:
    return np.random.default_rng(7).integers(6, 25, 12)


def test_statsmodels_agrees() -> None:
    mixed = pytest.importorskip("statsmodels.regression.mixed_linear_model")
    X, eta, site, rng = study(rows=rng_sizes())
    y = eta + 0.6 * rng.standard_normal(len(site))
    known = mixed.MixedLM(y, np.column_stack([X, np.ones(len(y))]), groups=site).fit(reml=True, gtol=1e-10)
    model = FederatedGLM(site_effects="random", run=fpdfp.RunOptions(tol=1e-12)).fit(X, y, groups=site)
    assert model.site_variance_ == pytest.approx(float(np.asarray(known.cov_re)[0, 0]), rel=1e-4)
    np.testing.assert_allclose([*model.coef_, model.intercept_], known.fe_params, rtol=1e-5)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_dense_penalised_quasi_likelihood(family: str) -> None:
    X, eta, site, rng = study(rows=rng_sizes())
    y = (rng.logistic(size=len(eta)) < eta) * 1.0 if family == "binomial" else 1.0 * rng.poisson(np.exp(eta))
    A, Z = np.column_stack([X, np.ones(len(y))]), (site[:, None] == np.arange(12)).astype(float)
    predictor, variance = np.zeros(len(y)), 1.0
    for _ in range(200):
        mu = 1 / (1 + np.exp(-predictor)) if family == "binomial" else np.exp(predictor)
        weights = mu * (1 - mu) if family == "binomial" else mu
        z = predictor + (y - mu) / weights
        variance, _, beta, errors = restricted(A, z, weights, site, 1.0)
        V = np.diag(1 / weights) + variance * Z @ Z.T
        effects = variance * Z.T @ np.linalg.solve(V, z - A @ beta)
        before, predictor = predictor, A @ beta + Z @ effects
        if abs(predictor - before).max() < 1e-9:
            break
    model = FederatedGLM(family, site_effects="random", run=fpdfp.RunOptions(tol=1e-12)).fit(X, y, groups=site)
    assert model.site_variance_ == pytest.approx(variance, rel=1e-4)
    np.testing.assert_allclose([*model.coef_, model.intercept_], beta, rtol=1e-4)
    np.testing.assert_allclose([model.coefficients_[f"site[{i}]"] for i in range(12)], effects, atol=1e-4)
    np.testing.assert_allclose(model.table().standard_errors, errors[[2, 0, 1]], rtol=1e-4)
    assert model.n_steps_ < 15
    assert model.n_iter_ >= model.n_steps_
    assert model.bits_up_ > model.result_.total_up


def test_sites_that_do_not_differ_have_no_variance() -> None:
    X, _, site, rng = study()
    y = X @ [0.5, -0.4] + rng.standard_normal(len(site))
    y = y - np.array([y[site == i].mean() for i in range(12)])[site]
    model = FederatedGLM(site_effects="random").fit(np.zeros((len(y), 1)), y, groups=site)
    assert model.site_variance_ == 0.0
    np.testing.assert_allclose(model.fitted_.effects, 0.0, atol=1e-6)


def test_at_sites_and_with_penalties() -> None:
    X, eta, site, rng = study()
    frame = pd.DataFrame(X, columns=["age", "dose"])
    frame["died"], frame["hospital"] = (rng.logistic(size=len(eta)) < eta) * 1, [f"h{i:02}" for i in site]
    model = FederatedGLM("binomial", site_effects="random", run=fpdfp.RunOptions(tol=1e-10))
    here = model.fit(frame, "died ~ age + dose", groups="hospital")
    kept, variance = here.coef_.copy(), here.site_variance_
    tables = {str(name): part.drop(columns="hospital") for name, part in frame.groupby("hospital")}
    there = model.fit(NamedCohort(tables), "died ~ age + dose")
    np.testing.assert_allclose(there.coef_, kept, rtol=1e-7)
    assert there.site_variance_ == pytest.approx(variance, rel=1e-6)
    matrix = model.fit(X, frame.died, groups=frame.hospital)
    np.testing.assert_allclose(matrix.coef_, kept, rtol=1e-6)
    sparse = model.set_params(penalty=fpdfp.L1(1.0)).fit(X, frame.died, groups=frame.hospital)
    np.testing.assert_array_equal(sparse.coef_, 0.0)
    alone = FederatedGLM("binomial", site_effects="random", run=fpdfp.RunOptions(tol=1e-10)).fit(
        np.zeros((len(X), 1)), frame.died, groups=site
    )
    assert sparse.site_variance_ == pytest.approx(alone.site_variance_, rel=1e-4)
    with pytest.raises(ArgumentError, match="site_effects must not be random with the penalty mcp"):
        FederatedGLM(penalty=fpdfp.MCP(0.1), site_effects="random").fit(X, eta, groups=site)
    with pytest.raises(ArgumentError, match="site_effects must not be random for one site"):
        FederatedGLM(site_effects="random").fit(X, eta)


class NamedCohort(SitesCohort):
    """Sites that know their names, as those of a federation do."""

    def losses(self, spec: Any) -> Any:
        made = super().losses(spec)
        self.engine.losses_there = [
            table.losses(spec, name) for name, table in zip(self.names, self.tables, strict=True)
        ]
        from fpdfp.cohorts.site import Site

        self.engine.sites = [Site(losses) for losses in self.engine.losses_there]
        return made
