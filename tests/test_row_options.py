"""Weights of rows and classes, and offsets, of the two estimators that people know: against copies and scikit-learn."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge

import fpdfp
from fpdfp import FederatedGLM, FederatedLinearRegression, FederatedLogisticRegression
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.losses import Softmax
from tests.helpers import conventions
from tests.test_cohort import SitesCohort, patients, split
from tests.test_estimators import data


def weights_of(rows: int) -> Any:
    return np.random.default_rng(8).integers(0, 4, rows)


@pytest.mark.parametrize("kind", ["regression", "two classes", "three classes"])
def test_weights_are_copies(kind: str) -> None:
    X, y, site = data(kind)
    w = weights_of(len(y))
    estimator = FederatedLinearRegression if kind == "regression" else FederatedLogisticRegression
    options: dict[str, Any] = {
        "penalty": fpdfp.ElasticNet(0.07, l1_ratio=2 / 7), "run": fpdfp.RunOptions(tol=1e-10)
    }  # fmt: skip
    weighted = estimator(**options).fit(X, y, groups=site, sample_weight=w)
    copies = estimator(**options).fit(X.repeat(w, axis=0), y.repeat(w), groups=site.repeat(w))
    np.testing.assert_allclose(weighted.coef_, copies.coef_, atol=3e-5)
    assert weighted.score(X, y, sample_weight=w) == pytest.approx(
        copies.score(X.repeat(w, axis=0), y.repeat(w)), abs=1e-5
    )


def test_weighted_softmax_losses_are_those_of_copies() -> None:
    rng = np.random.default_rng(0)
    X, y, w, owner = rng.standard_normal((40, 5)), rng.integers(0, 3, 40), rng.integers(1, 4, 40), np.arange(40) % 3
    losses = Softmax(X, y, clients=owner, weights=w, l2=0.1)
    r = np.repeat(np.arange(40), w)
    copies = Softmax(X[r], y[r], clients=owner[r], l2=0.1)
    x, clients = rng.standard_normal((3, 5)), np.arange(3)
    share = np.bincount(owner, weights=w) / np.bincount(owner)
    ridge = 0.05 * float((x**2).sum())
    np.testing.assert_allclose((losses.values(x, clients) - ridge) / share + ridge, copies.values(x, clients))
    found = (losses.gradients(x, clients) - 0.1 * x) / share[:, None, None] + 0.1 * x
    np.testing.assert_allclose(found, copies.gradients(x, clients), atol=1e-14)
    uniform, u = np.full(3, 1 / 3), rng.standard_normal((3, 5))
    ahead, behind = (losses.gradient(x + s * 1e-6 * u, uniform) for s in (1, -1))
    np.testing.assert_allclose(losses.hessian_product(x, u, uniform), (ahead - behind) / 2e-6, atol=1e-8)
    assert not losses.supports_batches
    assert (losses.lipschitz() >= copies.lipschitz() * share - 0.1).all()
    part = losses.part(np.array([2]))
    np.testing.assert_array_equal(part.values(x, np.array([0])), losses.values(x, np.array([2])))


def test_scikit_learn_agrees_on_weights_and_classes() -> None:
    X, y, site = data("two classes")
    w = weights_of(len(y)) + 0.5
    n = float(w.sum())
    options: dict[str, Any] = {
        "penalty": fpdfp.Ridge(0.1), "standardize": False, "run": fpdfp.RunOptions(tol=1e-12)
    }  # fmt: skip
    ours = FederatedLogisticRegression(**options).fit(X, y, groups=site, sample_weight=w)
    theirs = LogisticRegression(C=1 / (0.1 * n), tol=1e-12, max_iter=10_000).fit(X, y, sample_weight=w)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-5)
    for given in ("balanced", {"yes": 3.0}):
        model = FederatedLogisticRegression(**options, class_weight=given).fit(X, y, groups=site)
        theirs = LogisticRegression(C=1 / (0.1 * len(y)), class_weight=given, tol=1e-12, max_iter=10_000).fit(X, y)
        np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-5)
        np.testing.assert_allclose(model.intercept_, theirs.intercept_, atol=1e-5)
    X, y, site = data("three classes")
    model = FederatedLogisticRegression(**options, class_weight="balanced").fit(X, y, groups=site)
    theirs = LogisticRegression(C=1 / (0.1 * len(y)), class_weight="balanced", tol=1e-12, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=1e-5)
    X, y, site = data("regression")
    line = FederatedLinearRegression(**options).fit(X, y, groups=site, sample_weight=w)
    np.testing.assert_allclose(line.coef_, Ridge(alpha=0.1 * n, tol=1e-12).fit(X, y, sample_weight=w).coef_, atol=1e-6)


def test_offsets() -> None:
    X, y, site = data("regression")
    lean = 0.3 * X[:, 0] - 1.0
    options: dict[str, Any] = {"penalty": fpdfp.L1(0.02), "run": fpdfp.RunOptions(tol=1e-12)}
    moved = FederatedLinearRegression(**options).fit(X, y - lean, groups=site)
    model = FederatedLinearRegression(**options).fit(X, y, groups=site, offset=lean)
    np.testing.assert_allclose(model.coef_, moved.coef_, atol=1e-5)
    np.testing.assert_allclose(model.predict(X, offset=lean), moved.predict(X) + lean, atol=1e-4)
    X, y, site = data("two classes")
    known = FederatedGLM("binomial", **options).fit(X, y == "yes", groups=site, offset=lean)
    found = FederatedLogisticRegression(**options).fit(X, y, groups=site, offset=lean)
    np.testing.assert_allclose(found.coef_[0], known.coef_, atol=1e-6)
    np.testing.assert_allclose(found.predict_proba(X, offset=lean)[:, 1], known.predict(X, offset=lean), atol=1e-6)
    with pytest.raises(ArgumentError, match="offset must be None for more than two classes"):
        FederatedLogisticRegression().fit(*data("three classes")[:2], offset=lean)


def table() -> Any:
    frame = patients().dropna()
    frame["weight"] = np.random.default_rng(1).uniform(0.5, 2.0, len(frame))
    frame["lean"] = 0.02 * (frame.age - 60)
    return frame


@pytest.mark.parametrize("kind", [FederatedLogisticRegression, FederatedLinearRegression])
def test_columns_of_a_table(kind: Any) -> None:
    frame = table()
    outcome, options = ("died", {"class_weight": "balanced"}) if kind is FederatedLogisticRegression else ("dose", {})
    model = kind(fpdfp.L1(0.01), standardize=True, run=fpdfp.RunOptions(tol=1e-10), **options)
    here = model.fit(frame, f"{outcome} ~ age + pressure + offset(lean)", groups="hospital", weights="weight")
    coefficients, predicted = here.coef_.copy(), here.predict(frame)
    there = model.fit(SitesCohort(split(frame)), f"{outcome} ~ age + pressure + offset(lean)", weights="weight")
    np.testing.assert_allclose(there.coef_, coefficients, rtol=1e-9)
    matrix = model.fit(
        frame[["age", "pressure"]], frame[outcome], groups=frame.hospital, sample_weight=frame.weight, offset=frame.lean
    )
    np.testing.assert_allclose(matrix.coef_, coefficients, rtol=1e-4)
    shown = matrix.predict(frame[["age", "pressure"]], offset=frame.lean)
    np.testing.assert_allclose(shown, predicted, rtol=1e-4)


BAD: list[tuple[Any, str]] = [
    (lambda X, y: FederatedLogisticRegression(class_weight="even").fit(X, y), "class_weight must be None, 'balanced'"),
    (lambda X, y: FederatedLogisticRegression(class_weight={"no": -1}).fit(X, y), "class_weight of 'no' must be"),
    (
        lambda X, y: FederatedLogisticRegression(class_weight={"maybe": 1}).fit(X, y),
        "'maybe' is not a class; the classes",
    ),
    (
        lambda X, y: FederatedLogisticRegression().fit(X, y, sample_weight=np.zeros(60)),
        "sample_weight must be at least 0",
    ),
    (
        lambda X, y: FederatedLogisticRegression().fit(X, y, sample_weight=1.0 * (y == "no")),
        "must hold at least two cl",
    ),
    (lambda X, y: FederatedLogisticRegression().fit(X, y, weights="w"), "weights must be None without a formula"),
    (
        lambda X, y: FederatedLogisticRegression().fit(table(), "died ~ age", groups="hospital", sample_weight=[1]),
        "sample_weight must be None with a formula; give weights='column'",
    ),
    (
        lambda X, y: FederatedLogisticRegression().fit(table(), "grade ~ age", groups="hospital", weights="weight"),
        "the response has 3 classes; weights, class_weight, offsets and clusters take two here",
    ),
]


@pytest.mark.parametrize(("act", "message"), BAD)
def test_what_is_refused(act: Any, message: str) -> None:
    X, y, _ = data("two classes")
    with pytest.raises(ValueError, match=message):
        act(X, y)


def test_a_site_refuses_weights_of_classes_that_are_none() -> None:
    seen: list[Any] = []

    class Spy(SitesCohort):
        def losses(self, spec: Any) -> Any:
            seen.append(spec)
            return super().losses(spec)

    FederatedLogisticRegression(class_weight="balanced").fit(Spy(split(table())), "died ~ age")
    for wrong in ((1.0,), (1.0, -1.0), (1.0, float("inf"))):
        with pytest.raises(MessageError, match="class_weights must be"):
            dataclasses.replace(seen[0], class_weights=wrong)


@conventions(  # type: ignore[untyped-decorator]
    FederatedGLM(penalty=fpdfp.Ridge(0.1)),
    FederatedLinearRegression(fpdfp.Ridge(0.1), method=fpdfp.ProximalNewton()),
    FederatedLogisticRegression(fpdfp.Ridge(1.0)),
    having="weight",
)
def test_conventions_with_weights(estimator: Any, check: Any) -> None:
    if "equivalence" in check.func.__name__:
        estimator.set_params(run=fpdfp.RunOptions(tol=0, rounds=120))
    with warnings.catch_warnings():
        # To 1e-7 in every probability: as far as rounding lets it come.
        warnings.simplefilter("ignore", ConvergenceWarning)
        check(estimator)
