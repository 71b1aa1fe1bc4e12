"""Estimators of several classes, against R (nnet, MASS), scikit-learn, and the same at sites."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import optimize
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

import fpdfp
from fpdfp import FederatedMultinomialRegression, FederatedOrdinalRegression
from fpdfp.federation.table import SiteTable
from fpdfp.models.penalty import KINDS
from tests.r_cases import cases, frame, numbers, rows
from tests.test_cohort import SitesCohort, patients, split

R = cases("glm")
ORDINAL = {"logit": R["ordinal, logistic"], "probit": R["ordinal, probit"]}


#: Texts have no order, and are refused where none is declared.
REFUSED = {"check_classifiers_classes": "classes are texts without an order"}


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        FederatedMultinomialRegression(penalty=fpdfp.Ridge(0.001)),
        FederatedOrdinalRegression(penalty=fpdfp.Ridge(0.001)),
    ],
    expected_failed_checks=lambda one: REFUSED if isinstance(one, FederatedOrdinalRegression) else {},
)
def test_conventions(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("link", ORDINAL)
def test_ordinal_is_that_of_polr(link: Any) -> None:
    case, r = ORDINAL[link], ORDINAL[link]["r"]
    model = FederatedOrdinalRegression(link, run=fpdfp.RunOptions(tol=1e-12))
    model.fit(frame("study"), case["formula"], groups="site", levels="any")
    summary, table = model.summary(), model.table()
    known = [*r["coefficients"].values(), *r["cuts"]]
    np.testing.assert_allclose(table.coefficients, known, rtol=1e-6)
    np.testing.assert_allclose(table.standard_errors, r["errors"], rtol=1e-6)
    assert table.names[-3:] == r["names"][-3:]
    assert summary.log_likelihood == pytest.approx(r["log_likelihood"], rel=1e-10)
    assert summary.aic == pytest.approx(r["aic"], rel=1e-10)
    assert "observed information" in str(summary)
    data = rows(case)
    by_rows = FederatedOrdinalRegression(link, standardize=True, run=fpdfp.RunOptions(tol=1e-12))
    by_rows.fit(data.X[:, 1:], data.y.astype(int), groups=data.sites)
    np.testing.assert_allclose(list(by_rows.coefficients_.values()), known, rtol=1e-6)
    np.testing.assert_allclose(by_rows.table().standard_errors, r["errors"], rtol=1e-6)


def test_multinomial_is_that_of_nnet() -> None:
    case, r = R["multinomial"], R["multinomial"]["r"]
    model = FederatedMultinomialRegression(run=fpdfp.RunOptions(tol=1e-12))
    model.fit(frame("study"), case["formula"], groups="site", levels="any")
    summary, table = model.summary(), model.table()
    np.testing.assert_allclose(table.coefficients, np.ravel(r["coefficients"]), rtol=1e-6)
    np.testing.assert_allclose(table.standard_errors, np.ravel(r["errors"]), rtol=1e-6)
    assert summary.deviance == pytest.approx(r["deviance"], rel=1e-10)
    assert summary.aic == pytest.approx(r["aic"], rel=1e-10)
    assert list(model.others_) == r["levels"][1:]
    # Another reference has differences of the same coefficients, and the same predictions.
    other = FederatedMultinomialRegression("train", run=fpdfp.RunOptions(tol=1e-12))
    other.fit(frame("study"), case["formula"], groups="site", levels="any")
    first, second = numbers(r["coefficients"])
    np.testing.assert_allclose(list(other.coefficients_["foot"].values()), first - second, rtol=1e-6)
    complete = frame("study").dropna()
    np.testing.assert_allclose(model.predict_proba(complete), other.predict_proba(complete), rtol=1e-8)


def test_multinomial_standardised_with_a_null_deviance() -> None:
    data = rows(R["multinomial"])
    model = FederatedMultinomialRegression(standardize=True, run=fpdfp.RunOptions(tol=1e-12)).fit(
        data.X[:, 1:], data.y, groups=data.sites
    )
    r = R["multinomial"]["r"]
    np.testing.assert_allclose(model.coef_, numbers(r["coefficients"])[:, 1:], rtol=1e-6)
    np.testing.assert_allclose(model.table().standard_errors, np.ravel(r["errors"]), rtol=1e-6)
    counts = np.unique(data.y, return_counts=True)[1]
    assert model.null_deviance_ == pytest.approx(-2.0 * float((counts * np.log(counts / counts.sum())).sum()), rel=1e-8)


def toy(seed: int = 0) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((150, 4)) + np.array([0.0, 1.0, 0.0, -2.0])
    y = np.digitize(X @ [1.0, -0.5, 0.0, 0.3] + rng.logistic(size=150), [-1.5, 0.5])
    return X, y, np.arange(150) % 3, rng.uniform(0.5, 2.0, 150)


def test_weights() -> None:
    X, y, site, w = toy()
    model = FederatedMultinomialRegression(run=fpdfp.RunOptions(tol=1e-12)).fit(X, y, groups=site, sample_weight=w)
    known = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(X, y, sample_weight=w)
    np.testing.assert_allclose(model.coef_, known.coef_[1:] - known.coef_[0], atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X), known.predict_proba(X), atol=1e-5)
    # Weights that count rows are as many rows.
    count = np.random.default_rng(1).integers(1, 4, 150)
    again = np.repeat(np.arange(150), count)
    for kind in (FederatedMultinomialRegression, FederatedOrdinalRegression):
        weighted = kind(run=fpdfp.RunOptions(tol=1e-12)).fit(X, y, groups=site, sample_weight=count)
        repeated = kind(run=fpdfp.RunOptions(tol=1e-12)).fit(X[again], y[again], groups=site[again])
        np.testing.assert_allclose(weighted.table().coefficients, repeated.table().coefficients, rtol=1e-7)
        np.testing.assert_allclose(weighted.table().standard_errors, repeated.table().standard_errors, rtol=1e-7)
        assert weighted.null_deviance_ == pytest.approx(repeated.null_deviance_, rel=1e-8)


def test_an_offset_is_a_coefficient_of_one() -> None:
    X, y, site, _ = toy()
    model = FederatedOrdinalRegression(run=fpdfp.RunOptions(tol=1e-12)).fit(X[:, 1:], y, groups=site, offset=X[:, 0])
    losses = fpdfp.losses.Ordinal(X, y)

    def value(x: Any) -> float:
        return float(losses.values(np.r_[1.0, x], np.array([0]))[0])

    known = optimize.minimize(value, np.zeros(5), method="BFGS", options={"gtol": 1e-8}).x
    np.testing.assert_allclose(model.coef_, known[:3], atol=1e-5)
    np.testing.assert_allclose(model.thresholds_, losses.base + known[3:], atol=1e-5)
    table = pd.DataFrame(X, columns=list("abcd")).assign(y=y, site=site)
    by_formula = FederatedOrdinalRegression(run=fpdfp.RunOptions(tol=1e-12)).fit(
        table, "y ~ b + c + d + offset(a)", groups="site"
    )
    np.testing.assert_allclose(by_formula.coef_, model.coef_, rtol=1e-8)
    np.testing.assert_allclose(
        by_formula.predict_proba(table), model.predict_proba(X[:, 1:], offset=X[:, 0]), rtol=1e-8
    )


@pytest.mark.parametrize("penalty", ["l1", "elasticnet", "group", "fused", "graph", "ridge"])
@pytest.mark.parametrize("kind", [FederatedMultinomialRegression, FederatedOrdinalRegression])
def test_penalties(kind: Any, penalty: Any) -> None:
    """No small change of the coefficients makes the penalised objective smaller."""
    X, y, site, _ = toy()
    edges = [(0, 1, 0.5), (1, 2, -1.0)]
    shapes: dict[str, Any] = {"graph": {"graph": edges}, "group": {"groups": list("aabb")}}
    model = kind(
        penalty=KINDS[penalty](0.05, **shapes.get(penalty, {})), standardize=False, run=fpdfp.RunOptions(tol=1e-10)
    )
    model.fit(X, y, groups=site)
    ordinal = kind is FederatedOrdinalRegression
    losses = (fpdfp.losses.Ordinal if ordinal else fpdfp.losses.Multinomial)(
        np.c_[X] if ordinal else np.c_[X, np.ones(150)], y
    )
    G = fpdfp.datasets.as_graph(edges, 4).structure("weights").toarray()

    def objective(x: Any) -> float:
        W = x[:4][None] if ordinal else x.reshape(2, 5)[:, :4]
        one = np.abs(W).sum()
        g = {
            "l1": one,
            "elasticnet": 0.5 * one + 0.25 * (W**2).sum(),
            "ridge": 0.5 * (W**2).sum(),
            "group": np.sqrt(2 * len(W)) * sum(np.linalg.norm(W[:, part]) for part in ([0, 1], [2, 3])),
            "fused": np.abs(np.diff(W, axis=1)).sum() + one,
            "graph": np.abs(W @ G.T).sum() + one,
        }[penalty]
        return float(losses.values(x, np.array([0]))[0] + 0.05 * g)

    x = model.result_.x
    reached = objective(x)
    assert reached == pytest.approx(model.result_.objective, rel=1e-9)
    rng = np.random.default_rng(0)
    for size in (1e-2, 1e-4):
        assert all(objective(x + size * rng.standard_normal(x.shape)) > reached - 1e-10 for _ in range(20))
    assert "no standard errors" in str(model.summary())


CASES: dict[str, Any] = {
    "multinomial": (FederatedMultinomialRegression("b"), "grade ~ age + stage + pressure"),
    "ordinal": (FederatedOrdinalRegression(order=["a", "b", "c"], standardize=True), "grade ~ age + stage + pressure"),
    "probit": (FederatedOrdinalRegression("probit", order=["a", "b", "c"]), "grade ~ age + C(stage, ref='II')"),
    "l1": (FederatedMultinomialRegression(penalty=fpdfp.L1(0.01)), "grade ~ age + pressure"),
}


@pytest.mark.parametrize("case", CASES)
def test_sites_have_the_bits_of_one_process(case: str) -> None:
    model, formula = CASES[case]
    table = patients()
    here = model.fit(table, formula, groups="hospital")
    values, bits = np.append(np.ravel(here.coef_), here.history_["objective"][-1]), here.bits_up_
    shown = str(here.summary())
    there = model.fit(SitesCohort(split(table)), formula)
    np.testing.assert_array_equal(np.append(np.ravel(there.coef_), there.history_["objective"][-1]), values)
    assert there.bits_up_ == bits
    assert str(there.summary()) == shown


@pytest.mark.parametrize("kind", ["Multinomial", "Ordinal"])
def test_sites_watch_points(kind: str) -> None:
    from fpdfp.errors import Refusal
    from tests.desks import guarded

    X, y, _, _ = toy()
    losses = getattr(fpdfp.losses, kind)(X, y)
    watched, one = guarded(losses), np.array([0])
    assert watched.family == losses.family
    x = np.zeros(losses.shape)
    np.testing.assert_array_equal(watched.gradients(x, one), losses.gradients(x, one))
    steep = x.copy()
    steep[0] = 1e4
    for ask in (watched.gradients, watched.hessians, watched.values):
        with pytest.raises(Refusal, match="too few"):
            ask(steep, one)
    with pytest.raises(Refusal, match="too few"):
        watched.sums_at(steep, one, robust=True)


def test_order_of_classes() -> None:
    X, y, site, _ = toy()
    names = np.array(["low", "middle", "high"])[y]
    known = FederatedOrdinalRegression().fit(X, y, groups=site)
    model = FederatedOrdinalRegression(order=["low", "middle", "high"]).fit(X, names, groups=site)
    np.testing.assert_allclose(model.coef_, known.coef_)
    assert list(model.coefficients_)[-2:] == ["low|middle", "middle|high"]
    assert list(model.predict(X[:5])) == list(np.array(["low", "middle", "high"])[known.predict(X[:5])])
    table = pd.DataFrame(X, columns=list("abcd")).assign(y=names, site=site)
    for options in ({"order": ["low", "middle", "high"]}, {}):
        levels = "shared" if options else {"y": ["low", "middle", "high"]}
        by_formula = FederatedOrdinalRegression(**options).fit(table, "y ~ a + b + c + d", groups="site", levels=levels)
        np.testing.assert_allclose(by_formula.coef_, known.coef_, rtol=1e-7)
        assert list(by_formula.predict(SiteTable.read(table))) == list(model.predict(X))
    assert by_formula.variance_inflation()["a"][0] == pytest.approx(known.variance_inflation()["x0"][0], rel=1e-6)


def test_bad_arguments() -> None:
    X, y, site, _ = toy()
    table = pd.DataFrame(X, columns=list("abcd")).assign(y=y, site=site)
    with pytest.raises(fpdfp.errors.ArgumentError, match="reference must be one of the classes"):
        FederatedMultinomialRegression("z").fit(X, y)
    with pytest.raises(fpdfp.errors.ArgumentError, match="order must have each of the classes"):
        FederatedOrdinalRegression(order=[0, 1]).fit(X, y)
    with pytest.raises(ValueError, match="link must be"):
        FederatedOrdinalRegression("log").fit(X, y)  # type: ignore[arg-type]
    with pytest.raises(fpdfp.errors.ArgumentError, match="thresholds take its place"):
        FederatedOrdinalRegression().fit(table, "y ~ a - 1", groups="site")
    with pytest.raises(fpdfp.errors.ArgumentError, match="sample_weight must be None"):
        FederatedMultinomialRegression().fit(table, "y ~ a", groups="site", sample_weight=np.ones(150))
    with pytest.raises(fpdfp.errors.ArgumentError, match="weights must be None"):
        FederatedMultinomialRegression().fit(X, y, weights="a")
