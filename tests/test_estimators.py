"""The scikit-learn estimators: conventions, objectives against other solvers, sites, bits."""

from __future__ import annotations

import inspect
import pickle
import warnings
from pathlib import Path
from typing import Any

import cvxpy as cp
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fpdfp
from fpdfp import FederatedLinearRegression, FederatedLogisticRegression, penalties
from fpdfp.models.base import MOVED
from fpdfp.models.penalty import KINDS, differences
from tests.helpers import conventions

PENALTIES = ("l1", "elasticnet", "group", "fused", "graph")
EDGES = [(0, 1, 0.5), (1, 2, -1.0), (0, 3, 1.0)]
GROUPS = ["a", "a", "b", "b"]


#: Checks of more digits than the default tolerance promises, which take long; tests/test_row_options.py has them.
MORE_DIGITS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
    "check_class_weight_classifiers",
)


@conventions(FederatedLogisticRegression("graph"), FederatedLinearRegression("l1"), beside=MORE_DIGITS)  # type: ignore[untyped-decorator]
def test_conventions(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@conventions(FederatedLogisticRegression("l1"), FederatedLinearRegression("graph"), beside=MORE_DIGITS)  # type: ignore[untyped-decorator]
def test_conventions_the_other_way_round(estimator: Any, check: Any) -> None:
    check(estimator)


def data(kind: str, rows: int = 60) -> tuple[Any, Any, Any]:
    """Four features of different sizes, targets of a kind, and three sites of different sizes."""
    generator = np.random.default_rng(3)
    X = generator.standard_normal((rows, 4)) * [1.0, 2.0, 0.5, 1.0] + [0.0, 1.0, -1.0, 3.0]
    z = X @ [1.0, -0.5, 0.0, 0.8] - 2.0
    y = {
        "regression": z + 0.3 * generator.standard_normal(rows),
        "two classes": np.where(z + generator.logistic(size=rows) > 0, "yes", "no"),
        "three classes": np.digitize(z + generator.logistic(size=rows), [-1.0, 1.5]),
    }[kind]
    return X, y, np.repeat(["north", "south", "west"], [rows // 2, rows // 3, rows - rows // 2 - rows // 3])


def estimator_of(kind: str, penalty: str, **arguments: Any) -> Any:
    made = FederatedLinearRegression if kind == "regression" else FederatedLogisticRegression
    shapes: dict[str, dict[str, Any]] = {
        "graph": {"graph": EDGES, "l1": 0.5}, "fused": {"l1": 0.5}, "elasticnet": {"l1_ratio": 0.3},
        "group": {"groups": GROUPS},
    }  # fmt: skip
    given = shapes.get(penalty, {}) | {
        name: arguments.pop(name) for name in ("graph", "form", "sparsity") if name in arguments
    }
    options = {name: arguments.pop(name) for name in ("tol", "clients_per_round") if name in arguments}
    weight = 0.0 if penalty == "none" else 0.05
    arguments = {"standardize": False} | arguments  # the objective of the docstring, in features as they are given
    return made(KINDS[penalty](weight, **given), run=fpdfp.RunOptions(progress=False, **options), **arguments)


def textbook(kind: str, penalty: str, X: Any, y: Any, alpha: float = 0.05, form: str = "weights") -> Any:
    """The objective as its docstring says it, minimised by Clarabel: coefficients and intercept."""
    names, codes = np.unique(y, return_inverse=True)
    count = len(names) if kind == "three classes" else 1
    W, b = cp.Variable((count, 4)), cp.Variable(count)
    Z = X @ W.T + np.ones((len(X), 1)) @ cp.reshape(b, (1, count), order="C")
    if kind == "regression":
        loss = cp.sum_squares(Z[:, 0] - y) / (2 * len(y))
    elif kind == "two classes":
        loss = cp.sum(cp.logistic(cp.multiply(-np.where(codes > 0, 1.0, -1.0), Z[:, 0]))) / len(y)
    else:
        loss = cp.sum(cp.log_sum_exp(Z, axis=1) - cp.sum(cp.multiply(np.eye(count)[codes], Z), axis=1)) / len(y)
    G = np.zeros((4, 4))
    for i, j, weight in EDGES:
        G[i, j] = G[j, i] = weight
    D = [abs(w) * (np.eye(4)[i] - np.sign(w) * np.eye(4)[j]) for i, j, w in EDGES]
    l1 = cp.sum(cp.abs(W))
    terms = {
        "l1": l1,
        "elasticnet": 0.3 * l1 + 0.35 * cp.sum_squares(W),
        "group": np.sqrt(2 * count) * (cp.norm(W[:, :2], "fro") + cp.norm(W[:, 2:], "fro")),
        "fused": cp.sum(cp.abs(W[:, 1:] - W[:, :-1])) + 0.5 * l1,
        "graph": cp.sum(cp.abs(W @ (G if form == "weights" else np.array(D).T))) + 0.5 * l1,
    }
    cp.Problem(cp.Minimize(loss + alpha * terms[penalty])).solve(solver=cp.CLARABEL)
    return W.value, b.value


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("kind", ["regression", "two classes", "three classes"])
def test_it_minimises_what_it_says(kind: str, penalty: str) -> None:
    X, y, site = data(kind)
    W, b = textbook(kind, penalty, X, y)
    model = estimator_of(kind, penalty, tol=1e-8).fit(X, y, groups=site)
    np.testing.assert_allclose(np.atleast_2d(model.coef_), W, atol=2e-4)
    # The softmax is the same if all intercepts grow alike.
    found, expected = np.atleast_1d(model.intercept_), b
    if kind == "three classes":
        found, expected = found - found.mean(), b - b.mean()
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_differences_over_edges() -> None:
    X, y, site = data("regression")
    W, _ = textbook("regression", "graph", X, y, form="differences")
    model = estimator_of("regression", "graph", form="differences", tol=1e-8).fit(X, y, groups=site)
    np.testing.assert_allclose(model.coef_, W[0], atol=2e-4)


def test_scikit_learn_agrees() -> None:
    X, y = load_diabetes(return_X_y=True)
    X = X / X.std(axis=0)
    clinic = np.arange(len(y)) % 3
    lasso = FederatedLinearRegression(fpdfp.L1(2.0), run=fpdfp.RunOptions(tol=1e-09)).fit(X, y, groups=clinic)
    theirs = Lasso(2.0, tol=1e-12).fit(X, y)
    np.testing.assert_allclose(lasso.coef_, theirs.coef_, atol=1e-3)
    np.testing.assert_array_equal(lasso.coef_ == 0, theirs.coef_ == 0)
    net = FederatedLinearRegression(fpdfp.ElasticNet(1.0, l1_ratio=0.7), run=fpdfp.RunOptions(tol=1e-09)).fit(
        X, y, groups=clinic
    )
    np.testing.assert_allclose(net.coef_, ElasticNet(alpha=1.0, l1_ratio=0.7, tol=1e-12).fit(X, y).coef_, atol=1e-3)
    np.testing.assert_allclose(net.intercept_, y.mean() - X.mean(axis=0) @ net.coef_, atol=1e-3)


def test_scikit_learns_logistic_regression_agrees() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    ours = FederatedLogisticRegression(fpdfp.L1(0.02), run=fpdfp.RunOptions(tol=1e-08)).fit(
        X, y, groups=np.arange(len(y)) % 4
    )
    theirs = LogisticRegression(l1_ratio=1.0, C=1 / (0.02 * len(y)), solver="saga", tol=1e-8, max_iter=20_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))


@pytest.mark.parametrize("penalty", ["l1", "graph"])
@pytest.mark.parametrize("kind", ["regression", "three classes"])
def test_where_the_rows_are_does_not_matter(kind: str, penalty: str) -> None:
    X, y, site = data(kind)
    together = estimator_of(kind, penalty, tol=1e-9).fit(X, y)
    apart = estimator_of(kind, penalty, tol=1e-9).fit(X, y, groups=site)
    some = estimator_of(kind, penalty, tol=1e-9, clients_per_round=2).fit(X, y, groups=site)
    sparse = estimator_of(kind, penalty, tol=1e-9).fit(scipy.sparse.csr_array(X), y, groups=site)
    for other in (apart, some, sparse):
        np.testing.assert_allclose(other.coef_, together.coef_, atol=1e-4)
    assert list(apart.sites_) == ["north", "south", "west"]
    np.testing.assert_allclose(sparse.predict(scipy.sparse.csr_array(X)), sparse.predict(X))


@pytest.mark.parametrize("penalty", ["l1", "graph"])
def test_standardised_by_the_moments_of_all_sites(penalty: str) -> None:
    X, y, site = data("two classes")
    X = X * [1.0, 100.0, 0.01, 1.0]
    arguments: dict[str, Any] = {"tol": 1e-8} | ({"graph": None, "sparsity": 0.05} if penalty == "graph" else {})
    ours = estimator_of("two classes", penalty, standardize=True, **arguments).fit(X, y, groups=site)
    pooled = make_pipeline(StandardScaler(), estimator_of("two classes", penalty, **arguments)).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), pooled.predict_proba(X), atol=1e-5)
    sparse = estimator_of("two classes", penalty, standardize=True, **arguments).fit(scipy.sparse.csr_array(X), y)
    np.testing.assert_allclose(ours.predict_proba(X), sparse.predict_proba(X), atol=1e-4)


def test_the_graph_is_learned_without_moving_rows() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = FederatedLogisticRegression(fpdfp.Graph(0.05, sparsity=0.2), run=fpdfp.RunOptions(tol=0.0001))
    model.fit(X, y, groups=np.arange(len(y)) % 3)
    pooled = fpdfp.datasets.feature_graph(X, alpha=0.2)
    np.testing.assert_allclose(model.graph_.weights.toarray(), pooled.weights.toarray(), atol=1e-6)
    numbers = 1 + 30 + 30 * 31 // 2
    sent = model.bits_up_ - model.result_.total_up
    assert 3 * 64 * numbers <= sent <= 3 * (64 * numbers + 200)


def test_graphs_by_name() -> None:
    X, y, _ = data("regression")
    frame = pd.DataFrame(X, columns=["age", "weight", "dose", "height"])
    network = nx.Graph()
    network.add_weighted_edges_from([("age", "weight", 0.5), ("weight", "dose", -1.0)])
    network.add_edge("age", "height")
    by_name = estimator_of("regression", "graph", graph=network).fit(frame, y)
    by_number = estimator_of("regression", "graph").fit(X, y)
    np.testing.assert_array_equal(by_name.graph_.weights.toarray(), by_number.graph_.weights.toarray())
    np.testing.assert_array_equal(by_name.coef_, by_number.coef_)


def test_in_cross_validation_and_grid_search() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X, y, site = X[:240, :10], y[:240], np.arange(240) % 3
    pipeline = make_pipeline(StandardScaler(), FederatedLogisticRegression("fused"))
    grid = {"federatedlogisticregression__penalty": [fpdfp.Fused(weight) for weight in (1e-3, 1e-2, 1.0)]}
    with pytest.warns(UserWarning, match="FederatedLogisticRegressionCV finds all weights in the exchanges of about"):
        search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    assert search.best_score_ > 0.9
    assert search.best_params_["federatedlogisticregression__penalty"].weight < 1.0
    assert cross_val_score(FederatedLinearRegression(fpdfp.L1(0.01)), *data("regression")[:2]).min() > 0.5
    fitted = pipeline.fit(X, y, federatedlogisticregression__groups=site)
    assert len(fitted[-1].sites_) == 3


def test_sites_reach_the_estimator_by_metadata_routing() -> None:
    X, y, site = data("two classes", rows=90)
    with sklearn.config_context(enable_metadata_routing=True):
        model = FederatedLogisticRegression().set_fit_request(groups=True)
        search = GridSearchCV(
            model, {"run": [fpdfp.RunOptions(tol=tol) for tol in (1e-3, 1e-2)]}, cv=GroupKFold(3)
        ).fit(X, y, groups=site)
    assert list(search.best_estimator_.sites_) == ["north", "south", "west"]


def test_groups_that_reach_the_splitter_alone_are_warned_of(recwarn: pytest.WarningsRecorder) -> None:
    X, y, site = data("two classes", rows=90)
    model, folds = FederatedLogisticRegression("ridge"), GroupKFold(3)
    told = "groups are passed to the splitter only, so FederatedLogisticRegression is fitted as if one site"
    with pytest.warns(UserWarning, match=told) as caught:
        cross_val_score(model, X, y, groups=site, cv=folds)
    assert {Path(one.filename).name for one in caught} == {"test_estimators.py"}
    with pytest.warns(UserWarning, match=told):
        cross_validate(make_pipeline(StandardScaler(), model), X, y, groups=site, cv=folds)
    with pytest.warns(UserWarning, match=told):
        GridSearchCV(model, {"standardize": [True]}, cv=folds).fit(X, y, groups=site)
    cross_val_score(model, X, y, groups=site, cv=folds, params={"groups": site})
    cross_val_score(model, X, y, cv=3)
    clone(model)
    assert [str(one.message) for one in recwarn] == []


def test_a_parameter_that_is_unknown_is_told_by_the_name_of_the_class() -> None:
    for kind in (FederatedLogisticRegression, FederatedLinearRegression):
        with pytest.raises(TypeError, match=rf"^{kind.__name__}\.__init__\(\) got an unexpected .* 'lambda_'"):
            kind(lambda_=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Logistic\.__init__\(\) got an unexpected"):
        fpdfp.losses.Logistic(np.eye(2), [0, 1], ridge=1.0)  # type: ignore[call-arg]


@pytest.mark.parametrize("standardize", [False, True])
def test_the_advice_to_scale_is_for_those_who_do_not(standardize: bool) -> None:
    X, y = load_breast_cancer(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="may not have reached tol") as caught:
        FederatedLogisticRegression(standardize=standardize, run=fpdfp.RunOptions(rounds=2)).fit(X, y)
    assert ("standardize=True" in str(caught[0].message)) == (not standardize)


def test_what_it_tells_of_the_run() -> None:
    X, y, site = data("three classes")
    model = estimator_of("three classes", "l1").fit(X, y, groups=site)
    assert model.n_iter_ == model.result_.rounds == model.history_["round"][-1]
    assert model.bits_up_ == model.result_.total_up > 0
    assert model.bits_down_ == model.result_.total_down > 0
    assert model.coef_.shape == (3, 4)
    assert model.intercept_.shape == (3,)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(clone(model).fit(X, y, groups=site).coef_, model.coef_)


def test_any_method_and_messages() -> None:
    X, y = load_iris(return_X_y=True)
    model = FederatedLogisticRegression(
        fpdfp.Group(0.01, groups=[0, 0, 1, 1]),
        method=fpdfp.FPDFP(),
        standardize=True,
        run=fpdfp.RunOptions(rounds=50, compressor=fpdfp.QSGD(20), seed=3),
    )
    with pytest.warns(ConvergenceWarning, match="may not have reached tol=1e-06 after 50 rounds"):
        model.fit(X, y, groups=np.arange(len(y)) % 5)
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize("penalty", ["l1", "graph"])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("constant", [0.1, 1 / 3, 7.0, 1e8, 1e-20])
def test_constant_columns_change_nothing(penalty: str, sparse: bool, constant: float) -> None:
    """Standardised, what rounding leaves of them would be taken for a feature."""
    X, y, site = data("regression")
    wide = np.column_stack([X, np.full(len(y), constant)])
    arguments: dict[str, Any] = {"standardize": True, "tol": 1e-8}
    arguments |= {"graph": [(0, 1)]} if penalty == "graph" else {}
    plain, rows = (scipy.sparse.csr_array(a) if sparse else a for a in (X, wide))
    expected = estimator_of("regression", penalty, **arguments).fit(plain, y, groups=site)
    model = estimator_of("regression", penalty, **arguments).fit(rows, y, groups=site)
    assert model.result_.status == "converged"
    np.testing.assert_allclose(model.predict(rows), expected.predict(plain), atol=1e-3)
    assert abs(model.coef_[-1]) < 1e-6


def test_large_offsets_of_sparse_rows_lose_no_digits() -> None:
    X = data("regression")[0] + 1e6
    sparse, dense = scipy.sparse.csr_array(X), fpdfp.datasets.Moments.of(X)
    np.testing.assert_allclose(fpdfp.datasets.Moments.of(sparse).covariance, dense.covariance, atol=1e-8)
    np.testing.assert_allclose(fpdfp.datasets.Moments.of(sparse, diagonal=True).variance, dense.variance, rtol=1e-8)
    whole = scipy.sparse.csr_array(np.full((300, 1), 100, dtype=np.int8))
    assert abs(fpdfp.datasets.Moments.of(whole).scatter) < 1e-20


@pytest.mark.parametrize("penalty", PENALTIES)
def test_an_optimum_of_zero_is_recognised(penalty: str) -> None:
    X, _, site = data("regression")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = estimator_of("regression", penalty).fit(X, np.full(len(X), 3.0), groups=site)
    # Where B is not the identity, Bx is 0 up to rounding only: a gap cannot be shown to be small beside nothing.
    ends = ("stationary", "rounding") if penalty in ("fused", "graph") else ("converged",)
    assert model.result_.status in ends
    assert model.n_iter_ < 200
    assert model.result_.objective < 1e-15
    np.testing.assert_allclose(model.coef_, 0.0, atol=1e-6)
    assert model.intercept_ == pytest.approx(3.0)


def test_features_of_very_different_sizes() -> None:
    X, y, site = data("two classes")
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    sizes = np.array([1e-4, 1e4, 1.0, 1e2])
    model = FederatedLogisticRegression(fpdfp.L1(0.001), standardize=False).fit(X * sizes, y, groups=site)
    assert model.result_.status == "converged"
    W = cp.Variable(4)
    b = cp.Variable()
    margins = cp.multiply(np.where(y == "yes", -1.0, 1.0), X @ W + b)
    objective = cp.sum(cp.logistic(margins)) / len(y) + 1e-3 * cp.sum(cp.abs(cp.multiply(W, 1 / sizes)))
    best = cp.Problem(cp.Minimize(objective)).solve(solver=cp.CLARABEL)
    assert model.result_.objective == pytest.approx(best, rel=1e-5)


def test_without_a_tolerance_all_rounds_are_run() -> None:
    X, y, site = data("regression")
    assert FederatedLinearRegression(run=fpdfp.RunOptions(rounds=7, tol=0)).fit(X, y, groups=site).n_iter_ == 7


def test_differences_are_those_of_neighbours() -> None:
    np.testing.assert_array_equal(differences(3).toarray(), [[-1, 1, 0], [0, -1, 1]])
    assert differences(1).shape == (0, 1)


BAD: list[tuple[dict[str, Any], str]] = [
    (
        {"penalty": "l3"},
        "penalty must be one of 'graph', 'fused', 'group', 'sparse group', 'l1', .* 'none', got 'l3'",
    ),
    ({"penalty": penalties.L1(0.1)}, "one of fpdfp.penalties is for fpdfp.Problem"),
    ({"penalty": fpdfp.ElasticNet(l1_ratio=[0.1, 0.2])}, "penalty must have one number for l1_ratio; cross-validation"),
    ({"penalty": "group"}, "groups must name the group of each feature for the penalty 'group'"),
    ({"penalty": fpdfp.Group(groups=[0, 1])}, "groups must have one label for each of the 4 features"),
    ({"penalty": fpdfp.Graph(graph=np.eye(3))}, r"graph must be a matrix of shape \(4, 4\)"),
    ({"penalty": fpdfp.Graph(graph=[("a", "b")])}, "graph: unknown feature 'a'; features have no names here"),
    ({"run": {"tol": 1e-3}}, "run must be fpdfp.RunOptions or None, got dict"),
    ({"run": fpdfp.RunOptions(x0=np.zeros(4))}, "run must not have x0 or metrics; use start"),
    ({"run": fpdfp.RunOptions(clients_per_round=9)}, "clients_per_round must be"),
    ({"alpha": 0.1}, r"alpha is not a parameter of FederatedLinearRegression: give penalty=fpdfp.L1\(weight=…\)"),
    ({"tol": 0.1}, r"tol is not a parameter of FederatedLinearRegression: give run=fpdfp.RunOptions\(tol=…\)"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_parameters_are_named(arguments: dict[str, Any], message: str) -> None:
    X, y, site = data("regression")
    with pytest.raises((ValueError, TypeError), match=message):
        FederatedLinearRegression(**arguments).fit(X, y, groups=site)


WRONG: list[tuple[Any, dict[str, Any], str]] = [
    (fpdfp.L1, {"weight": -1.0}, "weight must be a finite number of at least 0, got -1"),
    (fpdfp.L1, {"weight": np.nan}, "weight must be a finite number"),
    (fpdfp.ElasticNet, {"l1_ratio": 1.5}, "l1_ratio must be a number from 0 to 1, got 1.5"),
    (fpdfp.SparseGroup, {"l1_ratio": [0.5, 1.5]}, "l1_ratio must be a number from 0 to 1, got 1.5"),
    (fpdfp.Fused, {"l1": -1}, "l1 must be a finite number of at least 0"),
    (fpdfp.Group, {"l2": np.inf}, "l2 must be a finite number"),
    (fpdfp.Graph, {"sparsity": 0}, "sparsity must be a finite number greater than 0"),
    (fpdfp.Graph, {"form": "edges"}, "form must be one of 'weights', 'differences'"),
    (fpdfp.MCP, {"concavity": 1.0}, "concavity must be above 1 for mcp, got 1"),
    (fpdfp.SCAD, {"concavity": 2.0}, "concavity must be above 2 for scad, got 2"),
    (fpdfp.RunOptions, {"rounds": 0}, "rounds must be an integer of at least 1"),
    (fpdfp.RunOptions, {"tol": -1.0}, "tol must be a finite number of at least 0"),
]


@pytest.mark.parametrize(("kind", "arguments", "message"), WRONG)
def test_bad_options_are_named(kind: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**arguments)


def test_every_model_has_a_dozen_parameters_at_most_and_names_where_others_went() -> None:
    """All that an estimator took once is refused by the name of the place where it is now."""
    for name in [one for one in fpdfp.models.__all__ if one.startswith("Federated")]:
        kind = getattr(fpdfp, name)
        own = list(inspect.signature(kind).parameters)
        assert own == [one for one in inspect.signature(kind.__init__).parameters if one != "self"]
        assert len(own) <= 12
        for moved in MOVED:
            assert moved not in own
            with pytest.raises(TypeError, match=rf"^{moved} is not a parameter of {name}: give .*fpdfp\."):
                kind(**{moved: 1.0})
            with pytest.raises(TypeError, match=rf"^{moved} is not a parameter of {name}: give "):
                kind().set_params(**{moved: 1.0})


def test_bad_sites_and_classes_are_named() -> None:
    X, y, site = data("two classes")
    with pytest.raises(ValueError, match="groups must name the site of each of the 60 rows of X"):
        FederatedLogisticRegression().fit(X, y, groups=site[:-1])
    with pytest.raises(ValueError, match="groups must name one for every entry"):
        FederatedLogisticRegression().fit(X, y, groups=np.where(np.arange(60) == 3, np.nan, 1.0))
    with pytest.raises(ValueError, match="y must hold at least two classes, got one class: yes"):
        FederatedLogisticRegression().fit(X, np.full(60, "yes"))
    with pytest.raises(AttributeError, match="has no attribute 'FederatedForest'"):
        _ = fpdfp.FederatedForest


def test_fits_that_take_no_newton_steps_compress_messages_and_begin_with_few_features() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 600))
    y = (X[:, :5].sum(axis=1) + rng.logistic(size=400) > 0).astype(int)
    model = fpdfp.FederatedLogisticRegression(fpdfp.L1(0.05)).fit(X, y, groups=np.arange(400) % 20)
    assert isinstance(model.result_.method, fpdfp.ShiftedPDFP)
    assert "QSGD" in str(model.result_)
    assert model.result_.features is not None
    assert model.bits_up_ < 10e6
