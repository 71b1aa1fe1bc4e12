"""Factors of penalties, limits and starting values of Cox, multinomial and ordinal models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import FederatedCoxRegression, FederatedMultinomialRegression, FederatedOrdinalRegression
from fpdfp.errors import ArgumentError
from tests.r_cases import cases, frame, numbers
from tests.test_cox_estimator import FORMULA, TABLE, DeskCohort, dense

NET = {name: case for name, case in cases("glmnet").items() if case["family"] == "cox" and not case["standardize"]}


@pytest.mark.parametrize("name", NET)
def test_glmnet_by_formula_and_by_rows(name: str) -> None:
    """With all sites in one stratum each, as glmnet has them by ``stratifySurv``."""
    case, table = NET[name], frame("wide")
    features = [f"z{j}" for j in range(1, 9)]
    options: dict[str, Any] = {
        "ties": "breslow",
        "run": fpdfp.RunOptions(tol=1e-12),
        "baseline": False,
        "standardize": False,
    }
    factors = None
    if "factors" in case:
        factors = dict(zip(features, case["factors"], strict=True))
    if "lower" in case:
        options["bounds"] = (case["lower"], case["upper"])
    formula = f"Surv(time, status) ~ {' + '.join(features)}" + " + offset(lean)" * ("offset" in case)
    for row, strength in enumerate(case["lambdas"]):
        known = numbers(case["r"]["coefficients"][row])
        model = FederatedCoxRegression(fpdfp.ElasticNet(strength, l1_ratio=case["mixing"], factors=factors), **options)
        model.fit(table, formula, groups="site", weights=case.get("weights"))
        np.testing.assert_allclose(model.coef_, known, rtol=1e-6, atol=1e-8)
        by_rows = {
            "sample_weight": table[case["weights"]] if "weights" in case else None,
            "offset": table["lean"] if "offset" in case else None,
        }
        model.fit(table[features], table[["time", "status"]].to_numpy(float), groups=table["site"], **by_rows)
        np.testing.assert_allclose(model.coef_, known, rtol=1e-6, atol=1e-8)


def test_starts_save_rounds_and_change_nothing(tmp_path: Path) -> None:
    plain = FederatedCoxRegression(baseline=False).fit(TABLE, FORMULA, groups="hospital")
    used = TABLE.dropna()
    y = used[["time", "died"]].to_numpy(float)
    for options in ({}, {"standardize": True}):
        again = FederatedCoxRegression(baseline=False, start=plain.coefficients_, **options)
        again.fit(TABLE, FORMULA, groups="hospital")
        assert again.n_iter_ < plain.n_iter_
        np.testing.assert_allclose(again.coef_, plain.coef_, rtol=1e-8)
        rows = FederatedCoxRegression(baseline=False, start=plain.coef_, **options)
        rows.fit(dense(used), y, groups=used["hospital"], strata=used["sex"])
        np.testing.assert_allclose(rows.coef_, plain.coef_, rtol=1e-8)
        assert rows.n_iter_ < plain.n_iter_
    for wrong in ([1.0], {"nothing": 1.0}):
        with pytest.raises(ArgumentError, match="start"):
            FederatedCoxRegression(start=wrong).fit(TABLE, FORMULA, groups="hospital")


def test_limits_at_sites(tmp_path: Path) -> None:
    """Behind desks the bits of a table; outside the limit the coefficient, inside nothing of it."""
    bounds = {"C(stage)": (0.0, 0.3)}
    options: dict[str, Any] = {"bounds": bounds, "baseline": False, "standardize": True}
    options["run"] = fpdfp.RunOptions(tol=1e-10)
    here = FederatedCoxRegression(**options).fit(TABLE, FORMULA, groups="hospital")
    assert here.coefficients_["C(stage)[T.III]"] == 0.3
    cohort = DeskCohort(TABLE, tmp_path)
    there = FederatedCoxRegression(**options).fit(cohort, FORMULA)
    for desk in cohort.desks:
        desk.close()
    np.testing.assert_array_equal(there.coef_, here.coef_)
    with pytest.raises(ArgumentError, match="bounds"):
        here.table()
    # What is free is the maximum given what is held.
    held = TABLE.assign(known=0.3 * (TABLE["stage"] == "III"))
    formula = "Surv(time, died) ~ age + I(stage == 'II') + strata(sex) + offset(known)"
    free = FederatedCoxRegression(baseline=False, run=fpdfp.RunOptions(tol=1e-10)).fit(held, formula, groups="hospital")
    inside = here.coefficients_["C(stage)[T.II]"]
    assert 0.0 < inside < 0.3
    np.testing.assert_allclose(free.coef_, [here.coefficients_["age"], inside], rtol=1e-5)


def test_concave_penalties() -> None:
    table = frame("wide")
    features = [f"z{j}" for j in range(1, 9)]
    y = table[["time", "status"]].to_numpy(float)
    plain = FederatedCoxRegression(baseline=False).fit(table[features], y, groups=table["site"])
    lasso, mcp = (
        FederatedCoxRegression(penalty, baseline=False).fit(table[features], y, groups=table["site"])
        for penalty in (fpdfp.L1(0.05), fpdfp.MCP(0.05))
    )
    largest = np.abs(plain.coef_).argmax()
    assert abs(mcp.coef_[largest]) > abs(lasso.coef_[largest])
    assert mcp.n_steps_ > 1


def classes(seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal([2.0, 0.0, 0.0], 1.0, (240, 3))
    y = np.digitize(X @ [0.8, -0.5, 0.0] + rng.logistic(size=240), [0.5, 2.5])
    return X, y, np.arange(240) % 3


@pytest.mark.parametrize("kind", [FederatedMultinomialRegression, FederatedOrdinalRegression])
@pytest.mark.parametrize("standardize", [False, True])
def test_classes(kind: Any, standardize: bool) -> None:
    X, y, site = classes()
    plain = kind(standardize=standardize, run=fpdfp.RunOptions(tol=1e-10)).fit(X, y, groups=site)
    again = kind(start=plain.coef_, standardize=standardize, run=fpdfp.RunOptions(tol=1e-10)).fit(X, y, groups=site)
    np.testing.assert_allclose(again.coef_, plain.coef_, rtol=1e-7, atol=1e-9)
    limited = kind(bounds=(-0.3, 0.3), standardize=standardize, run=fpdfp.RunOptions(tol=1e-10)).fit(X, y, groups=site)
    assert np.abs(limited.coef_).max() == 0.3
    assert limited.deviance_ > plain.deviance_
    with pytest.raises(ArgumentError, match="bounds"):
        limited.table()
    free = kind(
        penalty=fpdfp.L1(1.0, factors=[0.0, 1.0, 1.0]), standardize=standardize, run=fpdfp.RunOptions(tol=1e-10)
    )
    free.fit(X, y, groups=site)
    alone = kind(run=fpdfp.RunOptions(tol=1e-10)).fit(X[:, :1], y, groups=site)
    found = np.atleast_2d(free.coef_)
    assert not found[:, 1:].any()
    np.testing.assert_allclose(found[:, 0], np.atleast_2d(alone.coef_)[:, 0], rtol=1e-6)
