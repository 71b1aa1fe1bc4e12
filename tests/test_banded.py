"""The prox of g∘B in the coordinates of a diagonal, by Newton steps whose systems have a narrow band."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import fpdfp
from fpdfp.linops import Compose, Diagonal, Difference, Identity, LinOp, Matrix, VStack
from fpdfp.penalties import L1, GroupL12, Penalty, SparseGroup, Stacked
from fpdfp.precondition import Scaling
from fpdfp.problem import Model
from fpdfp.quadratic import banded
from fpdfp.quadratic.banded import Banded
from fpdfp.quadratic.solve import minimise
from fpdfp.quadratic.statement import Distance, InnerSolve

FEATURES = 24


def path(features: int, order: np.ndarray) -> Matrix:
    """Differences of features that follow each other in an order."""
    ends = np.stack([order[:-1], order[1:]], axis=1).ravel()
    entries = (np.tile([-1.0, 1.0], features - 1), ends, 2 * np.arange(features))
    return Matrix(sparse.csr_array(entries, (features - 1, features)))


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


def model_of(penalty: Penalty, linop: LinOp, scales: np.ndarray) -> Model:
    """g and B in the coordinates of a diagonal."""
    inside = Compose(linop, Diagonal(scales))
    return Model(penalty.bind(linop.out_shape), inside, (FEATURES,), np.dtype(np.float64))


@pytest.mark.parametrize(("penalty", "linop"), models())
def test_directions_are_those_of_the_whole_matrix(penalty: Penalty, linop: LinOp, rng: np.random.Generator) -> None:
    model = model_of(penalty, linop, 10.0 ** rng.uniform(-1, 1, FEATURES))
    found = Banded.of(model)
    assert found is not None
    rows = model.linop.apply(np.eye(FEATURES))
    derivative = model.penalty.conjugate_prox_derivative(rng.standard_normal(model.dual_shape), 2.0)
    whole = np.eye(FEATURES) / 0.3 + 2.0 * derivative(rows) @ rows.T
    right = rng.standard_normal(FEATURES)
    np.testing.assert_allclose(whole @ found.find(0.3, derivative, 2.0, right), right, atol=1e-9)
    np.testing.assert_allclose(found.squares, np.square(rows).sum(axis=0))


@pytest.mark.parametrize(("penalty", "linop"), models())
def test_the_prox_is_the_one_of_many_dual_steps(penalty: Penalty, linop: LinOp, rng: np.random.Generator) -> None:
    model = model_of(penalty, linop, 10.0 ** rng.uniform(-1, 1, FEATURES))
    y, v = rng.standard_normal((1, FEATURES)), np.zeros((1, *model.dual_shape))
    many = minimise(model, Distance(y, 0.5), v, InnerSolve(1e-6, 200_000))
    assert not many.work.unsolved
    few = minimise(model, Distance(y, 0.5), v, InnerSolve(1e-4, 5), matrix=Banded.of(model))
    assert not few.work.unsolved
    assert few.work.steps < 200
    np.testing.assert_allclose(few.u, many.u, atol=1e-3)


def test_where_there_is_no_band(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    ones = np.ones(FEATURES)
    chain = model_of(L1(0.1), path(FEATURES, np.arange(FEATURES)), ones)
    assert Banded.of(chain) is not None
    assert Banded.of(model_of(L1(0.1), Matrix(rng.standard_normal((5, FEATURES))), ones)) is None
    monkeypatch.setattr(banded, "CHEAP", 10)
    assert Banded.of(chain) is None
    assert Banded.of(model_of(GroupL12(0.1, groups=np.zeros(FEATURES)), Identity((FEATURES,)), ones)) is None


@pytest.mark.parametrize("kind", ["groups", "neighbours"])
def test_many_features_in_different_units_converge(kind: str) -> None:
    """Dual steps alone were so far from the prox in the coordinates of a diagonal that the objective grew."""
    rng = np.random.default_rng(0)
    n, d, spread = (600, 1500, 2) if kind == "groups" else (400, 700, 1)
    X = rng.standard_normal((n, d))
    y = X[:, :3].sum(axis=1) + 0.5 * rng.standard_normal(n)
    X *= 10.0 ** rng.uniform(-spread, spread, d)
    losses = fpdfp.losses.LeastSquares(X, y, clients=np.arange(n) % 20, l2=0.01)
    largest = float(np.abs(X.T @ y).max()) / n
    if kind == "groups":
        problem = fpdfp.Problem(losses, GroupL12(0.3 * largest, groups=np.arange(d) // 4))
    else:
        problem = fpdfp.Problem(losses, L1(0.1 * largest), Difference(d))
    result = fpdfp.solve(problem, rounds=150, tol=1e-4)
    assert result.status == "converged"
    assert isinstance(getattr(result.algorithm, "coordinates", None), Scaling)
