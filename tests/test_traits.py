"""What the methods declare is true, is checked before a run, and is what the docs say."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import methods, penalties
from fpdfp.compress import TopK
from fpdfp.errors import AccuracyWarning, StepTooLargeWarning
from fpdfp.methods import table
from tests import helpers

ROOT = Path(__file__).parents[1]
PUBLIC = [kind for kind in vars(methods).values() if isinstance(kind, type) and issubclass(kind, methods.Method)]
METHODS = [kind for kind in PUBLIC if kind is not methods.Method]


def make(kind: Any, **arguments: Any) -> Any:
    return kind(rho=0.5, **arguments) if kind is fpdfp.FedProx else kind(**arguments)


def problem_for(kind: Any) -> fpdfp.Problem:
    """A problem of the largest class that the method declares."""
    clients = 1 if kind.traits.needs_one_client else 5
    X, y, owner = helpers.classification(clients=clients)
    losses = fpdfp.losses.Logistic(X, y, clients=owner, l2=0.05)
    if kind.traits.solves == "f":
        return fpdfp.Problem(losses, penalties.Zero(), helpers.graph(12))
    return fpdfp.Problem(losses, penalties.L1(0.02), helpers.graph(12) if "B" in kind.traits.solves else None)


def test_the_page_is_made_from_the_declarations() -> None:
    assert set(table.ORDER) == set(METHODS)
    assert (ROOT / "docs" / "methods.md").read_text() == table.markdown(), "run `make tables`"


@pytest.mark.parametrize("kind", METHODS)
def test_a_method_has_a_rule_a_citation_and_an_example(kind: Any) -> None:
    assert "::\n" in kind.__doc__
    assert "References\n" in kind.__doc__
    assert ">>> " in kind.__doc__
    first = kind.traits.reference.split()[0].strip(",")
    assert first in kind.__doc__ or kind.traits.reference.startswith("Zhu")


@pytest.mark.parametrize("kind", METHODS)
def test_numbers_up_are_those_declared(kind: Any) -> None:
    problem = problem_for(kind)
    d, m = 12, problem.linop.size_out
    assert (m == 24) == ("B" in kind.traits.solves or kind.traits.solves == "f")
    shapes = make(kind).reply_shapes(problem.model)
    assert tuple(shapes) == kind.traits.sends
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    assert (
        sum(sizes)
        == {
            "d": d,
            "2d": 2 * d,
            "d + m": d + m,
            "d(d + 3)/2": d * (d + 3) // 2,
            "2 + d(d + 3)/2": 2 + d * (d + 3) // 2,
        }[kind.traits.uplink]
    )
    result = fpdfp.solve(problem, make(kind), rounds=2)
    assert result.bits_up == 2 * problem.n_clients * (64 * sum(sizes) + 80 * len(sizes))


@pytest.mark.parametrize("kind", METHODS)
def test_what_it_can_do_runs_and_what_it_cannot_is_refused(kind: Any) -> None:
    problem, traits = problem_for(kind), kind.traits

    def attempt(able: bool, words: str, **arguments: Any) -> None:
        if able:
            assert fpdfp.solve(problem, make(kind), rounds=2, **arguments).rounds == 2
        else:
            with pytest.raises(ValueError, match=words):
                fpdfp.solve(problem, make(kind), rounds=2, **arguments)

    if problem.n_clients > 1:
        attempt(traits.partial_participation, "clients_per_round must be None", clients_per_round=2)
    attempt(traits.compression, "compressor must be None", compressor=fpdfp.QSGD(5))
    attempt(traits.compression and not traits.needs_unbiased, "compressor must be", compressor=TopK(2))
    fields = {field.name for field in dataclasses.fields(kind)}
    assert ("local_steps" in fields) == traits.local_steps
    assert ("batch_size" in fields) == traits.mini_batches
    if traits.local_steps:
        assert fpdfp.solve(problem, make(kind, local_steps=3), rounds=2).rounds == 2
        with pytest.raises(ValueError, match="local_steps must be an integer of at least 1"):
            make(kind, local_steps=0)
    if traits.mini_batches:
        assert fpdfp.solve(problem, make(kind, batch_size=3), rounds=2).rounds == 2
        with pytest.raises(ValueError, match="batch_size must be an integer of at least 1"):
            make(kind, batch_size=0)
    if traits.needs_one_client:
        with pytest.raises(ValueError, match="problem must have one client"):
            fpdfp.solve(helpers.graph_guided(), make(kind), rounds=2)


@pytest.mark.parametrize("kind", METHODS)
def test_what_it_cannot_minimise_is_refused(kind: Any) -> None:
    clients = 1 if kind.traits.needs_one_client else 5
    graph = helpers.graph_guided(clients=clients)
    lasso = fpdfp.Problem(graph.losses, penalties.L1(0.02))
    zero = fpdfp.Problem(graph.losses, penalties.Zero(), helpers.graph(12))
    assert fpdfp.solve(zero, make(kind), rounds=2).rounds == 2
    if kind.traits.solves == "f":
        with pytest.raises(ValueError, match=r"penalty must be Zero\(\).*minimises f alone.*penalty='subgradient'"):
            fpdfp.solve(lasso, make(kind), rounds=2)
    else:
        assert fpdfp.solve(lasso, make(kind), rounds=2).rounds == 2
    if kind.traits.solves == "f + g":
        hint = r"InnerSolve\(\)\) computes it" if kind.traits.with_inner_solve else "FPDFP takes any B"
        with pytest.raises(ValueError, match=f"linop must be the identity.*{hint}"):
            fpdfp.solve(graph, make(kind), rounds=2)
    if kind.traits.with_inner_solve is not None:
        assert fpdfp.solve(graph, make(kind, inner=fpdfp.InnerSolve()), rounds=2).rounds == 2


@pytest.mark.parametrize(
    "kind",
    [
        fpdfp.FedSGD, fpdfp.Scaffold,
        *(helpers.slow(kind, True) for kind in (fpdfp.FedAvg, fpdfp.FedPAQ, fpdfp.FedProx, fpdfp.FedADMM)),
    ],
)  # fmt: skip
def test_subgradients_minimise_the_composite_objective_and_ignoring_does_not(kind: Any) -> None:
    problem = helpers.graph_guided(clients=5, weight=0.1)
    best = fpdfp.minimize(problem).objective
    smooth = fpdfp.minimize(fpdfp.Problem(problem.losses, penalties.Zero()))
    schedule = fpdfp.steps.Decreasing(0.5, 0.02)
    subgradient, ignore = (
        fpdfp.solve(problem, make(kind, step=schedule, penalty=way), rounds=4000) for way in ("subgradient", "ignore")
    )
    assert subgradient.objective < 1.01 * best
    assert ignore.objective > 1.2 * best
    assert problem.smooth_value(ignore.x) == pytest.approx(smooth.objective, rel=0.01)
    box = fpdfp.Problem(problem.losses, penalties.Box(-1.0, 1.0))
    with pytest.raises(ValueError, match="needs a penalty that is finite everywhere"):
        fpdfp.solve(box, make(kind, penalty="subgradient"), rounds=2)


def test_a_penalty_without_subgradient_is_named() -> None:
    class Own(penalties.Penalty):
        def value(self, y: Any) -> float:
            return 0.0

        def prox(self, y: Any, t: float) -> Any:
            return y

        def conjugate(self, v: Any) -> float:
            return 0.0

    problem = fpdfp.Problem(helpers.graph_guided().losses, Own())
    with pytest.raises(ValueError, match="penalty='subgradient': Own has no subgradient"):
        fpdfp.solve(problem, fpdfp.FedAvg(penalty="subgradient"), rounds=2)


@pytest.mark.parametrize(
    "penalty",
    [
        penalties.L1(0.5),
        penalties.L1(np.linspace(0, 1, 6)),
        penalties.GroupL12(0.3, groups=[0, 0, 1, 1, 1, 2]),
        penalties.Zero(),
        penalties.Stacked([penalties.L1(0.2), penalties.GroupL12(0.4, groups=[0, 0, 1])], shapes=[3, 3]),
    ],
    ids=repr,
)
def test_subgradients_lie_below(penalty: penalties.Penalty, rng: np.random.Generator) -> None:
    points = rng.standard_normal((40, 6)) * (rng.random((40, 6)) < 0.6)
    together = penalty.bind((6,)).subgradient(points)
    for y, slope in zip(points, together, strict=True):
        np.testing.assert_array_equal(penalty.subgradient(y), slope)
        for other in points:
            assert penalty.value(other) >= penalty.value(y) + slope @ (other - y) - 1e-12


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: fpdfp.FedAvg(averaging="mean"), "averaging must be one of 'weighted', 'plain'"),
        (lambda: fpdfp.FedAvg(penalty="prox"), "penalty must be one of 'refuse', 'subgradient', 'ignore'"),
        (lambda: fpdfp.FedProx(-1.0), "rho must be a finite number of at least 0"),
        (lambda: fpdfp.FedProx(float("nan")), "rho must be a finite number"),
        (lambda: fpdfp.FedProx(1.0, inexactness=1.0), "inexactness must be above 0 and below 1"),
        (lambda: fpdfp.FedProx(1.0, inexactness=0.1, batch_size=3), "inexactness must be None with batch_size"),
        (lambda: fpdfp.FedMiD(server_step=0.0), "server_step must be a finite number greater than 0"),
        (lambda: fpdfp.FedDualAvg(server_step=np.inf), "server_step must be a finite number greater than 0"),
        (lambda: fpdfp.FastFedDualAvg(restarts=(5, 5)), "restarts must be ascending"),
        (lambda: fpdfp.FastFedDualAvg(restarts=(0,)), "restarts: a round must be an integer of at least 1"),
        (lambda: fpdfp.FastFedDualAvg(strong_convexity=-1.0), "strong_convexity must be a finite number of at least 0"),
        (lambda: fpdfp.CondatVu(fpdfp.steps.Decreasing(0.1, 0.1)), "step must be a number greater than 0 or 'auto'"),
        (lambda: fpdfp.FastFedDualAvg(step="fast"), "step must be a number greater than 0 or 'auto', got 'fast'"),
        (lambda: fpdfp.CondatVu(sigma=0.0), "sigma must be a finite number greater than 0"),
        (lambda: fpdfp.ChambollePock(sigma=-1.0), "sigma must be a finite number greater than 0"),
        (lambda: fpdfp.InnerSolve(tol=0.0), "tol must be a finite number greater than 0"),
        (lambda: fpdfp.InnerSolve(tol=2.0), "tol must be below 1"),
        (lambda: fpdfp.InnerSolve(max_steps=0), "max_steps must be an integer of at least 1"),
    ],
)
def test_wrong_hyper_parameters_are_named(make_it: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_it()


@pytest.mark.parametrize(
    ("make_it", "message"),
    [
        (lambda: fpdfp.FedMiD(server_prox="no"), "server_prox must be True or False, got 'no'"),
        (lambda: fpdfp.FedMiD(inner=fpdfp.InnerSolve), "got the class InnerSolve: make one, as InnerSolve"),
        (lambda: fpdfp.FedProx(b"1"), "rho must be a finite number"),
        (lambda: fpdfp.FedMiD(inner=1e-6), "inner must be an InnerSolve or None, got float"),
        (lambda: fpdfp.ChambollePock(inner=None), "inner must be an InnerSolve, got None"),
        (lambda: fpdfp.FastFedDualAvg(restarts=5), "restarts must be a tuple of rounds, got int"),
        (lambda: fpdfp.FedAvg(local_steps=1.5), "local_steps must be an integer"),
    ],
)
def test_hyper_parameters_of_the_wrong_type_are_named(make_it: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make_it()


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (fpdfp.CondatVu(step=100.0), "every step of the run is at least 100"),
        (fpdfp.CondatVu(step=0.1, sigma=1e6), "sigma=1e.06 exceeds"),
        (fpdfp.ChambollePock(step=0.1, sigma=1e6), "sigma=1e.06 exceeds"),
    ],
)
def test_steps_that_may_not_work_are_warned_of(method: Any, message: str) -> None:
    with pytest.warns(StepTooLargeWarning, match=message):
        fpdfp.solve(helpers.graph_guided(clients=1), method, rounds=1)


def test_fast_feddualavg_needs_strong_convexity() -> None:
    X, y, owner = helpers.classification()
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner), penalties.L1(0.05))
    with pytest.raises(ValueError, match="strong_convexity must be given for FastFedDualAvg"):
        fpdfp.solve(problem, fpdfp.FastFedDualAvg(), rounds=2)
    assert fpdfp.solve(problem, fpdfp.FastFedDualAvg(strong_convexity=0.01), rounds=2).rounds == 2
    with pytest.raises(ValueError, match="strong_convexity must be at most the smoothness L of f"):
        fpdfp.solve(problem, fpdfp.FastFedDualAvg(strong_convexity=100.0), rounds=2)


#: Their step is that of a prox, and any is safe.
PROXIMAL_STEP = (fpdfp.RandProx, fpdfp.FedDR)


@pytest.mark.parametrize("kind", [kind for kind in METHODS if kind.traits.local_steps and kind not in PROXIMAL_STEP])
def test_steps_that_a_client_alone_cannot_take_are_warned_of(kind: Any) -> None:
    """2/L for the mean of the clients is too much for the client with the largest L_i, if it goes on alone."""
    generator = np.random.default_rng(0)
    parts = [generator.standard_normal((20, 6)) * scale for scale in (1.0, 1.0, 4.0)]
    losses = fpdfp.losses.LeastSquares.from_clients(parts, [np.ones(20)] * 3, l2=0.1)
    problem = fpdfp.Problem(losses, penalties.Zero())
    step = 1.5 / float(problem.lipschitz.mean())
    assert step > 2 / float(problem.lipschitz.max())
    fpdfp.solve(problem, make(kind, step=step, local_steps=1), rounds=1)
    with pytest.warns(StepTooLargeWarning, match="largest safe one"):
        fpdfp.solve(problem, make(kind, step=step, local_steps=2), rounds=1)


ZOO = helpers.zoo()


#: After every change all methods on the paper's problem, one without B, one of several classes and a small one with B;
#: the two that are run by default on everything. The rest, up to 20 seconds each, are slow.
QUICK_PROBLEMS = {"graph-guided", "weighted lasso", "softmax", "fused"}
QUICK_METHODS = {"FPDFP", "ShiftedPDFP"}


@functools.cache
def optimum(name: str) -> float:
    """The least objective of a problem."""
    return float(fpdfp.minimize(ZOO[name], tol=1e-9).objective)


def taken(kind: Any, problem: fpdfp.Problem) -> bool:
    """Whether a method can minimise a problem in some way."""
    if kind.traits.needs_one_client:
        return False
    if kind.traits.needs_hessians and len(problem.model.shape) > 1:
        return False
    if kind.traits.solves == "f":
        return problem.penalty.finite
    return "B" in (kind.traits.with_inner_solve or kind.traits.solves) or problem.linop.is_identity


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        helpers.slow((kind, name), not (name in QUICK_PROBLEMS or kind.__name__ in QUICK_METHODS))
        for kind in METHODS
        for name in ZOO
        if taken(kind, ZOO[name])
    ],
)
def test_nothing_set_is_stable_with_all_kinds_of_noise(kind: Any, name: str) -> None:
    """With automatic steps no method diverges on any problem that it takes, and each makes good progress."""
    problem, traits = ZOO[name], kind.traits
    arguments: dict[str, Any] = {"local_steps": 4} if traits.local_steps else {}
    if traits.with_inner_solve is not None:
        arguments["inner"] = fpdfp.InnerSolve(0.03)
    if traits.solves == "f":
        arguments["penalty"] = "subgradient"
    if traits.mini_batches and problem.losses.supports_batches:
        arguments["batch_size"] = 10
    run: dict[str, Any] = {"clients_per_round": 2} if traits.partial_participation else {}
    if traits.compression:
        run["compressor"] = fpdfp.QSGD(levels=10)
    best = optimum(name)
    rounds = 60 if traits.needs_hessians else 100 if "inner" in arguments else 300
    result = fpdfp.solve(problem, make(kind, **arguments), rounds=rounds, evaluate_every=50, **run)
    start = result.history.objective[0] - best
    assert result.status == "finished"
    assert abs(result.objective - best) < 0.6 * start


@pytest.mark.parametrize(
    ("changes", "method", "message"),
    [
        ({"mini_batches": False}, fpdfp.FedAvg(batch_size=3), "batch_size must be None for Own, which needs full"),
        ({"local_steps": False}, fpdfp.FedAvg(local_steps=3), "local_steps must be 1 for Own, got 3"),
        ({"strong_convexity": "needed"}, fpdfp.FedAvg(), "strong_convexity must be given for Own"),
        ({"needs_one_client": True}, fpdfp.FedAvg(), "problem must have one client for Own"),
        ({"partial_participation": False}, fpdfp.FedAvg(), "clients_per_round must be None for Own"),
    ],
)
def test_a_declaration_is_checked_whatever_the_method(changes: Any, method: Any, message: str) -> None:
    class Own(fpdfp.FedAvg):
        traits = dataclasses.replace(fpdfp.FedAvg.traits, **changes)

    X, y, owner = helpers.classification()
    problem = fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner), penalties.Zero())
    own = Own(**{field.name: getattr(method, field.name) for field in dataclasses.fields(method)})
    with pytest.raises(ValueError, match=message):
        fpdfp.solve(problem, own, rounds=2, clients_per_round=2)


def test_wrong_arguments_are_refused_before_any_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lipschitz constants can take a minute on large data: nothing is refused after them that could be before."""
    problem = helpers.graph_guided()

    def work(*_: Any) -> Any:
        raise AssertionError("work was done")

    monkeypatch.setattr(fpdfp.losses.Logistic, "lipschitz", work)
    with pytest.raises(ValueError, match="evaluate_every must be"):
        fpdfp.solve(problem, rounds=2, evaluate_every=0)
    with pytest.raises(ValueError, match="compressor must be unbiased"):
        fpdfp.solve(problem, rounds=2, compressor=TopK(3))
    with pytest.raises(ValueError, match="linop must be the identity"):
        fpdfp.solve(problem, fpdfp.FedMiD(), rounds=2)


@pytest.mark.parametrize("kind", METHODS)
def test_numpy_scalars_are_numbers(kind: Any) -> None:
    """They do not change the precision of a run, nor what a checkpoint says of it."""
    fields = {field.name for field in dataclasses.fields(kind)}
    plain = {"local_steps": 2, "batch_size": 3, "server_step": 0.5, "rho": 0.5, "step": 0.1, "lam": 0.1, "sigma": 0.1}
    plain = {name: value for name, value in plain.items() if name in fields}
    scalars = {name: np.asarray(value)[()] for name, value in plain.items()}
    assert repr(kind(**plain)) == repr(kind(**scalars))
    problem = problem_for(kind)
    X, y, owner = helpers.classification(clients=problem.n_clients)
    losses = fpdfp.losses.Logistic(X.astype(np.float32), y, clients=owner, l2=0.05)
    single = fpdfp.Problem(losses, problem.penalty, problem.linop)
    result = fpdfp.solve(single, kind(**scalars), rounds=3)
    assert result.x.dtype == np.float32
    d = sum(int(np.prod(shape)) for shape in kind(**plain).reply_shapes(single.model).values())
    assert result.bits_up == 3 * problem.n_clients * (32 * d + 80 * len(kind.traits.sends))


def test_an_inner_solve_that_gives_up_is_told() -> None:
    problem = helpers.graph_guided()
    with pytest.warns(AccuracyWarning, match="inner solves ended before they reached their tolerance"):
        result = fpdfp.solve(problem, fpdfp.FedMiD(inner=fpdfp.InnerSolve(1e-6, max_steps=2)), rounds=3)
    assert result.history.inner_unsolved[-1] == 15
    assert result.history.inner_clients[-1] == 30
