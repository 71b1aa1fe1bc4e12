"""The θ of negative binomial models: against R's glm.nb and general minimisers, here and at sites."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

import fpdfp
from fpdfp.families.counts import theta_sums
from tests.r_cases import cases, frame
from tests.test_cohort import SitesCohort

NEGATIVE = {name: case for name, case in cases("glm").items() if name.startswith("negative")}


@pytest.mark.parametrize("name", NEGATIVE)
def test_theta_is_that_of_glm_nb(name: str) -> None:
    case, r = NEGATIVE[name], NEGATIVE[name]["r"]
    table = frame("study")
    model = fpdfp.FederatedGLM("negative binomial")
    model.fit(table, case["formula"], groups="site", weights=case["weights"], levels="any")
    assert model.theta_ == pytest.approx(r["theta"], rel=1e-6)
    assert model.theta_standard_error_ == pytest.approx(r["theta_error"], rel=1e-6)
    assert model.family_ == fpdfp.families.NegativeBinomial(theta=model.theta_)
    summary = model.summary()
    assert summary.null_deviance == pytest.approx(r["null_deviance"], rel=1e-6)
    assert summary.aic == pytest.approx(r["aic"], rel=1e-8)
    assert summary.parameters == len(r["coefficients"]) + 1
    assert "theta" in str(summary)
    assert summary.exchanges["theta"] < 20
    # At sites there are the same bits; the site that alone has a level, and its name, are as in one process.
    there = fpdfp.FederatedGLM("negative binomial")
    parts = {str(site): part.drop(columns="site") for site, part in table.groupby("site")}
    there.fit(SitesCohort(parts), case["formula"], weights=case["weights"], levels="any")
    np.testing.assert_array_equal(there.coef_, model.coef_)
    assert (there.theta_, there.bits_up_, there.n_iter_) == (model.theta_, model.bits_up_, model.n_iter_)


def counts(theta: float | None, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((300, 2))
    mu = np.exp(1.0 + X @ [0.4, -0.2])
    y = rng.poisson(mu) if theta is None else rng.negative_binomial(theta, theta / (theta + mu))
    return X, y.astype(float), np.arange(300) % 3


def test_against_a_general_minimiser() -> None:
    X, y, site = counts(1.5)
    model = fpdfp.FederatedGLM("negative binomial").fit(X, y, groups=site)

    def negative(x: Any) -> float:
        mu, theta = np.exp(x[0] + X @ x[1:3]), np.exp(x[3])
        return -float(stats.nbinom.logpmf(y, theta, theta / (theta + mu)).sum())

    known = optimize.minimize(negative, [1.0, 0.0, 0.0, 0.0], method="BFGS", options={"gtol": 1e-6})
    np.testing.assert_allclose([model.intercept_, *model.coef_], known.x[:3], atol=1e-5)
    assert model.theta_ == pytest.approx(float(np.exp(known.x[3])), rel=1e-5)
    assert model.summary().log_likelihood == pytest.approx(-known.fun, rel=1e-9)


def test_sums_are_derivatives() -> None:
    _, y, _ = counts(1.5)
    mu, w = np.full(300, 2.5), np.random.default_rng(1).uniform(0.5, 2.0, 300)

    def likelihood(theta: float) -> float:
        return float((w * stats.nbinom.logpmf(y, theta, theta / (theta + mu))).sum())

    _, _, _, score, information = theta_sums(y, mu, w, 1.3)
    assert score == pytest.approx((likelihood(1.3001) - likelihood(1.2999)) / 2e-4, rel=1e-5)
    bend = (likelihood(1.301) - 2 * likelihood(1.3) + likelihood(1.299)) / 1e-6
    assert information == pytest.approx(-bend, rel=1e-4)


def test_a_given_theta_stays() -> None:
    X, y, site = counts(1.5)
    model = fpdfp.FederatedGLM(fpdfp.families.NegativeBinomial(theta=2.0)).fit(X, y, groups=site)
    assert model.family_.parameters[0] == 2.0
    assert not hasattr(model, "theta_")
    assert "theta" not in model.exchanges_


def test_no_overdispersion_is_named() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 1))
    y = np.round(np.exp(1.0 + 0.3 * X[:, 0]))  # less variance than Poisson's
    with pytest.warns(fpdfp.errors.DataWarning, match="no more than Poisson"):
        model = fpdfp.FederatedGLM("negative binomial").fit(X, y, groups=np.arange(200) % 2)
    known = fpdfp.FederatedGLM("poisson").fit(X, y, groups=np.arange(200) % 2)
    np.testing.assert_allclose(model.coef_, known.coef_, rtol=1e-10)
    assert model.theta_ == np.inf
    assert model.family_.name == "poisson"
    assert model.summary().aic == known.summary().aic


def test_penalised_and_refitted() -> None:
    X, y, site = counts(1.5)
    model = fpdfp.FederatedGLM("negative binomial", penalty=fpdfp.L1(0.5)).fit(X, y, groups=site)
    assert np.abs(model.coef_).min() < 1e-12
    assert 0.2 < model.theta_ < 10.0
    first = fpdfp.FederatedGLM("negative binomial").fit(X, y, groups=site).theta_
    table = pd.DataFrame(X, columns=["a", "b"]).assign(y=y, site=site)
    model = fpdfp.FederatedGLM("negative binomial").fit(table, "y ~ a + b", groups="site")
    assert model.theta_ == pytest.approx(first, rel=1e-7)
