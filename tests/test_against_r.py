"""Estimators against R (glm, MASS, nnet) at 1e-6 relative, on three sites.

The sites have different covariates, missing values, and a level that one of them alone has.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import fpdfp
from tests.r_cases import FAMILIES, cases, frame, numbers, rows

R = cases("glm")
GLM = {name: case for name, case in R.items() if "link" in case}
NEGATIVE = {name: case for name, case in R.items() if name.startswith("negative")}


def close(found: Any, known: Any, rel: float = 1e-6) -> None:
    """Compare relative to each number, and to the largest where one is near zero by cancellation."""
    known = numbers(known)
    np.testing.assert_allclose(numbers(found), known, rtol=rel, atol=1e-3 * rel * np.abs(known).max())


def build(case: dict[str, Any], **options: Any) -> fpdfp.FederatedGLM:
    known = {"link": case.get("link"), "run": fpdfp.RunOptions(tol=1e-12)} | options
    return fpdfp.FederatedGLM(FAMILIES.get(case["family"], case["family"]), **known)


def fit(case: dict[str, Any], formula: str | None = None, table: Any = None, **options: Any) -> fpdfp.FederatedGLM:
    """Fit the rows of three sites by a formula."""
    text = formula or case["formula"]
    # The column of sites stays where it is: their intercepts are an option.
    model = build(case, site_effects="fixed" if text.endswith(" + site") else "none", **options)
    return model.fit(
        frame(case["data"]) if table is None else table,
        text.removesuffix(" + site"),
        groups="site",
        weights=case.get("weights"),
        levels="any",
    )


@pytest.mark.parametrize("name", GLM)
def test_glm(name: str) -> None:
    case, r = GLM[name], GLM[name]["r"]
    model = fit(case)
    summary = model.summary()
    table = model.table()
    close(table.coefficients, r["coefficients"])
    close(table.standard_errors, r["errors"])
    close(table.covariance, r["covariance"])
    close(table.statistics, r["statistic"])
    np.testing.assert_allclose(table.p_values, r["p"], rtol=1e-5, atol=1e-300)
    close(summary.deviance, r["deviance"])
    assert (1.0 if summary.dispersion is None else summary.dispersion) == pytest.approx(r["dispersion"], rel=1e-6)
    close(summary.null_deviance, r["null_deviance"])
    assert (summary.df_residual, summary.df_null) == (r["df_residual"], r["df_null"])
    assert sum(summary.rows) == r["rows"]
    assert sum(summary.left_out) == len(frame(case["data"])) - r["rows"]
    if r["aic"] is None:
        assert summary.aic is None  # a Tweedie likelihood has no closed form
    elif name != "binomial, weights":
        # (R rounds the weights of a binomial model to whole trials when it computes the likelihood, and warns of it.)
        close(summary.log_likelihood, r["log_likelihood"])
        close(summary.aic, r["aic"])
    # R's confint.default takes the normal distribution in any case. Limits near zero have lost digits.
    spread = stats.t(r["df_residual"]) if summary.has_dispersion else stats.norm
    middle, width = numbers(r["coefficients"]), spread.isf(0.025) * numbers(r["errors"])
    known = {"lower": numbers(r["lower"]), "upper": numbers(r["upper"])}
    if summary.has_dispersion:
        known = {"lower": middle - width, "upper": middle + width}
    for found, limit in zip(table.intervals().T, known.values(), strict=True):
        assert (np.abs(found - limit) < 1e-6 * (np.abs(middle) + width)).all()


@pytest.mark.parametrize("name", GLM)
def test_robust_errors(name: str) -> None:
    case, r = GLM[name], GLM[name]["r"]
    model = fit(case)
    close(model.table(errors="HC0").standard_errors, r["robust"])
    p, n, m = len(numbers(r["coefficients"])), r["rows"], 3
    with pytest.warns(fpdfp.errors.DataWarning, match="3 sites"):
        by_site = model.table(errors="sites").standard_errors
    # The scores of sites add up to zero, so that errors may vanish: those are compared with the others.
    known = numbers(r["by_site"]) * np.sqrt(m / (m - 1) * (n - 1) / (n - p))
    np.testing.assert_allclose(by_site, known, rtol=1e-5, atol=1e-5 * known.max())


@pytest.mark.parametrize("name", ["gaussian, weights", "binomial, shares", "poisson, offset and weights", "gamma, log"])
def test_matrices_and_formulas_give_the_same(name: str) -> None:
    case, data = GLM[name], rows(GLM[name])
    model = build(case).fit(data.X[:, 1:], data.y, groups=data.sites, sample_weight=data.weights, offset=data.offset)
    close([model.intercept_, *model.coef_], case["r"]["coefficients"])
    close(model.table().standard_errors, case["r"]["errors"])
    close(model.summary().null_deviance, case["r"]["null_deviance"])


@pytest.mark.parametrize("name", NEGATIVE)
def test_negative_binomial(name: str) -> None:
    case, r = NEGATIVE[name] | {"family": "negative binomial"}, NEGATIVE[name]["r"]
    model = fit(case)
    summary = model.summary()
    close(model.family_.parameters[0], r["theta"])
    close(model.table().coefficients, r["coefficients"])
    close(model.table().standard_errors, r["errors"])
    close(summary.deviance, r["deviance"])
    close(summary.log_likelihood, r["log_likelihood"])
    close(summary.aic, r["aic"])


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson", "Gamma"])
def test_nested_models(family: str) -> None:
    case, r = R[f"test, {family}"], R[f"test, {family}"]["r"]
    case = case | ({"link": "log"} if family == "Gamma" else {})
    complete = frame("study").dropna()
    small, large = (fit(case, case[size], complete) for size in ("small", "large"))
    test = small.compare(large)
    assert test.df == r["df"]
    assert test.statistic == pytest.approx(r["statistic"], rel=1e-6)
    assert test.p == pytest.approx(r["p"], rel=1e-5)


def test_several_coefficients() -> None:
    case, r = R["wald, group"], R["wald, group"]["r"]
    model = fit(case)
    test = model.wald_test([name for name in model.coefficients_ if name.startswith("group")])
    assert (test.df, test.df_residual) == (r["df"], None)
    assert test.statistic == pytest.approx(r["chi2"], rel=1e-6)
    assert test.p == pytest.approx(r["p"], rel=1e-5)


def test_variance_inflation() -> None:
    r = R["inflation"]["r"]
    found = fit(R["inflation"]).variance_inflation()
    assert list(found) == r["terms"]
    close([factor for factor, _, _ in found.values()], r["factors"])
    assert [columns for _, columns, _ in found.values()] == r["df"]


def test_differences_between_sites() -> None:
    """Fits of each site by itself, and what they say together."""
    case, r = R["between sites"], R["between sites"]["r"]
    tables = {site: fit(case, table=part).table() for site, part in frame("study").groupby("site")}
    for table, coefficients, errors in zip(tables.values(), r["coefficients"], r["errors"], strict=True):
        close(table.coefficients, coefficients)
        close(table.standard_errors, errors)
    for j, name in enumerate(["Intercept", "x1", "x2"]):
        found = fpdfp.inference.Heterogeneity.of_tables(name, tables)
        assert found.test.statistic == pytest.approx(r["Q"][j], rel=1e-6)
        assert found.test.p == pytest.approx(r["p"][j], rel=1e-6)
        assert found.i_squared == pytest.approx(r["I2"][j], rel=1e-6)
        assert found.tau_squared == pytest.approx(r["tau2"][j], rel=1e-6)
        for pooled, kind in ((found.fixed, "fixed"), (found.dersimonian_laird, "random")):
            assert pooled.estimate == pytest.approx(r[kind][j], rel=1e-6)
            assert pooled.standard_error == pytest.approx(r[f"{kind}_errors"][j], rel=1e-6)


@pytest.mark.parametrize(
    ("name", "columns"), [("complete", ["x"]), ("quasi", ["group[T.q]"]), ("empty group", ["group[T.q]"])]
)
def test_separation_is_named(name: str, columns: list[str]) -> None:
    """R warns of the first, if not by name, and says nothing of the others: coefficients of 20 with errors of 3000."""
    case = R[f"separated, {name}"]
    assert case["r"]["largest"] > 19
    model = fpdfp.FederatedGLM(case["family"])
    with pytest.raises(fpdfp.errors.SeparationError) as refused:
        model.fit(frame("separated"), case["formula"], groups="site")
    assert set(columns) <= set(refused.value.columns)
    # With a ridge everything is finite, and nothing is to be said.
    penalised = fpdfp.FederatedGLM(case["family"], penalty=fpdfp.Ridge(0.01)).fit(
        frame("separated"), case["formula"], groups="site"
    )
    assert max(map(abs, penalised.coefficients_.values())) < 10


def test_strong_effects_are_not_separation() -> None:
    """A group with one event among many rows, and one with none but few."""
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], [3000, 3000])
    x = rng.normal(size=6000)
    y = rng.binomial(1, 1 / (1 + np.exp(-6 * x - 3)))
    y[group == 1] = 0
    y[-1] = 1
    X = np.column_stack([x, group])
    model = fpdfp.FederatedGLM("binomial").fit(X, y, groups=np.arange(6000) % 3)
    assert abs(model.coef_[1]) > 4
    rare = np.where(group == 0, rng.poisson(1000, 6000), 0)
    rare[-1] = 1
    assert fpdfp.FederatedGLM("poisson").fit(X, rare, groups=np.arange(6000) % 3).coef_[1] < -12


@pytest.mark.parametrize("name", [name for name in GLM if name not in ("binomial, log", "poisson, identity")])
def test_rounds_are_not_more_than_iterations_of_r(name: str) -> None:
    """At the tolerance of R, 1e-8; without the two models that R fits from a given start alone.

    For the inverse Gaussian with its own link, too, R must be given a start, from which it takes five iterations.
    """
    case, r = GLM[name], GLM[name]["r"]
    model = fit(case, run=fpdfp.RunOptions(tol=1e-8))
    assert model.n_iter_ <= (10 if name == "inverse gaussian" else r["iterations"])
    close(model.table().coefficients, r["coefficients"], 1e-4)
