"""Many problems at once, paths, cross-validation, stability: against single fits, and against what is known exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sklearn.base
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import brier_score_loss, roc_auc_score

import fpdfp
from fpdfp import losses, penalties
from fpdfp.cohorts.many_points import Evaluations
from fpdfp.compress.fixed import read_fixed, scale_rows, write_fixed
from fpdfp.errors import ArgumentError, MessageError
from fpdfp.selection.curves import summarise

RNG = np.random.default_rng(0)
ROWS, COLUMNS = 240, 6
X = RNG.standard_normal((ROWS, COLUMNS))
X[:, 1] += 0.7 * X[:, 0]
ETA = X @ [0.9, -0.6, 0.4, 0.0, 0.0, 0.0]
SITE = np.arange(ROWS) % 3
BINARY = (RNG.random(ROWS) < 1 / (1 + np.exp(-ETA))).astype(float)
NUMBERS = ETA + RNG.standard_normal(ROWS)
COUNTS = RNG.poisson(np.exp(0.4 * ETA)).astype(float)
TIMES = np.column_stack([np.round(RNG.exponential(np.exp(-ETA)), 2) + 0.01, RNG.random(ROWS) < 0.7])
FOLD = RNG.integers(0, 4, ROWS)


def make(kind: str, rows: Any = slice(None), *, sparse: bool = False) -> Any:
    """Return the losses of a family, of some rows."""
    own, owner = X[rows], SITE[rows]
    matrix = csr_array(own) if sparse else own
    if kind == "logistic":
        return losses.Logistic(matrix, BINARY[rows], clients=owner)
    if kind == "least squares":
        return losses.LeastSquares(matrix, NUMBERS[rows], clients=owner)
    if kind == "poisson":
        return losses.GLM(matrix, COUNTS[rows], clients=owner, family="poisson", offset=np.full(len(own), 0.1))
    if kind == "weighted":
        return losses.GLM(
            matrix, COUNTS[rows], clients=owner, family="poisson", weights=1.0 + (np.arange(ROWS) % 3)[rows]
        )
    if kind == "classes":
        return losses.Multinomial(own, np.minimum(COUNTS[rows], 2), clients=owner, n_classes=3)
    return losses.Cox(own, TIMES[rows, 0], TIMES[rows, 1], owner)


KINDS = ("logistic", "least squares", "poisson", "weighted", "classes", "cox")


@pytest.mark.parametrize("kind", KINDS)
def test_sums_at_many_points_are_those_of_the_rows_that_are_left(kind: str) -> None:
    whole = make(kind)
    points = 0.3 * np.random.default_rng(1).standard_normal((5, *whole.shape))
    held = np.array([-1, 0, 2, 1, 2])
    labels = whole.place_rows(FOLD[np.argsort(SITE, kind="stable")])
    clients = np.arange(3)
    found = whole.evaluate_many(points, held, labels, clients)
    for p, fold in enumerate(held):
        rows = np.flatnonzero(fold != FOLD)
        part = make(kind, rows)
        shares = part.sizes / whole.sizes
        np.testing.assert_allclose(found.values[:, p], shares * part.values(points[p], clients), rtol=1e-12)
        np.testing.assert_allclose(
            found.slopes[:, p], shares[:, None] * part.gradients(points[p], clients), rtol=1e-10, atol=1e-14
        )
        if kind != "cox":  # whose deviance depends on ties among the rows left out
            left = whole.values(points[p], clients) - found.values[:, p]
            np.testing.assert_allclose(found.helds[:, p], left, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["logistic", "poisson", "weighted"])
def test_a_point_does_not_depend_on_the_others_nor_on_the_form_of_rows(kind: str) -> None:
    whole, labels = make(kind), np.zeros(ROWS, dtype=np.int64)
    points = np.random.default_rng(2).standard_normal((40, COLUMNS))
    held = np.where(np.arange(40) % 2, 0, -1)
    labels[::3] = 1
    together = whole.evaluate_many(points, held, labels, np.arange(3))
    alone = whole.evaluate_many(points[33:34], held[33:34], labels, np.array([2]))
    for both, one in zip(together, alone, strict=True):
        assert both[2, 33].tobytes() == one[0, 0].tobytes()
    sparse = make(kind, sparse=True).evaluate_many(points, held, labels, np.arange(3))
    for both, one in zip(together, sparse, strict=True):
        np.testing.assert_allclose(both, one, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("bits", [2, 5, 12, 31, 64])
def test_fixed_point(bits: int) -> None:
    rows = np.random.default_rng(3).standard_normal((4, 7))
    steps = np.broadcast_to(scale_rows(rows, min(bits, 32))[:, None], rows.shape)
    back = read_fixed(write_fixed(rows, steps, bits), steps, bits, 7)
    assert np.abs(back - rows).max() <= (0.0 if bits == 64 else 0.51 * steps.max())


def test_folds_are_even_and_the_same_for_all_who_know_the_seed() -> None:
    y = np.array([0.0] * 13 + [1.0] * 8)
    labels = fpdfp.Folds(4, seed=5, stratified=True).draw(y)
    np.testing.assert_array_equal(labels, fpdfp.Folds(4, seed=5, stratified=True).draw(y))
    assert np.ptp(np.bincount(labels)) <= 1
    for value in (0.0, 1.0):
        assert np.ptp(np.bincount(labels[y == value], minlength=4)) <= 1
    again = fpdfp.Folds(4, seed=5, repeats=2)
    assert set(again.draw(y, 1)) == {4, 5, 6, 7}
    for wrong in ({"count": 1}, {"count": 3, "seed": -1}, {"count": 3, "repeats": 0}):
        with pytest.raises(ValueError, match=next(iter({*wrong} - {"count"}), "count")):
            fpdfp.Folds(**wrong)


B = np.diff(np.eye(COLUMNS), axis=0)
SHAPES: dict[str, tuple[Any, Any]] = {
    "l1": (penalties.L1, None),
    "elastic net": (lambda a: penalties.ElasticNet(a / 2, a / 2), None),
    "group": (lambda a: penalties.GroupL12(a, groups=np.array([0, 0, 1, 1, 2, 2])), None),
    "fused": (penalties.L1, B),
}


@pytest.mark.parametrize("kind", ["logistic", "least squares", "poisson", "cox"])
@pytest.mark.parametrize("shape", SHAPES)
def test_many_problems_have_the_solutions_of_each(kind: str, shape: str) -> None:
    penalty, linop = SHAPES[shape]
    whole = make(kind)
    problems = [fpdfp.Problem(whole, penalty(a), linop, weights="samples") for a in (0.2, 0.1, 0.05, 0.01, 0.002)]
    found = fpdfp.solve_many(problems, tol=1e-8)
    assert found.converged, found.status
    for k, problem in enumerate(problems):
        best = fpdfp.minimize(problem, tol=1e-11).objective if kind != "cox" else fpdfp.solve(
            problem, fpdfp.ProximalNewton(), rounds=60, tol=1e-12
        ).objective  # fmt: skip
        assert found.objective[k] - best <= 3e-8 * abs(best)
        assert problem.objective(found.x[k]) == pytest.approx(found.objective[k], rel=1e-12)


@pytest.mark.parametrize("kind", ["logistic", "weighted", "cox"])
def test_rows_that_are_left_out_are_not_used(kind: str) -> None:
    whole = make(kind)
    whole.folds = whole.place_rows(FOLD[np.argsort(SITE, kind="stable")])
    problem = fpdfp.Problem(whole, penalties.L1(0.02), weights="samples")
    found = fpdfp.solve_many([problem] * 3, folds=fpdfp.Folds(4, given=True), held_out=[None, 0, 3], tol=1e-9)
    for k, fold in enumerate((None, 0, 3)):
        rows = np.arange(ROWS) if fold is None else np.flatnonzero(fold != FOLD)
        factor = 1.0
        if kind == "weighted":  # the mean loss of the rows that are used is what is penalised
            weights = 1.0 + np.arange(ROWS) % 3
            factor = weights[rows].mean() / weights.mean()
        single = fpdfp.Problem(make(kind, rows), penalties.L1(0.02 * factor), weights="samples")
        best = fpdfp.solve(single, fpdfp.ProximalNewton(), rounds=60, tol=1e-12)
        np.testing.assert_allclose(found.x[k], best.x, atol=2e-4)
    assert np.isnan(found.held_out_loss[0])
    if kind == "logistic":
        rows = np.flatnonzero(FOLD == 3)
        z = X[rows] @ found.x[2]
        expected = np.mean(np.logaddexp(0.0, -np.where(BINARY[rows] > 0, z, -z)))
        assert found.held_out_loss[2] == pytest.approx(expected, rel=1e-9)


def test_clients_are_left_out_together() -> None:
    problem = fpdfp.Problem(make("logistic"), penalties.L1(0.02), weights="samples")
    found = fpdfp.solve_many([problem] * 2, folds=[0, 1, 0], held_out=[0, 1], tol=1e-9)
    for k in range(2):
        rows = np.flatnonzero((SITE == 1) == (k == 0))
        single = fpdfp.Problem(make("logistic", rows), penalties.L1(0.02), weights="samples")
        np.testing.assert_allclose(found.x[k], fpdfp.minimize(single, tol=1e-12).x, atol=2e-4)


def test_a_path_starts_at_the_smallest_weight_that_gives_zero() -> None:
    for shape in ("l1", "elastic net", "group", "fused"):
        penalty, linop = SHAPES[shape]
        problem = fpdfp.Problem(make("logistic"), penalty(1.0), linop, weights="samples")
        found = fpdfp.path(problem, alphas=12, ratio=0.01, tol=1e-8)
        assert found.status == ("converged",) * 12
        for factor, trivial in ((1.0001, True), (0.98, False)):
            weight = factor * found.alphas[0]
            best = fpdfp.minimize(fpdfp.Problem(make("logistic"), penalty(weight), linop, weights="samples"), tol=1e-13)
            image = best.x if linop is None else linop @ best.x
            assert (np.abs(image).max() < 1e-7) == trivial, (shape, factor)
        np.testing.assert_allclose(found.coef[0] if linop is None else B @ found.coef[0], 0.0, atol=1e-9)
        assert found.plot(chosen=found.alphas[3]).get_xscale() == "log"
        assert found.to_frame().shape == (12, COLUMNS + 1)


def test_the_path_of_an_estimator_is_that_of_its_fits() -> None:
    shape = fpdfp.Graph(graph=np.eye(COLUMNS, k=1) + np.eye(COLUMNS, k=-1))
    model = fpdfp.FederatedLogisticRegression(shape, standardize=True)
    found = model.path(X, BINARY, SITE, alphas=[0.1, 0.01, 0.03], tol=1e-9)
    np.testing.assert_array_equal(found.alphas, [0.1, 0.03, 0.01])
    assert not hasattr(model, "coef_")
    for alpha, coef, intercept in zip(found.alphas, found.coef, found.intercept, strict=True):
        single = sklearn.base.clone(model).set_params(
            penalty=shape.with_options(alpha), run=fpdfp.RunOptions(tol=1e-11)
        )
        single.fit(X, BINARY, SITE)
        np.testing.assert_allclose(coef, single.coef_[0], atol=1e-4)
        np.testing.assert_allclose(intercept, single.intercept_[0], atol=1e-4)
    whole = fpdfp.path(model, X, BINARY, SITE, alphas=[0.1, 0.01, 0.03], tol=1e-9)
    np.testing.assert_array_equal(whole.coef, found.coef)


@pytest.mark.parametrize("scoring", ["deviance", "brier", "accuracy", "auc"])
@pytest.mark.parametrize("cv", ["rows", "sites"])
def test_scores_are_those_of_the_rows_left_out(scoring: str, cv: str) -> None:
    labels = FOLD if cv == "rows" else SITE
    model = fpdfp.FederatedLogisticRegressionCV(
        cv=fpdfp.CrossValidation(FOLD if cv == "rows" else "sites", alphas=[0.1, 0.01], scoring=scoring, tol=1e-09),
        standardize=False,  # by the moments of all rows it would differ from fits without some
    ).fit(X, BINARY, SITE)
    assert model.scores_.shape == (2, len(np.unique(labels)))
    for fold in np.unique(labels):
        train, test = labels != fold, labels == fold
        for k, alpha in enumerate(model.alphas_):
            single = fpdfp.FederatedLogisticRegression(
                fpdfp.L1(alpha), standardize=False, run=fpdfp.RunOptions(tol=1e-11)
            ).fit(X[train], BINARY[train])
            p = single.predict_proba(X[test])[:, 1]
            exact = {
                "deviance": -2 * np.mean(np.log(np.where(BINARY[test] > 0, p, 1 - p))),
                "brier": brier_score_loss(BINARY[test], p), "accuracy": np.mean((p > 0.5) == BINARY[test]),
                "auc": roc_auc_score(BINARY[test], p),
            }[scoring]  # fmt: skip
            assert model.scores_[k, fold] == pytest.approx(exact, abs=2e-4 + model.score_bound_)
    assert model.score_bound_ == 0.0 if scoring != "auc" else 0.0 < model.score_bound_ < 0.02
    better = model.mean_score_.argmax() if scoring in ("auc", "accuracy") else model.mean_score_.argmin()
    assert model.alpha_ == model.alphas_[better]


def test_the_chosen_model_is_the_fit_with_its_weight() -> None:
    for kind, y, options in (
        (fpdfp.FederatedGLMCV, COUNTS, {"family": "poisson"}), (fpdfp.FederatedLinearRegressionCV, NUMBERS, {}),
        (fpdfp.FederatedCoxRegressionCV, TIMES, {"ties": "breslow"}),
    ):  # fmt: skip
        rule = "1se" if kind is fpdfp.FederatedCoxRegressionCV else "min"
        model = kind(cv=fpdfp.CrossValidation(3, alphas=8, rule=rule), **options).fit(X, y, SITE)
        plain = kind.__mro__[1]
        given = {name: value for name, value in model.get_params().items() if name in plain().get_params()}
        single = plain(**given | {"penalty": model.penalty_, "run": fpdfp.RunOptions(tol=1e-10)}).fit(X, y, SITE)
        np.testing.assert_allclose(model.coef_, single.coef_, atol=1e-3)
        assert model.alpha_1se_ >= model.alpha_min_
        assert model.path_.coef.shape == (8, COLUMNS)
        assert model.n_iter_ > model.path_.rounds
        assert model.bits_up_ > model.path_.bits_up


def test_the_mixing_of_a_penalty_is_chosen_too() -> None:
    model = fpdfp.FederatedLinearRegressionCV(
        fpdfp.ElasticNet(l1_ratio=[0.2, 0.9]), cv=fpdfp.CrossValidation(3, alphas=5)
    ).fit(X, NUMBERS, SITE)
    assert model.scores_.shape == (2, 5, 3)
    chosen: Any = model.penalty_
    assert chosen.l1_ratio in (0.2, 0.9)
    assert model.alphas_[0, 0] == pytest.approx(model.alphas_[1, 0] * 0.9 / 0.2)
    best = model.scores_.mean(axis=2).min(axis=1).argmin()
    assert chosen.l1_ratio == (0.2, 0.9)[best]


def test_curves_as_in_glmnet() -> None:
    scores = np.array([[3.0, 5.0], [2.0, 4.0], [2.5, 3.0]])
    curve = summarise(scores, np.array([1.0, 3.0]), greater_is_better=False)
    np.testing.assert_allclose(curve.mean, [4.5, 3.5, 2.875])
    np.testing.assert_allclose(curve.error[2], np.sqrt((0.25 * 0.375**2 + 0.75 * 0.125**2) / 1.0))
    assert (curve.best, curve.simplest) == (2, 2)
    assert summarise(scores, np.array([1.0, 3.0]), greater_is_better=True).best == 0


def test_a_path_that_is_cut_short_warns() -> None:
    model = fpdfp.FederatedGLM("poisson", penalty="l1")
    told = r"\d of the 5 weights of the path have not reached tol=1e-06 in 2 rounds"
    with pytest.warns(ConvergenceWarning, match=told):
        model.path(X, COUNTS, SITE, alphas=5, rounds=2)


def test_stability_and_the_bootstrap_of_sites() -> None:
    site = np.arange(ROWS) % 6
    model = fpdfp.FederatedLinearRegression(fpdfp.L1(0.05), standardize=False)
    stable = model.stability(X, NUMBERS, site, alphas=5, pairs=5)
    assert stable.converged
    assert stable.frequencies.shape == (5, COLUMNS)
    assert set(stable.select(0.9)) >= {"x0", "x1"}
    assert 0.0 < stable.false_selections(0.9) <= COLUMNS
    assert stable.plot(threshold=0.9).get_ylabel()
    with pytest.raises(ArgumentError, match=r"threshold must be above 0\.5"):
        stable.select(0.4)
    drawn = model.bootstrap_sites(X, NUMBERS, site, draws=12, tol=1e-9)
    counts = np.random.default_rng(0).multinomial(6, np.full(6, 1 / 6), size=12)
    for k in (0, 7):
        rows = np.concatenate([np.tile(np.flatnonzero(site == i), counts[k, i]) for i in range(6)])
        single = fpdfp.FederatedLinearRegression(
            fpdfp.L1(0.05), standardize=False, run=fpdfp.RunOptions(tol=1e-12)
        ).fit(X[rows], NUMBERS[rows])
        np.testing.assert_allclose(drawn.draws[k], single.coef_, atol=1e-4)
    assert drawn.intervals.shape == (COLUMNS, 2)
    assert list(drawn.to_frame().index) == [f"x{j}" for j in range(COLUMNS)]
    with pytest.raises(ArgumentError, match="groups must be at least 5 sites"):
        model.bootstrap_sites(X, NUMBERS, SITE)


def test_what_is_refused() -> None:
    whole = make("logistic")
    problem = fpdfp.Problem(whole, penalties.L1(0.1))
    with pytest.raises(ArgumentError, match="problems must hold"):
        fpdfp.solve_many([])
    with pytest.raises(ArgumentError, match="must share one object of losses"):
        fpdfp.solve_many([problem, fpdfp.Problem(make("logistic"), penalties.L1(0.1))])
    with pytest.raises(ArgumentError, match="held_out must name one of 3 folds"):
        fpdfp.solve_many([problem], folds=3, held_out=[3])
    with pytest.raises(ArgumentError, match="folds must be a number"):
        fpdfp.solve_many([problem], folds=[0, 1])
    wide = fpdfp.Problem(losses.LeastSquares(np.ones((3, 2001)), np.ones(3)), penalties.Zero())
    with pytest.raises(ArgumentError, match="at most 2,000 coefficients"):
        fpdfp.solve_many([wide])
    with pytest.raises(ArgumentError, match="problem must have"):
        fpdfp.path(fpdfp.Problem(whole, penalties.NonNegative()))
    with pytest.raises(ValueError, match="ratio must be between"):
        fpdfp.path(problem, ratio=1.0)
    for wrong, words in (
        (lambda: {"penalty": "none"}, "penalty must be a convex one"), (lambda: {"cv": 1}, "cv"),
        (lambda: {"cv": "rows"}, "cv must be"), (lambda: {"cv": np.zeros(ROWS)}, "at least two different folds"),
        (lambda: {"cv": fpdfp.CrossValidation(scoring="mse")}, "must be one of deviance"),
        (lambda: {"cv": fpdfp.CrossValidation(rule="2se")}, "rule"),
        (lambda: {"cv": fpdfp.CrossValidation(alphas=[-1.0])}, "alphas"),
        (lambda: {"cv": np.zeros(3)}, "fold of each of the 240"),
        (lambda: {"penalty": fpdfp.L1(0.1)}, "penalty must have no weight: it is chosen"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            fpdfp.FederatedLogisticRegressionCV(**wrong()).fit(X, BINARY, SITE)


def test_damaged_questions_are_refused() -> None:
    points, units = np.ones((2, 3)), np.full(3, 128, dtype=np.uint8)
    none = np.zeros(0, dtype=np.int64)
    good = Evaluations.of(points, points != 0, (8, 8), np.array([-1, 1]), none, units=units, folds=fpdfp.Folds(2))
    np.testing.assert_allclose(good.points(3), points, rtol=0.01)
    fields = dict(vars(good))
    for name, value in (
        ("held", np.array([-1, 2])), ("bits", 33), ("numbers", good.numbers[:-1]), ("curved", np.array([2])),
        ("scales", np.array([1.0, np.nan], dtype=np.float32)), ("places", good.places[:1]),
        ("units", units.astype(np.int64)),
    ):  # fmt: skip
        with pytest.raises(MessageError):
            Evaluations(**fields | {name: value})
    with pytest.raises(MessageError, match="4 entries"):
        good.unit_sizes(4)
    with pytest.raises(MessageError, match="9 entries"):
        good.points(9)
