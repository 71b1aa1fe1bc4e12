"""Covariances, tables and tests of nested models from sums of sites, against statsmodels and closed forms."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy import stats

from fpdfp._typing import Array
from fpdfp.errors import ArgumentError, DataWarning
from fpdfp.inference import (
    Information,
    Summary,
    Table,
    add_up,
    coefficient_table,
    covariance,
    likelihood_ratio_test,
    variance_inflation,
    wald_test,
)
from tests.textbook_glm import FAMILIES, NAMES, by_site, fit, information, outcomes, rows

#: What statsmodels says of the same data; its version is in the file.
EXPECTED: dict[str, Any] = json.loads((Path(__file__).parent / "data" / "inference.json").read_text())
FEW = "ignore:errors clustered by site rest on 3 sites"


def fitted(name: str) -> tuple[Array, list[Information]]:
    X, owner = rows()
    y = outcomes(name)
    x = fit(name, X, y)
    return x, by_site(name, X, y, owner, x)


@pytest.mark.parametrize("name", FAMILIES)
def test_standard_errors_are_those_of_statsmodels(name: str) -> None:
    x, sites = fitted(name)
    expected, total = EXPECTED[name], add_up(sites)
    dispersion = total.dispersion() if FAMILIES[name].has_dispersion else 1.0
    np.testing.assert_allclose(x, expected["coefficients"], rtol=1e-8)
    np.testing.assert_allclose(total.deviance, expected["deviance"], rtol=1e-10)
    np.testing.assert_allclose(dispersion, expected["dispersion"], rtol=1e-8)
    np.testing.assert_allclose(np.sqrt(np.diag(covariance(sites, dispersion))), expected["model"], rtol=1e-7)
    if name == "gamma":  # statsmodels has the observed Hessian in robust errors, which with this link is another one
        X, owner = rows()
        seconds = outcomes(name) / np.exp(X @ x)
        parts = [X[owner == s].T @ (X[owner == s] * seconds[owner == s, None]) for s in range(3)]
        sites = [replace(site, hessian=part) for site, part in zip(sites, parts, strict=True)]
    np.testing.assert_allclose(np.sqrt(np.diag(covariance(sites, errors="HC0"))), expected["HC0"], rtol=1e-7)
    with pytest.warns(DataWarning, match="3 sites"):
        clustered = covariance(sites, errors="sites")
    np.testing.assert_allclose(np.sqrt(np.diag(clustered)), expected["sites"], rtol=1e-7)
    for kind in ("HC1", "robust") if name == "gaussian" else ():
        np.testing.assert_allclose(np.sqrt(np.diag(covariance(sites, errors=kind))), expected["HC1"], rtol=1e-7)


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_enter_as_those_of_statsmodels(name: str) -> None:
    X, owner = rows()
    y, weights = outcomes(name), 1 + np.arange(60) % 3 / 2
    x = fit(name, X, y, weights)
    table = coefficient_table(
        NAMES, x, by_site(name, X, y, owner, x, weights), has_dispersion=FAMILIES[name].has_dispersion
    )
    np.testing.assert_allclose(table.coefficients, EXPECTED[name]["weighted"], rtol=1e-8)
    np.testing.assert_allclose(table.standard_errors, EXPECTED[name]["weighted_model"], rtol=1e-7)


@pytest.mark.parametrize("name", FAMILIES)
def test_p_values_intervals_and_wald_tests_are_those_of_statsmodels(name: str) -> None:
    x, sites = fitted(name)
    table = coefficient_table(NAMES, x, sites, has_dispersion=FAMILIES[name].has_dispersion)
    np.testing.assert_allclose(table.p_values, EXPECTED[name]["p"], rtol=1e-6)
    np.testing.assert_allclose(table.intervals(0.9)[1], EXPECTED[name]["interval"], rtol=1e-7)
    found = wald_test(table, ["age", "dose"])
    np.testing.assert_allclose([found.statistic, found.p], EXPECTED[name]["wald"], rtol=1e-5)
    assert (found.df, found.df_residual) == (2, 56.0 if FAMILIES[name].has_dispersion else None)
    assert ("F = " if FAMILIES[name].has_dispersion else "χ² = ") in str(found)


def test_the_test_of_one_coefficient_is_that_of_the_table() -> None:
    x, sites = fitted("gamma")
    table = coefficient_table(NAMES, x, sites, has_dispersion=True)
    assert wald_test(table, "dose").p == pytest.approx(table.p_values[2], rel=1e-9)
    shifted = wald_test(table, [[0, 1, -1, 0]], 0.5)
    variance = table.covariance[1, 1] + table.covariance[2, 2] - 2 * table.covariance[1, 2]
    assert shifted.statistic == pytest.approx((x[1] - x[2] - 0.5) ** 2 / variance)
    assert "Lx = 0.5" in str(shifted)


def test_the_jackknife_is_that_of_leaving_out_a_site() -> None:
    X, owner = rows()
    y = outcomes("gaussian")
    x = fit("gaussian", X, y)
    without = [fit("gaussian", X[owner != s], y[owner != s]) - x for s in range(3)]
    with pytest.warns(DataWarning, match="too small$"):
        found = covariance(by_site("gaussian", X, y, owner, x), errors="jackknife")
    np.testing.assert_allclose(found, 2 / 3 * sum(np.outer(one, one) for one in without), rtol=1e-9, atol=1e-15)


def test_sums_of_sites_are_those_of_all_rows() -> None:
    X, owner = rows()
    y = outcomes("poisson")
    x = fit("poisson", X, y)
    total, whole = sum(by_site("poisson", X, y, owner, x)), information("poisson", X, y, x)
    assert isinstance(total, Information)
    np.testing.assert_allclose(total.hessian, whole.hessian, rtol=1e-12)
    np.testing.assert_allclose(total.meat, whole.meat, rtol=1e-12)
    np.testing.assert_allclose(total.score, 0.0, atol=1e-10)
    assert (total.rows, total.weight) == (60, 60.0)
    slopes, curvatures = np.arange(60.0), np.arange(60.0) + 1
    dense = Information.of_rows(X, slopes, curvatures, weight=60)
    sparse = Information.of_rows(scipy.sparse.csr_array(X), slopes, curvatures, weight=60)
    np.testing.assert_allclose(sparse.hessian, dense.hessian, rtol=1e-12)
    np.testing.assert_allclose(sparse.meat, dense.meat, rtol=1e-12)
    assert Information.of_rows(X, slopes, curvatures, weight=60, robust=False).meat is None


def test_standardised_features_are_taken_back() -> None:
    X, owner = rows()
    y = outcomes("binomial")
    centre, scale = X[:, 1:].mean(0), X[:, 1:].std(0)
    Z = np.concatenate([np.ones((60, 1)), (X[:, 1:] - centre) / scale], axis=1)
    z = fit("binomial", Z, y)
    back = np.diag(np.concatenate([[1.0], 1 / scale]))
    back[0, 1:] = -centre / scale
    table = coefficient_table(
        NAMES, back @ z, [one.change(back) for one in by_site("binomial", Z, y, owner, z)], has_dispersion=False
    )
    np.testing.assert_allclose(table.coefficients, EXPECTED["binomial"]["coefficients"], rtol=1e-8)
    np.testing.assert_allclose(table.standard_errors, EXPECTED["binomial"]["model"], rtol=1e-7)
    x, sites = fitted("binomial")
    last = [1, 2, 3, 0]
    other = coefficient_table(
        [NAMES[j] for j in last], x[last], [one.take(last) for one in sites], has_dispersion=False, errors="HC0"
    )
    np.testing.assert_allclose(other.standard_errors, np.array(EXPECTED["binomial"]["HC0"])[last], rtol=1e-7)


def summary_of(name: str, columns: list[int], **changes: Any) -> Summary:
    """Return the summary of a model with some of the columns."""
    X, owner = rows()
    y = outcomes(name)
    X = X[:, columns]
    x = fit(name, X, y)
    sites = by_site(name, X, y, owner, x)
    names, total, dispersed = [NAMES[j] for j in columns], add_up(sites), FAMILIES[name].has_dispersion
    given = {
        "title": "FederatedGLM",
        "formula": None,
        "coefficients": dict(zip(names, x.tolist(), strict=True)),
        "sites": ["a", "b", "c"],
        "rows": [20, 20, 20],
        "left_out": [0, 1, 0],
        "deviance": total.deviance,
        "penalty": "none",
        "status": "converged",
        "rounds": 5,
        "bits_up": 1000,
        "bits_down": 2000,
        "table": coefficient_table(names, x, sites, has_dispersion=dispersed),
        "family": name,
        "has_dispersion": dispersed,
        "dispersion": total.dispersion() if dispersed else 1.0,
        "df_residual": 60 - len(columns),
    }
    return Summary(**{**given, **changes})


def test_nested_linear_models_are_compared_by_f() -> None:
    small, large = summary_of("gaussian", [0, 1]), summary_of("gaussian", [0, 1, 2, 3])
    found = likelihood_ratio_test(small, large)
    ratio = (small.deviance - large.deviance) / 2 / (large.deviance / 56)
    assert (found.df, found.df_residual) == (2, 56.0)
    assert found.statistic == pytest.approx(ratio, rel=1e-10)
    assert found.p == pytest.approx(stats.f.sf(ratio, 2, 56), rel=1e-8)
    # In a linear model it is Wald's test.
    assert large.table is not None
    assert wald_test(large.table, ["dose", "smoker"]).statistic == pytest.approx(found.statistic, rel=1e-9)
    assert str(found).startswith("5 parameters against 3 parameters: F = ")


def test_nested_models_without_dispersion_are_compared_by_chi_squared() -> None:
    small, large = summary_of("poisson", [0]), summary_of("poisson", [0, 1, 2, 3])
    found = likelihood_ratio_test(small, large)
    assert small.deviance == pytest.approx(EXPECTED["poisson"]["null_deviance"])
    difference = EXPECTED["poisson"]["null_deviance"] - EXPECTED["poisson"]["deviance"]
    assert found.statistic == pytest.approx(difference, rel=1e-9)
    assert (found.df, found.df_residual) == (3, None)
    assert found.p == pytest.approx(stats.chi2.sf(difference, 3))
    # Where likelihoods are known, they decide: a parameter of the family may differ between the models.
    found = likelihood_ratio_test(replace(small, log_likelihood=-20.0), replace(large, log_likelihood=-14.0))
    assert found.statistic == pytest.approx(12.0)


def test_what_is_no_likelihood_has_no_ratio() -> None:
    small, large = (summary_of("poisson", columns, log_likelihood=math.nan) for columns in ([0, 1], [0, 1, 2]))
    with pytest.raises(ArgumentError, match=r"must have a likelihood.*Wald"):
        likelihood_ratio_test(small, large)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"penalty": "l1, alpha=0.1"}, "without a penalty.*l1"),
        ({"rows": [20, 20, 19]}, "same rows, but 60 and 59"),
        ({"family": "poisson"}, "must be of the family"),
        ({"deviance": 1000.0}, "fits worse"),
        ({"dispersion": None}, "no estimate of the dispersion"),
    ],
)
def test_models_that_cannot_be_compared_are_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        likelihood_ratio_test(summary_of("gaussian", [0, 1]), summary_of("gaussian", [0, 1, 2], **change))


def test_arguments_of_comparisons_are_checked() -> None:
    small, large = summary_of("gaussian", [0, 1]), summary_of("gaussian", [0, 1, 2])
    with pytest.raises(ArgumentError, match="must have more coefficients than small, got 3, 4"):
        likelihood_ratio_test(large, small)
    with pytest.raises(ArgumentError, match="small must be what summary"):
        likelihood_ratio_test(3, large)
    assert large.table is not None
    for hypothesis, said in [
        ("height", "names of coefficients .Intercept, age, dose.*'height'"),
        ([[1.0, 2.0]], "3 columns"),
        ([[0, 1, 1], [0, 2, 2]], "independent"),
    ]:
        with pytest.raises(ArgumentError, match=said):
            wald_test(large.table, hypothesis)
    with pytest.raises(ArgumentError, match="table must be a Table"):
        wald_test(large, "age")


@pytest.mark.filterwarnings(FEW)
def test_errors_by_site_use_the_number_of_sites() -> None:
    x, sites = fitted("poisson")
    table = coefficient_table(NAMES, x, sites, has_dispersion=False, errors="sites")
    assert (table.df, table.rank) == (2.0, 2)
    np.testing.assert_allclose(table.p_values, 2 * stats.t.sf(np.abs(table.statistics), 2))
    assert wald_test(table, ["age", "dose"]).df_residual == 2.0
    with pytest.raises(ArgumentError, match="3 sites can test at most 2 together"):
        wald_test(table, NAMES[1:])
    for kind in ("sites", "jackknife"):
        with pytest.raises(ArgumentError, match=f"errors '{kind}' needs the sums of at least 3 sites.*got 2"):
            covariance(sites[:2], errors=kind)


def test_plain_intervals_after_a_penalised_fit_are_refused() -> None:
    x, sites = fitted("poisson")
    with pytest.raises(ArgumentError, match=r"penalty is l1, alpha=0\.1: no standard errors: .*debias"):
        coefficient_table(NAMES, x, sites, has_dispersion=False, penalty="l1, alpha=0.1")


@pytest.mark.filterwarnings(FEW)
def test_what_has_no_covariance_is_refused_by_name() -> None:
    X, owner = rows()
    y = outcomes("gaussian")
    twice = np.concatenate([X, X[:, 1:2] + 2 * X[:, 2:3]], axis=1)
    site = Information.of_rows(twice, np.zeros(60), np.ones(60), weight=60)
    with pytest.raises(ArgumentError, match="age, dose, score determine one another"):
        covariance(site, names=[*NAMES, "score"])
    empty = Information.of_rows(np.concatenate([X, np.zeros((60, 1))], 1), np.zeros(60), np.ones(60), weight=60)
    with pytest.raises(ArgumentError, match="no information on score"):
        covariance(empty, names=[*NAMES, "score"])
    own = np.concatenate([X, (owner == 2)[:, None] * 1.0], axis=1)
    x = fit("gaussian", own, y)
    with pytest.raises(ArgumentError, match="without site 2 the Hessian has no information on south"):
        covariance(by_site("gaussian", own, y, owner, x), errors="jackknife", names=[*NAMES, "south"])
    few = Information.of_rows(X[:4], np.ones(4), np.ones(4), weight=4, pearson=1.0)
    with pytest.raises(ArgumentError, match="rows must be more than the 4 coefficients"):
        few.dispersion()
    with pytest.raises(ArgumentError, match="more rows than the 4 coefficients"):
        covariance(few, errors="HC1")
    with pytest.raises(ArgumentError, match="meat"):
        covariance(replace(site.take([0, 1]), meat=None), errors="HC0")
    with pytest.raises(ArgumentError, match="errors must be one of 'model'"):
        covariance(site, errors="hc9")
    with pytest.raises(ArgumentError, match="at least one site"):
        covariance([])
    with pytest.raises(ArgumentError, match="must be Information"):
        covariance(["sums"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="5 and of 2 coefficients"):
        site + site.take([0, 1])


def test_wide_scales_are_not_taken_for_singular() -> None:
    X, _ = rows()
    site = Information.of_rows(X * [1.0, 1e-9, 1e9, 1.0], np.zeros(60), np.ones(60), weight=60)
    expected = np.linalg.inv(X.T @ X) / np.outer([1.0, 1e-9, 1e9, 1.0], [1.0, 1e-9, 1e9, 1.0])
    np.testing.assert_allclose(covariance(site), expected, rtol=1e-10)


def test_variance_inflation_is_that_of_regressing_on_the_others() -> None:
    X, _ = rows()
    found = variance_inflation(X.T @ X, NAMES)
    assert [one[0] for one in found.values()] == pytest.approx(EXPECTED["gaussian"]["vif"], rel=1e-9)
    # Fox and Monette: det of the correlations of a term and of the others, by that of all.
    R = np.corrcoef(X[:, 1:].T)
    both = variance_inflation(X.T @ X, NAMES, {"age": ["age"], "dose and smoker": ["dose", "smoker"]})
    expected = np.linalg.det(R[1:, 1:]) * 1.0 / np.linalg.det(R)
    assert both["dose and smoker"] == pytest.approx((expected, 2, expected**0.25))
    assert both["age"][0] == pytest.approx(found["age"][0])
    with pytest.raises(ArgumentError, match=r"names of coefficients.*'height'"):
        variance_inflation(X.T @ X, NAMES, {"a": ["height"]})
    with pytest.raises(ArgumentError, match="besides the intercept"):
        variance_inflation(np.eye(1), ["Intercept"])


def test_tables_show_ratios_and_levels() -> None:
    x, sites = fitted("binomial")
    table = coefficient_table(NAMES, x, sites, has_dispersion=False, level=0.9, exponentiate=True)
    frame = table.frame()
    assert list(frame.columns) == ["exp(coefficient)", "z", "p", "5 %", "95 %"]
    np.testing.assert_allclose(frame["5 %"], np.exp(table.intervals()[:, 0]))
    with pytest.raises(ArgumentError, match="level must be between 0 and 1"):
        replace(table, level=95)
    with pytest.raises(ArgumentError, match="level must be between 0 and 1"):
        table.intervals(95)
    assert "<th>smoker</th>" in table._repr_html_()
    huge = Table(["a"], np.array([800.0]), np.eye(1), exponentiate=True)
    assert "inf" in str(huge)


def test_summaries_have_all_a_paper_asks_for(tmp_path: Path) -> None:
    summary = summary_of(
        "gaussian",
        [0, 1, 2, 3],
        log_likelihood=-40.0,
        null_deviance=56.857,
        df_null=59,
        formula="y ~ age < dose",
        exchanges={"rounds": 5, "information": 1, "null deviance": 3},
        more={"concordance": 0.71234567},
    )
    text = str(summary)
    for part in [
        "FederatedGLM: y ~ age < dose",
        "converged after 5 rounds and 4 exchanges for information, null deviance (3)",
        "rows           60 used, 1 left out",
        "deviance       16.2497 on 56 degrees of freedom",
        "null deviance  56.857 on 59 degrees of freedom",
        "AIC, BIC       90, 100.4717",
        "dispersion     0.290173",
        "concordance    0.712346",
        "t with 56 degrees of freedom",
        "97.5 %",
    ]:
        assert part in text
    assert summary.bic == pytest.approx(80 + 5 * math.log(60))
    assert "y ~ age &lt; dose" in summary._repr_html_()
    saved = json.loads(summary.to_json() or "")
    assert saved["table"]["names"] == NAMES
    assert saved["table"]["standard error"] == pytest.approx(EXPECTED["gaussian"]["model"])
    assert saved["aic"] == 90.0
    summary.to_csv(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == summary.to_csv()
    assert (summary.to_csv() or "").startswith("name,coefficient,standard error,t,p,2.5 %,97.5 %\nIntercept,0.257")
    with pytest.raises(ArgumentError, match="path cannot be written"):
        summary.to_json(tmp_path / "no" / "table.json")


def test_summaries_without_inference_say_why() -> None:
    plain = summary_of("poisson", [0, 1], table=None, refused="no standard errors: <why>", log_likelihood=-40.0)
    assert str(plain).count("no standard errors: <why>") == 1
    assert list(plain.frame().columns) == ["coefficient"]
    assert "&lt;why&gt;" in plain._repr_html_()
    assert json.loads(plain.to_json() or "")["table"] is None
    assert plain.aic == 84.0
    assert replace(plain, further_parameters=1).aic == 86.0
    assert replace(plain, penalty="l1").aic is None
    assert replace(plain, log_likelihood=math.nan).aic is None
    classes = replace(plain, coefficients={"x": {"a": 1.0}, "z": {"a": 2.0}}, refused=None)
    assert classes.parameters == 2
    assert "a" in classes._repr_html_()
