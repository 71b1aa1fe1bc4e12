"""Paths and cross-validation of several classes: against single fits, dense solutions and cv.glmnet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import roc_auc_score

import fpdfp
from fpdfp import losses, penalties
from fpdfp.models.penalty import as_model_penalty
from tests.r_cases import cases, frame, numbers

RNG = np.random.default_rng(0)
ROWS, COLUMNS = 210, 4
X = RNG.standard_normal((ROWS, COLUMNS))
X[:, 1] += 0.6 * X[:, 0]
W = np.array([[1.0, 0.0, -0.5, 0.0], [-0.6, 0.4, 0.0, 0.0], [0.0, -0.8, 0.6, 0.0]])
CLASS = (X @ W.T + RNG.gumbel(size=(ROWS, 3))).argmax(axis=1)
SITE, FOLD, WEIGHTS = np.arange(ROWS) % 3, RNG.integers(0, 3, ROWS), 0.5 + RNG.random(ROWS)
SHIFTS = 0.2 * RNG.standard_normal((ROWS, 2))


def make(kind: str, rows: Any = slice(None)) -> Any:
    """Return losses of several classes, of some rows."""
    own = csr_array(X[rows]) if "sparse" in kind else X[rows]
    weights = WEIGHTS[rows] if "weighted" in kind else None
    if "softmax" in kind:
        return losses.Softmax(own, CLASS[rows], clients=SITE[rows], n_classes=3, weights=weights, l2=0.01)
    if "ordinal" in kind:
        return losses.Ordinal(own, CLASS[rows], clients=SITE[rows], n_classes=3, weights=weights)
    shifts = SHIFTS[rows] if "offset" in kind else None
    return losses.Multinomial(own, CLASS[rows], clients=SITE[rows], n_classes=3, weights=weights, offset=shifts)


KINDS = ("softmax", "softmax, sparse", "softmax, weighted", "multinomial", "multinomial, weighted, offset", "ordinal")


@pytest.mark.parametrize("kind", KINDS)
def test_sums_at_many_points_are_those_of_the_rows_that_are_left(kind: str) -> None:
    whole, clients = make(kind), np.arange(3)
    points = 0.3 * np.random.default_rng(1).standard_normal((5, *whole.shape))
    held, labels = np.array([-1, 0, 2, 1, 2]), FOLD[np.argsort(SITE, kind="stable")]
    found = whole.evaluate_many(points, held, labels, clients)
    ridge = np.asarray(whole.ridge_of_x)
    for p, fold in enumerate(held):
        part = make(kind, np.flatnonzero(fold != FOLD))
        shares, square = part.sizes / whole.sizes, 0.5 * float((ridge * points[p] ** 2).sum())
        np.testing.assert_allclose(
            found.values[:, p], shares * (part.values(points[p], clients) - square), rtol=1e-12, atol=1e-14
        )
        slopes = part.gradients(points[p], clients) - ridge * points[p]
        expected = shares.reshape(-1, *[1] * (slopes.ndim - 1)) * slopes
        np.testing.assert_allclose(found.slopes[:, p], expected, rtol=1e-10, atol=1e-14)
        left = whole.values(points[p], clients) - square - found.values[:, p]
        np.testing.assert_allclose(found.helds[:, p], left, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["softmax", "softmax, sparse", "multinomial"])
def test_a_point_does_not_depend_on_the_others(kind: str) -> None:
    whole = make(kind)
    points = np.random.default_rng(2).standard_normal((40, *whole.shape))
    held, labels = np.where(np.arange(40) % 2, 0, -1), FOLD
    together = whole.evaluate_many(points, held, labels, np.arange(3))
    alone = whole.evaluate_many(points[33:34], held[33:34], labels, np.array([2]))
    for both, one in zip(together, alone, strict=True):
        assert both[2, 33].tobytes() == one[0, 0].tobytes()


def test_hessians_of_clients_add_up() -> None:
    for kind in ("softmax", "softmax, sparse", "softmax, weighted"):
        whole, weights = make(kind), np.array([0.2, 0.3, 0.5])
        x = np.random.default_rng(3).standard_normal(whole.shape)
        total = np.einsum("c,cij->ij", weights, whole.informations(x, np.arange(3)))
        np.testing.assert_allclose(total, whole.hessian(x, weights), rtol=1e-12, atol=1e-14)


CHAIN = np.kron(np.eye(3), np.diff(np.eye(COLUMNS), axis=0))
PENALTIES: dict[str, tuple[Any, Any]] = {
    "l1": (lambda a: penalties.L1(np.full((3, COLUMNS), a)), None),
    "elastic net": (lambda a: penalties.ElasticNet(a / 2, a / 2), None),
    "group": (lambda a: penalties.GroupL12(a, axis=0), None),
    "sparse group": (lambda a: penalties.SparseGroup(a, a / 2, groups=np.tile(np.arange(COLUMNS), (3, 1))), None),
    "fused": (penalties.L1, fpdfp.linops.EachRow(np.diff(np.eye(COLUMNS), axis=0), 3)),
}


@pytest.mark.parametrize("name", PENALTIES)
def test_many_problems_have_the_solutions_of_each(name: str) -> None:
    penalty, linop = PENALTIES[name]
    whole = make("softmax")
    problems = [fpdfp.Problem(whole, penalty(a), linop, weights="samples") for a in (0.1, 0.03, 0.003)]
    found = fpdfp.solve_many(problems, tol=1e-9)
    assert found.converged
    assert found.x.shape == (3, 3, COLUMNS)
    for problem, x, objective in zip(problems, found.x, found.objective, strict=True):
        best = fpdfp.minimize(problem, tol=1e-12)
        assert 0.0 <= objective - best.objective + 1e-12 <= 3e-9
        assert problem.objective(x) == pytest.approx(objective, rel=1e-12)
        np.testing.assert_allclose(x, best.x, atol=2e-3)  # the ridge is small
    with pytest.raises(ValueError, match="problems must have an l1, elastic-net or group penalty"):
        fpdfp.solve_many([fpdfp.Problem(whole, penalties.NonNegative())])


def test_a_path_of_a_problem_has_a_matrix_for_each_weight() -> None:
    found = fpdfp.path(fpdfp.Problem(make("softmax"), penalties.L1(1.0), weights="samples"), alphas=4)
    assert found.coef.shape == (4, 3, COLUMNS)
    assert not found.coef[0].any()
    assert found.coef[-1].any()
    assert list(found.to_frame().columns[:4]) == ["0: Intercept", "1: Intercept", "2: Intercept", "0: x0"]
    assert len(found.plot().get_lines()) == 3 * COLUMNS


CHOOSING = {
    "logistic": (fpdfp.FederatedLogisticRegressionCV, fpdfp.FederatedLogisticRegression),
    "multinomial": (fpdfp.FederatedMultinomialRegressionCV, fpdfp.FederatedMultinomialRegression),
    "ordinal": (fpdfp.FederatedOrdinalRegressionCV, fpdfp.FederatedOrdinalRegression),
}


@pytest.mark.parametrize("kind", CHOOSING)
@pytest.mark.parametrize("penalty", ["l1", "group", "fused"])
def test_scores_are_those_of_fits_without_the_rows(kind: str, penalty: str) -> None:
    chooser, plain = CHOOSING[kind]
    shape = fpdfp.Group(groups=[0, 0, 1, 2]) if penalty == "group" else as_model_penalty(penalty)
    names = CLASS if kind == "ordinal" else np.array(["low", "mid", "top"])[CLASS]
    choice = fpdfp.CrossValidation(FOLD, alphas=[0.05, 0.01], tol=1e-10)
    model = chooser(penalty=shape, cv=choice, standardize=False).fit(X, names, SITE)
    for fold in range(3):
        train, test = fold != FOLD, fold == FOLD
        for k, alpha in enumerate(model.alphas_):
            single = plain(penalty=shape.with_options(alpha), standardize=False, run=fpdfp.RunOptions(tol=1e-9)).fit(
                X[train], names[train]
            )
            chances = single.predict_proba(X[test])[np.arange(len(X[test])), CLASS[test]]
            assert model.scores_[k, fold] == pytest.approx(-2 * np.log(chances).mean(), rel=2e-4)
    place = list(model.alphas_).index(model.alpha_)
    np.testing.assert_allclose(model.path_.coef[place], model.coef_, atol=2e-3)
    constants = model.thresholds_ if kind == "ordinal" else model.intercept_
    np.testing.assert_allclose(model.path_.intercept[place], constants, atol=2e-3)
    assert model.path_.to_frame().shape == (2, model.path_.coef[0].size + len(model.path_.labels))
    assert model.predict(X[:5]).shape == (5,)


@pytest.mark.parametrize("kind", CHOOSING)
@pytest.mark.parametrize("scoring", ["brier", "accuracy", "auc"])
def test_other_scores(kind: str, scoring: str) -> None:
    chooser, plain = CHOOSING[kind]
    choice = fpdfp.CrossValidation(FOLD, alphas=[0.02], tol=1e-10, scoring=scoring)
    model = chooser(penalty="l1", cv=choice, standardize=False).fit(X, CLASS, SITE)
    for fold in range(3):
        train, test = fold != FOLD, fold == FOLD
        single = plain(penalty=fpdfp.L1(0.02), standardize=False, run=fpdfp.RunOptions(tol=1e-11))
        single.fit(X[train], CLASS[train])
        p, y = single.predict_proba(X[test]), CLASS[test]
        exact = {
            "brier": ((p - np.eye(3)[y]) ** 2).sum(axis=1).mean(),
            "accuracy": (p.argmax(axis=1) == y).mean(),
            "auc": np.mean([roc_auc_score(y == k, p[:, k]) for k in range(3)]),
        }[scoring]
        assert model.scores_[0, fold] == pytest.approx(exact, abs=1e-4 + model.score_bound_)
    assert model.score_bound_ < (0.02 if scoring == "auc" else 1e-12)


@pytest.mark.parametrize("kind", CHOOSING)
def test_the_path_begins_where_coefficients_appear(kind: str) -> None:
    _, plain = CHOOSING[kind]
    path = plain(penalty="l1", standardize=True).path(X, CLASS, SITE, alphas=6, tol=1e-8)
    assert path.status == ("converged",) * 6
    for factor, trivial in ((1.001, True), (0.99, False)):
        weighted = fpdfp.L1(factor * path.alphas[0])
        single = plain(penalty=weighted, standardize=True, run=fpdfp.RunOptions(tol=1e-10)).fit(X, CLASS, SITE)
        assert (np.abs(single.coef_).max() < 1e-7) == trivial
    np.testing.assert_allclose(path.coef[0], 0.0, atol=1e-9)
    stable = plain(penalty="l1").stability(X, CLASS, SITE, alphas=3, pairs=4, ratio=0.3)
    assert stable.frequencies.shape == (3, COLUMNS)
    assert stable.largest["x0"] >= 0.9


def test_draws_of_sites_name_classes() -> None:
    model = fpdfp.FederatedLogisticRegression(fpdfp.L1(0.01))
    drawn = model.bootstrap_sites(X, CLASS, np.arange(ROWS) % 6, draws=5)
    assert drawn.draws.shape == (5, 3 * COLUMNS)
    assert list(drawn.to_frame().index[[0, COLUMNS]]) == ["0: x0", "1: x0"]


CASES = cases("cv_classes")


def of_glmnet(name: str) -> tuple[Any, Any, Any, dict[str, Any], float]:
    """Return data and options of a case, and by what a weight of glmnet is multiplied.

    Where the coefficients of a feature are a group, glmnet does not multiply with the root of its size.
    """
    case, table = CASES[name], frame(CASES[name]["data"])
    rows = table[[f"z{j}" for j in range(1, 9)]].to_numpy(float)
    y = np.minimum(table[case["outcome"]].to_numpy(int), case["most"])
    penalty = fpdfp.Group(groups=np.arange(8)) if case.get("grouped") else fpdfp.ElasticNet(l1_ratio=case["mixing"])
    options: dict[str, Any] = {"penalty": penalty, "standardize": False}
    given = {"sample_weight": table[case["weights"]].to_numpy(float)} if case.get("weights") else {}
    return rows, y, table["site"].to_numpy(), {"fit": given, "model": options}, 3**-0.5 if case.get("grouped") else 1.0


@pytest.mark.parametrize("name", CASES)
def test_cross_validation_of_glmnet(name: str) -> None:
    r, (rows, y, sites, given, factor) = CASES[name]["r"], of_glmnet(name)
    folds = np.arange(1, len(rows) + 1) * 7 % 5
    model = fpdfp.FederatedLogisticRegressionCV(
        cv=fpdfp.CrossValidation(folds, alphas=factor * numbers(r["alphas"]), tol=1e-09), **given["model"]
    ).fit(rows, y, sites, **given["fit"])
    np.testing.assert_allclose(model.mean_score_, r["mean"], rtol=1e-4)
    np.testing.assert_allclose(model.score_error_, r["error"], rtol=2e-3)
    assert model.alpha_min_ == pytest.approx(factor * r["min"], rel=1e-12)
    assert model.alpha_1se_ == pytest.approx(factor * r["se"], rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_path_of_glmnet(name: str) -> None:
    r, (rows, y, sites, given, factor) = CASES[name]["r"], of_glmnet(name)
    path = fpdfp.FederatedLogisticRegression(**given["model"]).path(
        rows, y, sites, alphas=12, tol=1e-11, **given["fit"]
    )  # fmt: skip
    assert path.alphas[0] == pytest.approx(factor * r["first"], rel=1e-6)
    np.testing.assert_allclose(path.coef, np.array(r["coefficients"]).transpose(1, 0, 2), atol=2e-4)
    np.testing.assert_allclose(path.intercept, r["intercept"], atol=2e-4)
