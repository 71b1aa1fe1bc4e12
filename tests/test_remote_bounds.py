"""Bounds where data is at sites: the same sums, the same endings, the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from tests import helpers
from tests.loopback import Loopback


def problems() -> dict[str, fpdfp.Problem]:
    X, y, owner = helpers.classification()
    wide = np.column_stack([X, np.ones(len(X))])
    weights = np.append(np.full(X.shape[1], 0.01), 0.0)
    rng = np.random.default_rng(0)
    return {
        "intercept": fpdfp.Problem(fpdfp.losses.Logistic(wide, y, clients=owner), fpdfp.penalties.L1(weights)),
        "fused": fpdfp.Problem(
            fpdfp.losses.LeastSquares(X, X @ rng.standard_normal(12), clients=owner),
            fpdfp.penalties.L1(0.1), fpdfp.linops.Difference(12),
        ),
        "softmax": fpdfp.Problem(
            fpdfp.losses.Softmax(wide, np.arange(len(y)) % 3, clients=owner),
            fpdfp.penalties.L1(np.tile(weights, (3, 1))),
        ),
        "smooth": fpdfp.Problem(fpdfp.losses.Logistic(X, y, clients=owner), fpdfp.penalties.Zero()),
        "ridge": helpers.graph_guided(),
    }  # fmt: skip


@pytest.mark.parametrize("name", problems())
def test_a_deployment_ends_as_a_simulation_does(name: str) -> None:
    problem = problems()[name]
    run: dict[str, Any] = {"rounds": 400, "tol": 1e-4}
    here = fpdfp.solve(problem, **run)
    crew = Loopback(problem)
    elsewhere = fpdfp.Problem(crew.losses(), problem.penalty, problem.linop)
    there = fpdfp.solve(elsewhere, **run)
    assert here.status == "converged"
    assert (there.status, there.rounds) == (here.status, here.rounds)
    np.testing.assert_array_equal(there.x, here.x)
    assert there.certificate.relative_gap == pytest.approx(here.certificate.relative_gap, rel=1e-3)
    assert there.traffic == here.traffic


def test_a_question_that_does_not_fit_is_refused() -> None:
    from fpdfp.engines.site import Site
    from fpdfp.errors import MessageError

    losses = problems()["fused"].losses
    good = {
        "x": np.zeros(12),
        "weights": np.ones(losses.n_clients),
        "direction": None,
        "scale": 1.0,
        "part": "gradient",
    }
    assert Site(losses).handle({"duals": good})["duals"]["gradient"].shape == (12,)
    for name, value in (
        ("x", np.zeros(11)), ("x", None), ("direction", np.zeros((12, 2))), ("weights", np.ones(2)), ("part", "rows"),
    ):  # fmt: skip
        with pytest.raises(MessageError):
            Site(losses).handle({"duals": {**good, name: value}})
