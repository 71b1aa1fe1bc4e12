"""Estimators that infer after a fit with a penalty."""

from __future__ import annotations

import numpy as np
import pytest

import fpdfp
from fpdfp import FederatedGLM
from fpdfp.errors import ArgumentError


def test_debiased_intervals_of_a_lasso() -> None:
    rng = np.random.default_rng(0)
    X, owner = rng.normal(size=(300, 20)), np.arange(300) % 3
    truth = np.zeros(20)
    truth[:2] = 0.5, -0.3
    y = rng.poisson(np.exp(0.5 + X @ truth))
    model = FederatedGLM(penalty=fpdfp.L1(0.08), family="poisson", inference=True).fit(X, y, groups=owner)
    table = model.debiased_table()
    assert list(table.names) == ["Intercept", *(f"x{j}" for j in range(20))]
    assert "debiased lasso" in table.errors
    # The lasso's coefficient is further from the truth than the corrected one, which the interval covers.
    for j in range(2):
        assert abs(table.coefficients[1 + j] - truth[j]) < abs(model.coef_[j] - truth[j])
    lower, upper = table.intervals(0.999).T
    assert ((lower[1:] < truth) & (truth < upper[1:])).all()
    # With the exact inverse it is a step towards the fit without a penalty.
    plain = FederatedGLM(family="poisson").fit(X, y, groups=owner)
    step = model.debiased_table(node_alpha=0.0).coefficients[1:]
    assert np.abs(step - plain.coef_).max() < 0.3 * np.abs(model.coef_ - plain.coef_).max()
    with pytest.raises(ArgumentError, match=r"penalty is l1, weight=0\.08: no standard errors"):
        model.table()
    assert "no standard errors" in str(model.summary())
    with pytest.raises(ArgumentError, match="inference must be True"):
        FederatedGLM(penalty=fpdfp.L1(0.08), family="poisson").fit(X, y, groups=owner).debiased_table()


def test_quantiles_have_robust_errors() -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(4000, 2))
    y = X @ [1.0, 0.5] + rng.normal(size=4000)
    model = FederatedGLM(family="quantile").fit(X, y, groups=np.arange(4000) % 4)
    rows = model.effective_rows_
    assert f"robust, corrected for {rows:.0f} effective rows near the quantile" in str(model.summary())
    # Σ K(r/h) of normal residuals with the width of the model is about n h φ(0).
    assert rows == pytest.approx(6.0 * 4000 * model.family_.width / np.sqrt(2.0 * np.pi), rel=0.1)
    plain = model.table(errors="HC0").covariance
    np.testing.assert_allclose(model.table().covariance, plain / (1.0 - 3.0 / rows) ** 2, rtol=1e-12)
    assert model.table().df == pytest.approx(rows - 3.0)
    # Of the median with normal errors: √(π/2) times those of least squares.
    assert model.table().standard_errors[1:] == pytest.approx(np.sqrt(np.pi / 2 / 4000), rel=0.15)
    assert model.heterogeneity("x0").test.p > 0.01
    with pytest.raises(ArgumentError, match="Wald"):
        model.compare(FederatedGLM(family="quantile").fit(np.c_[X, X[:, :1] ** 2], y, groups=np.arange(4000) % 4))
