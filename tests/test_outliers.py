"""Replies that are far too large: one of them does not end a run, and honest sites that differ are not refused."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp.cohorts.collector import NO_DRAWS, Decoded, Outliers
from fpdfp.cohorts.serialization import pack, unpack
from fpdfp.compress import decode
from fpdfp.traffic import FULL
from tests.helpers import graph_guided
from tests.loopback import Loopback

FULLY = {"compressor": fpdfp.compress.Full(), "downlink": None, "progress": False}


def away(problem: fpdfp.Problem, **options: Any) -> tuple[Loopback, fpdfp.Problem]:
    """Return a problem with its clients at sites."""
    crew = Loopback(problem, **options)
    return crew, fpdfp.Problem(crew.losses(), problem.penalty, problem.linop, weights=problem.weights)


def enlarge(number: int, when: set[int]) -> Any:
    """Return the trouble of a site whose replies in some rounds are of size 10⁶."""

    def trouble(site: int, request: dict[str, Any], parcel: bytes) -> bytes:
        tree = unpack(parcel)
        if site == number and "update" in tree and request["update"]["round"] in when:
            for name, frames in tree["update"]["frames"].items():
                arrays = [decode(frame) for frame in frames]
                large = np.stack([1e6 * (array + 1.0) / np.linalg.norm(array + 1.0) for array in arrays])
                tree["update"]["frames"][name] = FULL.encode(FULL.quantize(large, NO_DRAWS, 0))
                tree["update"]["bits"] = np.array(
                    [[8 * len(f) for f in fs] for fs in tree["update"]["frames"].values()]
                )
        return pack(tree)

    return trouble


@pytest.mark.parametrize("method", [fpdfp.ShiftedPDFP(), fpdfp.CondatVu(), fpdfp.FedAvg(penalty="ignore")])
@pytest.mark.parametrize("when", [{0}, {7}])
def test_one_large_reply_does_not_end_a_run(method: Any, when: set[int], caplog: pytest.LogCaptureFixture) -> None:
    problem = graph_guided()
    plain, there = away(problem, sites=3)
    calm = fpdfp.solve(there, method, rounds=60, engine=plain, **FULLY)
    assert plain.totals.refused == 0

    crew, there = away(problem, sites=3, trouble=enlarge(1, when), norm_bound=None)
    with pytest.warns(fpdfp.errors.DivergenceWarning, match="the objective grew"):
        assert fpdfp.solve(there, method, rounds=60, engine=crew, **FULLY).status == "diverged"

    crew, there = away(problem, sites=3, trouble=enlarge(1, when))
    with caplog.at_level(logging.WARNING):
        good = fpdfp.solve(there, method, rounds=60, engine=crew, **FULLY)
    assert crew.totals.refused == 1
    assert "the reply of site 1 is refused: the norm of" in caplog.text
    assert good.objective == pytest.approx(calm.objective, rel=0.05)


def decoded(client: int, norm: float) -> Decoded:
    return Decoded(np.array([client]), {"gradient": np.array([[norm, 0.0]])}, 0)


def test_sites_that_differ_by_weight_or_units_are_no_outliers() -> None:
    many = Outliers(np.array([1e-5, 1e-5, 3.0]), np.ones(3))
    assert many.find({0: decoded(0, 1e-5), 1: decoded(1, 1e-5), 2: decoded(2, 3.0)}) == {}
    grams = Outliers(None, np.array([1.0, 1.0, 1e6]))
    assert grams.find({0: decoded(0, 1.0), 1: decoded(1, 1.0), 2: decoded(2, 1e4)}) == {}
    assert list(grams.find({0: decoded(0, 1.0), 1: decoded(1, 1.0), 2: decoded(2, 1e10)})) == [2]


def test_what_was_accepted_before_is_no_outlier() -> None:
    """A site that was away sends a large difference where others have come to small ones."""
    seen = Outliers(None, np.ones(3))
    assert seen.find({0: decoded(0, 1.0)}) == {}  # there is nothing to compare it with
    seen.accept([decoded(0, 1.0)])
    assert seen.find({0: decoded(0, 1e-9), 1: decoded(1, 1e-9), 2: decoded(2, 0.5)}) == {}
    assert list(seen.find({0: decoded(0, 1e-9), 1: decoded(1, 1e-9), 2: decoded(2, 1e4)})) == [2]
    # Without others in the round, only after some rounds: at first, differences may be nothing but rounding.
    assert seen.find({2: decoded(2, 1e4)}) == {}
    for _ in range(2):
        seen.accept([decoded(0, 1.0)])
    assert list(seen.find({2: decoded(2, 1e4)})) == [2]
