"""Graphs of features: found from rows, found from moments that clients tell, given by a user."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import fpdfp
from fpdfp import _progress
from fpdfp.datasets import FeatureGraph, Moments, as_graph, feature_graph
from fpdfp.datasets.graph import GAP, LOOK, SHRINKAGES, graphical_lasso
from fpdfp.errors import ArgumentError


def test_the_graph_of_a_chain_is_a_chain() -> None:
    generator = np.random.default_rng(0)
    chain = [generator.standard_normal(4000)]
    for _ in range(4):
        chain.append(0.8 * chain[-1] + 0.6 * generator.standard_normal(4000))
    graph = feature_graph(np.stack(chain, axis=1), alpha=0.12)
    weights = abs(graph.weights.toarray())
    neighbours = np.diag(weights, 1).copy()
    assert weights.max() == 1.0
    others = weights[np.triu_indices(5, 2)]
    assert neighbours.min() > 5 * others.max()
    assert graph.shrinkage == 0.0
    np.testing.assert_allclose(graph.stacked().toarray()[5:], np.eye(5))


def test_singular_covariances_are_shrunk_as_little_as_suffices() -> None:
    """One-hot groups sum to one, so their covariance is singular, as a9a's is."""
    generator = np.random.default_rng(0)
    X = np.concatenate([np.eye(4)[generator.integers(0, 4, 500)] for _ in range(5)], axis=1)
    for matrix in (X, scipy.sparse.csr_array(X)):
        graph = feature_graph(matrix, alpha=0.005)
        assert np.isfinite(graph.weights.data).all()
        assert graph.edges > 0


def test_independent_features_have_no_edges() -> None:
    graph = feature_graph(np.random.default_rng(0).standard_normal((500, 3)), alpha=0.5)
    assert graph.edges == 0
    assert graph.stacked().shape == (6, 3)


def test_a_constant_column_has_no_edges() -> None:
    generator = np.random.default_rng(0)
    a = generator.standard_normal(200)
    X = np.column_stack([a, a + 0.3 * generator.standard_normal(200), np.ones(200)])
    graph = feature_graph(X, alpha=0.1)
    assert graph.edges == 1
    assert graph.weights[[2]].nnz == 0


BAD: list[tuple[Any, str]] = [
    (lambda: feature_graph(np.ones((5, 3))), "every column is constant"),
    (lambda: feature_graph(np.ones((5, 3)), alpha=0.0), "alpha must be a finite number greater than 0"),
    (lambda: feature_graph(np.ones((1, 3))), "X must have at least two rows"),
    (lambda: feature_graph(np.full((5, 3), np.nan)), "X must be finite"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.floats(0, 1e6), st.integers(0, 2**32))
def test_moments_of_clients_are_those_of_all_rows(sizes: list[int], offset: float, seed: int) -> None:
    generator = np.random.default_rng(seed)
    X = generator.standard_normal((sum(sizes), 3)) + offset
    owner = np.repeat(np.arange(len(sizes)), sizes)
    total = Moments.total(Moments.of_clients(X, owner))
    assert total.count == len(X)
    np.testing.assert_allclose(total.mean, X.mean(axis=0), rtol=1e-12)
    expected = np.cov(X, rowvar=False, bias=True) if len(X) > 1 else np.zeros((3, 3))
    # Relative to the spread, not to the offset: nothing is lost where means are large.
    np.testing.assert_allclose(total.covariance, expected, atol=1e-12 * (1 + offset))


def test_moments_of_sparse_rows_and_of_rows_in_any_order() -> None:
    generator = np.random.default_rng(0)
    X = generator.random((40, 5)) * (generator.random((40, 5)) < 0.3)
    owner = generator.integers(0, 4, 40)
    dense = Moments.total(Moments.of_clients(X, owner))
    sparse = Moments.total(Moments.of_clients(scipy.sparse.csr_array(X), owner))
    np.testing.assert_allclose(sparse.covariance, dense.covariance, atol=1e-14)
    np.testing.assert_allclose(Moments.of(X).covariance, dense.covariance, atol=1e-14)
    assert dense.numbers == 1 + 5 + 15
    with pytest.raises(ValueError, match="moments must have the same number of features, got 5 and 3"):
        _ = dense + Moments.of(np.ones((2, 3)))


def test_the_graph_can_be_found_without_moving_rows() -> None:
    generator = np.random.default_rng(0)
    X = np.cumsum(generator.standard_normal((300, 6)), axis=1)
    owner = generator.integers(0, 5, 300)
    pooled = feature_graph(X, alpha=0.2)
    apart = feature_graph(X, alpha=0.2, clients=owner)
    told = feature_graph(Moments.total([Moments.of(X[owner == i]) for i in range(5)]), alpha=0.2)
    np.testing.assert_allclose(apart.weights.toarray(), pooled.weights.toarray(), atol=1e-6)
    np.testing.assert_array_equal(apart.weights.toarray(), told.weights.toarray())


def test_a_covariance_on_which_the_usual_tolerance_fails() -> None:
    X = np.array([[3, 0], [0, 1], [0, 2], [1, 1], [1, 2], [2, 1], [0, 3], [1, 0], [2, 0], [4, 4], [2, 3], [3, 2]])
    assert feature_graph(X, alpha=0.1).shrinkage == 0.0


def factors(rows: int, features: int, seed: int) -> Any:
    """Rows of correlated features, of which some are joined to no other."""
    generator = np.random.default_rng(seed)
    common = generator.standard_normal((rows, 3))
    X = common @ generator.standard_normal((3, features)) + 2.0 * generator.standard_normal((rows, features))
    X[:, ::4] = generator.standard_normal(X[:, ::4].shape)
    return X / X.std(axis=0)


@pytest.mark.parametrize(("rows", "features"), [(200, 12), (30, 40), (2000, 25)])
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.4])
def test_both_solvers_find_the_same_graph(rows: int, features: int, alpha: float) -> None:
    from sklearn.covariance import graphical_lasso as scikit_learn

    covariance = Moments.of(factors(rows, features, seed=0)).covariance
    looks: list[int] = []
    found = graphical_lasso(covariance, alpha, 1e-10, lambda step, value: looks.append(step))
    assert found is not None
    assert looks == sorted(looks)
    _, expected = scikit_learn(covariance, alpha, tol=1e-8, enet_tol=1e-10, max_iter=1000)
    np.testing.assert_allclose(found, expected, atol=1e-4 * abs(expected).max())
    clear = abs(expected) > 1e-3
    assert (found[clear] != 0).all()
    assert (abs(expected[found == 0]) < 1e-3).all()


@pytest.mark.slow
def test_many_features_are_solved_in_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    X = factors(400, 300, seed=1)
    graph = feature_graph(X, alpha=0.1, progress=True)
    assert graph.shrinkage == 0.0
    assert graph.edges > 0
    assert "objective" in capsys.readouterr().err
    few = feature_graph(X[:, :100], alpha=0.1).weights.toarray()
    again = graphical_lasso(Moments.of(X[:, :100]).covariance, 0.1, GAP, lambda step, value: None)
    assert again is not None
    again -= np.diag(np.diag(again))
    np.testing.assert_allclose(again / abs(again).max(), few, atol=0.02)


def test_ctrl_c_ends_the_search_for_a_graph_and_its_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    update, bars = _progress.Bar.update, list[Any]()

    def interrupt(bar: Any, done: int, objective: float, bits: int) -> None:
        update(bar, done, objective, bits)
        bars.append(bar._progress)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(_progress.Bar, "update", interrupt)
    X = factors(400, 300, seed=1)
    with pytest.raises(KeyboardInterrupt):
        fpdfp.FederatedLogisticRegression("graph", run=fpdfp.RunOptions(progress=True)).fit(X, X[:, 0] > 0)
    assert [(bar.tasks[0].completed, bar.live.is_started) for bar in bars] == [(LOOK, False)]


def test_many_features_with_a_constant_one_are_shrunk() -> None:
    X = factors(300, 210, seed=2)
    X[:, 7] = 1.0
    graph = feature_graph(X, alpha=0.3)
    assert graph.shrinkage == SHRINKAGES[1]
    assert graph.weights[[7]].nnz == 0


EDGES = [(0, 1, 0.5), (1, 2, -2.0)]
MATRIX = np.array([[0.0, 0.5, 0.0, 0.0], [0.5, 0.0, -2.0, 0.0], [0.0, -2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]])


def network() -> Any:
    graph = nx.Graph()
    graph.add_weighted_edges_from(EDGES)
    graph.add_node(3)
    return graph


@pytest.mark.parametrize(
    "given_graph",
    [EDGES, MATRIX, scipy.sparse.coo_array(MATRIX), network()],
    ids=["edges", "dense", "sparse", "networkx"],
)
def test_a_graph_given_in_any_form(given_graph: Any) -> None:
    graph = as_graph(given_graph, 4)
    np.testing.assert_array_equal(graph.weights.toarray(), MATRIX)
    assert (graph.edges, graph.n_features, graph.alpha) == (2, 4, None)
    assert as_graph(graph, 4) is graph
    np.testing.assert_array_equal(graph.stacked().toarray(), np.concatenate([MATRIX, np.eye(4)]))
    # Positive weights join coefficients that are to be equal, negative ones opposite coefficients.
    np.testing.assert_array_equal(graph.structure("differences").toarray(), [[0.5, -0.5, 0, 0], [0, 2, 2, 0]])


def test_differences_of_a_graph_that_was_found_follow_partial_correlations() -> None:
    """A negative entry of the inverse covariance means that two features rise together."""
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((2, 2000))
    X = np.stack([a, a + 0.3 * generator.standard_normal(2000), b, -b + 0.3 * generator.standard_normal(2000)], axis=1)
    graph = feature_graph(X, alpha=0.2)
    rows = graph.structure("differences").toarray()
    assert graph.edges == 2
    assert rows[0, 0] * rows[0, 1] < 0 < rows[1, 2] * rows[1, 3]


def test_a_data_frame_and_an_array_of_edges() -> None:
    names = ["a", "b", "c", "d"]
    np.testing.assert_array_equal(as_graph(pd.DataFrame(MATRIX, names, names), 4).weights.toarray(), MATRIX)
    assert as_graph(np.array([[0, 1], [2, 3]]), 4).edges == 2
    with pytest.raises(ValueError, match="graph: unknown feature 'e'"):
        as_graph(nx.Graph([("a", "b"), ("a", "e")]), 4, names)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Moments.total([]), "parts must hold the moments of at least one client, got none"),
        (lambda: Moments.of(np.ones((0, 3))), "X must have rows and columns"),
        (lambda: Moments.of([[np.nan, 1.0]]), "X must be finite"),
        (lambda: Moments.of_clients(np.eye(3), ["a", "b"]), "clients must have one entry for each of the 3 rows"),
        (lambda: feature_graph(Moments.of(np.eye(3), diagonal=True)), "these moments have no covariances"),
    ],
)
def test_bad_moments_are_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_graph_without_edges() -> None:
    graph = as_graph([], 3)
    assert graph.edges == 0
    assert graph.structure("differences").shape == (0, 3)
    assert graph.stacked("differences").shape == (3, 3)


def directed() -> Any:
    return nx.DiGraph([(0, 1)])


GIVEN: list[tuple[Any, str]] = [
    (lambda: as_graph(np.ones((3, 4)), 3), r"graph must be a matrix of shape \(3, 3\), got \(3, 4\)"),
    (lambda: as_graph(np.triu(np.ones((3, 3)), 1), 3), "graph must be a symmetric matrix"),
    (lambda: as_graph(np.eye(3), 3), "graph must have a zero diagonal"),
    (lambda: as_graph(np.full((3, 3), np.nan), 3), "graph must be finite"),
    (lambda: as_graph([(0, 3)], 3), "graph: a feature must be an integer of at least 0 and at most 2, got 3"),
    (lambda: as_graph([(0, 0)], 3), r"graph: an edge must join two features, got \(0, 0\)"),
    (lambda: as_graph([(0, 1), (1, 0)], 3), "graph: the edge 1, 0 is given twice"),
    (lambda: as_graph([(0, 1, 2, 3)], 3), r"graph: an edge must be \(i, j\) or \(i, j, weight\)"),
    (lambda: as_graph([(0, 1, np.inf)], 3), "graph: the weight of an edge must be a finite number"),
    (lambda: as_graph([("a", "b")], 3, ["a", "c", "d"]), "graph: unknown feature 'b'"),
    (lambda: as_graph([("a", "b")], 3, ["a", "b"]), "feature_names must hold 3 different names, got 2"),
    (lambda: as_graph(directed(), 3), "graph must not be directed"),
    (lambda: as_graph(as_graph([], 4), 3), "graph must have the 3 features of the data, got 4"),
    (lambda: as_graph([], 0), "n_features must be an integer of at least 1"),
    (lambda: as_graph([], 3).structure("edges"), "form must be one of 'weights', 'differences'"),
    (lambda: feature_graph(np.eye(3), clients=[0, 1]), "clients must have one entry for each of the 3 rows"),
    (lambda: feature_graph(Moments.of(np.eye(3)), clients=[0]), "clients must not be given with moments"),
]


@pytest.mark.parametrize(("make", "message"), GIVEN)
def test_bad_graphs_are_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_what_is_no_graph_is_named() -> None:
    with pytest.raises(TypeError, match="graph must be a matrix of weights, a list of edges, a networkx graph or a"):
        as_graph(3, 3)
    assert isinstance(as_graph([], 1), FeatureGraph)


def test_graph_guided_logistic_regression_on_a9a(data_dir: Path) -> None:
    """The paper's problem: graph, reference solution to 1e-9, and FPDFP on its way there."""
    data = fpdfp.datasets.load("a9a", directory=data_dir)
    assert data.X.shape == (32_561, 123)
    graph = feature_graph(data.X, alpha=0.02)
    assert graph.edges > 10
    clients = np.random.default_rng(0).integers(0, 100, len(data.y))
    losses = fpdfp.losses.Logistic(data.X, data.y, clients=clients, l2=1e-5)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(1e-5), graph.stacked())
    best = fpdfp.minimize(problem, tol=1e-9)
    assert best.converged
    assert best.certificate.relative_gap is not None
    assert best.certificate.relative_gap <= 1e-9
    result = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=300, clients_per_round=20, compressor=fpdfp.QSGD(levels=20))
    assert 0 < (result.objective - best.objective) / best.objective < 0.05
    nothing_given = fpdfp.solve(problem, rounds=100)
    assert abs(nothing_given.objective / best.objective - 1) < 1e-8


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array, scipy.sparse.coo_array])
def test_weights_are_repeated_rows(form: Any) -> None:
    rng = np.random.default_rng(4)
    X, weights, owner = (
        rng.normal(3.0, 2.0, (60, 3)) * (rng.random((60, 3)) < 0.5),
        rng.integers(0, 4, 60),
        rng.integers(0, 3, 60),
    )
    repeated = np.repeat(X, weights, axis=0)
    for diagonal in (True, False):
        found = Moments.total(Moments.of_clients(form(X), owner, weights=weights, diagonal=diagonal))
        exact = Moments.of(repeated, diagonal=diagonal)
        assert found.count == exact.count
        np.testing.assert_allclose(found.mean, exact.mean, rtol=1e-12)
        np.testing.assert_allclose(found.scatter, exact.scatter, rtol=1e-10, atol=1e-10)
    for wrong in (-weights, 0.0 * weights):
        with pytest.raises(ArgumentError, match="weights must be at least 0 for all rows, and positive for some"):
            Moments.of(form(X), weights=wrong)


def test_entries_that_are_stored_twice_are_one() -> None:
    twice = scipy.sparse.coo_array((np.ones(3), ([0, 0, 1], [0, 0, 0])), shape=(4, 1))
    found = Moments.of(twice, diagonal=True)
    assert (found.mean[0], found.scatter[0]) == (0.75, 2.75)
