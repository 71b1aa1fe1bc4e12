"""The prox of g∘B in the coordinates of blocks, by Newton steps whose systems have a narrow band."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import fpdfp
from fpdfp.linops import Compose, Difference, Identity, LinOp, Matrix, VStack
from fpdfp.methods.inner import InnerSolve, prox
from fpdfp.penalties import L1, GroupL12, Penalty, SparseGroup, Stacked
from fpdfp.precondition import Blocks, LowRank, Scaling, banded
from fpdfp.precondition.banded import Banded, Coupling
from fpdfp.precondition.layout import Layout
from fpdfp.problem import Model

FEATURES, SIZE = 24, 6


def path(features: int, order: np.ndarray | None = None) -> Matrix:
    """Differences of features that follow each other in an order."""
    order = np.arange(features) if order is None else order
    ends = np.stack([order[:-1], order[1:]], axis=1).ravel()
    entries = (np.tile([-1.0, 1.0], features - 1), ends, 2 * np.arange(features))
    return Matrix(sparse.csr_array(entries, (features - 1, features)))


def blocks(rng: np.random.Generator, rows: int | None = None) -> Blocks:
    """Blocks of features that are alike."""
    places = np.arange(SIZE)
    one = 0.95 ** np.abs(places[:, None] - places)
    labels = rng.permutation(np.repeat(np.arange(FEATURES // SIZE), SIZE))
    return Blocks([one * scale for scale in (1.0, 2.0, 0.5, 4.0)], rows, labels=labels)


def models() -> list[Any]:
    rng = np.random.default_rng(1)
    groups = rng.permutation(np.repeat(np.arange(8), 3))
    chain = path(FEATURES, rng.permutation(FEATURES))
    both = VStack([chain, Identity((FEATURES,))])
    stacked = Stacked([L1(0.3), GroupL12(0.2, groups=groups)], shapes=[chain.out_shape, (FEATURES,)])
    return [
        pytest.param(L1(0.3), chain, id="graph"),
        pytest.param(L1(0.3), Difference(FEATURES), id="neighbours"),
        pytest.param(GroupL12(0.5, groups=groups), Identity((FEATURES,)), id="groups"),
        pytest.param(SparseGroup(0.1, 0.4, groups=groups), Identity((FEATURES,)), id="sparse groups"),
        pytest.param(stacked, both, id="both"),
    ]


def model_of(penalty: Penalty, linop: LinOp) -> Model:
    return Model(penalty.bind(linop.out_shape), linop, (FEATURES,), np.dtype(np.float64))


@pytest.mark.parametrize(("penalty", "linop"), models())
def test_directions_are_those_of_the_whole_matrix(penalty: Penalty, linop: LinOp, rng: np.random.Generator) -> None:
    model, made = model_of(penalty, linop), blocks(rng)
    found = Banded.of(model, made)
    assert found is not None
    inside = Compose(linop, made.factor)
    rows = inside.apply(np.eye(FEATURES))
    derivative = model.penalty.conjugate_prox_derivative(rng.standard_normal(model.dual_shape), 2.0)
    whole = np.eye(FEATURES) / 0.3 + 2.0 * derivative(rows) @ rows.T
    right = rng.standard_normal(FEATURES)
    np.testing.assert_allclose(whole @ found.find(0.3, derivative, 2.0, right), right, atol=1e-9)


@pytest.mark.parametrize(("penalty", "linop"), models())
def test_the_prox_is_the_one_of_many_dual_steps(penalty: Penalty, linop: LinOp, rng: np.random.Generator) -> None:
    model, made = model_of(penalty, linop), blocks(rng)
    space = model._replace(linop=Compose(linop, made.factor))
    y, v = rng.standard_normal((1, FEATURES)), np.zeros((1, *model.dual_shape))
    many = prox(space, y, 0.5, v, InnerSolve(1e-6, 200_000))
    assert not many.work.unsolved
    few = prox(space, y, 0.5, v, InnerSolve(1e-4, 5), matrix=Banded.of(model, made))
    assert not few.work.unsolved
    assert few.work.steps < 200
    np.testing.assert_allclose(few.u, many.u, atol=1e-3)


def test_where_there_is_no_band(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = model_of(L1(0.1), path(FEATURES))
    assert Banded.of(chain, None) is None
    assert Banded.of(chain, LowRank(np.eye(FEATURES, 2), [4.0, 2.0])) is None
    assert Banded.of(chain, Scaling(np.ones(FEATURES))) is not None
    assert Banded.of(model_of(L1(0.1), Matrix(rng.standard_normal((5, FEATURES)))), blocks(rng)) is None
    assert blocks(rng, rows=2).metric is None
    monkeypatch.setattr(banded, "CHEAP", 10)
    assert Banded.of(chain, blocks(rng)) is None
    assert Coupling.of(model_of(GroupL12(0.1, groups=np.zeros(FEATURES)), Identity((FEATURES,)))) is None


def test_a_pattern_has_the_entries_of_blocks() -> None:
    layout = Layout(np.array([2, 1, 2]), np.array([0, 3, 1, 2, 4]))
    labels = np.array([0, 1, 2, 0, 2])
    np.testing.assert_array_equal(layout.pattern.toarray(), labels[:, None] == labels)


def test_blocks_of_a_graph_come_to_rest() -> None:
    """In the metric of blocks of a graph 400 dual steps a round were far from the prox: 600 rounds did not suffice."""
    rng = np.random.default_rng(0)
    d, rows = 400, 1600
    X = rng.standard_normal((rows, d))
    for j in range(1, d):
        X[:, j] = 0.95 * X[:, j - 1] + np.sqrt(1 - 0.95**2) * X[:, j]
    y = (X[:, :20].sum(axis=1) * 0.3 + rng.standard_normal(rows) > 0).astype(float)
    order = rng.permutation(d)
    losses = fpdfp.losses.Logistic(X[:, order], y, clients=np.arange(rows) % 8, l2=1e-3)
    problem = fpdfp.Problem(losses, L1(0.05), path(d, np.argsort(order)))
    taken = {}
    for wanted in ("auto", None):
        result = fpdfp.solve(problem, fpdfp.ShiftedPDFP(preconditioner=wanted), rounds=300, tol=1e-5, progress=False)
        assert result.status == "converged"
        taken[wanted] = result
    assert isinstance(taken["auto"].algorithm.coordinates, Blocks)  # type: ignore[union-attr]
    assert "blocks of the graph of B" in str(taken["auto"])
    assert 1.5 * taken["auto"].rounds < taken[None].rounds


def test_few_rows_in_different_units_do_not_diverge() -> None:
    # Dual steps alone were so far from the prox in the coordinates of a whitening that the objective grew 20 times.
    rng = np.random.default_rng(0)
    n, d = 60, 346
    X = rng.standard_normal((n, d))
    for j in range(1, d):
        X[:, j] = 0.9 * X[:, j - 1] + 0.44 * X[:, j]
    X *= 10.0 ** rng.uniform(-2, 2, d)
    y = X @ (rng.standard_normal(d) * (rng.random(d) < 0.1))
    y /= y.std()
    penalty = GroupL12(0.03 * float(np.abs(X.T @ y).max()) / n, groups=rng.permutation(d) // 2)
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, clients=np.arange(n) % 4), penalty)
    result = fpdfp.solve(problem, rounds=100, tol=1e-4)
    assert result.status == "converged"
    assert result.objective <= (1.0 + 1e-4) * fpdfp.minimize(problem, tol=1e-6).objective
