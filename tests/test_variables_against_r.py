"""Splines with knots at federated quantiles, poly, cbind and inverse probability weights, against R."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from tests.r_cases import cases, numbers

FAMILIES = {"quasibinomial": "quasi-binomial", "cox": "cox"}


def named(prefix: str) -> list[str]:
    return [name for name in cases("variables") if name.startswith(prefix)]


def table(case: dict[str, Any]) -> pd.DataFrame:
    made = pd.DataFrame(cases("variables")[f"data {case['data']}"]["r"]["columns"])
    return made.assign(site=np.arange(len(made)) % 3)


def fit(case: dict[str, Any], formula: str, family: str = "", **options: Any) -> Any:
    formula, survives = formula.replace("factor(", "C("), formula.startswith("Surv")
    model: Any = (
        fpdfp.FederatedCoxRegression() if survives else fpdfp.FederatedGLM(FAMILIES.get(family, family or "binomial"))
    )
    return model.fit(table(case), formula, groups="site", **options)


def errors_of(model: Any, errors: Any = "model") -> np.ndarray[Any, Any]:
    return np.asarray(model.table(errors=errors).standard_errors)


@pytest.mark.parametrize("name", named("spline"))
def test_splines(name: str) -> None:
    case = cases("variables")[name]
    model, r = fit(case, case["formula"]), case["r"]
    spline = model.plan_.design.terms[0].factors[0]
    assert list(spline.knots) == case["knots"]
    assert [spline.lower, spline.upper] == case["bounds"]
    assert list(model.coefficients_.values()) == pytest.approx(list(numbers(r["coefficients"])), rel=1e-6, abs=1e-8)
    assert errors_of(model) == pytest.approx(numbers(r["errors"]), rel=1e-6)
    assert model.deviance_ == pytest.approx(r["deviance"], rel=1e-9)
    # The stated accuracy: a tenth of a deviation, and values that are the same.
    x = table(case)[spline.of.column].dropna().to_numpy()
    wanted = np.linspace(0.0, 1.0, len(spline.knots) + 2)[1:-1]
    for share, knot in zip(wanted, spline.knots, strict=True):
        assert abs(np.quantile(x, share, method="inverted_cdf") - knot) <= x.std(ddof=1) / 10
    told = model.summary().more[f"knots of {spline.name}"]
    assert told == f"{', '.join(f'{one:g}' for one in spline.knots)}; bounds {spline.lower:g} and {spline.upper:g}"


@pytest.mark.parametrize("name", named("model"))
def test_polynomials_and_trials(name: str) -> None:
    case = cases("variables")[name]
    model, r = fit(case, case["formula"], case["family"]), case["r"]
    assert list(model.coefficients_.values()) == pytest.approx(list(numbers(r["coefficients"])), rel=1e-6, abs=1e-7)
    assert errors_of(model) == pytest.approx(numbers(r["errors"]), rel=1e-6)
    assert model.deviance_ == pytest.approx(r["deviance"], rel=1e-8)
    if case["family"] == "binomial":
        assert model.summary().aic == pytest.approx(r["aic"], rel=1e-9)
        # New rows are coded with the same centres, and trials do not matter for them.
        rows = table(case).dropna().iloc[:5]
        assert np.allclose(model.predict(rows), fit(case, case["formula"]).predict(rows), rtol=1e-12)


@pytest.mark.parametrize("name", named("inverse"))
def test_inverse_probability_weights(name: str) -> None:
    case = cases("variables")[name]
    given: Any = fpdfp.FederatedGLM("binomial", case["link"])
    given.fit(table(case), case["treatment"].replace("factor(", "C("), groups="site")
    weights = fpdfp.InverseProbability(given, case["estimand"])
    model, r = fit(case, case["outcome"], case["family"], weights=weights), case["r"]
    assert sum(model.rows_.values()) == r["rows"]
    assert list(model.coefficients_.values()) == pytest.approx(list(numbers(r["coefficients"])), rel=1e-6, abs=1e-8)
    for errors in ("model", "HC0"):
        assert errors_of(model, errors) == pytest.approx(numbers(r["errors"]), rel=1e-6)
    if "survey" in r:
        factor = np.sqrt(r["rows"] / (r["rows"] - 1))
        assert errors_of(model) * factor == pytest.approx(numbers(r["survey"]), rel=1e-6)
    assert "inverse probabilities" in str(model.summary())


def test_tests_of_likelihoods_are_not_shown_with_inverse_probabilities() -> None:
    case = cases("variables")["inverse lung Surv(time, event) ~ female cox"]
    given = fpdfp.FederatedGLM("binomial").fit(table(case), case["treatment"], groups="site")
    plain, weighted = (
        str(fit(case, case["outcome"], **options).summary())
        for options in ({}, {"weights": fpdfp.InverseProbability(given)})
    )
    for line in ("likelihood ratio", "AIC", "score  "):
        assert line in plain
        assert line not in weighted
