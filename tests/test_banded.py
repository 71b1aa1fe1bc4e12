"""The prox of g∘B in the coordinates of blocks, by Newton steps whose systems have a narrow band."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from fpdfp.linops import Compose, Difference, Identity, LinOp, Matrix, VStack
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
