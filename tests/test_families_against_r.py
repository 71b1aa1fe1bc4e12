"""Families at R's estimates: the score is zero, and deviance, errors and likelihood are R's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fpdfp import families
from tests.r_cases import FAMILIES, cases, numbers, rows

GLM = {name: case for name, case in cases("glm").items() if "link" in case}
NEGATIVE = {name: case for name, case in cases("glm").items() if name.startswith("negative binomial")}


def sums(family: families.Family, case: dict[str, Any], x: Any) -> dict[str, Any]:
    """Return what follows from the family's functions at x."""
    data = rows(case)
    z = data.X @ x + data.offset
    value, slope, weight, second = (function(z, data.y, family.parameters) for function in family.functions)
    mu = family.mean(z)
    return {
        "deviance": 2.0 * float(data.weights @ value),
        "score": data.X.T @ (data.weights * slope),
        "information": data.X.T @ ((data.weights * weight)[:, None] * data.X),
        "observed": data.X.T @ ((data.weights * second)[:, None] * data.X),
        "pearson": float(data.weights @ ((data.y - mu) ** 2 / family.variance(mu))),
        "saturated": family.saturated(data.y, data.weights),
        "weight": float(data.weights.sum()),
        "rows": len(data.y),
        "scale": np.abs(data.X).T @ (data.weights * np.abs(slope)),
    }


@pytest.mark.parametrize("name", GLM)
def test_the_families_of_glm(name: str) -> None:
    case, r = GLM[name], GLM[name]["r"]
    power = {"power": 1.5} if case["family"] == "tweedie" else {}
    family = families.make(FAMILIES.get(case["family"], case["family"]), case["link"], **power)
    found = sums(family, case, numbers(r["coefficients"]))
    assert found["rows"] == r["rows"]
    assert (np.abs(found["score"]) < 1e-7 * found["scale"]).all()
    assert found["deviance"] == pytest.approx(r["deviance"], rel=1e-9)
    assert found["pearson"] == pytest.approx(r["pearson"], rel=1e-9)
    degrees = r["df_residual"]
    assert family.has_dispersion == (case["family"] not in ("binomial", "poisson"))
    dispersion = found["pearson"] / degrees if family.has_dispersion else 1.0
    np.testing.assert_allclose(np.linalg.inv(found["information"]) * dispersion, r["covariance"], rtol=1e-6, atol=1e-12)
    if case["link"] == family.canonical:
        np.testing.assert_allclose(found["observed"], found["information"], rtol=1e-9, atol=1e-9)
    if r["aic"] is not None and name != "binomial, weights":
        # (R rounds weights of a binomial model to whole trials when it computes the likelihood, and warns of it.)
        likelihood = family.log_likelihood(found["deviance"], found["saturated"], found["weight"], found["rows"])
        assert likelihood == pytest.approx(r["log_likelihood"], rel=1e-9)


@pytest.mark.parametrize("name", NEGATIVE)
def test_the_negative_binomial_family(name: str) -> None:
    r = NEGATIVE[name]["r"]
    family = families.NegativeBinomial(theta=r["theta"])
    found = sums(family, NEGATIVE[name], numbers(r["coefficients"]))
    assert (np.abs(found["score"]) < 1e-7 * found["scale"]).all()
    assert found["deviance"] == pytest.approx(r["deviance"], rel=1e-9)
    np.testing.assert_allclose(np.sqrt(np.diag(np.linalg.inv(found["information"]))), r["errors"], rtol=1e-6)
    likelihood = family.log_likelihood(found["deviance"], found["saturated"], found["weight"], found["rows"])
    assert likelihood == pytest.approx(r["log_likelihood"], rel=1e-9)


@pytest.mark.parametrize("name", [*GLM, *NEGATIVE])
def test_slopes_and_curvatures_are_derivatives(name: str) -> None:
    case = (GLM | NEGATIVE)[name]
    more = {"power": 1.5} if case.get("family") == "tweedie" else {"theta": 1.3} if name in NEGATIVE else {}
    family = families.make(FAMILIES.get(f := case.get("family", "negative binomial"), f), case.get("link"), **more)
    data = rows(case)
    z = data.X @ numbers(case["r"]["coefficients"]) + data.offset
    step = 1e-5 * np.maximum(np.abs(z), 0.1)
    up, down = (
        [function(z + sign * step, data.y, family.parameters) for function in family.functions] for sign in (1, -1)
    )
    slope, second = (function(z, data.y, family.parameters) for function in (family.functions[1], family.functions[3]))
    np.testing.assert_allclose((up[0] - down[0]) / (2 * step), slope, rtol=1e-5, atol=1e-5 * np.abs(slope).max())
    np.testing.assert_allclose((up[1] - down[1]) / (2 * step), second, rtol=1e-5, atol=1e-5 * np.abs(second).max())
