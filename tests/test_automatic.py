"""Nothing given: within a factor 2 of what can be had by hand, in rounds and in bits."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import ShiftedPDFP
from fpdfp.precondition import exchange
from tests import helpers

#: What takes some 20 seconds each: a grid of methods by hand.
LONG = {"softmax", "sparse logistic, samples", "TV and non-negative", "non-negative"}


def cost(problem: fpdfp.Problem, best: float, method: Any = None, **arguments: Any) -> tuple[float, float]:
    """Rounds and bits up until the objective is within 1e-3 of the optimum."""

    def close(run: fpdfp.Run) -> bool:
        objective, violation = problem.evaluate(run.x)
        return objective <= best + 1e-3 * abs(best) and violation <= 1e-3

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some steps of a grid are meant to be too large
        result = fpdfp.solve(problem, method, rounds=300, callbacks=[close], evaluate_every=300, **arguments)
    return (result.rounds, result.bits_up) if result.status == "stopped" else (np.inf, np.inf)


@pytest.mark.parametrize("name", [helpers.long(name, name in LONG) for name in helpers.zoo()])
def test_within_twice_the_best_by_hand(name: str) -> None:
    problem = helpers.zoo()[name]
    best = fpdfp.reference_solution(problem, tol=1e-10).objective
    rounds, bits = cost(problem, best)
    costs = []
    steps: list[float] = []
    for kind, levels in itertools.product((None, exchange.automatic(problem.losses)), (2, 5, 15)):
        quantizer = fpdfp.QSGD(levels, norm="max")
        fpdfp.solve(
            problem, ShiftedPDFP(preconditioner=kind), rounds=1, compressor=quantizer,
            callbacks=[lambda run: steps.append(run.method.schedule()(0))],
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


def test_a_method_that_is_given_runs_as_it_is() -> None:
    problem = helpers.graph_guided()
    given = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=3)
    assert given.bits_up == given.bits_down == 3 * 5 * (36 * 64 + 2 * 80)
    assert given.bits_once_up == 0
    given = fpdfp.solve(problem, fpdfp.FPDFP(), rounds=3, compressor=None, downlink=None)
    assert given.bits_up == 3 * 5 * (36 * 64 + 2 * 80)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("name", helpers.zoo())
def test_it_never_diverges(name: str, n: int) -> None:
    problem = helpers.zoo()[name]
    best = fpdfp.reference_solution(problem, tol=1e-10).objective
    result = fpdfp.solve(problem, rounds=300, clients_per_round=min(n, problem.n_clients), seed=n)
    objective, violation = problem.evaluate(result.x)
    assert abs(objective - best) <= 1e-5 * max(1.0, abs(best))
    assert violation <= 1e-3
