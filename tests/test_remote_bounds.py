"""Bounds where data is at sites: the same sums, the same endings, the same bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.cohorts.collector import NO_DRAWS
from fpdfp.cohorts.site import Site
from fpdfp.errors import MessageError
from fpdfp.traffic import FULL, Meter, digest
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
    losses = problems()["fused"].losses
    good = {
        "x": np.zeros(12),
        "point": digest([np.zeros(12)]),
        "weights": np.ones(losses.n_clients),
        "direction": None,
        "scale": 1.0,
        "part": "gradient",
    }
    assert Site(losses).handle({"duals": good})["duals"]["gradient"].shape == (12,)
    for changed in (
        {"x": np.zeros(11), "point": digest([np.zeros(11)])}, {"direction": np.zeros((12, 2))}, {"weights": np.ones(2)},
        {"part": "rows"},
    ):  # fmt: skip
        with pytest.raises(MessageError):
            Site(losses).handle({"duals": {**good, **changed}})


def test_a_site_that_lacks_the_point_is_sent_it() -> None:
    problem = problems()["intercept"]
    crew = Loopback(problem)
    losses = crew.losses()
    x = np.linspace(-1.0, 1.0, 13)
    whole = fpdfp.Problem(losses, problem.penalty).certificate(x)
    assert [("x" in one["duals"]) for one in crew.requests if "duals" in one].count(True) == 0

    def trouble(site: int, request: dict[str, Any], reply: bytes) -> bytes:
        if "at" in request and site == 1:
            crew.restart(site)
        return reply

    crew.trouble = trouble
    losses.answers.forget()
    again = fpdfp.Problem(losses, problem.penalty).certificate(x)
    assert again.gap == whole.gap
    assert crew.totals.healed == 1
    assert crew.collector.upkeep.down >= 64 * 13
    with_point = [one for one in crew.requests if "x" in one.get("duals", {})]
    assert len(with_point) == 1


@pytest.mark.parametrize("name", [*problems(), "single"])
def test_parcels_hold_what_is_counted_of_dual_points(name: str) -> None:
    """Every question, with a direction and without, and Hessians: a client to a site, so sums are of one client."""
    if name == "single":
        X, y, owner = helpers.classification()
        losses = fpdfp.losses.Logistic(X.astype(np.float32), y, clients=owner)
        problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.01))
    else:
        problem = problems()[name]
    crew = Loopback(problem, sites=problem.n_clients)
    away = fpdfp.Problem(crew.losses(), problem.penalty, problem.linop)
    x = np.linspace(-0.1, 0.1, int(np.prod(problem.model.shape))).reshape(problem.model.shape)
    traffic = []
    for one in (problem, away):
        meter = Meter(one.losses)
        with meter.counting("end"):
            one.metered(meter).certificate(x)
        traffic.append(meter.traffic)
    assert traffic[0] == traffic[1]
    sent = {"up": 0, "down": 0}
    for request, reply in zip(crew.requests, crew.up, strict=True):
        for part in ("at", "duals"):
            if part not in request:
                continue
            told = [one for one in request[part].values() if isinstance(one, np.ndarray | float)]
            found = [one[0] for one in reply["at"].values()] if part == "at" else list(reply["duals"].values())
            for way, arrays in (("down", told), ("up", found)):
                for array in arrays:  # as messages, without zeros where that is shorter
                    message = FULL.quantize(np.asarray(array)[None], NO_DRAWS, 0)
                    sent[way] += int(FULL.nbits(message).sum())
                    assert 0 <= 8 * len(FULL.encode(message)[0]) - int(FULL.nbits(message).sum()) < 8
    assert traffic[0]["end"] == (sent["up"], sent["down"])
