"""Estimators against R: glm, MASS::glm.nb, MASS::polr, nnet::multinom, MASS::glmmPQL and glmnet, at 1e-6 relative."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import fpdfp
from tests.r_cases import FAMILIES, cases, frame, numbers, rows

R = cases("glm")
GLM = {name: case for name, case in R.items() if "link" in case}
NET = cases("glmnet")


def close(found: Any, known: Any, rel: float = 1e-6) -> None:
    """Compare relative to the size of each number, and to that of the largest where one is near zero by cancellation."""
    known = numbers(known)
    np.testing.assert_allclose(numbers(found), known, rtol=rel, atol=1e-3 * rel * np.abs(known).max())


def build(case: dict[str, Any], **options: Any) -> fpdfp.FederatedGLM:
    return fpdfp.FederatedGLM(FAMILIES.get(case["family"], case["family"]), link=case.get("link"), tol=1e-10, **options)


def fit(case: dict[str, Any], formula: str | None = None, **options: Any) -> fpdfp.FederatedGLM:
    """Fit the rows of three sites by a formula."""
    return build(case, **options).fit(
        frame(case["data"]), formula or case["formula"], groups="site", weights=case.get("weights"), levels="any"
    )


@pytest.mark.parametrize("name", GLM)
def test_glm(name: str) -> None:
    case, r = GLM[name], GLM[name]["r"]
    model = fit(case)
    summary = model.summary()
    table = summary.table
    close(table.coefficients, r["coefficients"])
    close(table.standard_errors, r["errors"])
    close(table.covariance, r["covariance"])
    close(table.statistics, r["statistic"])
    np.testing.assert_allclose(table.p_values, r["p"], rtol=1e-5, atol=1e-300)
    close(summary.deviance, r["deviance"])
    close(summary.dispersion, r["dispersion"])
    close(summary.null_deviance, r["null_deviance"])
    assert (summary.df_residual, summary.df_null) == (r["df_residual"], r["df_null"])
    assert sum(summary.rows) == r["rows"]
    assert sum(summary.left_out) == len(frame(case["data"])) - r["rows"]
    if r["aic"] is None:
        assert summary.aic is None  # a Tweedie likelihood has no closed form
    elif name != "binomial, weights":
        # (R rounds the weights of a binomial model to whole trials when it computes the likelihood, and warns of it.)
        close(summary.log_likelihood, r["log_likelihood"])
        close(summary.aic, r["aic"])
    # R's confint.default takes the normal distribution in any case.
    spread = stats.t(r["df_residual"]) if summary.has_dispersion else stats.norm
    lower, upper = table.intervals().T
    width = spread.isf(0.025) * numbers(r["errors"])
    close(lower, r["coefficients"] - width)
    close(upper, r["coefficients"] + width)
    if not summary.has_dispersion:
        close(lower, r["lower"])
        close(upper, r["upper"])
