"""The default tolerance of a cross-validation finds the weight of exact scores, or its neighbour of equal deviance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes

import fpdfp
from tests import r_cases

#: What a neighbour may lose in mean deviance, relative to the best.
EQUAL = 1e-5


def read(name: str) -> tuple[Any, dict[str, Any], Any, Any]:
    """Return an estimator, its options, rows and outcomes."""
    if name == "diabetes":
        return fpdfp.FederatedLinearRegressionCV, {}, *load_diabetes(return_X_y=True)
    if name == "cancer":
        return fpdfp.FederatedLogisticRegressionCV, {}, *load_breast_cancer(return_X_y=True)
    table = pd.get_dummies(r_cases.study(name), drop_first=True).astype(float).dropna()
    if name == "birthwt":
        X = table.drop(columns=["low", "bwt"])
        return fpdfp.FederatedLogisticRegressionCV, {}, X.to_numpy(), table["low"].to_numpy()
    if name == "quine":
        X = table.drop(columns="Days")
        return fpdfp.FederatedGLMCV, {"family": "poisson"}, X.to_numpy(), table["Days"].to_numpy()
    X = table.drop(columns=["time", "event"])
    return fpdfp.FederatedCoxRegressionCV, {"baseline": False}, X.to_numpy(), table[["time", "event"]].to_numpy()


@pytest.mark.parametrize(
    "name", ["birthwt", "quine", "veteran", "diabetes", pytest.param("cancer", marks=pytest.mark.slow)]
)
def test_the_default_finds_the_weight_of_exact_scores(name: str) -> None:
    kind, options, X, y = read(name)
    sites, folds = np.arange(len(X)) % 3, np.arange(len(X)) * 7 % 5

    def choose(**given: Any) -> Any:
        choice = fpdfp.CrossValidation(folds, **given)
        return kind(penalty="l1", cv=choice, standardize=True, **options).fit(X, y, sites)

    found, exact = choose(), choose(tol=1e-11)
    place, wanted = (int((one.alphas_ == one.alpha_min_).argmax()) for one in (found, exact))
    assert abs(place - wanted) <= 1
    assert exact.mean_score_[place] <= exact.mean_score_[wanted] * (1.0 + EQUAL)
    assert found.alpha_1se_ == exact.alpha_1se_
