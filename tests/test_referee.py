"""What a referee tries: rows of weight zero, ties everywhere, outcomes that are all the same, scales, wrong inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fpdfp
from fpdfp import FederatedCoxRegression, FederatedGLM
from fpdfp.errors import ArgumentError, ArgumentTypeError, SeparationError
from tests.test_cox import textbook

rng = np.random.default_rng(0)
ROWS = 120
X, SITE = rng.normal(size=(ROWS, 3)), np.arange(ROWS) % 3
REAL = X[:, 0] + rng.normal(size=ROWS)
BINARY = (rng.random(ROWS) < 1.0 / (1.0 + np.exp(-X[:, 0]))).astype(int)
COUNTS = rng.poisson(np.exp(0.3 * X[:, 0]))
TABLE = pd.DataFrame(X, columns=list("abc")).assign(
    y=REAL, died=BINARY, visits=COUNTS, site=SITE, number=np.arange(ROWS)
)


@pytest.mark.parametrize(
    ("family", "link", "y"),
    [("gaussian", None, REAL), ("gamma", "log", np.exp(REAL)), ("binomial", None, BINARY), ("poisson", None, COUNTS)],
)
def test_rows_of_weight_zero_are_not_there(family: str, link: Any, y: Any) -> None:
    """As in R, also for degrees of freedom and the dispersion."""
    some = np.arange(ROWS) >= 10
    with_all = FederatedGLM(family, link, run=fpdfp.RunOptions(tol=1e-12)).fit(
        X, y, groups=SITE, sample_weight=some.astype(float)
    )
    without = FederatedGLM(family, link, run=fpdfp.RunOptions(tol=1e-12)).fit(X[some], y[some], groups=SITE[some])
    for errors in ("model", "HC0", "HC1"):
        found, known = (model.table(errors=errors) for model in (with_all, without))  # type: ignore[arg-type]
        np.testing.assert_allclose(found.standard_errors, known.standard_errors, rtol=1e-12)
        np.testing.assert_allclose(found.p_values, known.p_values, rtol=1e-9)
    for name in ("df_residual", "df_null", "dispersion", "aic", "deviance", "null_deviance"):
        found, known = (getattr(model.summary(), name) for model in (with_all, without))
        assert found == (known if known is None else pytest.approx(known, rel=1e-12))


def test_classes_of_weight_zero_rows() -> None:
    some, y = np.arange(ROWS) >= 10, np.digitize(REAL, [-0.5, 0.5])
    for kind in (fpdfp.FederatedMultinomialRegression, fpdfp.FederatedOrdinalRegression):
        with_all = kind(run=fpdfp.RunOptions(tol=1e-12)).fit(X, y, groups=SITE, sample_weight=some.astype(float))
        without = kind(run=fpdfp.RunOptions(tol=1e-12)).fit(X[some], y[some], groups=SITE[some])
        assert with_all.summary().df_residual == without.summary().df_residual
        np.testing.assert_allclose(with_all.table().standard_errors, without.table().standard_errors, rtol=1e-10)


@pytest.mark.parametrize("family", ["binomial", "poisson", "negative binomial"])
def test_outcomes_that_are_all_zero_have_no_maximum(family: str) -> None:
    with pytest.raises(SeparationError) as raised:
        FederatedGLM(family).fit(X, np.zeros(ROWS), groups=SITE)
    assert "Intercept" in raised.value.columns


def test_outcomes_that_are_all_the_same() -> None:
    model = FederatedGLM("poisson").fit(X, np.full(ROWS, 3.0), groups=SITE)
    assert model.intercept_ == pytest.approx(np.log(3.0))
    np.testing.assert_allclose(model.coef_, 0.0, atol=1e-12)


@pytest.mark.parametrize("ties", ["efron", "breslow"])
def test_all_at_one_time(ties: Any) -> None:
    y = np.column_stack([np.ones(ROWS), BINARY])
    model = FederatedCoxRegression(ties=ties, baseline=False, run=fpdfp.RunOptions(tol=1e-12)).fit(X, y, groups=SITE)
    _, gradient, hessian = textbook(X, model.coef_, y[:, 0], BINARY > 0, strata=SITE, ties=ties)
    assert np.abs(np.linalg.solve(hessian, gradient)).max() < 1e-9
    np.testing.assert_allclose(model.table().covariance, np.linalg.inv(hessian), rtol=1e-9)


@pytest.mark.parametrize(("family", "y"), [("gaussian", REAL), ("binomial", BINARY), ("poisson", COUNTS)])
def test_huge_scales(family: str, y: Any) -> None:
    scale, shift = np.array([1e6, 1.0, 1e-6]), np.array([1e6, 0.0, 1e-6])
    plain, scaled = (
        FederatedGLM(family, run=fpdfp.RunOptions(tol=1e-12)).fit(Z, y, groups=SITE) for Z in (X, X * scale + shift)
    )
    np.testing.assert_allclose(scaled.coef_ * scale, plain.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(scaled.table().standard_errors[1:] * scale, plain.table().standard_errors[1:], rtol=1e-6)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (np.c_[X, X[:, 0] + X[:, 1]], "x0, x1, x3 determine one another"),
        (np.c_[X, np.ones(ROWS)], "Intercept, x3 determine one another"),
        (np.c_[X, np.zeros(ROWS)], "no information on x3"),
        (X[:, :1].repeat(2, axis=1), "x0, x1 determine one another"),
    ],
)
def test_columns_that_tell_nothing_are_named(columns: Any, says: str) -> None:
    """Predictions are unique, coefficients are not: R leaves one out."""
    model = FederatedGLM("poisson").fit(columns, COUNTS, groups=SITE)
    known = FederatedGLM("poisson").fit(X if columns.shape[1] > 2 else X[:, :1], COUNTS, groups=SITE)
    np.testing.assert_allclose(model.decision_function(columns), known.decision_function(X[:, : known.n_features_in_]))
    with pytest.raises(ArgumentError, match=says):
        model.table()


def test_fewer_rows_than_coefficients() -> None:
    Z = np.random.default_rng(1).normal(size=(10, 15))
    model = FederatedGLM("gaussian").fit(Z, REAL[:10], groups=np.arange(10) % 2)
    np.testing.assert_allclose(model.predict(Z), REAL[:10], atol=1e-6)
    with pytest.raises(ArgumentError, match="rows must be more than the 16 coefficients"):
        model.table()
    with pytest.raises(SeparationError):
        FederatedGLM("binomial").fit(Z, np.arange(10) % 2, groups=np.arange(10) // 5)


@pytest.mark.parametrize(
    ("change", "formula", "says"),
    [
        ({"died": BINARY + 1}, "died ~ a", "y must be 0 or 1, or a share"),
        ({"visits": COUNTS - 1}, "visits ~ a", "y must be at least 0"),
        ({}, "died ~ C(number)", "like an identifier's"),
        ({"far": np.where(SITE == 2, "x", "z")}, "died ~ far", "only at 2"),
    ],
)
def test_wrong_tables(change: dict[str, Any], formula: str, says: str) -> None:
    family = "poisson" if formula.startswith("visits") else "binomial"
    with pytest.raises(ArgumentError, match=says):
        FederatedGLM(family).fit(TABLE.assign(**change), formula, groups="site")


def test_wrong_weights_of_a_formula() -> None:
    for weights in ("b - 100", "b"):
        with pytest.raises(ArgumentError, match=r"weights must be at least 0 in all rows, and positive in some \(at "):
            FederatedGLM("poisson").fit(TABLE, "visits ~ a", groups="site", weights=weights)


@pytest.mark.parametrize(
    ("change", "formula", "says"),
    [
        ({"e": BINARY + 1, "t": np.arange(1, ROWS + 1)}, "Surv(t, e) ~ a", "events 0 or 1"),
        ({"e": BINARY, "t": np.arange(1, ROWS + 1)}, "Surv(t, number, e) ~ a", "enter before they leave"),
    ],
)
def test_wrong_times(change: dict[str, Any], formula: str, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        FederatedCoxRegression().fit(TABLE.assign(**change), formula, groups="site")


def test_comparisons_that_mean_nothing() -> None:
    small, large = (FederatedGLM().fit(TABLE, formula, groups="site") for formula in ("y ~ a", "y ~ a + b + c"))
    other = FederatedGLM("binomial").fit(TABLE, "died ~ a + b", groups="site")
    fewer = FederatedGLM().fit(TABLE[:-6], "y ~ a + b", groups="site")
    apart = FederatedGLM().fit(TABLE, "y ~ b + c", groups="site")
    for model, says in (
        (small, "more coefficients"), (other, "family of the smaller"), (fewer, "same rows"), (apart, "fits worse"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=says):
            small.compare(model)
    with pytest.raises(ArgumentTypeError, match="other must be a fitted model, got NoneType"):
        small.compare(None)
    test, wald = small.compare(large), large.wald_test(["b", "c"])
    assert test.p == pytest.approx(wald.p, rel=1e-9)  # F tests of a linear model are one
    with pytest.raises(ArgumentError, match="linearly independent"):
        large.wald_test([[0, 1, 0, 0], [0, 2, 0, 0]])
    with pytest.raises(ArgumentError, match="known at 0 sites"):
        large.heterogeneity("nothing")
