"""Paths and cross-validation against glmnet and cv.glmnet, with the same folds.

glmnet's λ is α here: both minimise the mean of minus the log-likelihood plus λ Σ_j (a |x_j| + (1 − a)/2 x_j²).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from tests.r_cases import cases, frame, numbers

CASES = cases("cv")
#: The accuracy that is asked of the problems, and of scores relative to theirs: these have errors of first order.
TOL, CURVE = 1e-10, 2e-5


def read(case: dict[str, Any]) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return X, y, the sites, and what ``fit`` is told of rows."""
    table = frame(case["data"])
    X = table[[f"z{j}" for j in range(1, 9)]].to_numpy(float)
    y = table[case["outcome"]].to_numpy(float)
    if case["family"] == "cox":
        y = np.column_stack([y, table["status"]])
    sites = table["site"].to_numpy() if case["by_site"] else np.zeros(len(X), dtype=int)
    given = {"sample_weight": case.get("weights"), "offset": case.get("offset")}
    return X, y, sites, {name: table[column].to_numpy(float) for name, column in given.items() if column}


def estimate(case: dict[str, Any], **options: Any) -> Any:
    """Return the estimator of a case, with or without cross-validation."""
    name = {"cox": "FederatedCoxRegression", "binomial": "FederatedLogisticRegression"}.get(
        case["family"], "FederatedGLM"
    )
    options |= {
        "FederatedCoxRegression": {"ties": "breslow", "baseline": False},
        "FederatedGLM": {"family": case["family"]},
    }.get(name, {})
    mixing = case["mixing"]
    options |= {"penalty": "l1"} if mixing == 1.0 else {"penalty": "elasticnet", "l1_ratio": mixing}
    return getattr(fpdfp, name + ("CV" if "cv" in options else ""))(**options)


@pytest.mark.parametrize("name", CASES)
def test_cv(name: str) -> None:
    case, r = CASES[name], CASES[name]["r"]
    X, y, sites, given = read(case)
    folds = np.arange(1, len(X) + 1) * 7 % 5
    model = estimate(case, cv=folds, alphas=numbers(r["alphas"]), cv_tol=TOL).fit(X, y, sites, **given)
    np.testing.assert_allclose(model.mean_score_, r["mean"], rtol=CURVE)
    np.testing.assert_allclose(model.score_error_, r["error"], rtol=CURVE * 10)
    assert model.alpha_min_ == pytest.approx(r["min"], rel=1e-12)
    assert model.alpha_1se_ == pytest.approx(r["se"], rel=1e-12)
