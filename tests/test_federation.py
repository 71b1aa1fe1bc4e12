"""A federation over real connections: same bits as a simulation, and what happens when something fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")

import fpdfp
from tests.federation_trial import SITES, Trial, TrialDesk, parts, running
from tests.helpers import graph_guided


@pytest.fixture(scope="module")
def whole() -> fpdfp.Problem:
    return graph_guided(clients=3, rows=30, d=12)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, whole: fpdfp.Problem) -> Iterator[Trial]:
    trial = Trial(tmp_path_factory.mktemp("federation"))
    with running(trial, [TrialDesk(part) for part in parts(whole)]):
        yield trial


@pytest.mark.parametrize("method", [None, fpdfp.FPDFP()], ids=["default", "FPDFP"])
def test_same_bits_as_a_simulation(shared: Trial, whole: fpdfp.Problem, method: Any) -> None:
    engine = shared.engine()
    there = fpdfp.Problem(engine.losses(), whole.penalty, whole.linop)
    options: dict[str, Any] = {"rounds": 15, "compressor": fpdfp.QSGD(5), "seed": 3}
    expected = fpdfp.solve(whole, method, **options)
    result = fpdfp.solve(there, method, engine=engine, **options)
    np.testing.assert_array_equal(result.x, expected.x)
    np.testing.assert_array_equal(result.v, expected.v)
    assert (result.traffic.up, result.traffic.down) == (expected.traffic.up, expected.traffic.down)
    assert engine.totals.absent == engine.totals.refused == 0
    assert engine.link.measured.latency is not None
    assert set(engine.link.usage.waited_for) == set(SITES)
