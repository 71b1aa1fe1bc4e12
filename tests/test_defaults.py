"""Defaults of a first fit: no penalty for a formula, and one that does not depend on units where it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
    """Of a formula, that is: matrices are taken as they are given, unless standardize=True."""
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
