"""Graphs of features."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fpdfp
from fpdfp.datasets import feature_graph


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


def test_graph_guided_logistic_regression_on_a9a(data_dir: Path) -> None:
    """The paper's problem: graph, reference solution to 1e-9, and FPDFP on its way there."""
    from sklearn.datasets import load_svmlight_file

    with lzma.open(data_dir / "a9a.xz") as file:
        X, y = load_svmlight_file(file, n_features=123)
    assert X.shape == (32_561, 123)
    X = scipy.sparse.csr_array(X)
    graph = feature_graph(X, alpha=0.02)
    assert graph.edges > 10
    clients = np.random.default_rng(0).integers(0, 100, len(y))
    losses = fpdfp.losses.Logistic(X, y, clients=clients, l2=1e-5)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(1e-5), graph.stacked())
    best = fpdfp.reference_solution(problem, tol=1e-9)
    assert best.converged
    assert best.certificate.relative_gap is not None
    assert best.certificate.relative_gap <= 1e-9
    result = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=300, clients_per_round=20, compressor=fpdfp.QSGD(levels=20))
    assert 0 < (result.objective - best.objective) / best.objective < 0.05
    nothing_given = fpdfp.solve(problem, rounds=100)
    assert abs(nothing_given.objective / best.objective - 1) < 1e-8
