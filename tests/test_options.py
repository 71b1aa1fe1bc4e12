"""Sparse groups, concave penalties, factors of penalties, limits and starting values, against other solvers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import lsq_linear, minimize

import fpdfp
from fpdfp import FederatedGLM, FederatedLinearRegression, FederatedLogisticRegression
from fpdfp.errors import ArgumentError
from fpdfp.models.penalty import KINDS
from tests.test_cohort import SitesCohort, patients, split
from tests.test_estimators import data, textbook

R = Path(__file__).parent / "data" / "r"
GLMNET = json.loads((R / "glmnet.json").read_text())["cases"] if (R / "glmnet.json").exists() else {}
WIDE = [f"z{j}" for j in range(1, 9)]
GROUPS = ["a", "a", "b", "b"]


def dense(X: Any, y: Any, penalty: Any, *limits: Any) -> Any:
    """Least squares plus a penalty of cvxpy, by Clarabel: coefficients."""
    w, b = cp.Variable(X.shape[1]), cp.Variable()
    loss = cp.sum_squares(X @ w + b - y) / (2 * len(y))
    cp.Problem(cp.Minimize(loss + penalty(w)), [limit(w) for limit in limits]).solve(solver=cp.CLARABEL)
    return w.value


def sparse_groups(w: Any, alpha: float = 0.2, share: float = 0.3) -> Any:
    return alpha * (share * cp.norm1(w) + (1 - share) * np.sqrt(2) * (cp.norm(w[:2]) + cp.norm(w[2:])))


@pytest.mark.parametrize("kind", [FederatedLinearRegression, FederatedGLM])
def test_sparse_groups(kind: Any) -> None:
    X, y, site = data("regression")
    penalty = fpdfp.SparseGroup(0.2, l1_ratio=0.3, groups=GROUPS)
    model = kind(penalty=penalty, standardize=False, run=fpdfp.RunOptions(tol=1e-9))
    model.fit(X, y, groups=site)
    np.testing.assert_allclose(model.coef_, dense(X, y, sparse_groups), atol=1e-4)
    bounded = model.set_params(bounds=(-0.1, [0.3, 1.0, 1.0, np.inf])).fit(X, y, groups=site)
    expected = dense(X, y, sparse_groups, lambda w: w >= -0.1, lambda w: w[:3] <= [0.3, 1.0, 1.0])
    np.testing.assert_allclose(bounded.coef_, expected, atol=1e-4)


def test_sparse_groups_of_classes() -> None:
    X, y, site = data("three classes")
    options: dict[str, Any] = {"standardize": False, "run": fpdfp.RunOptions(tol=1e-8)}
    model = FederatedLogisticRegression(fpdfp.SparseGroup(0.05, l1_ratio=0.0, groups=GROUPS), **options)
    model.fit(X, y, groups=site)
    np.testing.assert_allclose(model.coef_, textbook("three classes", "group", X, y)[0], atol=3e-4)
    model = FederatedLogisticRegression(fpdfp.SparseGroup(0.05, l1_ratio=1.0, groups=GROUPS), **options)
    model.fit(X, y, groups=site)
    np.testing.assert_allclose(model.coef_, textbook("three classes", "l1", X, y)[0], atol=3e-4)


def orthogonal(rows: int = 64, features: int = 8) -> tuple[Any, Any, Any]:
    """Columns with XᵀX = n I that are orthogonal to the constant, targets, and the coefficients of least squares."""
    rng = np.random.default_rng(5)
    A = np.column_stack([np.ones(rows), rng.standard_normal((rows, features))])
    X = np.linalg.qr(A)[0][:, 1:] * np.sqrt(rows)
    y = X @ np.array([0.05, 0.25, -0.35, 0.5, -0.7, 1.1, -1.2, 3.0]) + 1.0
    return X, y, X.T @ y / rows


def threshold(name: str, z: Any, weight: float, c: float) -> Any:
    """The minimum of (x − z)²/2 + p(x) in closed form (Fan and Li 2001, Zhang 2010)."""
    soft = np.sign(z) * np.maximum(abs(z) - weight, 0.0)
    if name == "mcp":
        return np.where(abs(z) <= c * weight, soft / (1 - 1 / c), z)
    middle = ((c - 1) * z - np.sign(z) * c * weight) / (c - 2)
    return np.where(abs(z) <= 2 * weight, soft, np.where(abs(z) <= c * weight, middle, z))


@pytest.mark.parametrize(("name", "concavity"), [("mcp", None), ("mcp", 1.8), ("scad", None), ("scad", 2.8)])
def test_concave_penalties_of_an_orthogonal_design(name: str, concavity: float | None) -> None:
    X, y, z = orthogonal()
    penalty: Any = KINDS[name](0.3, concavity=concavity)  # type: ignore[call-arg]
    model = FederatedGLM(penalty=penalty, run=fpdfp.RunOptions(tol=1e-12))
    model.fit(X, y, groups=np.arange(64) % 3)
    expected = threshold(name, z, 0.3, penalty.bend)
    np.testing.assert_allclose(model.coef_, expected, atol=2e-6)
    np.testing.assert_array_equal(model.coef_ == 0, expected == 0)
    assert model.n_steps_ > 2
    assert model.n_iter_ > model.result_.rounds
    assert model.bits_up_ > model.result_.total_up


@pytest.mark.parametrize("name", ["mcp", "scad"])
@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson"])
def test_concave_penalties_end_at_a_stationary_point(name: str, family: str) -> None:
    """The conditions of ncvreg: |∇_j f| ≤ λ_j at zeros, ∇_j f = −p'(|x_j|) sign(x_j) elsewhere; and the objective."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 10)) @ (np.eye(10) + 0.4 * np.eye(10, k=1))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    eta = X[:, 0] - 0.6 * X[:, 1] + 0.3 * X[:, 4]
    y = {
        "gaussian": eta + 0.5 * rng.standard_normal(200),
        "binomial": (eta + rng.logistic(size=200) > 0).astype(float),
        "poisson": rng.poisson(np.exp(0.5 * eta)).astype(float),
    }[family]
    factors = np.where(np.arange(10) == 9, 0.5, 1.0)
    run = fpdfp.RunOptions(tol=1e-12)
    penalty: Any = KINDS[name](0.06, factors=factors)
    model = FederatedGLM(family, penalty=penalty, run=run).fit(X, y, groups=np.arange(200) % 4)
    weight = 0.06 * factors
    mean = model.predict(X)
    gradient = X.T @ (mean - y) / 200
    zero = model.coef_ == 0
    assert 0 < zero.sum() < 10
    assert (abs(gradient[zero]) <= weight[zero] + 1e-6).all()
    slope = penalty.slopes(model.coef_, weight)
    np.testing.assert_allclose(gradient[~zero], -(slope * np.sign(model.coef_))[~zero], atol=2e-6)
    lasso = FederatedGLM(family, penalty=fpdfp.L1(0.06, factors=factors), run=run).fit(X, y, groups=np.arange(200) % 4)

    def objective(fitted: Any) -> float:
        return float(fitted.deviance_) / 400 + float(penalty.values(fitted.coef_, weight).sum())

    assert objective(model) < objective(lasso)


def test_slopes_of_concave_penalties_are_those_of_their_values() -> None:
    x = np.linspace(0.013, 3.0, 97)
    for penalty in (fpdfp.MCP(), fpdfp.SCAD()):
        ahead, behind = (penalty.values(x + step, np.full(97, 0.5)) for step in (1e-6, -1e-6))
        np.testing.assert_allclose(penalty.slopes(x, np.full(97, 0.5)), (ahead - behind) / 2e-6, atol=1e-5)


FACTORS = np.array([0.0, 2.0, 0.5, 1.0])
DIFFERENCES = np.diff(np.eye(4), axis=0)
WEIGHTED: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "l1": ({}, FACTORS, lambda w: 0.1 * cp.norm1(cp.multiply(FACTORS, w))),
    "elasticnet": (
        {"l1_ratio": 0.4},
        FACTORS,
        lambda w: cp.sum(cp.multiply(FACTORS, 0.04 * cp.abs(w) + 0.03 * w**2)),
    ),
    "ridge": ({}, FACTORS, lambda w: 0.05 * cp.sum(cp.multiply(FACTORS, w**2))),
    "mcp": (
        {"l2": 0.1, "concavity": 1e9},
        FACTORS,
        lambda w: cp.sum(cp.multiply(FACTORS, 0.1 * cp.abs(w) + 0.05 * w**2)),
    ),
    "group": (
        {"groups": GROUPS},
        [0.5, 0.5, 2.0, 2.0],
        lambda w: 0.1 * np.sqrt(2) * (0.5 * cp.norm(w[:2]) + 2.0 * cp.norm(w[2:])),
    ),
    "fused": (
        {"l1": 0.5},
        FACTORS,
        lambda w: 0.1 * (cp.norm1(DIFFERENCES @ w) + 0.5 * cp.norm1(cp.multiply(FACTORS, w))),
    ),
    "graph": (
        {"l1": 0.5, "graph": [(0, 1), (1, 2), (2, 3)], "form": "differences"},
        FACTORS,
        lambda w: 0.1 * (cp.norm1(DIFFERENCES @ w) + 0.5 * cp.norm1(cp.multiply(FACTORS, w))),
    ),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_factors_of_each_penalty(name: str) -> None:
    X, y, site = data("regression")
    options, factors, penalty = WEIGHTED[name]
    shape = KINDS[name](0.1, factors=factors, **options)
    model = FederatedGLM(penalty=shape, standardize=False, run=fpdfp.RunOptions(tol=1e-11))
    np.testing.assert_allclose(model.fit(X, y, groups=site).coef_, dense(X, y, penalty), atol=3e-5)


@pytest.mark.parametrize("penalty", ["l1", "fused", "none"])
@pytest.mark.parametrize("kind", [FederatedLinearRegression, FederatedGLM])
def test_limits_against_a_dense_solver(kind: Any, penalty: str) -> None:
    X, y, site = data("regression")
    lower, upper = np.array([-np.inf, -0.2, 0.1, 0.0]), np.array([0.7, np.inf, 0.4, 0.5])
    shape = {"l1": fpdfp.L1(0.05), "fused": fpdfp.Fused(0.05, l1=0.5), "none": "none"}[penalty]
    model = kind(penalty=shape, bounds=(lower, upper), standardize=True, run=fpdfp.RunOptions(tol=1e-10))
    model.fit(X, y, groups=site)
    s = X.std(axis=0)
    terms = {
        "l1": lambda w: 0.05 * cp.norm1(cp.multiply(s, w)),
        "fused": lambda w: 0.05 * cp.norm1(DIFFERENCES @ cp.multiply(s, w)) + 0.025 * cp.norm1(cp.multiply(s, w)),
        "none": lambda w: 0.0,
    }
    expected = dense(X, y, terms[penalty], lambda w: w[1:] >= lower[1:], lambda w: w[[0, 2, 3]] <= upper[[0, 2, 3]])
    np.testing.assert_allclose(model.coef_, expected, atol=1e-4)
    assert ((model.coef_ >= lower) & (model.coef_ <= upper)).all()


def test_limits_against_scipy() -> None:
    X, y, site = data("regression")
    model = FederatedGLM(fit_intercept=False, bounds=(0.0, 0.5), run=fpdfp.RunOptions(tol=1e-12)).fit(X, y, groups=site)
    np.testing.assert_allclose(model.coef_, lsq_linear(X, y, (0.0, 0.5), tol=1e-14).x, atol=1e-7)
    counts = np.random.default_rng(0).poisson(np.exp(0.3 * X[:, 0]))
    found = FederatedGLM("poisson", bounds={"x0": (None, 0.1), "x3": (0.0, 1.0)}, run=fpdfp.RunOptions(tol=1e-12)).fit(
        X, counts, groups=site
    )
    A = np.column_stack([X, np.ones(len(X))])
    ours = [*found.coef_, found.intercept_]
    best = minimize(
        lambda w: np.mean(np.exp(A @ w) - counts * (A @ w)), np.zeros(5),
        jac=lambda w: A.T @ (np.exp(A @ w) - counts) / len(A), method="L-BFGS-B",
        bounds=[(None, 0.1), (None, None), (None, None), (0.0, 1.0), (None, None)],
        options={"ftol": 1e-15, "gtol": 1e-10},
    )  # fmt: skip
    np.testing.assert_allclose(ours, best.x, atol=1e-5)
    assert found.coef_[0] == 0.1


def test_no_standard_errors_with_limits() -> None:
    X, y, site = data("regression")
    model = FederatedGLM(bounds=(0.0, None)).fit(X, y, groups=site)
    assert "Coefficients have bounds" in str(model.summary())
    assert model.information_ is None
    with pytest.raises(ArgumentError, match="bounds: Coefficients have bounds"):
        model.table()
    with pytest.raises(ArgumentError, match="Coefficients have bounds"):
        FederatedGLM(bounds=(0.0, None), inference=True).fit(X, y, groups=site).wald_test(["x0"])


@pytest.mark.skipif(not GLMNET, reason="the numbers of glmnet are not here")
@pytest.mark.parametrize(
    "name", [f"{f}, {k}" for f in ("gaussian", "binomial", "poisson") for k in ("factors", "limits")]
)
def test_against_glmnet(name: str) -> None:
    case, table = GLMNET[name], json.loads((R / "data.json").read_text())["wide"]
    X, y = np.column_stack([table[z] for z in WIDE]).astype(float), np.array(table[case["outcome"]], dtype=float)
    factors = case.get("factors")
    for alpha, known, constant in zip(case["lambdas"], case["r"]["coefficients"], case["r"]["intercept"], strict=True):
        model = FederatedGLM(
            case["family"],
            penalty=fpdfp.L1(alpha, factors=None if factors is None else np.array(factors) / np.mean(factors)),
            bounds=None if "lower" not in case else (case["lower"], case["upper"]),
            standardize=False,
            run=fpdfp.RunOptions(tol=1e-13),
        )
        model.fit(X, y, groups=table["site"])
        np.testing.assert_allclose(model.coef_, known, rtol=1e-6, atol=1e-9)
        assert model.intercept_ == pytest.approx(constant, rel=1e-6)


def test_a_start_saves_rounds_and_ends_at_the_same_point() -> None:
    X, y, site = data("two classes")
    options: dict[str, Any] = {
        "penalty": fpdfp.L1(0.02), "standardize": True, "run": fpdfp.RunOptions(tol=1e-10)
    }  # fmt: skip
    first = FederatedLogisticRegression(**options).fit(X, y, groups=site)
    start = [*first.coef_[0], first.intercept_[0]]
    again = FederatedLogisticRegression(**options, start=start).fit(X, y, groups=site)
    np.testing.assert_allclose(again.coef_, first.coef_, atol=1e-5)
    assert again.n_iter_ < first.n_iter_
    names = {"x0": start[0], "x1": start[1], "x2": start[2], "x3": start[3], "Intercept": start[4]}
    by_name = FederatedLogisticRegression(**options, start=names).fit(X, y, groups=site)
    np.testing.assert_array_equal(by_name.coef_, again.coef_)
    X, y, site = data("three classes")
    first = FederatedLogisticRegression(**options).fit(X, y, groups=site)
    both = np.column_stack([first.coef_, first.intercept_])
    again = FederatedLogisticRegression(**options, start=both).fit(X, y, groups=site)
    assert again.history_["objective"][0] == pytest.approx(first.result_.objective, rel=1e-9)
    np.testing.assert_allclose(again.coef_, first.coef_, atol=1e-4)


FORMULAS: dict[str, dict[str, Any]] = {
    "factors": {"penalty": fpdfp.L1(0.05, factors={"age": 0, "stage": 0.5})},
    "limits": {"penalty": fpdfp.Fused(0.05), "bounds": {"stage": (0.0, None), "age": (None, 0.01)}},
    "start": {"penalty": fpdfp.L1(0.05), "start": {"age": 0.1, "Intercept": 1.0}},
    "mcp": {"penalty": fpdfp.MCP(0.05)},
    "sparse group": {"penalty": fpdfp.SparseGroup(0.05)},
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("kind", [FederatedLinearRegression, FederatedGLM])
def test_the_same_at_sites(kind: Any, name: str) -> None:
    table, formula = patients(), "dose ~ age + stage + pressure"
    run = fpdfp.RunOptions(tol=1e-8 if kind is FederatedGLM else 1e-6)
    options = {"standardize": True, "run": run} | FORMULAS[name]
    here = kind(**options).fit(table, formula, groups="hospital")
    there = kind(**options).fit(SitesCohort(split(table)), formula)
    np.testing.assert_allclose(here.coef_, there.coef_, rtol=1e-9)
    # The same rows as a matrix: terms are spelled out there.
    whole = table.dropna()
    X = pd.DataFrame({
        "age": whole.age, "stage[II]": 1.0 * (whole.stage == "II"), "stage[III]": 1.0 * (whole.stage == "III"),
        "pressure": whole.pressure,
    })  # fmt: skip
    spelled: dict[str, Any] = {
        "factors": {"penalty": fpdfp.L1(0.05, factors=[0, 0.5, 0.5, 1])},
        "limits": {"bounds": {"stage[II]": (0.0, None), "stage[III]": (0.0, None), "age": (None, 0.01)}},
        "sparse group": {"penalty": fpdfp.SparseGroup(0.05, groups=[0, 1, 1, 2])},
    }
    matrix = kind(**(options | spelled.get(name, {}))).fit(X, whole.dose, groups=whole.hospital)
    np.testing.assert_allclose(matrix.coef_, here.coef_, atol=1e-4 if kind is FederatedGLM else 1e-3)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "factor": ({"penalty": fpdfp.L1(factors=[1.0, -1.0, 0.0, 1.0])}, "factors must be at least 0, got -1"),
    "factors": ({"penalty": fpdfp.L1(factors=[1.0, 1.0])}, r"factors must have a number for each of the 4 features"),
    "name": (
        {"penalty": fpdfp.L1(factors={"height": 2.0})},
        "factors: 'height' is not a feature or term; features are",
    ),
    "unequal": (
        {"penalty": fpdfp.Group(groups=GROUPS, factors=[1, 2, 1, 1])},
        "factors must be the same for all features of a group, but not in 'a'",
    ),
    "bounds": ({"bounds": 3.0}, r"bounds must be a pair \(lower, upper\)"),
    "crossed": ({"bounds": (1.0, 0.0)}, "bounds must leave a value to every coefficient, got 1 to 0 for x0"),
    "nan": ({"bounds": (np.nan, 0.0)}, "bounds must not be NaN"),
    "text": ({"bounds": ("low", 0.0)}, "bounds must be numbers"),
    "intercept": ({"bounds": {"Intercept": (0, 1)}}, "bounds: 'Intercept' is not a feature"),
    "start": ({"start": [1.0]}, r"start must have shape \(4,\), one for each coefficient, and perhaps the intercept"),
    "groups": ({"penalty": "sparse group"}, "groups must name the group of each feature for the penalty"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name: str) -> None:
    X, y, site = data("regression")
    options, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        FederatedGLM(**({"penalty": fpdfp.L1(0.1)} | options)).fit(X, y, groups=site)


def test_a_start_of_classes_is_an_array() -> None:
    X, y, _ = data("three classes")
    with pytest.raises(ValueError, match="start must be an array with a row for each of the 3 classes"):
        fpdfp.FederatedLogisticRegression(start={"x0": 1.0}).fit(X, y)
