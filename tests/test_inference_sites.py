"""Differences between sites: their own coefficients, tests of homogeneity, meta-analysis, forest plots."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fpdfp.errors import ArgumentError
from fpdfp.inference import (
    Heterogeneity,
    Information,
    coefficient_table,
    covariance,
    forest_plot,
    forest_svg,
    homogeneity_test,
    site_tables,
)
from tests.textbook_glm import NAMES, by_site, fit, outcomes, rows

FIVE = Heterogeneity([0.12, 0.45, 0.30, -0.05, 0.62], [0.10, 0.15, 0.08, 0.2, 0.25], "abcde", name="dose")


def test_the_meta_analysis_is_that_of_statsmodels() -> None:
    """combine_effects of statsmodels 0.15.0, with method_re="chi2"."""
    test = FIVE.test
    assert (test.statistic, test.p) == pytest.approx((8.285632265669456, 0.08165801368172837), rel=1e-10)
    assert (test.df, test.df_residual) == (4, None)
    assert pytest.approx(0.5172366004494877) == FIVE.i_squared
    assert pytest.approx(0.01842337363923884) == FIVE.tau_squared
    assert FIVE.fixed[:4] == pytest.approx((0.25620843833834644, 0.05409797901990317, 0.15017835, 0.36223853))
    classic = FIVE.dersimonian_laird
    assert classic[:4] == pytest.approx((0.26364240167322567, 0.0879168377653636, 0.09132857, 0.43595624))
    assert FIVE.random[:4] == pytest.approx((0.26364240167322567, 0.09711581132764974, -0.00599432, 0.53327912))
    limits = FIVE.prediction_interval()
    assert limits is not None
    width = stats.t.ppf(0.975, 3) * math.sqrt(FIVE.tau_squared + classic.standard_error**2)
    assert limits == pytest.approx((FIVE.random.estimate - width, FIVE.random.estimate + width))
    assert Heterogeneity([0.1, 0.2], [1.0, 1.0]).prediction_interval() is None


def test_sites_that_agree_have_no_heterogeneity() -> None:
    same = Heterogeneity([0.2, 0.2, 0.2], [0.1, 0.2, 0.3])
    assert (same.i_squared, same.tau_squared) == (0.0, 0.0)
    assert same.test.p == pytest.approx(1.0)
    assert same.dersimonian_laird == same.fixed
    assert same.random.estimate == pytest.approx(0.2)
    assert "I² = 0 %" in str(same)


def test_the_site_s_own_least_squares_follow_from_the_sums() -> None:
    X, owner = rows()
    y = outcomes("gaussian")
    x = fit("gaussian", X, y)
    tables = site_tables(NAMES, x, by_site("gaussian", X, y, owner, x), has_dispersion=True)
    for site, table in enumerate(tables):
        own = owner == site
        z = fit("gaussian", X[own], y[own])
        expected = coefficient_table(NAMES, z, by_site("gaussian", X[own], y[own], owner[own], z), has_dispersion=True)
        assert table is not None
        np.testing.assert_allclose(table.coefficients, z, rtol=1e-9)
        np.testing.assert_allclose(table.standard_errors, expected.standard_errors, rtol=1e-9)
        assert table.df == 16.0


def test_robust_errors_of_a_site() -> None:
    X, owner = rows(600)
    y = outcomes("gaussian", 600)
    x = fit("gaussian", X, y)
    sites = by_site("gaussian", X, y, owner, x)
    for site, table in enumerate(site_tables(NAMES, x, sites, has_dispersion=True, errors="HC0")):
        own = owner == site
        z = fit("gaussian", X[own], y[own])
        exact = covariance(by_site("gaussian", X[own], y[own], owner[own], z), errors="HC0")
        assert table is not None
        np.testing.assert_allclose(table.standard_errors, np.sqrt(np.diag(exact)), rtol=0.02)
    with pytest.raises(ArgumentError, match="meat"):
        site_tables(NAMES, x, [replace(sites[0], meat=None)], has_dispersion=True, errors="HC0")


def test_one_step_comes_near_the_fit_of_a_site() -> None:
    X, owner = rows(3000)
    y = outcomes("poisson", 3000)
    x = fit("poisson", X, y)
    for site, table in enumerate(site_tables(NAMES, x, by_site("poisson", X, y, owner, x), has_dispersion=False)):
        z = fit("poisson", X[owner == site], y[owner == site])
        assert table is not None
        # The step leaves a small part of the difference.
        assert np.abs(table.coefficients - z).max() < 0.1 * np.abs(x - z).max() < 0.1


def test_chow_s_test_is_that_of_separate_fits() -> None:
    X, owner = rows()
    y = outcomes("gaussian")
    x = fit("gaussian", X, y)
    found = homogeneity_test(by_site("gaussian", X, y, owner, x), has_dispersion=True)
    own = sum(((y - X @ fit("gaussian", X[owner == s], y[owner == s])) ** 2)[owner == s].sum() for s in range(3))
    ratio = (((y - X @ x) ** 2).sum() - own) / 8 / (own / 48)
    assert (found.df, found.df_residual) == (8, 48.0)
    assert found.statistic == pytest.approx(ratio, rel=1e-9)


def test_an_intercept_of_each_site_is_no_difference() -> None:
    X, owner = rows()
    own = np.concatenate([(owner[:, None] == np.arange(3)) * 1.0, X[:, 1:]], axis=1)
    y = outcomes("poisson")
    x = fit("poisson", own, y)
    sites = by_site("poisson", own, y, owner, x)
    assert homogeneity_test(sites, has_dispersion=False).df == 6
    names = ["a", "b", "c", *NAMES[1:]]
    tables = dict(zip("abc", site_tables(names, x, sites, has_dispersion=False), strict=True))
    assert [list(table.names) for table in tables.values() if table is not None] == [
        [site, *NAMES[1:]] for site in "abc"
    ]
    found = Heterogeneity.of_tables("dose", tables)
    assert list(found.sites) == ["a", "b", "c"]
    with pytest.raises(ArgumentError, match="'a' is known at 1 sites, and two are needed; coefficients: a, age, b"):
        Heterogeneity.of_tables("a", tables)


def test_what_a_site_does_not_determine_is_left_out() -> None:
    X, owner = rows()
    y = outcomes("gaussian")
    X = X.copy()
    X[owner == 1, 3] = 1.0  # all smoke there: as good as an intercept
    x = fit("gaussian", X, y)
    sites = by_site("gaussian", X, y, owner, x)
    tables = site_tables(NAMES, x, sites, has_dispersion=True)
    assert tables[1] is not None
    assert list(tables[1].names) == ["age", "dose"]
    kept = owner == 1
    z = fit("gaussian", X[kept][:, :3], y[kept])
    np.testing.assert_allclose(tables[1].coefficients, z[1:], rtol=1e-8)
    assert homogeneity_test(sites, has_dispersion=True).df == 7
    few = Information.of_rows(X[:3], np.ones(3), np.ones(3), weight=3, pearson=1.0)
    assert site_tables(NAMES, x, [few], has_dispersion=True) == [None]
    with pytest.raises(ArgumentError, match="more rows than"):
        homogeneity_test([few, few], has_dispersion=True)
    with pytest.raises(ArgumentError, match="at least two that determine"):
        homogeneity_test([few], has_dispersion=True)


def test_forest_plots_show_all_sites(tmp_path: Path) -> None:
    figure = forest_plot(replace(FIVE, exponentiate=True), tmp_path / "forest.png")
    assert (tmp_path / "forest.png").stat().st_size > 5000
    assert figure.axes[0].get_xscale() == "log"
    text = forest_svg(FIVE)
    assert text == forest_svg(FIVE)
    for part in ("fixed effect", "random effects", "0.256 (0.15 to 0.362)", "I² = 52 %"):
        assert part in text
    with pytest.raises(ArgumentError, match="must be a Heterogeneity"):
        forest_plot([0.1])


def test_frames_and_ratios() -> None:
    frame = replace(FIVE, exponentiate=True).frame()
    assert list(frame.index) == [*"abcde", "fixed effect", "random effects"]
    assert frame.loc["fixed effect", "estimate"] == pytest.approx(math.exp(FIVE.fixed.estimate))
    assert frame.weight.iloc[:5].sum() == pytest.approx(1.0)
    assert "exp(estimate)" in str(replace(FIVE, exponentiate=True))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"estimates": [0.1]}, "at least two sites"),
        ({"standard_errors": [0.1, 0.0, 0.1, 0.1, 0.1]}, "greater than 0"),
        ({"sites": ["a"]}, "each of the 5 sites, got 1"),
        ({"level": 95}, "between 0 and 1"),
    ],
)
def test_arguments_are_checked(change: dict[str, object], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        replace(FIVE, **change)
