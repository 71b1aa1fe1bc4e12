"""Preconditioners for many features: a diagonal from all clients and steep directions, and which of them is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

import fpdfp
from fpdfp.engines import working_set
from fpdfp.linops.base import adjoint_error
from fpdfp.precondition import LowRank, QuantizedMoments, Scaling
from fpdfp.precondition.partial import PartialMoments, Sent, Sketch, directions
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


class TestPreconditioners:
    """That they are what they say."""

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
            (lambda: LowRank(np.eye(3, 2), [1.0]), "one number for each"),
            (lambda: LowRank(np.eye(3, 2), [1.0, 0.5]), "ratios must be at least 1, got 0.5"),
            (lambda: LowRank(np.eye(3, 0), []), "directions must be columns"),
            (lambda: LowRank(np.ones((3, 2)), [2.0, 2.0]).factor, "directions must be independent"),
            (lambda: Sketch(0), "clients must be an integer of at least 1"),
        ],
    )
    def test_what_makes_no_sense_is_refused(self, make: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize("make", [neighbours, counts, lambda: counts(classes=3)])
def test_losses_give_parts_of_their_bounds(make: Any) -> None:
    """Products and diagonals are those of the whole matrices."""
    problem = make()
    losses, clients = problem.losses, np.array([0, 1, 4])
    whole = losses.curvatures(clients)
    d = whole.shape[-1]
    vectors = directions(d)
    np.testing.assert_allclose(losses.curvature_products(clients, vectors), vectors @ whole, atol=1e-12)
    np.testing.assert_allclose(losses.curvature_diagonals(clients), np.diagonal(whole, axis1=1, axis2=2), atol=1e-12)


def test_constants_need_no_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Power steps, and bounds for very many clients, are near what matrices give, and never far below."""
    losses = neighbours(d=100).losses
    made = LowRank(np.random.default_rng(0).standard_normal((100, 3)), [4.0, 3.0, 2.0])
    dense = losses.lipschitz_in(made.factor)
    power = losses._power_norms(made.factor)  # type: ignore[attr-defined]
    np.testing.assert_allclose(power, dense, rtol=1e-6)
    monkeypatch.setattr("fpdfp.losses.linear.MANY", 1)
    many = losses.lipschitz_in(made.factor)
    assert (many > 0.9 * dense).all()
    assert (many < 1.1 * dense).all()


def asked(problem: fpdfp.Problem, clients: int = 4) -> PartialMoments:
    """What the server makes of what clients send."""
    everyone, question = np.arange(problem.n_clients), Sketch(clients)
    sizes = QuantizedMoments(0).answer(problem.local(everyone)).sizes
    who = question.draw_clients(problem.n_clients, 0)
    sent, messages = question.answer(problem.local(who)), question.messages(problem.model.shape)
    decoded = type(sent)(*(
        messages[name][0].compress(array, Draws(0, 0, who), Purpose.ONCE + field).values
        for field, (name, array) in enumerate(zip(sent._fields, sent, strict=True))
    ))  # fmt: skip
    sums = question.add_up(decoded, np.arange(len(who)))
    return PartialMoments(sizes.mean(axis=0), Sent(*(one / len(who) for one in sums)), len(who), problem.model)


def test_a_sketch_finds_steep_directions() -> None:
    """The steepest is found, and its curvature."""
    problem = counts()
    parts = asked(problem, 6)
    hessian = problem.losses.curvatures(np.arange(6)).mean(axis=0)  # type: ignore[union-attr]
    values, vectors = np.linalg.eigh(hessian)
    assert abs(vectors[:, -1] @ parts.steep[:, 0]) > 0.98
    assert 0.7 * values[-1] < parts.curvatures[0] < 1.1 * values[-1]


def test_a_metric_is_that_of_the_coordinates(rng: np.random.Generator) -> None:
    features = np.array([0, 3, 7])
    for made in (LowRank(rng.standard_normal((9, 2)), [4.0, 2.0]), Scaling(1.0 + rng.random(9))):
        images = made.coordinates(np.eye(9))
        np.testing.assert_allclose(made.metric(features), (images @ images.T)[np.ix_(features, features)], atol=1e-12)


def heavy(d: int = 300, rows: int = 1200, clients: int = 10) -> fpdfp.Problem:
    """Features with heavy tails: those of a few clients say little of those of the others."""
    generator = np.random.default_rng(0)
    X = generator.standard_t(2, (rows, d))
    y = (X[:, :10].sum(axis=1) + generator.standard_normal(rows) > 0).astype(float)
    loss = fpdfp.losses.Logistic(X, y, clients=np.arange(rows) % clients, l2=1e-3)
    return fpdfp.Problem(loss, fpdfp.penalties.GroupL12(0.02, groups=np.arange(d) // 3))


def test_heavy_tails_get_a_diagonal_from_all_clients() -> None:
    problem = heavy()
    result = fpdfp.solve(problem, rounds=600, tol=1e-5)
    assert result.status == "converged"
    coordinates = result.algorithm.coordinates  # type: ignore[union-attr]
    assert isinstance(coordinates, Scaling)
    assert "the diagonal, with a sketch of 5 of 10 clients" in str(result)
    everyone = problem.losses.curvature_diagonals(np.arange(10)).mean(axis=0)  # type: ignore[union-attr]
    ratios = 1.0 / coordinates.factor.factors**2 / everyone
    assert ratios.min() > 0.7
    assert ratios.max() < 2.0 * np.sqrt(2.0)
    plain = fpdfp.solve(
        problem, fpdfp.ShiftedPDFP(), rounds=600, tol=1e-5, compressor=fpdfp.QSGD(5, norm="max"),
        downlink=fpdfp.QSGD(31, norm="max"),
    )  # fmt: skip
    assert plain.status != "converged" or result.rounds < 0.7 * plain.rounds


@pytest.mark.parametrize(("make", "kind"), [(neighbours, LowRank), (lambda: counts(d=990), LowRank)])
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
    monkeypatch.setattr("fpdfp.cohorts.local.LocalClients.at_once", 3 * 40**2)
    np.testing.assert_allclose(fpdfp.solve(problem, rounds=3, prefer="rounds").x, whole, rtol=1e-9)


def test_differences_along_a_graph_come_to_rest() -> None:
    rng = np.random.default_rng(0)
    d, rows = 400, 1600
    X = rng.standard_normal((rows, d))
    for j in range(1, d):
        X[:, j] = 0.95 * X[:, j - 1] + np.sqrt(1 - 0.95**2) * X[:, j]
    y = (X[:, :20].sum(axis=1) * 0.3 + rng.standard_normal(rows) > 0).astype(float)
    order = rng.permutation(d)
    place = np.argsort(order)
    ends = np.stack([place[:-1], place[1:]], axis=1).ravel()
    B = sparse.csr_array((np.tile([-1.0, 1.0], d - 1), ends, 2 * np.arange(d)), (d - 1, d))
    losses = fpdfp.losses.Logistic(X[:, order], y, clients=np.arange(rows) % 8, l2=1e-3)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.05), fpdfp.linops.Matrix(B))
    rounds = {}
    for wanted in ("auto", None):
        method = fpdfp.ShiftedPDFP(preconditioner=wanted)  # type: ignore[arg-type]
        result = fpdfp.solve(problem, method, rounds=300, tol=1e-5, progress=False)
        assert result.status == "converged"
        rounds[wanted] = result.rounds
    assert 1.2 * rounds["auto"] < rounds[None]


@pytest.mark.parametrize("method", [None, fpdfp.ShiftedPDFP(preconditioner=QuantizedMoments(15))])
def test_few_rows_in_different_units_do_not_diverge(method: Any) -> None:
    # Dual steps alone were so far from the prox in the coordinates of a whitening that the objective grew 20 times.
    rng = np.random.default_rng(0)
    n, d = 60, 346
    X = rng.standard_normal((n, d))
    for j in range(1, d):
        X[:, j] = 0.9 * X[:, j - 1] + 0.44 * X[:, j]
    X *= 10.0 ** rng.uniform(-2, 2, d)
    y = X @ (rng.standard_normal(d) * (rng.random(d) < 0.1))
    y /= y.std()
    penalty = fpdfp.penalties.GroupL12(0.03 * float(np.abs(X.T @ y).max()) / n, groups=rng.permutation(d) // 2)
    problem = fpdfp.Problem(fpdfp.losses.LeastSquares(X, y, clients=np.arange(n) % 4), penalty)
    result = fpdfp.solve(problem, method, rounds=300, tol=1e-4)
    assert result.status == "converged"
    assert result.objective <= (1.0 + 1e-4) * fpdfp.minimize(problem, tol=1e-6).objective
