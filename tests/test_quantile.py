"""Quantile regression: its width follows from the residuals, and its intervals cover, whatever the units."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.special import expit

from fpdfp import FederatedGLM, FederatedGLMCV, losses
from fpdfp.errors import ArgumentError
from fpdfp.families import Quantile
from tests import r_cases

SCALES = (1e-3, 1.0, 1e3)


@pytest.mark.parametrize("name", [f"quantile {level}" for level in (0.25, 0.5, 0.75)])
def test_engel(name: str) -> None:
    """Within half an error of R's estimates, which are not smoothed; errors are between those of R, or a quarter apart.

    R's are those of local differences, of a kernel, and of a bootstrap of pairs, which differ by up to 1.8.
    """
    case, table = r_cases.cases("study")[name], r_cases.study("engel")
    model = FederatedGLM(Quantile(level=case["level"])).fit(table, "foodexp ~ income", groups=np.arange(235) % 3)
    found, r, errors = model.table(), case["r"]["coefficients"], np.array(case["r"]["errors"])
    assert (np.abs(found.coefficients - r) < 0.5 * errors).all()
    several = np.array([case["r"][kind] for kind in ("errors", "kernel", "pairs")])
    assert (found.standard_errors > several.min(axis=0) / 1.25).all()
    assert (found.standard_errors < several.max(axis=0) * 1.25).all()
    assert "smoothing width" in str(model.summary())


def test_a_width_is_that_of_normal_residuals_with_the_same_kernel_weight() -> None:
    rng = np.random.default_rng(2)
    x = rng.normal(size=400)
    y = 5.0 + 3.0 * x + rng.standard_cauchy(400)  # no deviation; outliers of some hundreds
    model = FederatedGLM(Quantile(level=0.3)).fit(x[:, None], y, groups=np.arange(400) % 4)
    left, kappa = y - model.predict(x[:, None]), Quantile().relative_width(400, 2)

    def share(width: float) -> float:
        return float((expit(left / width) * expit(-left / width)).mean())

    normal = stats.norm.expect(lambda z: expit(z / kappa) * expit(-z / kappa), loc=-stats.norm.ppf(0.3))
    assert Quantile(level=0.3).share(kappa) == pytest.approx(normal, rel=1e-8)
    exact = brentq(lambda width: share(width) - normal, 1e-3, 10.0)
    assert model.family_.parameters[1] == pytest.approx(exact, rel=0.03)
    assert model.coef_[0] == pytest.approx(3.0, abs=0.3)


@pytest.mark.parametrize(
    ("level", "kind"),
    [
        (0.75, "scattered"),
        pytest.param(0.5, "normal", marks=pytest.mark.slow),
        pytest.param(0.25, "normal", marks=pytest.mark.slow),
    ],
)
def test_intervals_cover_at_all_scales(level: float, kind: str) -> None:
    rng, covered, n, runs = np.random.default_rng(3), np.zeros(2), 1000, 400
    q = stats.norm.ppf(level)
    for run in range(runs):
        x = rng.uniform(0.0, 2.0, n)
        spread = 1.0 if kind == "normal" else 0.5 + x
        truth = np.array([1.0 + q, 2.0]) if kind == "normal" else np.array([1.0 + 0.5 * q, 2.0 + q])
        y, scale = 1.0 + 2.0 * x + spread * rng.normal(size=n), SCALES[run % 3]
        model = FederatedGLM(Quantile(level=level)).fit(x[:, None], scale * y, groups=np.arange(n) % 3)
        lower, upper = model.table().intervals().T / scale
        covered += (lower < truth) & (truth < upper)
    assert (np.abs(covered / runs - 0.95) <= 0.02 + 1e-9).all(), covered / runs


def test_the_fit_follows_the_units() -> None:
    table = r_cases.study("engel")
    whole = FederatedGLM("quantile").fit(table, "foodexp ~ income")
    for scale in SCALES:
        one = FederatedGLM("quantile").fit(table.assign(foodexp=scale * table["foodexp"]), "foodexp ~ income")
        np.testing.assert_allclose(one.table().coefficients, scale * whole.table().coefficients, rtol=1e-9)
        np.testing.assert_allclose(one.table().standard_errors, scale * whole.table().standard_errors, rtol=1e-9)
        assert one.family_.parameters[1] == pytest.approx(scale * whole.family_.parameters[1], rel=1e-9)


def test_a_width_that_is_given_stays() -> None:
    table = r_cases.study("engel")
    model = FederatedGLM(Quantile(level=0.5, width=3.0)).fit(table, "foodexp ~ income")
    assert model.family_.parameters[1] == 3.0
    assert "width" not in model.exchanges_


def test_a_width_that_nothing_finds_is_refused() -> None:
    X, y = np.arange(8.0)[:, None], np.arange(8.0)
    with pytest.raises(ArgumentError, match="width must be a positive number"):
        losses.GLM(X, y, family=Quantile())
    with pytest.raises(ArgumentError, match="with a width in units of the outcome"):
        FederatedGLMCV("quantile").fit(X, y)
    with pytest.raises(ArgumentError, match="with a width in units of the outcome"):
        FederatedGLM("quantile", penalty="mcp").fit(X, y)
