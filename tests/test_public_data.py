"""Every model on at least four public data sets of R, at sites: coefficients, errors and deviances are R's to 1e-6."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import families
from tests import r_cases

CASES = {name: case for name, case in r_cases.cases("public").items() if not name.startswith("data ")}
QUANTILES = [name for name in CASES if name.startswith("quantile")]
OTHERS = [name for name in CASES if not name.startswith(("log-rank", "quantile"))]
PATHS = r_cases.cases("paths")
TIGHT = fpdfp.RunOptions(tol=1e-13)
FAMILIES: dict[str, Any] = {
    "gaussian": families.Gaussian(), "gamma": families.Gamma("log"),
    "inverse gaussian": families.InverseGaussian("log"),
    "logit": families.Binomial(), "probit": families.Binomial("probit"), "cloglog": families.Binomial("cloglog"),
    "poisson": families.Poisson(), "negative binomial": "negative binomial", "tweedie": families.Tweedie(power=1.5),
}  # fmt: skip


def test_every_model_has_four_data_sets() -> None:
    counts = Counter(case["model"] for case in CASES.values())
    counts += Counter(name.split(", ", 2)[0] + name.split(", ", 2)[2] for name in PATHS)
    assert min(counts.values()) >= 4, counts


def fit(case: dict[str, Any]) -> Any:
    """Return the fitted model of a case."""
    model, table, formula = case["model"], r_cases.study(case["data"], "public"), case["formula"]
    weights = case.get("weights", "one")
    options: dict[str, Any] = {} if weights == "one" else {"weights": weights}
    if model in FAMILIES:
        made: Any = fpdfp.FederatedGLM(FAMILIES[model], run=TIGHT)
    elif model.startswith("cox"):
        made = fpdfp.FederatedCoxRegression(ties=case["ties"], baseline=False, run=TIGHT)
    elif model.startswith("ordinal"):
        link: Any = "probit" if "probit" in model else "logit"
        made = fpdfp.FederatedOrdinalRegression(link, order=_levels(table, formula), run=TIGHT)
    elif model == "multinomial":
        made = fpdfp.FederatedMultinomialRegression(run=TIGHT, reference=_levels(table, formula)[0])
    else:
        made = fpdfp.FederatedGLM("gaussian", site_effects="random", run=TIGHT)
    return made.fit(table, formula, groups=case.get("group", "site"), **options)


def _levels(table: Any, formula: str) -> Any:
    y = table[formula.split(" ~ ")[0]]
    return list(y.cat.categories) if hasattr(y, "cat") else sorted(set(y))


@pytest.mark.parametrize("name", OTHERS)
def test_it_is_that_of_r(name: str) -> None:
    case = CASES[name]
    model, r = fit(case), case["r"]
    table = model.table()
    found, errors = np.array(table.coefficients), np.array(table.standard_errors)
    scale = r_cases.numbers(r["errors"])
    np.testing.assert_allclose(found / scale, r_cases.numbers(r["coefficients"]) / scale, atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(errors, scale, rtol=1e-6)
    if "variance" in r:
        assert model.site_variance_ == pytest.approx(r["variance"], rel=1e-5)
    if "deviance" in r:
        assert model.deviance_ == pytest.approx(r["deviance"], rel=1e-6)
    if "null" in r:
        assert model.null_deviance_ == pytest.approx(r["null"], rel=1e-6)
    if "theta" in r:
        assert model.theta_ == pytest.approx(r["theta"], rel=1e-6)
        assert model.theta_standard_error_ == pytest.approx(r["theta_error"], rel=1e-6)
    if "concordance" in r:
        assert model.concordance_.index == pytest.approx(r["concordance"], rel=1e-9)
        assert model.concordance_.error == pytest.approx(r["spread"], rel=1e-6)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("log-rank")])
def test_log_rank_tests_are_those_of_r(name: str) -> None:
    case = CASES[name]
    found = fpdfp.log_rank_test(r_cases.study(case["data"], "public"), case["formula"], groups="site")
    assert found.statistic == pytest.approx(case["r"]["statistic"], rel=1e-9)


@pytest.mark.parametrize("name", QUANTILES)
def test_quantiles_are_those_of_r_but_for_smoothing(name: str) -> None:
    """Within half an error of R's estimates, which are not smoothed; errors are near R's of three kinds.

    With 31 to 234 rows these kinds differ by up to 2.8 times.
    """
    case, r = CASES[name], CASES[name]["r"]
    model = fpdfp.FederatedGLM(families.Quantile(level=case["level"]))
    found = model.fit(r_cases.study(case["data"], "public"), case["formula"], groups=case.get("group")).table()
    several = np.array([r[kind] for kind in ("errors", "kernel", "pairs")], dtype=float)
    assert (np.abs(found.coefficients - r["coefficients"]) < 0.5 * several.max(axis=0)).all()
    assert (found.standard_errors > several.min(axis=0) / 1.6).all()
    assert (found.standard_errors < several.max(axis=0) * 1.25).all()


@pytest.mark.parametrize("name", PATHS)
def test_paths_are_those_of_glmnet(name: str) -> None:
    """With its own standardisation, by the weights of rows, and without; single fits end at the same points."""
    case, r = PATHS[name], PATHS[name]["r"]
    table = r_cases.study(case["data"], "public")
    weighted = {} if case["weights"] == "one" else {"weights": case["weights"]}
    lambdas, known = r_cases.numbers(r["lambdas"]), np.array(r["coefficients"])
    run = fpdfp.RunOptions(tol=1e-14)

    def model(weight: float | None, **options: Any) -> Any:
        kind = fpdfp.Ridge if case["mixing"] == 0.0 else fpdfp.ElasticNet
        more = {} if kind is fpdfp.Ridge else {"l1_ratio": case["mixing"]}
        standardize = None if case["standardize"] else False
        options = {"penalty": kind(weight, **more), "standardize": standardize, "run": run} | options
        return fpdfp.FederatedGLM(case["family"], **options)

    largest = np.abs(known).max(axis=0)
    scale = np.where(largest > 0, largest, 1.0)
    for k, weight in enumerate(lambdas):
        fit = model(float(weight)).fit(table, case["formula"], groups="site", **weighted)
        np.testing.assert_allclose(fit.coef_ / scale, known[k] / scale, atol=1e-6)
        assert fit.intercept_ == pytest.approx(r["intercept"][k], rel=1e-6)
    if case["mixing"] == 0.0:
        return  # what a path promises to gain by a further step is not known to 1e-10 of a large ridge
    path = model(None).path(table, case["formula"], groups="site", alphas=lambdas, tol=1e-10, **weighted)
    assert path.status == ("converged",) * 3
    np.testing.assert_allclose(path.coef / scale, known / scale, atol=1e-3)
