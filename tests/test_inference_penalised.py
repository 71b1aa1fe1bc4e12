"""Intervals after penalised fits: the debiased lasso and sample splitting across sites."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import Lasso

from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.inference import (
    Information,
    approximate_inverse,
    coefficient_table,
    covariance,
    debias,
    selected,
    split_sites,
)
from tests.textbook_glm import NAMES, by_site, fit, information, outcomes, rows


def least_squares(X: Array, y: Array, x: Array) -> Information:
    left = y - X @ x
    return Information.of_rows(X, left, np.ones(len(y)), weight=len(y), pearson=(left**2).sum())


def test_rows_of_the_approximate_inverse_are_lassos() -> None:
    X = np.random.default_rng(1).normal(size=(30, 8)) @ np.random.default_rng(2).normal(size=(8, 8))
    H = X.T @ X
    scale = np.sqrt(np.diag(H))
    found = approximate_inverse(H, 0.2) * np.outer(scale, scale)
    Z = X / scale
    for j in range(8):
        others = np.delete(np.arange(8), j)
        # Rows of unit length instead of unit variance, so the library's number of rows falls out.
        slopes = Lasso(0.2 / 30, fit_intercept=False, tol=1e-12, max_iter=10**6).fit(Z[:, others], Z[:, j]).coef_
        expected = np.zeros(8)
        expected[j], expected[others] = 1.0, -slopes
        expected /= 1.0 - Z[:, j] @ Z[:, others] @ slopes
        np.testing.assert_allclose(found[j], expected, rtol=1e-3, atol=1e-4)
        # What the construction promises: nearly the inverse.
        product = found[j] @ (Z.T @ Z)
        assert product[j] == pytest.approx(1.0, abs=1e-6)
        assert np.abs(product[others]).max() <= 0.2 * found[j, j] * (1 + 1e-3)
    np.testing.assert_allclose(approximate_inverse(H, 0.0), np.linalg.inv(H), rtol=1e-9)
    np.testing.assert_allclose(approximate_inverse(H, 1e-9), np.linalg.inv(H), rtol=2e-2, atol=1e-4)


def test_columns_without_a_penalty_are_taken_off_first() -> None:
    rng = np.random.default_rng(3)
    X = np.concatenate([np.ones((40, 1)), rng.normal(size=(40, 4)) + 5.0], axis=1)
    free = np.array([True, False, False, False, False])
    found = approximate_inverse(X.T @ X, 0.1, free)
    # The other columns see the intercept's column as not there: as if they had been centred.
    C = X[:, 1:] - X[:, 1:].mean(0)
    for j in range(1, 5):
        assert found[j] @ X.T @ X[:, 0] == pytest.approx(0.0, abs=1e-9)
        assert found[j] @ X.T @ X[:, j] == pytest.approx(1.0, abs=1e-6)
    scale = np.sqrt((X[:, 1:] ** 2).sum(0))
    leftover = found[1:, 1:] @ (C.T @ C) - np.eye(4)
    bound = 0.1 * np.diag(found)[1:] * scale**2
    assert (np.abs(leftover) * scale[:, None] / scale <= bound[:, None] * (1 + 1e-3)).all()
    assert np.isfinite(found[0]).all()
    everything = approximate_inverse(X.T @ X, 0.1, np.ones(5, dtype=bool))
    np.testing.assert_allclose(everything, np.linalg.inv(X.T @ X), rtol=1e-8)


def test_with_the_exact_inverse_it_is_least_squares() -> None:
    X, owner = rows()
    y = outcomes("gaussian")
    shrunk = np.array([0.2, 0.3, -0.3, 0.0])
    table = debias(NAMES, shrunk, by_site("gaussian", X, y, owner, shrunk), has_dispersion=True, node_alpha=0.0)
    np.testing.assert_allclose(table.coefficients, fit("gaussian", X, y), rtol=1e-10)
    total = information("gaussian", X, y, shrunk)
    np.testing.assert_allclose(table.covariance, covariance(total, total.pearson / 57), rtol=1e-10)
    assert "debiased lasso, nodewise with alpha = 0" in table.errors
    robust = debias(NAMES, shrunk, total, has_dispersion=True, node_alpha=0.0, errors="HC0")
    np.testing.assert_allclose(robust.covariance, covariance(total, errors="HC0"), rtol=1e-10)


def test_a_lasso_of_counts_is_corrected_towards_the_truth() -> None:
    rng = np.random.default_rng(4)
    X = np.concatenate([np.ones((800, 1)), rng.normal(size=(800, 60))], axis=1)
    truth = np.zeros(61)
    truth[:3] = 0.5, 0.4, -0.3
    y = rng.poisson(np.exp(X @ truth)).astype(float)
    shrunk = truth * [1.0, *([0.7] * 60)]
    table = debias(
        ["Intercept", *map(str, range(60))], shrunk, information("poisson", X, y, shrunk), has_dispersion=False
    )
    assert "alpha = 0.0358" in table.errors
    z = np.abs(table.coefficients - truth) / table.standard_errors
    assert z[1:3].max() < 3
    assert (z < 1.96).mean() > 0.85
    assert (np.abs(shrunk - truth) / table.standard_errors)[1:3].min() > 3, "there was something to correct"


@pytest.mark.slow
def test_debiased_intervals_cover_with_more_columns_than_rows() -> None:
    rng = np.random.default_rng(5)
    n, p = 100, 150
    truth = np.zeros(p)
    truth[[0, 10, 20]] = 1.0, 0.5, -0.5
    hits = []
    for _ in range(25):
        X = rng.normal(size=(n, p))
        y = X @ truth + rng.normal(size=n)
        x = Lasso(0.8 * np.sqrt(2 * np.log(p) / n), fit_intercept=False).fit(X, y).coef_
        lower, upper = debias(range(p), x, least_squares(X, y, x), has_dispersion=True).intervals().T
        hits.append((lower <= truth) & (truth <= upper))
    share = np.mean(hits, axis=0)
    assert 0.85 <= share[truth != 0].mean() <= 1.0
    assert 0.93 <= share[truth == 0].mean() <= 0.98


def test_what_cannot_be_debiased_is_refused() -> None:
    X, _ = rows()
    y = outcomes("gaussian")
    x = fit("gaussian", X, y)
    total = information("gaussian", X, y, x)
    for given, said in [
        ({"errors": "HC1"}, "errors must be one of 'model', 'HC0'"),
        ({"node_alpha": -1.0}, "node_alpha must be a finite number of at least 0"),
    ]:
        with pytest.raises(ArgumentError, match=said):
            debias(NAMES, x, total, has_dispersion=True, **given)
    with pytest.raises(ArgumentError, match="more rows than coefficients that are not zero, got 4"):
        debias(NAMES, x, information("gaussian", X[:4], y[:4], x), has_dispersion=True, node_alpha=0.1)
    without = Information.of_rows(X, y - X @ x, np.ones(60), weight=60, robust=False)
    with pytest.raises(ArgumentError, match="meat"):
        debias(NAMES, x, without, has_dispersion=False, errors="HC0")
    empty = Information.of_rows(X * [1.0, 1.0, 0.0, 1.0], y, np.ones(60), weight=60)
    with pytest.raises(ArgumentError, match="no information on dose"):
        debias(NAMES, x, empty, has_dispersion=False, node_alpha=0.1)


def test_sites_are_divided_by_their_rows() -> None:
    counts = {"a": 10, "b": 500, "c": 20, "d": 480, "e": 30}
    for seed in range(20):
        split = split_sites(counts, seed=seed)
        assert sorted([*split.select, *split.infer]) == sorted(counts)
        assert split.select
        assert split.infer
        assert split == split_sites(counts, seed=seed)
    assert {tuple(split_sites(counts, seed=seed).select) for seed in range(20)} != {("a", "b")}
    shares = [sum(counts[one] for one in split_sites(counts, share=0.5, seed=seed).select) for seed in range(20)]
    assert max(abs(one / 1040 - 0.5) for one in shares) < 0.1
    with pytest.raises(ArgumentError, match="at least two sites"):
        split_sites({"a": 3})
    with pytest.raises(ArgumentError, match="share must be between 0 and 1"):
        split_sites(counts, share=1.0)
    with pytest.raises(ArgumentError, match=r"rows.*integer"):
        split_sites({"a": "many", "b": 2})  # type: ignore[dict-item]


def test_inference_on_other_sites_does_not_know_of_the_selection() -> None:
    """With outcomes that depend on nothing, p values on the other sites are as often small as they say."""
    rng = np.random.default_rng(6)
    same: list[bool] = []
    other: list[bool] = []
    for _ in range(200):
        X, y = rng.normal(size=(120, 20)), rng.normal(size=120)
        best = [int(np.argmax(np.abs(X[:60].T @ y[:60])))]
        for found, part in ((same, slice(0, 60)), (other, slice(60, 120))):
            A, b = X[part][:, best], y[part]
            x = np.linalg.lstsq(A, b)[0]
            found.append(coefficient_table(["best"], x, least_squares(A, b, x), has_dispersion=True).p_values[0] < 0.05)
    assert np.mean(same) > 0.4
    assert np.mean(other) < 0.09
    assert selected({"Intercept": 0.0, "x": 0.1, "z": -0.0}) == ["x"]
