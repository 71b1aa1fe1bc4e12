"""Defaults of a first fit: no penalty for a formula, and one that does not depend on units where it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fpdfp
from fpdfp.federation.rehearse import _estimator
from tests import r_cases

TABLE = r_cases.study("birthwt")
SITES = np.arange(len(TABLE)) % 3


@pytest.mark.parametrize(
    ("model", "formula"),
    [
        (fpdfp.FederatedLogisticRegression(), "low ~ age + lwt"),
        (fpdfp.FederatedLinearRegression(), "bwt ~ age + lwt"),
        (fpdfp.FederatedGLM("poisson"), "ftv ~ age + lwt"),
        (fpdfp.FederatedCoxRegression(), "Surv(bwt, low) ~ age + lwt"),
        (fpdfp.FederatedMultinomialRegression(), "race ~ age + lwt"),
    ],
)
def test_a_formula_is_fitted_without_a_penalty(model: Any, formula: str) -> None:
    summary = model.fit(TABLE, formula, groups=SITES).summary()
    assert summary.penalty == "none"
    assert summary.table is not None


def test_a_matrix_keeps_the_penalty_of_a_classifier() -> None:
    X, y = TABLE[["age", "lwt"]].to_numpy(), TABLE["low"].to_numpy()
    model = fpdfp.FederatedLogisticRegression().fit(X, y, groups=SITES)
    assert model.penalty_.describe() == "l1, weight=0.001"
    assert model.get_params()["penalty"] is None


def test_a_penalty_does_not_depend_on_units() -> None:
    options: dict[str, Any] = {"run": fpdfp.RunOptions(tol=1e-10)}
    model = fpdfp.FederatedLogisticRegression("l1", **options).fit(TABLE, "low ~ age + lwt", groups=SITES)
    grams = TABLE.assign(lwt=453.592 * TABLE["lwt"])
    other = fpdfp.FederatedLogisticRegression("l1", **options).fit(grams, "low ~ age + lwt", groups=SITES)
    assert other.coefficients_["lwt"] == pytest.approx(model.coefficients_["lwt"] / 453.592, rel=1e-4)
    assert other.coefficients_["age"] == pytest.approx(model.coefficients_["age"], rel=1e-4)
    asked = fpdfp.FederatedLogisticRegression("l1", standardize=True, **options).fit(
        TABLE, "low ~ age + lwt", groups=SITES
    )
    assert asked.coefficients_ == model.coefficients_
    told = fpdfp.FederatedLogisticRegression("l1", standardize=False, **options).fit(
        TABLE, "low ~ age + lwt", groups=SITES
    )
    assert told.coefficients_["lwt"] != pytest.approx(model.coefficients_["lwt"], rel=1e-4)


def _by_hand(X: Any, weights: Any, *, centre: bool) -> tuple[Any, Any]:
    """Return rows that are scaled by their weighted moments, and the scales."""
    mean = np.average(X, axis=0, weights=weights)
    scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weights))
    return (X - centre * mean) / scale, scale


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("how", ["matrix", "sparse", "formula"])
def test_a_penalty_scales_features_by_their_weighted_moments(how: str, intercept: bool) -> None:
    """On matrices as on formulas; without an intercept nothing takes up the centres, so features are not centred."""
    X, y, weights = TABLE[["age", "lwt"]].to_numpy(float), TABLE["bwt"].to_numpy(), TABLE["ftv"].to_numpy() + 0.5
    Z, scale = _by_hand(X, weights, centre=intercept)
    run = fpdfp.RunOptions(tol=1e-12)
    kind = fpdfp.FederatedLinearRegression
    expected = kind(fpdfp.L1(50.0), standardize=False, fit_intercept=intercept, run=run)
    expected.fit(Z, y, groups=SITES, sample_weight=weights)
    model = kind(fpdfp.L1(50.0), fit_intercept=intercept, run=run)
    if how == "formula":
        formula = "bwt ~ age + lwt" if intercept else "bwt ~ 0 + age + lwt"
        model.fit(TABLE, formula, groups=SITES, weights="ftv + 0.5")
    else:
        rows = X if how == "matrix" else scipy.sparse.csr_array(X)
        model.fit(rows, y, groups=SITES, sample_weight=weights)
    np.testing.assert_allclose(np.ravel(model.coef_) * scale, np.ravel(expected.coef_), rtol=1e-5)
    assert (model.intercept_ == 0.0) != intercept


@pytest.mark.parametrize("how", ["matrix", "sparse", "formula"])
def test_a_constant_column_stays_where_there_is_no_intercept(how: str) -> None:
    rows = TABLE[["age", "bwt"]].assign(age=(TABLE["age"] - TABLE["age"].mean()) / TABLE["age"].std(ddof=0), one=1.0)
    X, y, run = rows[["age", "one"]].to_numpy(), rows["bwt"].to_numpy(), fpdfp.RunOptions(tol=1e-12)
    expected = fpdfp.FederatedLinearRegression(fpdfp.L1(50.0), standardize=False, fit_intercept=False, run=run)
    expected.fit(X, y, groups=SITES)
    model = fpdfp.FederatedLinearRegression(fpdfp.L1(50.0), fit_intercept=False, run=run)
    if how == "formula":
        model.fit(rows, "bwt ~ 0 + age + one", groups=SITES)
    else:
        model.fit(X if how == "matrix" else scipy.sparse.csr_array(X), y, groups=SITES)
    assert abs(expected.coef_[1]) > 1000.0
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-6)


def test_weights_of_classes_do_not_change_the_scales() -> None:
    X, y = TABLE[["age", "lwt"]].to_numpy(float), TABLE["low"].to_numpy()
    Z, scale = _by_hand(X, None, centre=True)
    options: dict[str, Any] = {
        "penalty": fpdfp.L1(0.02), "class_weight": "balanced", "run": fpdfp.RunOptions(tol=1e-12)
    }  # fmt: skip
    model = fpdfp.FederatedLogisticRegression(**options).fit(X, y, groups=SITES)
    expected = fpdfp.FederatedLogisticRegression(standardize=False, **options).fit(Z, y, groups=SITES)
    np.testing.assert_allclose(model.coef_ * scale, expected.coef_, rtol=1e-5)
    by_formula = fpdfp.FederatedLogisticRegression(**options).fit(TABLE, "low ~ age + lwt", groups=SITES)
    np.testing.assert_allclose(by_formula.coef_, model.coef_, rtol=1e-5)


@pytest.mark.parametrize(
    ("formula", "family", "cv", "wanted"),
    [
        ("low ~ age", "auto", None, "FederatedLogisticRegression()"),
        ("race ~ age", "auto", None, "FederatedMultinomialRegression()"),
        ("bwt ~ age", "auto", None, "FederatedLinearRegression()"),
        ("Surv(bwt, low) ~ age", "auto", None, "FederatedCoxRegression()"),
        ("ftv ~ age", "poisson", None, "FederatedGLM(family='poisson')"),
        ("ftv ~ age", "poisson", 3, "FederatedGLMCV(cv=3, family='poisson')"),
        ("low ~ age", "auto", "sites", "FederatedLogisticRegressionCV(cv='sites')"),
    ],
)
def test_a_rehearsal_takes_every_model(formula: str, family: str, cv: Any, wanted: str, tmp_path: Path) -> None:
    TABLE.to_csv(tmp_path / "table.csv", index=False)
    assert repr(_estimator(tmp_path / "table.csv", formula, family, None, cv)) == wanted
