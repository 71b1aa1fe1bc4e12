"""Firth's penalty and profile likelihoods: against R, against differences, and against searches by SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq, minimize

import fpdfp
from fpdfp import FederatedCoxRegression, FederatedGLM, FederatedLogisticRegression, FederatedOrdinalRegression
from fpdfp.errors import ArgumentError, SeparationError
from fpdfp.families import Gamma, InverseGaussian
from fpdfp.inference.information import invert
from fpdfp.losses import GLM, Cox, Logistic
from fpdfp.precondition.base import full
from tests import r_cases

CASES = {name: case for name, case in r_cases.cases("likelihood").items() if not name.startswith("data ")}
FAMILIES: dict[str, Any] = {
    "gamma": Gamma("log"), "inverse gaussian": InverseGaussian("log"), "probit": fpdfp.families.Binomial("probit"),
}  # fmt: skip


def fit(name: str) -> tuple[Any, Any, dict[str, Any], Any]:
    """Return the fitted model of a case, its data, the case, and the sites of rows."""
    case, table = CASES[name], r_cases.study(CASES[name]["data"], "likelihood")
    penalty = "firth" if name.startswith("firth") else "none"
    formula = case["formula"]
    if "ties" in case:
        model: Any = FederatedCoxRegression(penalty, ties=case["ties"], baseline=False)
        return model.fit(table, formula, groups="site"), table, case, "site"
    if formula.startswith("y + 1"):
        table, formula = table.assign(more=table["y"] + 1), formula.replace("y + 1", "more")
    sites = np.arange(len(table)) % 3
    model = FederatedGLM(FAMILIES.get(case["family"], case["family"]), penalty=penalty)
    return model.fit(table, formula, groups=sites), table, case, sites


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("firth")])
def test_estimates_with_firths_penalty_are_those_of_r(name: str) -> None:
    model, _, case, _ = fit(name)
    table, r = model.table(), case["r"]
    np.testing.assert_allclose(table.coefficients, r_cases.numbers(r["coefficients"]), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(table.standard_errors, r_cases.numbers(r["errors"]), rtol=1e-6)
    if "brglm" in r:
        np.testing.assert_allclose(table.coefficients, r_cases.numbers(r["brglm"]), rtol=1e-6, atol=1e-6)
    assert "profile_intervals" in str(model.summary())


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("varying")])
def test_profile_limits_are_those_of_r(name: str) -> None:
    model, table, case, sites = fit(name)
    if str(model.formula_).startswith("more"):
        table = table.assign(more=table["y"] + 1)
    found = model.profile_intervals(table, groups=sites)
    limits = np.array(case["r"]["limits"], dtype=float).reshape(-1, 3)
    size = np.abs(limits[:, :2]).max(axis=1)
    np.testing.assert_allclose(found.lower / size, limits[:, 0] / size, atol=1e-6)
    np.testing.assert_allclose(found.upper / size, limits[:, 1] / size, atol=1e-6)
    np.testing.assert_allclose(found.statistics, limits[:, 2], rtol=1e-6, atol=1e-6)


def data(kind: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    X, owner = rng.standard_normal((60, 3)), np.arange(60) % 3
    weights, offset = rng.uniform(0.5, 2.0, 60), 0.3 * rng.standard_normal(60)
    if kind == "logistic":
        return Logistic(X, (rng.random(60) < 0.4) * 1.0, clients=owner), 1e-7
    if kind in ("binomial", "poisson"):
        y = rng.poisson(0.5, 60).clip(max=1 if kind == "binomial" else None)
        return GLM(X, y, clients=owner, family=kind, weights=weights, offset=offset), 1e-7
    entry = rng.uniform(0.0, 0.3, 60)
    return Cox(
        X, np.round(0.5 + rng.exponential(1.0, 60), 1), rng.random(60) < 0.7, owner, entry=entry, ties=kind,
        weights=weights, offset=offset, strata=np.arange(60) % 2,
    ), 1e-6  # fmt: skip


@pytest.mark.parametrize("kind", ["logistic", "binomial", "poisson", "efron", "breslow"])
def test_the_gradient_of_the_determinant_is_that_of_differences(kind: str) -> None:
    losses, tolerance = data(kind)
    clients, x = np.arange(3), np.array([0.4, -0.7, 0.2])

    def information(point: Any) -> Any:
        return full(losses.sums_at(point, clients, robust=False).hessian.sum(axis=0))

    found = losses.jeffreys_at(x, clients, invert(information(x))).sum(axis=0)
    step = 1e-5 * np.eye(3)
    differences = [
        0.5 * (np.linalg.slogdet(information(x + one))[1] - np.linalg.slogdet(information(x - one))[1]) / 2e-5
        for one in step
    ]
    np.testing.assert_allclose(found, differences, atol=tolerance)


def test_separated_outcomes_point_to_firth_whose_estimates_are_finite() -> None:
    X, y = np.array([[0.0], [0.0], [0.0], [1.0], [1.0], [1.0]]), np.array([0, 0, 0, 1, 1, 1])
    with pytest.raises(SeparationError, match="penalty='firth'"):
        FederatedLogisticRegression("none").fit(X, y)
    model = FederatedLogisticRegression("firth").fit(X, y, groups=[0, 1, 2, 0, 1, 2])
    assert model.coef_[0, 0] == pytest.approx(2 * np.log(7), rel=1e-9)  # half a row is added to each cell
    chance = 3.5 / 4.0  # of the larger group, as estimated
    assert model.table().standard_errors[1] == pytest.approx(np.sqrt(2.0 / (3.0 * chance * (1.0 - chance))), rel=1e-6)
    with pytest.raises(ArgumentError, match="Firth's, which is for"):
        FederatedGLM("gamma", "log", penalty="firth").fit(X, y + 1.0)
    with pytest.raises(ArgumentError, match="convex"):
        fpdfp.FederatedLogisticRegressionCV("firth").fit(X, y)
    with pytest.raises(ArgumentError, match="Firth's penalty has none"):
        fpdfp.Firth(0.1)


def test_a_column_that_others_determine_is_left_out_with_firths_penalty() -> None:
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"a": rng.standard_normal(60), "y": rng.integers(0, 2, 60), "site": np.arange(60) % 3})
    table["b"] = 2.0 * table["a"] - 1.0
    one = FederatedGLM("binomial", penalty="firth").fit(table, "y ~ a", groups="site")
    both = FederatedGLM("binomial", penalty="firth").fit(table, "y ~ a + b", groups="site")
    assert both.aliased_ == ("b",)
    np.testing.assert_allclose(both.table().coefficients, one.table().coefficients, rtol=1e-8)
    np.testing.assert_allclose(both.profile_intervals(table, groups="site").lower,
                               one.profile_intervals(table, groups="site").lower, rtol=1e-7)  # fmt: skip


def test_the_limit_of_an_ordinal_model_is_that_of_a_search() -> None:
    rng = np.random.default_rng(2)
    X, sites = rng.standard_normal((120, 2)), np.arange(120) % 3
    y = np.digitize(X[:, 0] + rng.logistic(size=120), [-0.5, 1.0])
    model = FederatedOrdinalRegression(standardize=True).fit(X, y, groups=sites)
    found = model.profile_intervals(X, y, sites, names=["x1", "0|1"])

    def deviance(v: Any) -> float:
        below = 1.0 / (1.0 + np.exp(-(np.array(v[2:]) - (X @ v[:2])[:, None])))
        chances = np.diff(below, axis=1, prepend=0.0, append=1.0)[np.arange(120), y]
        return float(-2.0 * np.log(np.maximum(chances, 1e-300)).sum())

    best = np.concatenate([model.coef_, model.thresholds_])
    for place, (lower, upper) in zip((1, 2), zip(found.lower, found.upper, strict=True), strict=True):
        others = [j for j in range(4) if j != place]

        def profile(value: float, place: int = place, others: Any = others) -> float:
            def at(rest: Any) -> float:
                v = np.empty(4)
                v[place], v[others] = value, rest
                return deviance(v)

            return float(minimize(at, best[others], method="BFGS", options={"gtol": 1e-9}).fun)

        level = deviance(best) + 3.841458820694124
        for limit in (lower, upper):
            exact = brentq(lambda value, level=level: profile(value) - level, limit - 0.1, limit + 0.1, xtol=1e-10)
            assert limit == pytest.approx(exact, abs=1e-6)


def test_other_data_than_those_of_the_fit_are_refused() -> None:
    rng = np.random.default_rng(3)
    X, y = rng.standard_normal((80, 2)), rng.integers(0, 2, 80)
    model = FederatedLogisticRegression("none").fit(X, y, groups=np.arange(80) % 2)
    with pytest.raises(ArgumentError, match="must be the data of the fit"):
        model.profile_intervals(X, 1 - y)
    with pytest.raises(ArgumentError, match="must be the data of the fit"):
        model.profile_intervals(X[:, :1].repeat(3, axis=1) + rng.standard_normal((80, 3)), y)
    with pytest.raises(ArgumentError, match="names of coefficients"):
        model.profile_intervals(X, y, names=["x7"])
    with pytest.raises(ArgumentError, match="without a penalty"):
        FederatedLogisticRegression("l1").fit(X, y).profile_intervals(X, y)
