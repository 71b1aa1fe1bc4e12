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
#: Those with weights and offsets take as long again.
MARKED = [
    pytest.param(name, marks=[pytest.mark.slow] * ("weights" in name or "offset" in name), id=name) for name in CASES
]
#: The accuracy that is asked of the problems, and that of scores: a score has an error of the root of a gap.
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
    own: dict[str, tuple[str, dict[str, Any]]] = {
        "cox": ("FederatedCoxRegression", {"ties": "breslow", "baseline": False}),
        "binomial": ("FederatedLogisticRegression", {}),
    }
    name, more = own.get(case["family"], ("FederatedGLM", {"family": case["family"]}))
    penalty: Any = "l1" if case["mixing"] == 1.0 else fpdfp.ElasticNet(l1_ratio=case["mixing"])
    return getattr(fpdfp, name + ("CV" if "cv" in options else ""))(
        penalty=penalty, standardize=False, **more, **options
    )


ODD = [name for name in CASES if name.startswith("cox") and name.endswith("weights")]


# cv.glmnet divides the weights of all rows and those of the rows that are used by different means, and takes the
# difference of the two deviances: with weights its curve for Cox is not one of deviances. Its path is compared below.
@pytest.mark.parametrize("name", [one for one in MARKED if one.id not in ODD])
def test_cv(name: str) -> None:
    case, r = CASES[name], CASES[name]["r"]
    X, y, sites, given = read(case)
    folds = np.arange(1, len(X) + 1) * 7 % 5
    choice = fpdfp.CrossValidation(folds, alphas=numbers(r["alphas"]), tol=TOL)
    model = estimate(case, cv=choice).fit(X, y, sites, **given)
    np.testing.assert_allclose(model.mean_score_, r["mean"], rtol=CURVE)
    np.testing.assert_allclose(model.score_error_, r["error"], rtol=50 * CURVE)
    assert model.alpha_min_ == pytest.approx(r["min"], rel=1e-12)
    assert model.alpha_1se_ == pytest.approx(r["se"], rel=1e-12)


@pytest.mark.parametrize("name", MARKED)
def test_path(name: str) -> None:
    case, r = CASES[name], CASES[name]["r"]
    X, y, sites, given = read(case)
    path = estimate(case).path(X, y, sites, alphas=20, tol=1e-12, **given)
    assert path.status == ("converged",) * 20
    # the largest weight is glmnet's own first one
    assert path.alphas[0] == pytest.approx(r["first"], rel=1e-7)
    np.testing.assert_allclose(path.alphas, r["alphas"], rtol=1e-7)
    np.testing.assert_allclose(path.coef, r["coefficients"], atol=2e-5)
    if case["family"] != "cox":
        np.testing.assert_allclose(path.intercept, r["intercept"], atol=2e-5)


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson", "cox, by site"])
def test_default_tolerance_chooses_the_same(family: str) -> None:
    """The default ``tol`` of a cross-validation moves scores by less than their differences here."""
    case, r = CASES[f"{family}, lasso"], CASES[f"{family}, lasso"]["r"]
    X, y, sites, given = read(case)
    folds = np.arange(1, len(X) + 1) * 7 % 5
    model = estimate(case, cv=fpdfp.CrossValidation(folds, alphas=numbers(r["alphas"]))).fit(X, y, sites, **given)
    np.testing.assert_allclose(model.mean_score_, r["mean"], rtol=5e-3)
    places = [int(np.argmin(np.abs(np.array(r["alphas"]) - one))) for one in (model.alpha_min_, r["min"])]
    assert abs(places[0] - places[1]) <= 1
    assert model.alpha_1se_ == pytest.approx(r["se"], rel=1e-12)
