"""The prox of g∘B by dual steps, its cost, and what clients remember between rounds."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import fpdfp
from fpdfp import penalties
from fpdfp.errors import AccuracyWarning, DivergenceWarning
from fpdfp.methods import InnerSolve
from fpdfp.quadratic import statement
from fpdfp.quadratic.solve import closed_prox, dense, minimise, needs_inner
from tests import helpers


def prox(
    model: Any,
    y: Any,
    t: float,
    v: Any,
    inner: InnerSolve | None = None,
    reach: tuple[float, float] = (0.0, 1.0),
    matrix: Any = None,
) -> statement.Solution:
    return minimise(model, statement.Distance(y, t), v, inner, reach=reach, matrix=matrix)


ZOO = {name: problem for name, problem in helpers.zoo().items() if needs_inner(problem.model)}


class Distance(fpdfp.losses.OperatorLeastSquares):
    """½‖x − y‖²."""

    def __init__(self, y: Any) -> None:
        super().__init__([fpdfp.linops.Identity(y.shape)], [y], scale="sum")

    def strong_convexity(self, weights: Any) -> float:
        return 1.0


def true_prox(problem: fpdfp.Problem, y: Any, t: float) -> tuple[Any, float]:
    """The prox by another way, ½‖x − y‖² + t g(Bx) for the reference solver or for Clarabel, and how sure it is."""
    if not problem.penalty.finite:
        return nonnegative_tv(y, 0.05 * t), 1e-7
    itself = fpdfp.Problem(Distance(y), Scaled(problem.penalty, t), problem.linop)
    best = fpdfp.minimize(itself, tol=1e-10)
    assert best.certificate.gap is not None
    return best.x, float(np.sqrt(2 * best.certificate.gap))


def nonnegative_tv(y: Any, weight: float) -> Any:
    import cvxpy as cp

    rows, columns = y.shape
    gradient = fpdfp.linops.Gradient(y.shape)
    matrix = gradient.apply(np.eye(y.size).reshape(-1, rows, columns)).reshape(y.size, -1).T
    x = cp.Variable(y.size, nonneg=True)
    lengths = cp.norm(cp.reshape(matrix @ x, (2, y.size), order="C"), axis=0)
    objective = cp.Minimize(0.5 * cp.sum_squares(x - y.ravel()) + weight * cp.sum(lengths))
    cp.Problem(objective).solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return x.value.reshape(y.shape)


class Scaled(penalties.Penalty):
    """t g."""

    def __init__(self, penalty: penalties.Penalty, t: float) -> None:
        self.penalty, self.t, self.finite = penalty, t, penalty.finite

    def value(self, y: Any) -> float:
        return self.t * self.penalty.value(y)

    def prox(self, y: Any, t: float) -> Any:
        return self.penalty.prox(y, t * self.t)

    def conjugate(self, v: Any) -> float:
        return self.t * self.penalty.conjugate(v / self.t)

    def conjugate_prox(self, y: Any, sigma: float) -> Any:
        return self.t * self.penalty.conjugate_prox(y / self.t, sigma / self.t)

    def project(self, y: Any) -> Any:
        return self.penalty.project(y)

    def conjugate_prox_derivative(self, y: Any, sigma: float) -> Any:
        return self.penalty.conjugate_prox_derivative(y / self.t, sigma / self.t)


@pytest.mark.parametrize("t", [0.03, 1.0, 30.0])
@pytest.mark.parametrize("name", ZOO)
def test_it_is_the_prox(name: str, t: float, rng: np.random.Generator) -> None:
    problem = ZOO[name]
    model = problem.model
    y = rng.standard_normal((3, *model.shape))
    v = np.zeros((3, *model.dual_shape))
    exact = [true_prox(problem, point, t) for point in y]
    for tol, reach in ((1e-2, (0.0, 1.0)), (1e-5, (0.0, 1.0)), (1e-2, (1.0, 0.1)), (1e-6, (1.0, 0.1))):
        solved = prox(model, y, t, v, InnerSolve(tol, 100_000), reach)
        assert solved.work.unsolved == 0
        for u, point, (expected, radius) in zip(solved.u, y, exact, strict=True):
            allowed = tol * (reach[0] * np.linalg.norm(u) + reach[1] * np.linalg.norm(point - u))
            assert np.linalg.norm(u - expected) <= allowed + radius
        np.testing.assert_allclose(solved.u, y - t * model.linop.adjoint(solved.v), atol=1e-12)


@pytest.mark.parametrize("t", [0.03, 1.0, 30.0])
@pytest.mark.parametrize("name", ZOO)
def test_newton_steps_give_the_same_prox(name: str, t: float, rng: np.random.Generator) -> None:
    problem = ZOO[name]
    model, y = problem.model, rng.standard_normal((1, *problem.model.shape))
    for tol in (1e-2, 1e-5):
        solved = prox(model, y, t, np.zeros((1, *model.dual_shape)), InnerSolve(tol), matrix=dense(model))
        assert solved.work.unsolved == 0
        expected, radius = true_prox(problem, y[0], t)
        assert np.linalg.norm(solved.u[0] - expected) <= tol * np.linalg.norm(y[0] - solved.u[0]) + radius
        np.testing.assert_allclose(solved.u, y - t * model.linop.adjoint(solved.v), atol=1e-12)


@pytest.mark.parametrize("penalty", [penalties.L1(0.3), penalties.L1(np.linspace(0, 1, 12)), penalties.Box(-0.2, 0.1)])
@pytest.mark.parametrize("t", [0.03, 30.0])
def test_separable_penalties_of_scaled_entries_have_a_closed_form(
    penalty: penalties.Penalty, t: float, rng: np.random.Generator
) -> None:
    losses = fpdfp.losses.LeastSquares(np.eye(12), np.ones(12))
    scales = np.geomspace(0.3, 3, 12) * rng.choice([-1, 1], 12)
    model = fpdfp.Problem(losses, penalty, fpdfp.linops.Diagonal(scales)).model
    assert not needs_inner(model)
    y = rng.standard_normal((3, 12))
    u, v = closed_prox(model, y, t)
    np.testing.assert_allclose(u, y - t * model.linop.adjoint(v), atol=1e-12)
    by_steps = prox(model, y, t, np.zeros((3, 12)), InnerSolve(1e-7, 100_000))
    np.testing.assert_allclose(u, by_steps.u, atol=2e-6)
    assert needs_inner(fpdfp.Problem(losses, penalty, fpdfp.linops.Diagonal(np.arange(12.0))).model)


def test_newton_steps_do_what_dual_steps_cannot(rng: np.random.Generator) -> None:
    """Directions that differ by a factor of ten thousand: tens of thousands of dual steps, or a few Newton steps."""
    scales = np.geomspace(1e-2, 1e2, 40)
    losses = fpdfp.losses.LeastSquares(np.eye(40), np.ones(40))
    B = helpers.graph(40).toarray() @ np.linalg.qr(rng.standard_normal((40, 40)))[0] * scales
    problem = fpdfp.Problem(losses, penalties.L1(0.3), B)
    y, v = rng.standard_normal((1, 40)), np.zeros((1, 80))
    by_dual = prox(problem.model, y, 1.0, v, InnerSolve(1e-6, 1000))
    by_newton = prox(problem.model, y, 1.0, v, InnerSolve(1e-6, 1000), matrix=dense(problem.model))
    exact = prox(problem.model, y, 1.0, v, InnerSolve(1e-6, 100_000))
    assert exact.work.unsolved == 0
    assert exact.work.steps > 10_000
    assert np.linalg.norm(by_dual.u - exact.u) > 0.1
    assert np.linalg.norm(by_newton.u - exact.u) < 1e-5
    assert by_newton.work.steps < 100


def test_matrices_are_for_small_problems() -> None:
    problem = helpers.graph_guided()
    matrix = dense(problem.model)
    assert matrix is not None
    np.testing.assert_allclose(matrix.T, helpers.graph(12).toarray(), atol=1e-15)
    losses = fpdfp.losses.LeastSquares(np.eye(3), np.ones(3))
    assert dense(fpdfp.Problem(losses, penalties.L1(0.3)).model) is None
    many = fpdfp.losses.LeastSquares(scipy.sparse.eye_array(800), np.ones(800))
    assert dense(fpdfp.Problem(many, penalties.L1(0.3), fpdfp.linops.Difference(800)).model) is None


@pytest.mark.parametrize("tol", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("n", [50, 400])
def test_constraints_are_solved_as_exactly_as_asked(n: int, tol: float, rng: np.random.Generator) -> None:
    """Monotone regression, a badly conditioned constraint, against scikit-learn's exact algorithm."""
    from sklearn.isotonic import isotonic_regression

    for y in (-np.linspace(0, 1, n), rng.standard_normal(n)):
        losses = fpdfp.losses.LeastSquares(np.eye(n), y)
        model = fpdfp.Problem(losses, penalties.NonNegative(), fpdfp.linops.Difference(n)).model
        solved = prox(model, y[None], 1.0, np.zeros((1, n - 1)), InnerSolve(tol, 100_000))
        assert solved.work.unsolved == 0
        assert np.linalg.norm(solved.u[0] - isotonic_regression(y)) <= tol * np.linalg.norm(y - solved.u[0])


@pytest.mark.parametrize("size", [1e-140, 1e-80, 1e80, 1e140])
def test_it_does_not_depend_on_the_units(size: float, rng: np.random.Generator) -> None:
    losses = fpdfp.losses.LeastSquares(np.eye(6), np.ones(6))
    y, v = rng.standard_normal((2, 6)), np.zeros((2, 5))

    def solve(units: float) -> Any:
        model = fpdfp.Problem(losses, penalties.L1(0.3 * units), fpdfp.linops.Difference(6)).model
        return prox(model, units * y, 1.0, v, InnerSolve(1e-6))

    plain, scaled = solve(1.0), solve(size)
    np.testing.assert_allclose(scaled.u / size, plain.u, rtol=1e-9, atol=1e-12)
    assert scaled.work == plain.work


def test_clients_do_not_depend_on_one_another(rng: np.random.Generator) -> None:
    for problem in ZOO.values():
        model = problem.model
        y = rng.standard_normal((4, *model.shape)) * np.array([0.1, 1, 10, 0]).reshape(-1, *[1] * len(model.shape))
        v = 0.01 * rng.standard_normal((4, *model.dual_shape))
        together = prox(model, y, 0.5, v, InnerSolve(1e-5))
        alone = [prox(model, y[[i]], 0.5, v[[i]], InnerSolve(1e-5)) for i in range(4)]
        np.testing.assert_array_equal(together.u, np.concatenate([one.u for one in alone]))
        np.testing.assert_array_equal(together.v, np.concatenate([one.v for one in alone]))
        assert together.work.steps == sum(one.work.steps for one in alone)


def test_closed_forms_cost_nothing(rng: np.random.Generator) -> None:
    y, v = rng.standard_normal((3, 12)), np.zeros((3, 24))
    graph = helpers.graph_guided().model
    assert prox(graph, y, 0.0, v, InnerSolve()).u is y
    zero = fpdfp.Problem(helpers.graph_guided().losses, penalties.Zero(), helpers.graph(12)).model
    assert prox(zero, y, 1.0, v, InnerSolve()).u is y
    lasso = fpdfp.Problem(helpers.graph_guided().losses, penalties.L1(0.3)).model
    np.testing.assert_array_equal(prox(lasso, y, 2.0, v).u, lasso.penalty.prox(y, 2.0))


def test_a_start_that_is_good_enough_takes_no_step(rng: np.random.Generator) -> None:
    model = helpers.graph_guided().model
    y = rng.standard_normal((3, 12))
    first = prox(model, y, 0.5, np.zeros((3, 24)), InnerSolve(1e-4))
    again = prox(model, y, 0.5, first.v, InnerSolve(1e-4))
    assert first.work.steps > 0
    assert again.work.steps == 0
    np.testing.assert_array_equal(again.u, first.u)


METHODS: dict[str, Any] = {
    "FedMiD": fpdfp.FedMiD(local_steps=2, batch_size=8, inner=InnerSolve(1e-4)),
    "FedMiD, server prox": fpdfp.FedMiD(step=0.1, server_prox=True, inner=InnerSolve(1e-4)),
    "FedDualAvg": fpdfp.FedDualAvg(local_steps=2, batch_size=8, inner=InnerSolve(1e-4)),
    "FastFedDualAvg": fpdfp.FastFedDualAvg(local_steps=2, restarts=(7,), inner=InnerSolve(1e-4)),
    "FedProx": fpdfp.FedProx(0.3, local_steps=50, inexactness=0.2, penalty="ignore"),
    "FPDFP": fpdfp.FPDFP(local_steps=3, batch_size=8),
    "ShiftedPDFP": fpdfp.ShiftedPDFP(),
    "ShiftedPDFP, moments": fpdfp.ShiftedPDFP(preconditioner="moments"),
    "ShiftedPDFP, diagonal": fpdfp.ShiftedPDFP(preconditioner="diagonal", dual_steps=1),
    "FedAvg": fpdfp.FedAvg(local_steps=3, batch_size=8, penalty="subgradient"),
    "SCAFFOLD": fpdfp.Scaffold(local_steps=3, batch_size=8, penalty="subgradient"),
    "FedADMM": fpdfp.FedADMM(local_steps=3, batch_size=8, penalty="subgradient"),
    "FedDR": fpdfp.FedDR(relaxation=1.5, inner=InnerSolve(1e-4)),
    "FedDecoupledProx": fpdfp.FedDecoupledProx(local_steps=3, batch_size=8, inner=InnerSolve(1e-4)),
    "SVRG-PDFP": fpdfp.SVRGPDFP(batch_size=8, epoch=5),
}


@pytest.mark.parametrize("name", METHODS)
def test_replies_and_memory_do_not_depend_on_who_else_takes_part(name: str) -> None:
    problem = helpers.graph_guided(weights="samples")
    seen: list[Any] = []
    fpdfp.solve(
        problem, METHODS[name], rounds=4, callbacks=[lambda run: seen.append((run.algorithm, run.state, run.memory))]
    )
    method, state, memory = seen[-1]
    clients = np.arange(5)
    message = method.broadcast(state)

    def update(who: Any) -> Any:
        kept = type(memory)(*(array[who] for array in memory)) if memory else ()
        return method.client_update(problem.local(who, kept), message, 4, fpdfp.rng.Draws(1, 4, who))

    together, alone = update(clients), [update(clients[[i]]) for i in clients]
    for part in ("reply", "memory"):
        for field, arrays in enumerate(getattr(together, part)):
            np.testing.assert_array_equal(arrays, np.concatenate([getattr(one, part)[field] for one in alone]))
    assert together.work.steps == sum(one.work.steps for one in alone)


@pytest.mark.parametrize("name", METHODS)
def test_resuming_gives_the_bits_of_an_uninterrupted_run(name: str, tmp_path: Path) -> None:
    problem, path = helpers.graph_guided(), tmp_path / "run.npz"
    n = 3 if METHODS[name].traits.partial_participation else None
    arguments: dict[str, Any] = {"clients_per_round": n, "seed": 5, "evaluate_every": 4}
    whole = fpdfp.solve(problem, METHODS[name], rounds=20, **arguments)
    for stop in (1, 7):

        def end(run: fpdfp.Run, stop: int = stop) -> bool:
            return run.round == stop

        fpdfp.solve(problem, METHODS[name], rounds=20, checkpoint=path, callbacks=[end], **arguments)
        resumed = fpdfp.solve(problem, METHODS[name], rounds=20, resume=path, **arguments)
        np.testing.assert_array_equal(resumed.x, whole.x)
        assert list(resumed.history) == list(whole.history)
        for column in set(whole.history) - {"seconds"}:
            np.testing.assert_array_equal(resumed.history[column], whole.history[column])


def test_the_history_shows_what_inner_solves_cost() -> None:
    problem = helpers.graph_guided()
    cheap, dear = (
        fpdfp.solve(problem, fpdfp.FedDualAvg(local_steps=2, inner=InnerSolve(tol)), rounds=20).history
        for tol in (1e-2, 1e-5)
    )
    assert 0 < cheap.inner_clients[-1] < dear.inner_clients[-1]
    assert 0 < cheap.inner_server[-1] < dear.inner_server[-1]
    assert (np.diff(dear.inner_clients) >= 0).all()
    assert dear.inner_unsolved.tolist() == [0] * dear.rows
    assert "inner_clients" not in fpdfp.solve(problem, fpdfp.FPDFP(), rounds=2).history
    lasso = fpdfp.Problem(problem.losses, penalties.L1(0.1))
    assert "inner_clients" not in fpdfp.solve(lasso, fpdfp.FedMiD(inner=InnerSolve()), rounds=2).history


def test_what_clients_remember_makes_the_next_solve_cheaper() -> None:
    problem = helpers.graph_guided()
    clients = np.arange(5)

    def compare(run: fpdfp.Run) -> None:
        if run.round < 20:
            return
        message = run.algorithm.broadcast(run.state)
        warm, cold = (
            run.algorithm.client_update(
                problem.local(clients, memory), message, 20, fpdfp.rng.Draws(0, 20, clients)
            ).work.steps
            for memory in (run.memory, run.algorithm.init_memory(5))  # type: ignore[attr-defined]
        )
        assert warm < 0.7 * cold

    fpdfp.solve(problem, fpdfp.FedMiD(inner=InnerSolve(1e-3)), rounds=20, callbacks=[compare])


def test_only_those_who_take_part_remember() -> None:
    problem = helpers.graph_guided()
    seen: list[Any] = []
    fpdfp.solve(
        problem, fpdfp.FedMiD(inner=InnerSolve(1e-3)), rounds=1, clients_per_round=2, seed=1,
        callbacks=[lambda run: seen.append(run.memory.v)],
    )  # fmt: skip
    remembered = np.flatnonzero(np.abs(seen[0]).sum(axis=1)).tolist()
    assert remembered == fpdfp.rng.choose_clients(1, 0, 5, 2).tolist()


def test_fedprox_stops_when_its_solve_is_exact_enough() -> None:
    """Each client's steps, and the definition of an inexact solution, by hand."""
    problem = fpdfp.Problem(helpers.graph_guided().losses, penalties.Zero())
    gamma, rho, inexactness = 0.2, 0.5, 0.1
    method = fpdfp.FedProx(rho, gamma, local_steps=1000, inexactness=inexactness)
    x_k = np.linspace(-1, 1, 12)
    result = fpdfp.solve(problem, method, rounds=1, x0=x_k)
    steps, ends = 0, []
    for i in range(5):
        x, only = x_k, np.array([i])
        enough = inexactness * np.linalg.norm(problem.losses.gradients(x_k, only)[0])
        while np.linalg.norm(slope := problem.losses.gradients(x, only)[0] + rho * (x - x_k)) > enough:
            x, steps = x - gamma * slope, steps + 1
        ends.append(x)
    np.testing.assert_allclose(result.x, np.mean(ends, axis=0), atol=1e-14)
    assert result.history.inner_clients.tolist() == [0, steps]
    assert result.history.inner_unsolved.tolist() == [0, 0]
    with pytest.warns(AccuracyWarning, match="5 inner solves ended before"):
        result = fpdfp.solve(problem, fpdfp.FedProx(rho, gamma, local_steps=2, inexactness=1e-6), rounds=1)
    assert result.history.inner_unsolved.tolist() == [0, 5]


def test_fedprox_does_not_take_nan_for_a_solution() -> None:
    def gradient(i: int, x: Any) -> Any:
        return x - i if abs(x).max() < 0.5 else np.full(3, np.nan)

    losses = fpdfp.losses.Custom(
        lambda i, x: 0.5 * float(np.sum((x - i) ** 2)), gradient, n_clients=3, shape=(3,), lipschitz=1.0
    )
    problem = fpdfp.Problem(losses, penalties.Zero())
    with pytest.warns(DivergenceWarning):
        result = fpdfp.solve(problem, fpdfp.FedProx(0.1, local_steps=3, inexactness=0.1), rounds=100)
    assert result.status == "diverged"
    assert np.isfinite(result.x).all()


@pytest.mark.parametrize("size", [1e-12, 1e10])
def test_fedprox_in_single_precision_does_not_depend_on_the_units(size: float) -> None:
    """Squares of its gradients would be too large or too small for a float32."""
    X, y, owner = helpers.classification()
    losses = fpdfp.losses.LeastSquares((size * X).astype(np.float32), (size * y).astype(np.float32), clients=owner)
    problem = fpdfp.Problem(losses, penalties.Zero())
    rho = 0.01 * float(problem.lipschitz.mean())
    result = fpdfp.solve(problem, fpdfp.FedProx(rho, local_steps=100, inexactness=0.1), rounds=100)
    expected = np.linalg.lstsq(X, y, rcond=None)[0]
    assert np.linalg.norm(result.x - expected) < 0.2 * np.linalg.norm(expected)


def test_chambolle_pock_in_single_precision_knows_what_rounding_allows() -> None:
    X, y, _ = helpers.classification(clients=1)
    losses = fpdfp.losses.LeastSquares(X.astype(np.float32), y.astype(np.float32), l2=0.1)
    history = fpdfp.solve(
        fpdfp.Problem(losses, penalties.L1(0.1), fpdfp.linops.Difference(12)), fpdfp.ChambollePock(), rounds=50
    ).history
    assert history.inner_unsolved[-1] == 0
    assert history.inner_clients[-1] < 50 * 200


def test_ctrl_c_while_a_round_is_made_to_count_loses_nothing(tmp_path: Path) -> None:
    """A second Ctrl-C can come at any line; the checkpoint then written is of a whole round."""
    problem, path = helpers.graph_guided(), tmp_path / "run.npz"
    method = fpdfp.FedMiD(inner=InnerSolve(1e-4))
    whole = fpdfp.solve(problem, method, rounds=12)

    class Breaking(np.ndarray):  # type: ignore[type-arg]
        armed = False

        def __setitem__(self, where: Any, values: Any) -> None:
            if Breaking.armed:
                Breaking.armed = False
                raise KeyboardInterrupt
            super().__setitem__(where, values)

    def arm(run: fpdfp.Run) -> None:
        if run.round == 5:
            run.memory = type(run.memory)(*(array.view(Breaking) for array in run.memory))
            Breaking.armed = True

    with pytest.raises(KeyboardInterrupt):
        fpdfp.solve(problem, method, rounds=12, checkpoint=path, callbacks=[arm])
    resumed = fpdfp.solve(problem, method, rounds=12, resume=path)
    np.testing.assert_array_equal(resumed.x, whole.x)
    np.testing.assert_array_equal(resumed.history.inner_clients, whole.history.inner_clients)


def test_what_inner_solves_cost_is_that_of_the_rounds_that_count() -> None:
    """After a divergence, state, bits and work are those of the last good round."""
    problem = fpdfp.Problem(helpers.graph_guided().losses, penalties.L1(0.1), fpdfp.linops.Difference(12))
    runs: list[fpdfp.Run] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        method = fpdfp.FedMiD(1e6, inner=InnerSolve(1e-8, 3))
        result = fpdfp.solve(problem, method, rounds=2000, evaluate_every=50, callbacks=[runs.append])
    assert result.status == "diverged"
    assert runs[-1].work.steps == result.history.inner_clients[-1]
