"""Blocks of features that a penalty or a linear map couples: which they are, and that both sides have the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import linalg, sparse

import fpdfp
from fpdfp.linops.base import adjoint_error
from fpdfp.precondition import Blocks
from fpdfp.precondition.base import Announced
from fpdfp.precondition.layout import Layout, by_structure, pack
from fpdfp.precondition.structure import Structure
from fpdfp.problem import Model
from tests.loopback import Loopback


def grouped(d: int = 400, rows: int = 1600, clients: int = 8, size: int = 40, kind: str = "groups") -> fpdfp.Problem:
    """Autoregressions of groups, in a random order."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((rows, d))
    for j in range(1, d):
        if j % size:
            X[:, j] = 0.95 * X[:, j - 1] + np.sqrt(1 - 0.95**2) * X[:, j]
    y = (X[:, :size] @ (0.3 * rng.standard_normal(size)) + rng.standard_normal(rows) > 0).astype(float)
    order = rng.permutation(d)
    losses = fpdfp.losses.Logistic(X[:, order], y, clients=np.arange(rows) % clients, l2=1e-3)
    if kind == "sparse groups":
        return fpdfp.Problem(losses, fpdfp.penalties.SparseGroup(0.002, 0.004, groups=order // size))
    return fpdfp.Problem(losses, fpdfp.penalties.GroupL12(0.005, groups=order // size))


def path(features: Any, d: int | None = None) -> Any:
    """Return the differences of features that follow each other, of d in all."""
    count = len(features) - 1
    ends = np.stack([features[:-1], features[1:]], axis=1).ravel()
    shape = (count, d or len(features))
    return sparse.csr_array((np.tile([-1.0, 1.0], count), ends, 2 * np.arange(count + 1)), shape)


def members(layout: Layout) -> list[set[int]]:
    """Return the features of each block."""
    order = np.arange(int(layout.sizes.sum())) if layout.order is None else layout.order
    return [set(one.tolist()) for one in np.split(order, np.cumsum(layout.sizes)[:-1])]


class TestLayouts:
    """Which features are in a block."""

    @pytest.mark.parametrize("kind", ["groups", "sparse groups"])
    def test_groups_stay_together(self, kind: str) -> None:
        problem = grouped(kind=kind)
        layout = by_structure(problem.model, 64)
        assert layout is not None
        labels = problem.penalty.groups  # type: ignore[attr-defined]
        assert sorted(map(sorted, members(layout))) == sorted(
            np.flatnonzero(labels == one).tolist() for one in range(10)
        )

    def test_small_groups_share_blocks_and_large_ones_are_cut(self) -> None:
        assert list(pack([3, 4, 2, 9, 1, 1], 8)) == [7, 2, 5, 4, 2]
        assert list(pack([8], 8)) == [8]
        assert list(pack([], 8)) == []

    def test_components_of_a_graph(self) -> None:
        """Two paths and features on their own, in no order, with a row that couples all of them, which says nothing."""
        order = np.random.default_rng(0).permutation(300)
        rows = sparse.csr_array(
            sparse.vstack([path(order[:50], 300), path(order[50:110], 300), sparse.csr_array(np.ones((1, 300)))])
        )
        losses = fpdfp.losses.LeastSquares(np.eye(300), np.ones(300), l2=0.1)
        for linop in (
            fpdfp.linops.Matrix(rows),
            fpdfp.linops.VStack([fpdfp.linops.Identity((300,)), fpdfp.linops.Matrix(rows)]),
        ):
            penalty: Any = fpdfp.penalties.L1(0.1)
            if isinstance(linop, fpdfp.linops.VStack):
                penalty = fpdfp.penalties.Stacked([penalty, penalty], [(300,), (rows.shape[0],)])
            layout = by_structure(fpdfp.Problem(losses, penalty, linop).model, 64)
            assert layout is not None
            blocks = members(layout)
            assert sum(map(len, blocks)) == 300
            for part in (order[:50], order[50:110]):
                assert any(set(part.tolist()) <= block for block in blocks)

    @pytest.mark.parametrize(("features", "size"), [(1000, 64), (20_000, 16)])
    def test_a_long_path_is_cut_into_pieces_of_itself(self, features: int, size: int) -> None:
        """Smaller ones where the server's prox would take long."""
        order = np.random.default_rng(1).permutation(features)
        linop = fpdfp.linops.Matrix(path(order))
        layout = by_structure(Model(fpdfp.penalties.L1(0.1), linop, (features,), np.dtype(np.float64)), 64)
        assert layout is not None
        assert layout.sizes.max() in (size, size - 1)
        place = np.argsort(order)
        for block in members(layout):
            along = np.sort(place[list(block)])
            assert along[-1] - along[0] == len(block) - 1

    def test_no_blocks_of_a_graph_that_is_too_dense(self) -> None:
        rows = sparse.random_array((9000, 9000), density=3 / 9000, rng=np.random.default_rng(1), format="csr")
        linop = fpdfp.linops.Matrix(rows)
        assert by_structure(Model(fpdfp.penalties.L1(0.1), linop, (9000,), np.dtype(np.float64)), 64) is None

    def test_where_nothing_is_coupled(self) -> None:
        losses = fpdfp.losses.LeastSquares(np.eye(6), np.ones(6), l2=0.1)
        diagonal = fpdfp.linops.Matrix(sparse.csr_array(np.eye(6)))
        for penalty, linop in (
            (fpdfp.penalties.L1(0.1), None),
            (fpdfp.penalties.GroupL12(0.1, groups=np.arange(6)), None),
            (fpdfp.penalties.L1(0.1), diagonal),
            (fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(6)),
        ):
            assert by_structure(fpdfp.Problem(losses, penalty, linop).model, 4) is None

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            ([0.0, 2.0, 0.0], "without gaps"),
            ([0.0, 5.0, 1.0], "without gaps"),
            ([-1.0, 0.0, 1.0], "for each feature"),
            ([np.nan, 0.0, 1.0], "for each feature"),
            ([0.0, 0.0, 0.0], "at most 2 features"),
        ],
    )
    def test_labels_that_make_no_sense(self, labels: list[float], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Layout.from_labels(np.array(labels), 2)
        with pytest.raises(ValueError, match="for each of 3 features"):
            Structure(1, 1e-6, labels=Announced.plain(np.zeros(2, dtype=np.float32))).layout(3)

    def test_labels_are_short_and_exact(self) -> None:
        layout = by_structure(grouped().model, 64)
        assert layout is not None
        again = Layout.from_labels(layout.labels.array, 64)
        np.testing.assert_array_equal(again.order, layout.order)
        np.testing.assert_array_equal(again.sizes, layout.sizes)
        assert layout.labels.bits < 6 * 400
        x = np.arange(400.0)
        np.testing.assert_array_equal(layout.restore(layout.arrange(x)), x)


def test_blocks_with_labels_are_those_of_a_permuted_matrix(rng: np.random.Generator) -> None:
    """SᵀHS is the identity for H with the blocks in the places of their features."""
    labels = np.array([1, 0, 1, 2, 0, 1, 0])
    parts = []
    for size in np.bincount(labels):
        root = rng.standard_normal((size, size))
        parts.append(root @ root.T + np.eye(size))
    order = np.argsort(labels, kind="stable")
    hessian = np.zeros((7, 7))
    hessian[np.ix_(order, order)] = linalg.block_diag(*parts)
    for rows in (None, 2):
        made = Blocks(parts, rows, labels=labels)
        u = rng.standard_normal((5, *made.shape))
        x = made.factor.apply(u)
        np.testing.assert_allclose(made.factor.adjoint(x @ hessian), u, atol=1e-5)
        np.testing.assert_allclose(made.coordinates(x), u, atol=1e-12)
        np.testing.assert_allclose(made.factor.adjoint(made.gradient(u)), u, atol=1e-12)
        assert adjoint_error(made.factor) < 1e-14
        again = Blocks.from_messages(made.announced, 7, made.size, rows)
        np.testing.assert_array_equal(again.factor.apply(u), x)
    with pytest.raises(ValueError, match="as many features of each block"):
        Blocks(parts, labels=[0, 0, 0, 1, 2, 2, 2])
    with pytest.raises(ValueError, match="at most 2 features"):
        Blocks.from_messages(made.announced, 7, 2, None)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_losses_give_blocks_of_any_features(is_sparse: bool, rng: np.random.Generator) -> None:
    X = rng.standard_normal((30, 9)) * (rng.random((30, 9)) < 0.6)
    data: Any = sparse.csr_array(X) if is_sparse else X
    losses = fpdfp.losses.Logistic(data, X[:, 0] > 0, clients=np.arange(30) % 3, l2=np.arange(9.0))
    layout = Layout(np.array([4, 2, 2, 1]), rng.permutation(9))
    clients = np.array([2, 0])
    found = losses.curvature_blocks(clients, layout.sizes, layout.order)
    whole = losses.curvatures(clients)
    assert found is not None
    assert whole is not None
    assert layout.order is not None
    for client in range(2):
        numbers = [
            whole[client][np.ix_(block, block)][np.tril_indices(len(block))]
            for block in np.split(layout.order, np.cumsum(layout.sizes)[:-1])
        ]
        np.testing.assert_allclose(found[client], np.concatenate(numbers), rtol=1e-12, atol=1e-14)


def test_blocks_of_groups_are_taken_where_they_pay() -> None:
    problem = grouped()
    result = fpdfp.solve(problem, rounds=400, tol=1e-6)
    assert result.status == "converged"
    coordinates = result.algorithm.coordinates  # type: ignore[union-attr]
    assert isinstance(coordinates, Blocks)
    assert "blocks of groups" in str(result)
    labels = problem.penalty.groups  # type: ignore[attr-defined]
    for block in members(coordinates.layout):
        assert len(np.unique(labels[list(block)])) == 1
    best = fpdfp.minimize(problem, tol=1e-9)
    assert result.objective - best.objective <= 1e-6 * best.objective
    # Clients that were asked were told the blocks, and all of them with the preconditioner.
    asked = Structure.plan(problem.model, _given(problem)).clients
    assert result.bits_once_down == 8 * coordinates.bits + asked * coordinates.announced[2].bits


def _given(problem: fpdfp.Problem) -> Any:
    from fpdfp.engines.options import RunOptions
    from fpdfp.engines.prepare import AskedClients, choose

    options = RunOptions(rounds=400, tol=1e-6)
    return AskedClients(problem, choose(problem, None, options), options).describe()


@pytest.mark.parametrize("kind", ["groups", "sparse groups"])
def test_sites_elsewhere_give_the_same_bits(kind: str) -> None:
    problem = grouped(kind=kind)
    here = fpdfp.solve(problem, rounds=4)
    assert isinstance(here.algorithm.coordinates, Blocks)  # type: ignore[union-attr]
    crew = Loopback(problem, sites=3)
    there = fpdfp.Problem(crew.losses(), problem.penalty, problem.linop, weights=problem.weights)
    away = fpdfp.solve(there, rounds=4, engine=crew)
    np.testing.assert_array_equal(here.x, away.x)
    for kind_ in ("rounds", "preconditioner"):
        assert here.traffic[kind_] == away.traffic[kind_]
