"""Penalised losses against glmnet: lasso, elastic net and ridge, with weights, offsets, penalty factors and limits.

glmnet minimises 1/n times the negative log-likelihood (for Cox the partial one of Breslow), with weights that it makes
add up to n, plus λ Σ_j v_j (a |x_j| + (1 − a)/2 x_j²). Its intercept is not penalised.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fpdfp
from tests.r_cases import cases, frame, numbers

NET = cases("glmnet")


def build(case: dict[str, Any], strength: float) -> tuple[fpdfp.Problem, Any]:
    """Return the problem of a case, and what divides the solution for features as they were given."""
    table = frame(case["data"])
    X = table[[f"z{j}" for j in range(1, 9)]].to_numpy(float)
    n, d = X.shape
    weights = table[case["weights"]].to_numpy(float) if case.get("weights") else np.ones(n)
    weights = weights * n / weights.sum()
    offset = table[case["offset"]].to_numpy(float) if case.get("offset") else None
    scale = np.sqrt(weights @ (X - weights @ X / n) ** 2 / n) if case["standardize"] else np.ones(d)
    factors = np.array(case.get("factors", np.ones(d)), dtype=float) * strength
    intercept = case["family"] != "cox"
    more = [0.0] * intercept
    ridge = np.concatenate([factors * (1.0 - case["mixing"]), more])
    losses: fpdfp.losses.Losses
    if intercept:
        columns = np.column_stack([X / scale, np.ones(n)])
        y = table[case["outcome"]]
        losses = fpdfp.losses.GLM(columns, y, table["site"], case["family"], weights=weights, offset=offset, l2=ridge)
    else:
        known = {"ties": "breslow", "weights": weights, "offset": offset, "l2": ridge}
        losses = fpdfp.losses.Cox(X / scale, table["time"], table["status"], table["site"], **known)
    penalty: fpdfp.penalties.Penalty = fpdfp.penalties.L1(np.concatenate([factors * case["mixing"], more]))
    if "lower" not in case:
        return fpdfp.Problem(losses, penalty, weights="samples"), scale
    width = d + intercept
    box = fpdfp.penalties.Box(case["lower"], case["upper"])
    maps = scipy.sparse.vstack([scipy.sparse.eye_array(width), scipy.sparse.eye_array(d, width)])
    both = fpdfp.penalties.Stacked([penalty, box], [width, d])
    return fpdfp.Problem(losses, both, fpdfp.linops.Matrix(maps.tocsr()), weights="samples"), scale


@pytest.mark.parametrize("name", NET)
def test_glmnet(name: str) -> None:
    case, r = NET[name], NET[name]["r"]
    for row, strength in enumerate(case["lambdas"]):
        problem, scale = build(case, strength)
        result = fpdfp.solve(problem, fpdfp.ProximalNewton(), rounds=100, tol=1e-12)
        known = numbers(r["coefficients"][row])
        if case["family"] != "cox":
            assert result.x[-1] == pytest.approx(r["intercept"][row], rel=1e-6, abs=1e-8)
        np.testing.assert_allclose(result.x[:8] / scale, known, rtol=1e-6, atol=1e-8)
        assert result.status == "converged"
