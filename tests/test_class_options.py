"""Offsets and intercepts of sites in models of classes, and separation where there are three and more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax, softmax

import fpdfp
from fpdfp import FederatedLogisticRegression, FederatedMultinomialRegression, FederatedOrdinalRegression
from fpdfp.errors import ArgumentError, SeparationError
from fpdfp.losses import Multinomial, Softmax
from tests.test_cohort import SitesCohort, split

FORMULA = "grade ~ age + C(stage) + offset(lean)"


def study(seed: int = 0, rows: int = 450) -> pd.DataFrame:
    """Three grades of patients, with different shares of them at three hospitals."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({
        "age": rng.normal(60.0, 8.0, rows), "stage": rng.choice(["I", "II"], rows),
        "hospital": np.array(["north", "south", "west"])[np.arange(rows) % 3], "lean": rng.normal(0.0, 0.4, rows),
        "weight": rng.uniform(0.5, 2.0, rows),
    })  # fmt: skip
    level = 0.05 * (table["age"] - 60) + 0.6 * (table["stage"] == "II") + table["lean"] + 0.7 * (np.arange(rows) % 3)
    table["grade"] = np.array(["a", "b", "c"])[np.digitize(level + rng.logistic(size=rows), [0.0, 1.5])]
    return table


TABLE = study()
X = np.column_stack([TABLE["age"], TABLE["stage"] == "II"]).astype(float)


def test_offsets_of_classes_are_where_the_likelihood_is_largest() -> None:
    """The score of the multinomial likelihood, from its formula, is zero; offsets by class or for all but one."""
    rng = np.random.default_rng(1)
    by_class = rng.normal(0.0, 0.5, (len(X), 3))
    whole = np.column_stack([np.zeros(len(X)), TABLE["lean"], TABLE["lean"]])
    w = TABLE["weight"].to_numpy()
    y = (TABLE["grade"].to_numpy()[:, None] == ["a", "b", "c"]).astype(float)
    rows = np.column_stack([X, np.ones(len(X))])
    for offset, shifts in ((by_class, by_class), (TABLE["lean"], whole)):
        for reference in ("a", "b"):
            if offset is not by_class and reference == "b":
                continue  # a number is added to all but the reference
            model = FederatedMultinomialRegression(reference, standardize=True, run=fpdfp.RunOptions(tol=1e-12))
            model.fit(X, TABLE["grade"], groups=TABLE["hospital"], offset=offset, sample_weight=w)
            z = np.zeros((len(X), 3))
            z[:, np.array(["a", "b", "c"]) != reference] = X @ model.coef_.T + model.intercept_
            chances = softmax(z + shifts, axis=1)
            assert np.abs(rows.T @ (w[:, None] * (y - chances))).max() < 1e-7 * np.abs(rows.T @ w).max()
            np.testing.assert_allclose(model.predict_proba(X, offset=offset), chances, rtol=1e-10)
            assert model.deviance_ == pytest.approx(-2 * (w[:, None] * y * log_softmax(z + shifts, axis=1)).sum())
            right = np.array(["a", "b", "c"])[chances.argmax(axis=1)] == TABLE["grade"]
            assert model.score(X, TABLE["grade"], offset=offset) == right.mean()
    with pytest.raises(ArgumentError, match=r"offset must be a number for each row, or of shape \(450, 3\)"):
        FederatedMultinomialRegression().fit(X, TABLE["grade"], offset=by_class[:, :2])
    with pytest.raises(ArgumentError, match="offset must have a column for each of 2 classes"):
        Multinomial(X, np.arange(len(X)) % 3, offset=by_class)


def test_offsets_by_formula_and_at_sites() -> None:
    model = FederatedMultinomialRegression(run=fpdfp.RunOptions(tol=1e-12))
    here = model.fit(TABLE, FORMULA, groups="hospital", weights="weight")
    rows = FederatedMultinomialRegression(run=fpdfp.RunOptions(tol=1e-12))
    rows.fit(X, TABLE["grade"], groups=TABLE["hospital"], offset=TABLE["lean"], sample_weight=TABLE["weight"])
    np.testing.assert_allclose(here.coef_, rows.coef_, rtol=1e-8)
    np.testing.assert_allclose(here.table().standard_errors, rows.table().standard_errors, rtol=1e-8)
    np.testing.assert_allclose(here.predict_proba(TABLE), rows.predict_proba(X, offset=TABLE["lean"]), rtol=1e-8)
    known, shown = here.coef_.copy(), str(here.summary())
    there = model.fit(SitesCohort(split(TABLE)), FORMULA, weights="weight")
    np.testing.assert_array_equal(there.coef_, known)
    assert str(there.summary()) == shown


@pytest.mark.parametrize("kind", [FederatedMultinomialRegression, FederatedOrdinalRegression])
@pytest.mark.parametrize("standardize", [False, True])
def test_intercepts_of_sites_are_columns(kind: Any, standardize: bool, tmp_path: Path) -> None:
    order: dict[str, Any] = {"order": ["a", "b", "c"]} if kind is FederatedOrdinalRegression else {}
    dummies = np.column_stack([X, TABLE["hospital"] == "south", TABLE["hospital"] == "west"]).astype(float)
    plain = kind(**order, run=fpdfp.RunOptions(tol=1e-12)).fit(dummies, TABLE["grade"], groups=TABLE["hospital"])
    model = kind(site_effects="fixed", **order, standardize=standardize, run=fpdfp.RunOptions(tol=1e-12))
    model.fit(X, TABLE["grade"], groups=TABLE["hospital"])
    np.testing.assert_allclose(np.atleast_2d(model.coef_), np.atleast_2d(plain.coef_)[:, :2], rtol=1e-7)
    np.testing.assert_allclose(np.atleast_2d(model.fitted_.effects), np.atleast_2d(plain.coef_)[:, 2:], rtol=1e-7)
    tables = [dict(zip(one.table().names, one.table().standard_errors, strict=True)) for one in (model, plain)]
    renamed = {
        name.replace("site[south]", "x2").replace("site[west]", "x3"): value for name, value in tables[0].items()
    }
    assert renamed == pytest.approx(tables[1], rel=1e-7)
    assert sum("site[" in name for name in tables[0]) == (2 if kind is FederatedOrdinalRegression else 4)
    assert model.deviance_ == pytest.approx(plain.deviance_, rel=1e-12)
    np.testing.assert_allclose(model.predict_proba(X, site=TABLE["hospital"]), plain.predict_proba(dummies), rtol=1e-6)
    for wrong in (None, "east", ["north"]):
        with pytest.raises(ArgumentError, match="site must"):
            model.predict(X, site=wrong)
    with pytest.raises(ValueError, match="site_effects must be"):
        kind(site_effects="random").fit(X, TABLE["grade"], groups=TABLE["hospital"])
    model.save(tmp_path / "model.json")
    again = fpdfp.load_model(tmp_path / "model.json")
    assert str(again.summary()) == str(model.summary())
    np.testing.assert_array_equal(again.predict(X, site="west"), model.predict(X, site="west"))


@pytest.mark.parametrize("kind", [FederatedMultinomialRegression, FederatedOrdinalRegression])
def test_intercepts_of_sites_by_formula(kind: Any) -> None:
    order: dict[str, Any] = {"order": ["a", "b", "c"]} if kind is FederatedOrdinalRegression else {}
    model = kind(site_effects="fixed", **order, run=fpdfp.RunOptions(tol=1e-10))
    here = model.fit(TABLE, FORMULA, groups="hospital")
    shown, chances = str(here.summary()), here.predict_proba(TABLE, site=TABLE["hospital"])
    rows = kind(site_effects="fixed", **order, run=fpdfp.RunOptions(tol=1e-10))
    rows.fit(X, TABLE["grade"], groups=TABLE["hospital"], offset=TABLE["lean"])
    np.testing.assert_allclose(rows.predict_proba(X, offset=TABLE["lean"], site=TABLE["hospital"]), chances, rtol=1e-6)
    assert str(model.fit(SitesCohort(split(TABLE)), FORMULA).summary()) == shown


def test_a_site_without_a_class_is_named() -> None:
    table = TABLE[(TABLE["hospital"] != "west") | (TABLE["grade"] != "c")]
    with pytest.raises(SeparationError) as raised:
        FederatedMultinomialRegression(site_effects="fixed").fit(table, FORMULA, groups="hospital")
    assert raised.value.columns == ["c: site[west]"]


def separated(seed: int = 0) -> tuple[Any, Any, Any]:
    """Rows of a level that has one class alone, and classes that would do."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((300, 2))
    level = rng.random(300) < 0.1
    three = np.digitize(rows[:, 0] + rng.logistic(size=300), [-1.0, 1.0])
    return np.column_stack([rows, level]), np.where(level, 2, three), three


@pytest.mark.parametrize("where", ["rows", "table", "sites"])
def test_separation_of_three_classes(where: str) -> None:
    Z, y, fine = separated()
    table = pd.DataFrame(Z, columns=list("abl")).assign(y=y, fine=fine, site=np.arange(300) % 3)
    parts = {str(name): part.drop(columns="site") for name, part in table.groupby("site")}
    for outcome in ("y", "fine"):
        model = FederatedLogisticRegression("none")
        if where == "rows":
            fit = lambda: model.fit(table[list("abl")], table[outcome], groups=table["site"])  # noqa: E731, B023
        elif where == "table":
            fit = lambda: model.fit(table, f"C({outcome}) ~ a + b + l", groups="site")  # noqa: E731, B023
        else:
            fit = lambda: model.fit(SitesCohort(parts), f"C({outcome}) ~ a + b + l")  # noqa: E731, B023
        if outcome == "y":
            with pytest.raises(SeparationError) as raised:
                fit()
            assert raised.value.columns == ["l"]
            continue
        fit()
        assert model.n_iter_ < 8
        known = FederatedMultinomialRegression(run=fpdfp.RunOptions(tol=1e-12)).fit(Z, fine)
        np.testing.assert_allclose(model.coef_[1:] - model.coef_[0], known.coef_, rtol=1e-5, atol=1e-8)
        np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-12)
        assert model.exchanges_["separation"] == 1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_separation_with_other_methods() -> None:
    """Steps of the first order end far from a maximum that is not there; coefficients stay small, and it is named."""
    Z, y, fine = separated()
    model = FederatedLogisticRegression("none", inference=False, run=fpdfp.RunOptions(rounds=60))
    with pytest.raises(SeparationError) as raised:
        model.fit(Z, y, groups=np.arange(300) % 3)
    assert "x2" in raised.value.columns
    model.fit(Z, fine, groups=np.arange(300) % 3)
    model = FederatedLogisticRegression(fpdfp.Ridge(0.001)).fit(Z, y, groups=np.arange(300) % 3)
    assert "separation" not in model.exchanges_


def test_sums_of_softmax() -> None:
    """Scores and Hessians are derivatives of the log-likelihood, and squares of rows' scores add up."""
    rng = np.random.default_rng(0)
    Z, y, w = rng.standard_normal((40, 2)), rng.integers(0, 3, 40), rng.uniform(0.5, 2.0, 40)
    losses = Softmax(Z, y, clients=np.arange(40) % 2, weights=w)
    x, both = rng.standard_normal((3, 2)), np.arange(2)
    sums = losses.sums_at(x, both, robust=True)
    assert sums is not None
    scale = losses.sizes[:, None]
    np.testing.assert_allclose(sums.score, -scale * losses.gradients(x, both).reshape(2, -1), rtol=1e-10)
    np.testing.assert_allclose(sums.numbers[:, 3], 2 * losses.sizes * losses.values(x, both), rtol=1e-12)
    whole = losses.hessian(x, losses.sizes.astype(float))
    assert whole is not None
    np.testing.assert_allclose(sums.hessian.sum(axis=0), whole[np.tril_indices(6)], rtol=1e-10)
    slopes = w[:, None] * (softmax(Z @ x.T, axis=1) - np.eye(3)[y])
    scores = (slopes[:, :, None] * Z[:, None, :]).reshape(40, 6)
    np.testing.assert_allclose(sums.meat.sum(axis=0), (scores.T @ scores)[np.tril_indices(6)], rtol=1e-10)


def test_weights_count_where_sites_look_at_points() -> None:
    """A weight that is nearly all of one row's makes a model of that row."""
    from fpdfp.errors import Refusal
    from tests.desks import guarded

    rng = np.random.default_rng(0)
    Z, y = rng.standard_normal((200, 2)), np.arange(200) % 3
    w = np.where(np.arange(200) == 7, 1e6, 1.0)
    for losses in (Multinomial(Z, y, weights=w), fpdfp.losses.Ordinal(Z, y, weights=w)):
        with pytest.raises(Refusal, match="too few"):
            guarded(losses).gradients(np.zeros(losses.shape), np.array([0]))
