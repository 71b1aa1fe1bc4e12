"""Nothing given: within a factor 2 of what can be had by hand, in rounds and in bits."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import ShiftedPDFP, compress, linops, losses, penalties
from fpdfp.engines.choice import name_method, predict_prices
from fpdfp.engines.prepare import RunOptions
from fpdfp.precondition import agreement
from tests import helpers

#: A grid of methods by hand takes 5 to 20 seconds: after every change for a problem with B, one without, a smooth one.
QUICK = {"graph-guided", "lasso", "smooth"}


def cost(problem: fpdfp.Problem, best: float, method: Any = None, **arguments: Any) -> tuple[float, float]:
    """Rounds and bits up until the objective is within 1e-3 of the optimum."""

    def close(run: fpdfp.Run) -> bool:
        objective, violation = problem.evaluate(run.x)
        return objective <= best + 1e-3 * abs(best) and violation <= 1e-3

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some steps of a grid are meant to be too large
        result = fpdfp.solve(problem, method, rounds=300, callbacks=[close], evaluate_every=300, **arguments)
    return (result.rounds, result.bits_up) if result.status == "stopped" else (np.inf, np.inf)


@pytest.mark.slow
@pytest.mark.parametrize("name", [helpers.slow(name, name not in QUICK) for name in helpers.zoo()])
def test_within_twice_the_best_by_hand(name: str) -> None:
    problem = helpers.zoo()[name]
    best = fpdfp.minimize(problem, tol=1e-10).objective
    rounds, bits = cost(problem, best)
    costs = []
    steps: list[float] = []
    for kind, levels in itertools.product((None, agreement.automatic(problem.losses)), (2, 5, 15)):
        quantizer = fpdfp.QSGD(levels, norm="max")
        fpdfp.solve(
            problem, ShiftedPDFP(preconditioner=kind), rounds=1, compressor=quantizer,
            callbacks=[lambda run: steps.append(run.algorithm.step(0))],
        )  # fmt: skip
        for factor, momentum in ((1.0, True), (2.0, True), (4.0, True), (1.0, False), (2.0, False)):
            method = ShiftedPDFP(factor * steps[-1], preconditioner=kind, momentum=momentum)
            costs.append(cost(problem, best, method, compressor=quantizer))
    assert rounds <= 2 * min(count for count, _ in costs)
    assert bits <= 2 * min(sent for _, sent in costs)


def test_what_is_chosen_is_said() -> None:
    methods: list[Any] = []
    result = fpdfp.solve(helpers.graph_guided(), rounds=2, callbacks=[methods.append])
    run = methods[0]
    assert isinstance(run.method, ShiftedPDFP)
    assert run.compressors["difference"] == fpdfp.QSGD(11, norm="max")
    assert run.downlink.compressor == fpdfp.QSGD(31, norm="max")
    assert result.bits_once_up > 0
    exact = fpdfp.solve(helpers.graph_guided(), rounds=2, compressor=None, downlink=None)
    assert exact.bits_up == 2 * 5 * (12 * 64 + 80)


@pytest.mark.parametrize(
    ("features", "clients_per_round", "expected"),
    [(14, None, "ShiftedPDFP"), (14, 6, "NewtonSteps"), (60, None, "ShiftedPDFP")],
)
def test_newton_steps_come_first_where_they_are_predicted_to_cost_less(
    features: int, clients_per_round: int | None, expected: str
) -> None:
    """Rounds in which few clients take part are many; all clients answer in each Newton step."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1200, features))
    y = X @ rng.standard_normal(features) + rng.logistic(size=1200) > 0
    losses = fpdfp.losses.Logistic(X, y * 1.0, np.arange(1200) % 12, l2=1e-4)
    problem = fpdfp.Problem(losses, fpdfp.penalties.L1(1e-3))
    best = fpdfp.minimize(problem, tol=1e-10).objective
    result = fpdfp.solve(problem, rounds=300, tol=1e-3, clients_per_round=clients_per_round)
    assert (name_method(result.method), result.status) == (expected, "converged")
    assert -1e-9 * best <= result.objective - best <= 1e-3 * result.objective
    options = RunOptions(rounds=300, tol=1e-3, clients_per_round=clients_per_round)
    prices = predict_prices(problem, options, "solve")
    assert min(prices, key=lambda name: prices[name]) == expected
    assert set(prices) == {"ShiftedPDFP", "NewtonSteps"}  # exact Hessians are for fits
    fit = predict_prices(problem, options, "fit")
    assert ("ProximalNewton" in fit) == (clients_per_round is None)


def test_a_method_that_is_given_runs_as_it_is() -> None:
    problem = helpers.graph_guided()
    given = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=3)
    assert given.bits_up == given.bits_down == 3 * 5 * (36 * 64 + 2 * 80)
    assert given.bits_once_up == 0
    given = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=3, compressor=None, downlink=None)
    assert given.bits_up == 3 * 5 * (36 * 64 + 2 * 80)


@pytest.mark.parametrize("n", [helpers.slow(n, n != 2) for n in (1, 2, 5)])
@pytest.mark.parametrize("name", helpers.zoo())
def test_it_never_diverges(name: str, n: int) -> None:
    problem = helpers.zoo()[name]
    best = fpdfp.minimize(problem, tol=1e-10).objective
    result = fpdfp.solve(problem, rounds=300, clients_per_round=min(n, problem.n_clients), seed=n)
    objective, violation = problem.evaluate(result.x)
    assert abs(objective - best) <= 1e-5 * max(1.0, abs(best))
    assert violation <= 1e-3


INNER = fpdfp.InnerSolve()
#: All methods, with the hyper-parameters that they need.
METHODS: dict[str, Any] = {
    "FPDFP": fpdfp.FPDFP(),
    "FPDFP, local steps": fpdfp.FPDFP(local_steps=3),
    "shifted": ShiftedPDFP(),
    "shifted, no momentum": ShiftedPDFP(momentum=False),
    "shifted, preconditioner": ShiftedPDFP(preconditioner="auto"),
    "error feedback": fpdfp.ErrorFeedbackPDFP(),
    "RandProx": fpdfp.RandProx(),
    "RandProx, three local steps": fpdfp.RandProx(local_steps=3),
    "Newton": fpdfp.NewtonPDFP(),
    "FedSGD": fpdfp.FedSGD(),
    "FedAvg": fpdfp.FedAvg(local_steps=5),
    "FedAvg, plain": fpdfp.FedAvg(local_steps=5, averaging="plain"),
    "FedPAQ": fpdfp.FedPAQ(local_steps=5),
    "FedProx": fpdfp.FedProx(rho=1.0, local_steps=5),
    "FedMiD": fpdfp.FedMiD(local_steps=3, inner=INNER),
    "FedDualAvg": fpdfp.FedDualAvg(local_steps=3, inner=INNER),
    "FastFedDualAvg": fpdfp.FastFedDualAvg(local_steps=3, inner=INNER),
    "PDFP": fpdfp.PDFP(),
    "SPDFP": fpdfp.SPDFP(batch_size=3),
    "Condat-Vu": fpdfp.CondatVu(),
    "Chambolle-Pock": fpdfp.ChambollePock(),
}


def draw(seed: int, smooth: bool, one_client: bool, strongly_convex: bool) -> tuple[fpdfp.Problem, Any]:
    """A convex problem and a start: columns, rows and clients of any size, ridges from none to 1."""
    generator = np.random.default_rng(seed)
    clients = 1 if one_client else int(generator.choice([1, 2, 5]))
    d, rows = int(generator.choice([2, 6])), int(generator.choice([3, 20]))
    scale, spread, target = 10.0 ** generator.uniform([-4, 0, -4], [4, 2, 4])
    owner = np.repeat(np.arange(clients), rows)
    X = generator.standard_normal((clients * rows, d)) * np.geomspace(1, spread, d) * scale
    if generator.random() < 0.5:
        X *= (10.0 ** generator.uniform(-1.5, 1.5, clients))[owner, None]
    ridge = float(generator.choice([0.0, 1e-9, 1e-6, 1e-3, 1.0][strongly_convex:]) * generator.choice([1.0, scale**2]))
    y = generator.standard_normal(len(X))
    if generator.random() < 0.5:
        f: Any = losses.LeastSquares(X, target * y, clients=owner, l2=ridge)
    else:
        f, target = losses.Logistic(X, np.where(y > np.median(y), 1, -1), clients=owner, l2=ridge), 1.0
    g = penalties.L1(float(generator.choice([0.0, 1e-3, 1e-1])) * scale * target)
    B = linops.Identity(d) if generator.random() < 0.5 else linops.Difference(d)
    x0 = None if generator.random() < 0.5 else 10.0 ** generator.uniform(-3, 3) * generator.standard_normal(d)
    weights: Any = generator.choice(["uniform", "samples"])
    return fpdfp.Problem(f, penalties.Zero() if smooth else g, None if smooth else B, weights=str(weights)), x0


def assert_no_divergence(
    problem: fpdfp.Problem, method: Any, x0: Any = None, rounds: int = 60, **arguments: Any
) -> None:
    """Divergence is a warning, and that an error."""
    result = fpdfp.solve(problem, method, rounds=rounds, x0=x0, evaluate_every=20, **arguments)
    start = problem.objective(np.zeros(problem.model.shape) if x0 is None else x0)
    assert result.status != "diverged"
    assert result.objective <= 1.5 * start


@pytest.mark.parametrize("name", METHODS)
def test_automatic_steps_do_not_diverge_on_convex_problems(name: str) -> None:
    method = METHODS[name]
    traits = method.traits
    for seed in range(5):
        strongly_convex = traits.strong_convexity == "needed"
        problem, x0 = draw(seed, method.solves == "f", traits.needs_one_client, strongly_convex)
        # Newton steps far from the solution are not safe, and are not said to be.
        x0 = None if traits.needs_hessians else x0
        assert_no_divergence(problem, method, x0)
        if not traits.partial_participation:
            continue
        quantizer = fpdfp.QSGD(2, norm="max") if traits.needs_unbiased else compress.TopK(1)
        if not traits.compression or traits.needs_hessians:
            quantizer = None  # type: ignore[assignment]
        some = max(1, problem.n_clients // 2)
        assert_no_divergence(problem, method, x0, clients_per_round=some, compressor=quantizer, seed=seed)


@pytest.mark.parametrize("l2", [0.0, 1e-9, 1e-6, 1e-2])
@pytest.mark.parametrize("name", ["RandProx", "shifted", "error feedback", "PDFP"])
def test_a_tiny_ridge_does_no_harm(name: str, l2: float) -> None:
    X, y, owner = helpers.classification()
    squares = losses.LeastSquares(X * np.geomspace(1.0, 30.0, 12), y, clients=owner, l2=l2)
    assert_no_divergence(fpdfp.Problem(squares, penalties.L1(0.05)), METHODS[name], rounds=150)


def test_a_gradient_that_is_too_large_to_be_sent_certifies_nothing() -> None:
    """Clients send entries of at most 1e17: the rest of a larger one is no rounding error."""
    X = np.abs(np.random.default_rng(0).standard_normal((60, 3)))
    smooth = losses.LeastSquares(X, 2e18 * X[:, 0], clients=np.arange(60) % 2)
    problem = fpdfp.Problem(smooth, penalties.L1(2e17), weights="samples")
    result = fpdfp.solve(problem, rounds=200, tol=1e-6)
    assert result.status == "converged"
    true = problem.certificate(result.x)
    assert true.gap is not None
    assert true.gap <= 1e-6 * true.scale
