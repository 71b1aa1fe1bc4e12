"""Preconditioners for many features: blocks of neighbours and steep directions, and which of them is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import linalg, sparse

import fpdfp
from fpdfp.engines import working_set
from fpdfp.linops.base import adjoint_error
from fpdfp.precondition import Blocks, LowRank, structure
from fpdfp.precondition.expected import expect
from fpdfp.precondition.layout import Layout
from fpdfp.precondition.seen import Seen, columns_of, directions
from fpdfp.precondition.structure import Structure
from fpdfp.problem import Model
from fpdfp.rng import Draws, Purpose
from tests.loopback import Loopback


def neighbours(d: int = 600, rows: int = 2000, clients: int = 8) -> fpdfp.Problem:
    """Features whose neighbours are alike."""
    generator = np.random.default_rng(0)
    X = generator.standard_normal((rows, d))
    for j in range(1, d):
        X[:, j] = 0.95 * X[:, j - 1] + np.sqrt(1 - 0.95**2) * X[:, j]
    y = (X[:, :5].sum(axis=1) + generator.standard_normal(rows) > 0).astype(float)
    loss = fpdfp.losses.Logistic(X, y, clients=np.arange(rows) % clients, l2=1e-3)
    return fpdfp.Problem(loss, fpdfp.penalties.L1(0.02))


def counts(d: int = 400, rows: int = 1200, clients: int = 6, classes: int | None = None) -> fpdfp.Problem:
    """Counts with a common mean and some topics, in no order: a few steep directions."""
    generator = np.random.default_rng(1)
    often = generator.permutation(1.0 / np.arange(1, d + 1))
    topics = often * generator.lognormal(0, 1.5, (4, d))
    mix = generator.dirichlet(np.full(4, 0.3), rows)
    means = mix @ (topics / topics.sum(axis=1, keepdims=True)) * 60
    X = sparse.csr_array(generator.poisson(means).astype(float))
    if classes is not None:
        loss: Any = fpdfp.losses.Softmax(X, mix.argmax(axis=1) % classes, clients=np.arange(rows) % clients, l2=1e-3)
    else:
        loss = fpdfp.losses.Logistic(X, mix[:, 0] > 0.3, clients=np.arange(rows) % clients, l2=1e-3)
    return fpdfp.Problem(loss, fpdfp.penalties.L1(0.02))


def positive(rng: np.random.Generator, size: int) -> Any:
    root = rng.standard_normal((size, size))
    return root @ root.T + np.eye(size)


class TestPreconditioners:
    """That they are what they say."""

    @pytest.mark.parametrize("rows", [None, 2])
    def test_blocks_are_whitened(self, rows: int | None, rng: np.random.Generator) -> None:
        parts = [positive(rng, 4), positive(rng, 4), positive(rng, 3)]
        made = Blocks(parts, rows)
        assert made.shape == ((11,) if rows is None else (2, 11))
        hessian = linalg.block_diag(*parts)
        u = rng.standard_normal((5, *made.shape))
        x = made.factor.apply(u)
        np.testing.assert_allclose(made.factor.adjoint(x @ hessian), u, atol=1e-6)
        np.testing.assert_allclose(made.coordinates(x), u, atol=1e-12)
        np.testing.assert_allclose(made.factor.adjoint(made.gradient(u)), u, atol=1e-12)
        assert adjoint_error(made.factor) < 1e-14

    @pytest.mark.parametrize("rows", [None, 3])
    def test_steep_directions_are_flattened(self, rows: int | None, rng: np.random.Generator) -> None:
        """SᵀHS is the identity for H = I + U diag(λ − 1) Uᵀ, up to the rounding of U."""
        basis, ratios = np.linalg.qr(rng.standard_normal((30, 3)))[0], np.array([9.0, 4.0, 2.0])
        made = LowRank(basis, ratios, rows)
        u = rng.standard_normal((5, *made.shape))
        x = made.factor.apply(u)
        image = x + ((x @ basis) * (ratios - 1.0)) @ basis.T
        np.testing.assert_allclose(made.factor.adjoint(image), u, atol=0.3)
        np.testing.assert_allclose(made.coordinates(x), u, atol=1e-12)
        np.testing.assert_allclose(made.factor.adjoint(made.gradient(u)), u, atol=1e-12)
        assert adjoint_error(made.factor) < 1e-14
        assert np.linalg.norm(x) ** 2 <= made.factor.squared_norm * np.linalg.norm(u) ** 2

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Blocks([]), "square matrices, at least one"),
            (lambda: Blocks([np.eye(2), np.eye(3)]), "of one size, but for the last"),
            (lambda: Blocks([-np.eye(2)]), "positive definite"),
            (lambda: Blocks([np.eye(2), np.array([[2.0, 1.0], [0.0, 2.0]])]), "hessians must be symmetric"),
            (lambda: Blocks([np.eye(2)], labels=[0.4, 0.4]), "labels must be whole numbers"),
            (lambda: Blocks.from_messages(Blocks([np.eye(2)]).announced, 3, 2, None), "triangles of 3 features"),
            (lambda: LowRank(np.eye(3, 2), [1.0]), "one number for each"),
            (lambda: LowRank(np.eye(3, 2), [1.0, 0.5]), "ratios must be at least 1, got 0.5"),
            (lambda: LowRank(np.eye(3, 0), []), "directions must be columns"),
            (lambda: LowRank(np.ones((3, 2)), [2.0, 2.0]).factor, "directions must be independent"),
            (lambda: Structure(0, 1e-6), "clients must be an integer of at least 1"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, make: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize("make", [neighbours, counts, lambda: counts(classes=3)])
def test_losses_give_parts_of_their_bounds(make: Any) -> None:
    """Blocks, products, diagonals and constants are those of the whole matrices."""
    problem = make()
    losses, clients = problem.losses, np.array([0, 1, 4])
    whole = losses.curvatures(clients)
    d = whole.shape[-1]
    layout = Layout.by_index(d, 64)
    triangles = losses.curvature_blocks(clients, layout.sizes)
    assert triangles.shape == (3, layout.count_numbers)
    for group in layout.groups:
        for client in range(3):
            for block, found in enumerate(group.read_symmetric(triangles[client])):
                here = slice(group.feature + block * group.size, group.feature + (block + 1) * group.size)
                np.testing.assert_allclose(found, whole[client, here, here], atol=1e-12)
    vectors = directions(d)
    np.testing.assert_allclose(losses.curvature_products(clients, vectors), vectors @ whole, atol=1e-12)
    np.testing.assert_allclose(losses.curvature_diagonals(clients), np.diagonal(whole, axis1=1, axis2=2), atol=1e-12)


def test_constants_need_no_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power steps, and bounds for very many clients, are near what matrices give, and never far below."""
    losses = neighbours(d=100).losses
    made = Blocks([np.eye(40), 2 * np.eye(40), np.eye(20)])
    dense = losses.lipschitz_in(made.factor)
    power = losses._power_norms(made.factor)  # type: ignore[attr-defined]
    np.testing.assert_allclose(power, dense, rtol=1e-6)
    monkeypatch.setattr("fpdfp.losses._linear.MANY", 1)
    many = losses.lipschitz_in(made.factor)
    assert (many > 0.9 * dense).all()
    assert (many < 1.1 * dense).all()


def asked(problem: fpdfp.Problem, clients: int = 4) -> tuple[Structure, Any]:
    """What the server makes of what some clients send."""
    question = Structure(clients, 1e-6)
    who = question.draw_clients(problem.n_clients, 0)
    sent, messages = question.gather(problem.model, problem.local(who)), question.messages(problem.model)
    decoded = type(sent)(*(
        messages[name][0].compress(array, Draws(0, 0, who), Purpose.ONCE + field).values
        for field, (name, array) in enumerate(zip(sent._fields, sent, strict=True))
    ))  # fmt: skip
    return question, question.add_up(decoded, np.arange(len(who)))


def test_a_sketch_finds_steep_directions() -> None:
    """The steepest is found, and its curvature; blocks and directions together explain most of the moments."""
    problem = counts()
    question, sums = asked(problem, 6)
    seen = Seen(question._mean(sums, 6, (0, 1)), question.layout(problem.model.shape[-1]), problem.model)
    hessian = problem.losses.curvatures(np.arange(6)).mean(axis=0)  # type: ignore[union-attr]
    values, vectors = np.linalg.eigh(hessian)
    assert abs(vectors[:, -1] @ seen.steep[:, 0]) > 0.98
    assert 0.7 * values[-1] < seen.curvatures[0] < 1.1 * values[-1]
    assert seen.missed < 0.3


def test_what_is_between_far_features_is_missed() -> None:
    """100 groups of six features, alike and far from each other: neither blocks nor few directions show them."""
    generator = np.random.default_rng(0)
    common = np.tile(generator.standard_normal((2000, 100)), 6)
    X = np.sqrt(0.9) * common + np.sqrt(0.1) * generator.standard_normal((2000, 600))
    loss = fpdfp.losses.Logistic(X, X[:, 0] > 0, clients=np.arange(2000) % 8, l2=1e-3)
    near, far = (
        Seen(question._mean(sums, 4, (0, 1)), question.layout(problem.model.shape[-1]), problem.model).missed
        for problem in (neighbours(), fpdfp.Problem(loss, fpdfp.penalties.L1(0.02)))
        for question, sums in [asked(problem)]
    )
    assert near < 0.1
    assert far > structure.MISSED


@pytest.mark.parametrize(("make", "kind"), [(neighbours, Blocks), (lambda: counts(d=990), LowRank)])
def test_the_better_one_is_taken(make: Any, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of all features: of the few that a run begins with otherwise, all second moments are affordable.
    monkeypatch.setattr(working_set, "FEWEST", 10**9)
    problem = make()
    result = fpdfp.solve(problem, rounds=300, tol=1e-6)
    assert isinstance(result.algorithm.coordinates, kind)  # type: ignore[union-attr]
    assert result.status == "converged"
    assert "predicted to 1e-06" in str(result)
    plain = fpdfp.solve(
        problem, fpdfp.ShiftedPDFP(), rounds=300, tol=1e-6, compressor=fpdfp.QSGD(5, norm="max"),
        downlink=fpdfp.QSGD(31, norm="max"),
    )  # fmt: skip
    assert result.rounds < 0.6 * plain.rounds


def test_each_class_gets_the_same() -> None:
    problem = counts(classes=3)
    result = fpdfp.solve(problem, rounds=100)
    assert result.algorithm.coordinates.shape == (3, 400)  # type: ignore[union-attr]
    assert result.objective < 0.7 * problem.objective(np.zeros((3, 400)))


@pytest.mark.parametrize("make", [neighbours, counts])
def test_sites_elsewhere_give_the_same_bits(make: Any) -> None:
    problem = make()
    here = fpdfp.solve(problem, rounds=4)
    crew = Loopback(problem, sites=3)
    there = fpdfp.Problem(crew.losses(), problem.penalty, problem.linop, weights=problem.weights)
    away = fpdfp.solve(there, rounds=4, engine=crew)
    np.testing.assert_array_equal(here.x, away.x)
    assert (here.bits_once_up, here.bits_once_down) == (away.bits_once_up, away.bits_once_down)
    assert (here.bits_up, here.bits_down) == (away.bits_up, away.bits_down)


@pytest.mark.parametrize("rows", [40, 60, 61])
def test_as_many_rows_as_features(rows: int) -> None:
    generator = np.random.default_rng(0)
    X = generator.standard_normal((rows, 60))
    y = (X @ generator.standard_normal(60) + generator.standard_normal(rows) > 0).astype(float)
    loss = fpdfp.losses.Logistic(X, y, clients=np.arange(rows) % 4, l2=1e-4)
    result = fpdfp.solve(fpdfp.Problem(loss, fpdfp.penalties.L1(1e-3)), rounds=300, tol=1e-6)
    assert result.status == "converged"


def test_sums_are_the_same_a_few_clients_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = neighbours(d=40)
    whole = fpdfp.solve(problem, rounds=3, prefer="rounds").x
    monkeypatch.setattr("fpdfp.engines.prepare.ASKED", 3 * 40**2)
    np.testing.assert_allclose(fpdfp.solve(problem, rounds=3, prefer="rounds").x, whole, rtol=1e-9)


def test_coordinates_of_unit_vectors_a_few_at_a_time() -> None:
    """The same bits as all at once, and as those of the first of several rows."""
    rng = np.random.default_rng(0)
    features = np.sort(rng.choice(90, 70, replace=False))
    for rows in (None, 3):
        made = LowRank(rng.standard_normal((90, 2)), [4.0, 2.0], None)
        several = LowRank.from_messages(made.announced, rows)
        x = np.zeros((70, *several.shape))
        x.reshape(70, -1, 90)[np.arange(70), 0, features] = 1.0
        np.testing.assert_array_equal(columns_of(made, features), several.coordinates(x).reshape(70, -1, 90)[:, 0])


def test_what_the_penalty_leaves_and_how_it_curves(rng: np.random.Generator) -> None:
    """The Hessian of a group norm at x is c/‖x‖ times the projection across x."""
    d, weight = 12, 0.4
    root = rng.standard_normal((d, d))
    hessian = root @ root.T + np.eye(d)
    labels = np.repeat(np.arange(3), 4)
    b = np.where(labels == 1, 0.01, 3.0) * rng.standard_normal(d)
    hessian[np.ix_(labels == 1, labels != 1)] = hessian[np.ix_(labels != 1, labels == 1)] = 0.0
    penalty = fpdfp.penalties.GroupL12(weight, groups=np.append(labels, 3))
    model = Model(penalty, fpdfp.linops.Identity((d + 1,)), (d + 1,), np.dtype(np.float64))
    found = expect(model, np.arange(d), hessian, b[None])
    np.testing.assert_array_equal(found.free, np.flatnonzero(labels != 1))
    x = found.x[:4, 0]
    length = np.linalg.norm(x)
    across = weight / length * (np.eye(4) - np.outer(x, x) / length**2)
    np.testing.assert_allclose(found.curvature[:4, :4], across, atol=1e-4)
    np.testing.assert_allclose(found.curvature[:4, 4:], 0.0, atol=1e-9)
    plain = expect(model._replace(penalty=fpdfp.penalties.L1(weight)), np.arange(d), hessian, b[None])
    assert len(plain.free) == d
    np.testing.assert_allclose(hessian @ plain.x[:, 0], b)
    assert not plain.curvature.any()
