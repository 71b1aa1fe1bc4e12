"""Many problems with many features: working sets against solutions in all features."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fpdfp
from fpdfp import losses, penalties
from fpdfp.errors import ArgumentError
from fpdfp.selection import task as wide
from fpdfp.selection.paths import multiply
from tests.loopback import Loopback

ROWS, FEATURES, SITES = 80, 520, 4
PAIRS = np.arange(FEATURES) // 2
SHAPES: dict[str, penalties.Penalty] = {
    "l1": penalties.L1(1.0),
    "intercept": penalties.L1(np.r_[0.0, np.linspace(0.5, 1.5, FEATURES - 1)]),
    "elastic net": penalties.ElasticNet(0.8, 0.2),
    "positive": penalties.ElasticNet(1.0, 0.0, lower=0.0),
    "group": penalties.GroupL12(np.linspace(0.8, 1.2, FEATURES // 2), groups=PAIRS),
    "sparse group": penalties.SparseGroup(0.5, 0.7, groups=PAIRS),
}


def draw(seed: int = 0, rows: int = ROWS) -> tuple[Any, Any]:
    """Return correlated features, and what ten of them explain a part of."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((rows, FEATURES)) + 0.7 * rng.standard_normal((rows, 1))
    return X, X[:, ::52] @ rng.standard_normal(10) + rng.standard_normal(rows)


def words(seed: int = 0, rows: int = 200, features: int = 800) -> tuple[Any, Any]:
    """Return counts of words, most of which are rare, and labels."""
    rng = np.random.default_rng(seed)
    shares = 1.0 / np.arange(1, features + 1)
    X = scipy.sparse.csr_array(rng.poisson(30 * shares / shares.sum(), (rows, features)).astype(float))
    return X, (X[:, [1, 3, 8]] @ [1.0, -1.0, 1.0] + rng.logistic(size=rows) > 0.3).astype(float)


@pytest.mark.parametrize("shape", SHAPES)
def test_paths_are_those_of_all_features(shape: str) -> None:
    X, y = draw()
    whole = losses.LeastSquares(X, y, clients=np.arange(ROWS) % SITES)
    path = fpdfp.path(fpdfp.Problem(whole, SHAPES[shape], weights="samples"), alphas=3, ratio=0.3, certify=True)
    assert path.status == ("converged",) * 3
    assert path.certified.all()
    assert path.gap.max() <= 1e-3
    for alpha, x, gap in zip(path.alphas, path.coef, path.gap, strict=True):
        one = fpdfp.Problem(whole, multiply(SHAPES[shape], float(alpha)), weights="samples")
        # the optimality condition in all features
        moved = one.penalty.prox(x - one.gradient(x), 1.0) - x
        assert np.abs(moved).max() <= 1e-2 * alpha
        if shape in ("l1", "group"):
            true = 1.0 - one.objective(fpdfp.minimize(one, tol=1e-11).x) / one.objective(x)
            assert true <= min(2e-6, gap + 1e-12)
    if shape == "positive":
        return  # whose largest weight is that without limits
    # the largest weight is that of all features
    first = fpdfp.Problem(whole, multiply(SHAPES[shape], 0.99 * path.alphas[0]), weights="samples")
    x = path.coef[0]
    moved = first.penalty.prox(x - first.gradient(x), 1.0) - x
    assert 0.001 * path.alphas[0] < np.abs(moved).max() < 0.02 * path.alphas[0]


@pytest.mark.slow
def test_folds_and_rare_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slopes of rare words are bounded; solutions, scores and status are those without working sets."""
    X, y = words()
    whole = losses.Logistic(X, y, clients=np.arange(len(y)) % SITES)
    weights = np.array([0.1, 0.07, 0.05])
    problems = [fpdfp.Problem(whole, penalties.L1(float(a)), weights="samples") for a in weights] * 3
    held = [None] * 3 + [0] * 3 + [1] * 3
    looked: list[int] = []
    look = wide.Wide._ask_slopes

    def ask(self: Any, points: Any, asked: Any, folds: Any) -> Any:
        looked.append(asked.shape[1])
        return look(self, points, asked, folds)

    monkeypatch.setattr(wide.Wide, "_ask_slopes", ask)
    found = fpdfp.solve_many(problems, folds=2, held_out=held, tol=1e-6)
    monkeypatch.setattr(wide, "FEWEST", 10_000)
    plain = fpdfp.solve_many(problems, folds=2, held_out=held, tol=1e-6)
    assert found.converged
    np.testing.assert_allclose(found.objective, plain.objective, rtol=3e-6)
    np.testing.assert_allclose(found.held_out_loss, plain.held_out_loss, rtol=1e-2)
    assert found.bits_up < plain.bits_up / 10
    assert max(looked) < 200  # of 800 words


def test_bounds_of_slopes_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not asked for is below the bounds that say so."""
    X, y = draw(1)
    whole = losses.Logistic(X, y > 0, clients=np.arange(ROWS) % SITES, l2=0.01)
    problem = fpdfp.Problem(whole, penalties.L1(1.0), weights="samples")
    bound, seen = wide.Wide._bound_slopes, []

    def check(self: Any, fold: int, one: Any, x: Any) -> Any:
        bounds = bound(self, fold, one, x)
        point = np.zeros(FEATURES)
        point[self.left] = x
        slope = np.abs(self.whole.gradient(point) - 0.01 * point)[self.left]
        outside = np.setdiff1d(np.arange(len(x)), self.inside)
        seen.append(int((bounds < 1.0).sum()))
        assert (slope <= bounds + 1e-12)[outside].all()
        return bounds

    monkeypatch.setattr(wide.Wide, "_bound_slopes", check)
    path = fpdfp.path(problem, alphas=10, ratio=0.3, tol=1e-4)
    assert path.status == ("converged",) * 10
    assert max(seen) > 100


@pytest.mark.parametrize("kind", ["logistic", "least squares"])
def test_sites_give_the_same_bits(kind: str) -> None:
    X, y = words(rows=120, features=600)
    owner, names = np.arange(len(y)) % SITES, [f"v{j}" for j in range(600)]
    make: Any = losses.Logistic if kind == "logistic" else losses.LeastSquares
    here = fpdfp.Problem(make(X, y, clients=owner, feature_names=names), penalties.L1(1.0))
    there = fpdfp.Problem(Loopback(here, 2).losses(), penalties.L1(1.0))

    def solve(problem: fpdfp.Problem) -> Any:
        problems = [fpdfp.Problem(problem.losses, penalties.L1(a)) for a in (0.2, 0.1, 0.05)] * 2
        return fpdfp.solve_many(problems, folds=3, held_out=[None] * 3 + [2] * 3, certify=True, progress=False)

    expected, found = solve(here), solve(there)
    assert expected.certified.all()
    for field in dataclasses.fields(expected):
        np.testing.assert_array_equal(getattr(found, field.name), getattr(expected, field.name))


def test_too_many_features(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = draw(2)
    whole = losses.LeastSquares(X, y, clients=np.arange(ROWS) % SITES)
    monkeypatch.setattr(wide, "MOST", 90)
    problem = fpdfp.Problem(whole, penalties.L1(1.0), weights="samples")
    with pytest.raises(ArgumentError, match=r"problems must have solutions with at most 90 features together, but"):
        fpdfp.path(problem, alphas=8, ratio=1e-3)


def test_few_rounds() -> None:
    X, y = draw(3)
    problem = fpdfp.Problem(losses.LeastSquares(X, y, clients=np.arange(ROWS) % SITES), penalties.L1(0.1))
    found = fpdfp.solve_many([problem] * 2, rounds=6)
    assert found.status == ("unfinished",) * 2
    assert found.rounds <= 8


def test_an_estimator() -> None:
    """A cross-validation with many features, an intercept, and areas under curves as scores."""
    X, y = draw(4)
    model = fpdfp.FederatedLogisticRegressionCV(
        "l1", cv=fpdfp.CrossValidation(2, alphas=3, ratio=0.5, scoring="auc", tol=1e-06)
    )
    model.fit(X, (y > 0).astype(float), np.arange(ROWS) % SITES)
    np.testing.assert_allclose(model.path_.coef[list(model.alphas_).index(model.alpha_)], model.coef_[0], atol=5e-3)
    assert model.scores_.shape == (3, 2)
    assert ((model.scores_ > 0.3) & (model.scores_ <= 1)).all()
