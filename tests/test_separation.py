"""Likelihoods without a maximum are named by the columns that separate outcomes, and rare events are not."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.optimize

import fpdfp
from fpdfp.errors import AccuracyWarning, SeparationError
from tests.r_cases import cases, frame
from tests.test_cohort import SitesCohort

R = cases("glm")
COLUMNS = {
    "complete": {"x", "other", "Intercept"},
    "quasi": {"group[T.q]"},
    "empty group": {"group[T.q]"},
}


@pytest.mark.parametrize("tol", [1e-4, 1e-8, 1e-12])
@pytest.mark.parametrize("name", COLUMNS)
def test_what_r_does_not_find(name: str, tol: float) -> None:
    case = R[f"separated, {name}"]
    assert case["r"]["largest"] > 15  # R returns a number, with or without a warning
    with pytest.raises(SeparationError, match="no maximum") as raised:
        fpdfp.FederatedGLM(case["family"], run=fpdfp.RunOptions(tol=tol)).fit(
            frame("separated"), case["formula"], groups="site", levels="any"
        )
    assert set(raised.value.columns) == COLUMNS[name]
    model = fpdfp.FederatedGLM(case["family"], penalty=fpdfp.Ridge(0.01))
    model.fit(frame("separated"), case["formula"], groups="site", levels="any")
    assert np.abs(model.coef_).max() < 20


def rows(seed: int = 0, count: int = 300) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((count, 2)), np.arange(count) % 3


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
def test_links(link: str) -> None:
    rng, X, site = rows()
    level = rng.random(300) < 0.1
    y = np.where(level, 1, rng.random(300) < 0.4).astype(float)
    with pytest.raises(SeparationError) as raised:
        fpdfp.FederatedGLM("binomial", link).fit(np.c_[X, level], y, groups=site)
    assert raised.value.columns == ["x2"]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_other_estimators() -> None:
    rng, X, site = rows()
    level = (rng.random(300) < 0.1).astype(float)
    Z = np.c_[X, level]
    binary = np.where(level > 0, 1, rng.random(300) < 0.4).astype(int)
    for options in ({"inference": True}, {"inference": False, "method": fpdfp.ProximalNewton()}, {}):
        with pytest.raises(SeparationError) as raised:
            fpdfp.FederatedLogisticRegression("none", **options).fit(Z, binary, groups=site)
        assert raised.value.columns == ["x2"]
    three = np.digitize(X[:, 0] + rng.logistic(size=300), [-1.0, 1.0])
    with pytest.raises(SeparationError) as raised:
        fpdfp.FederatedOrdinalRegression().fit(Z, np.where(level > 0, 2, three), groups=site)
    assert raised.value.columns == ["x2"]
    with pytest.raises(SeparationError) as raised:
        fpdfp.FederatedMultinomialRegression().fit(Z, np.where(level > 0, 2, three), groups=site)
    assert raised.value.columns == ["2: x2"]
    with pytest.raises(SeparationError) as raised:
        fpdfp.FederatedMultinomialRegression(reference=2).fit(Z, np.where(level > 0, 2, three), groups=site)
    assert raised.value.columns == ["0: x2", "1: x2"]
    counts = np.where(level > 0, 0, rng.negative_binomial(2.0, 0.4, 300)).astype(float)
    with pytest.raises(SeparationError) as raised:
        fpdfp.FederatedGLM("negative binomial").fit(Z, counts, groups=site)
    assert raised.value.columns == ["x2"]
    with pytest.raises(SeparationError) as raised:
        fpdfp.FederatedGLM("poisson", site_effects="fixed").fit(X, np.where(site == 2, 0.0, counts), groups=site)
    assert raised.value.columns == ["site[2]"]


@pytest.mark.parametrize("where", ["here", "at sites"])
def test_a_level_that_one_site_has(where: str) -> None:
    rng, X, site = rows()
    level = np.where((site == 2) & (rng.random(300) < 0.3), "rare", "usual")
    y = np.where(level == "rare", 1, rng.random(300) < 0.4).astype(int)
    table = pd.DataFrame({"a": X[:, 0], "level": level, "y": y, "site": site.astype(str)})
    source: Any = table
    if where == "at sites":
        source = SitesCohort({str(name): part.drop(columns="site") for name, part in table.groupby("site")})
    with pytest.raises(SeparationError) as raised:
        fpdfp.FederatedGLM("binomial").fit(
            source, "y ~ a + C(level, ref='usual')", groups="site" if where == "here" else None, levels="any"
        )
    (name,) = raised.value.columns
    assert "rare" in name


@pytest.mark.parametrize("family", ["binomial", "poisson"])
@pytest.mark.parametrize("seed", range(5))
def test_rare_events_are_no_separation(family: str, seed: int) -> None:
    """A dozen events in 4,000 rows, with one among the rows of a level."""
    rng, X, site = rows(seed, 4000)
    level = np.zeros(4000)
    level[rng.choice(4000, 40, replace=False)] = 1
    y = np.zeros(4000)
    y[rng.choice(np.flatnonzero(level == 0), 12, replace=False)] = 1
    y[np.flatnonzero(level)[0]] = 1
    model = fpdfp.FederatedGLM(family).fit(np.c_[X, level], y, groups=site)
    assert "separation" not in model.exchanges_
    assert np.abs(model.coef_).max() < 6


def test_nearly_separated() -> None:
    """One row against a thousand: large coefficients, but a maximum."""
    x = np.r_[np.linspace(-2, -0.1, 500), np.linspace(0.1, 2, 500), -0.3]
    y = (x > 0).astype(float)
    y[-1] = 1
    model = fpdfp.FederatedGLM("binomial").fit(x[:, None], y, groups=np.arange(1001) % 3)
    assert 5 < model.coef_[0] < 200
    assert "separation" not in model.exchanges_


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_what_fits_exactly_is_no_separation() -> None:
    X = np.c_[np.array([0.0, 1.0, 0.0, 1.0])]
    model = fpdfp.FederatedGLM("binomial").fit(X, [0.2, 0.6, 0.2, 0.6], sample_weight=[5, 5, 10, 10])
    np.testing.assert_allclose(model.predict(X), [0.2, 0.6, 0.2, 0.6], rtol=1e-8)
    counts = fpdfp.FederatedGLM("poisson").fit(X, [2.0, 5.0, 2.0, 5.0])
    np.testing.assert_allclose(counts.predict(X), [2.0, 5.0, 2.0, 5.0], rtol=1e-8)


def test_collinear_columns_are_no_separation() -> None:
    rng, X, site = rows()
    y = (rng.random(300) < 0.4).astype(float)
    model = fpdfp.FederatedGLM("binomial").fit(np.c_[X, X.sum(axis=1)], y, groups=site)
    assert "separation" not in model.exchanges_


def separated_problems() -> dict[str, tuple[fpdfp.Problem, set[str]]]:
    """Problems without a minimum, and the features whose coefficients grow."""
    _, X, _ = rows(count=60)
    first = fpdfp.losses.Logistic(X, np.sign(X[:, 0]))
    both = fpdfp.losses.Logistic(X, np.sign(X.sum(axis=1)), feature_names=["dose", "age"])
    return {
        "no penalty": (fpdfp.Problem(both, fpdfp.penalties.Zero()), {"dose", "age"}),
        "a weight of zero": (fpdfp.Problem(first, fpdfp.penalties.L1([0.0, 0.1])), {"x0"}),
        "constants": (fpdfp.Problem(both, fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(2)), {"dose", "age"}),
        "a limit on one side": (fpdfp.Problem(both, fpdfp.penalties.NonNegative()), {"dose", "age"}),
    }


@pytest.mark.parametrize("name", separated_problems())
def test_solve_tells_that_there_is_no_minimum(name: str) -> None:
    problem, growing = separated_problems()[name]
    with pytest.warns(AccuracyWarning, match="no minimum.* use a penalty") as warned:
        result = fpdfp.solve(problem, rounds=60, tol=1e-6)
    assert result.status != "converged"
    named = str(warned[0].message).partition("separated by ")[2].partition(", whose")[0]
    assert set(named.split(", ")) == growing
    assert "separated by" in result.message


def test_looks_without_a_bound_are_paid_back_by_rounds() -> None:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((60, 12))
    y = (X @ generator.standard_normal((12, 3))).argmax(axis=1)
    problem = fpdfp.Problem(fpdfp.losses.Softmax(X, y, np.arange(60) % 5), fpdfp.penalties.Zero())
    with pytest.warns(AccuracyWarning, match="no minimum"):
        result = fpdfp.solve(problem, rounds=400, tol=1e-6)
    looks = result.history.rows - 1
    one = sum(result.traffic["certificate"]) / looks
    # All but the first and the last one, which are not waited for.
    assert sum(result.traffic["certificate"]) <= sum(result.traffic["rounds"]) + 2.5 * one


@pytest.mark.parametrize("tol", [1e-4, 1e-10])
@pytest.mark.parametrize("name", separated_problems())
def test_minimize_tells_that_there_is_no_minimum(name: str, tol: float) -> None:
    problem, growing = separated_problems()[name]
    with pytest.warns(AccuracyWarning, match="no minimum.* use a penalty") as warned:
        best = fpdfp.minimize(problem, tol=tol)
    assert (best.converged, best.stationary) == (False, False)
    named = str(warned[0].message).partition("separated by ")[2].partition(", whose")[0]
    assert set(named.split(", ")) == growing


@pytest.mark.parametrize("seed", range(10))
def test_minimize_does_not_take_rounding_for_separation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((40, 3))
    forms = X @ rng.standard_normal(3)
    y = np.where(rng.random(40) < 0.1, -1.0, 1.0) * np.sign(forms)
    for losses in (
        fpdfp.losses.Logistic(X, y),
        fpdfp.losses.Logistic(X.astype(np.float32), y),
        fpdfp.losses.LeastSquares(1e-6 * X, forms),
    ):
        for penalty in (fpdfp.penalties.Zero(), fpdfp.penalties.NonNegative()):
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                fpdfp.minimize(fpdfp.Problem(losses, penalty), tol=1e-30)
            assert not any("no minimum" in str(one.message) for one in warned)


@pytest.mark.parametrize("size", [0.0, 5.0])
@pytest.mark.parametrize("noise", [1.0, 3.0])
def test_minimize_tells_of_separation_as_linear_programming_does(noise: float, size: float) -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, beta = rng.standard_normal((90, 20)), rng.standard_normal(20)
        y = np.where(rng.random(90) < 1 / (1 + np.exp(-X @ beta / noise)), 1.0, -1.0)
        X *= 10 ** rng.uniform(-size, size, 20)
        problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y), fpdfp.penalties.L1(0.1), np.eye(1, 20) - np.eye(1, 20, 1))
        # The penalty leaves two features that are the same.
        signed = y[:, None] * np.c_[X[:, 0] + X[:, 1], X[:, 2:]]
        signed /= np.abs(signed).max(axis=0)
        found = scipy.optimize.linprog(
            -signed.sum(axis=0), np.r_[-signed, signed], np.r_[np.zeros(90), np.ones(90)], bounds=(None, None)
        )
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            fpdfp.minimize(problem, tol=1e-6)
        assert any("no minimum" in str(one.message) for one in warned) == (found.fun < -1e-3)


def test_separation_with_limits_on_bx_is_named() -> None:
    """A large constant vector fits all rows, and neither differences nor limits that do not bind hold it back."""
    p = fpdfp.penalties
    rng = np.random.default_rng(0)
    y = np.where(rng.random(40) < 0.5, 1.0, -1.0)
    losses = fpdfp.losses.Logistic(y[:, None] * np.abs(rng.standard_normal((40, 3))), y, np.arange(40) % 4)
    linop = fpdfp.linops.VStack([fpdfp.linops.Difference(3), fpdfp.linops.Identity((3,))])
    problem = fpdfp.Problem(losses, p.Stacked([p.L1(0.01), p.NonNegative()], shapes=[(2,), (3,)]), linop)
    with pytest.warns(AccuracyWarning, match="no minimum"):
        assert not fpdfp.minimize(problem).converged
    limits = p.Stacked([p.L1(0.01), p.Box(0.0, 3.0)], shapes=[(2,), (3,)])
    assert fpdfp.minimize(fpdfp.Problem(losses, limits, linop)).converged
