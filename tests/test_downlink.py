"""The server's messages as quantized differences, and rounds in which clients do not answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import ShiftedPDFP, compress
from fpdfp.rng import Draws, Purpose
from fpdfp.traffic import Downlink, full_bits
from tests import helpers


def test_it_is_the_rule_of_its_docstring() -> None:
    """w ← w + a C(z − w); a client gets what it has missed, or w itself where that is shorter."""
    problem, quantizer = helpers.graph_guided(), fpdfp.QSGD(7, norm="max")
    asked: list[Any] = []
    totals: list[int] = []

    def look(run: fpdfp.Run) -> None:
        asked.append((run.algorithm.broadcast(run.state).z.copy(), run.kept))
        totals.append(run.bits_down)

    run: dict[str, Any] = {"clients_per_round": 2, "seed": 5, "downlink": quantizer, "callbacks": [look]}
    fpdfp.solve(problem, ShiftedPDFP(), rounds=40, **run)
    share = fpdfp.steps.shift_step(quantizer.typical_omega(12), quantizer.omega(12))
    w, z, sent, down = np.zeros(12), np.zeros(12), 0, 0
    seen = dict.fromkeys(range(5), 0)  # everyone knows that the start is zero
    for k, (following, kept) in enumerate(asked):
        draws = Draws(5, k, np.array([0]))
        values, bits = quantizer.compress((z - w)[None], draws, Purpose.DOWNLINK)
        w = w + share * values[0]
        sent += int(bits[0])
        for i in fpdfp.rng.choose_clients(5, k, 5, 2).tolist():
            down += min(sent - seen[i], full_bits(w))
            seen[i] = sent
        np.testing.assert_array_equal(kept.message[0], w)
        assert totals[k] == down
        z = following


@pytest.mark.parametrize(
    "downlink", [fpdfp.QSGD(7, norm="max"), compress.Natural(), compress.TopK(0.5), compress.Half("bfloat16")], ids=repr
)
@pytest.mark.parametrize("method", [ShiftedPDFP(), ShiftedPDFP(preconditioner="moments"), fpdfp.RandProx()], ids=repr)
@pytest.mark.parametrize("n", [2, helpers.slow(6, True)])
def test_both_directions_compressed_have_no_floor(downlink: Any, method: Any, n: int) -> None:
    problem = helpers.fused_regression(spread=0.3)
    run: dict[str, Any] = {"compressor": fpdfp.QSGD(5, norm="max"), "downlink": downlink, "clients_per_round": n}
    assert helpers.reaches(problem, method, 5000, **run)


def test_it_takes_a_fraction_of_the_bits() -> None:
    problem = helpers.graph_guided(d=200, rows=30)
    run: dict[str, Any] = {"rounds": 15, "compressor": fpdfp.QSGD(5, norm="max")}
    plain = fpdfp.solve(problem, ShiftedPDFP(), **run)
    short = fpdfp.solve(problem, ShiftedPDFP(), downlink=fpdfp.QSGD(31, norm="max"), **run)
    assert short.bits_down < 0.2 * plain.bits_down
    assert short.bits_up < 1.1 * plain.bits_up


def test_runs_with_both_go_on_to_the_same_bits(tmp_path: Path) -> None:
    problem, path = helpers.graph_guided(), tmp_path / "run.npz"
    run: dict[str, Any] = {"rounds": 30, "clients_per_round": 3, "drop_out": 0.3, "seed": 2}
    whole = fpdfp.solve(problem, **run)
    fpdfp.solve(problem, checkpoint=path, callbacks=[lambda run: run.round == 13], **run)
    rest = fpdfp.solve(problem, resume=path, **run)
    np.testing.assert_array_equal(rest.x, whole.x)
    assert (rest.bits_up, rest.bits_down) == (whole.bits_up, whole.bits_down)
    with pytest.raises(fpdfp.errors.CheckpointError, match="downlink was QSGD"):
        fpdfp.solve(problem, resume=path, **run, downlink=None)
    with pytest.raises(fpdfp.errors.CheckpointError, match=r"drop_out was 0.3 and is now 0.1"):
        fpdfp.solve(problem, resume=path, **(run | {"drop_out": 0.1}))


@pytest.mark.parametrize("n", [1, 5])
def test_clients_that_do_not_answer_are_no_floor(n: int) -> None:
    problem = helpers.graph_guided()
    best = fpdfp.minimize(problem, tol=1e-12).objective
    result = fpdfp.solve(problem, rounds=600, clients_per_round=n, drop_out=0.5)
    assert abs(result.objective / best - 1) < 1e-9


def test_a_round_without_answers_changes_nothing_but_the_clock() -> None:
    problem = helpers.graph_guided()
    seen: list[Any] = []

    def look(run: fpdfp.Run) -> None:
        seen.append((run.x.copy(), run.bits_up, run.bits_down, run.memory.shift.copy()))

    fpdfp.solve(
        problem, ShiftedPDFP(0.1), rounds=30, clients_per_round=1, drop_out=0.9, seed=1, callbacks=[look], downlink=None
    )
    quiet = [k for k in range(1, 30) if seen[k][1] == seen[k - 1][1]]
    assert len(quiet) > 20
    for k in quiet:
        np.testing.assert_array_equal(seen[k][0], seen[k - 1][0])
        np.testing.assert_array_equal(seen[k][3], seen[k - 1][3])
        assert seen[k][2] > seen[k - 1][2]
    assert len(quiet) < 29


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"downlink": "yes"}, "downlink must be a compressor, 'auto' or None, got 'yes'"),
        ({"compressor": "fast"}, "compressor must be a compressor, 'auto' or None, got 'fast'"),
        ({"downlink": 3}, "downlink must be a compressor, 'auto' or None, got int"),
        ({"downlink": fpdfp.QSGD(3), "method": fpdfp.FPDFP()}, "downlink must be None for FPDFP"),
        ({"drop_out": 1.0}, "drop_out must be below 1"),
        ({"drop_out": -0.1}, "drop_out must be a finite number of at least 0"),
        ({"drop_out": 0.1, "method": fpdfp.PDFP()}, "drop_out must be 0 for PDFP, which needs every client"),
    ],
)
def test_wrong_arguments_are_named(change: dict[str, Any], message: str) -> None:
    arguments = {"method": None, "rounds": 2} | change
    with pytest.raises((ValueError, TypeError), match=message):
        fpdfp.solve(helpers.graph_guided(), **arguments)


@pytest.mark.parametrize("start", [0.0, 1.0])
def test_a_client_that_was_never_there_gets_the_whole_model_unless_it_is_zero(start: float) -> None:
    quantizer = fpdfp.QSGD(31, norm="max")
    downlink = Downlink(quantizer)
    algorithm = helpers.prepare(helpers.graph_guided(), ShiftedPDFP())
    message = algorithm.broadcast(algorithm.init(np.full(12, start)))
    kept = downlink.start(message, 3)
    _, kept, bits = downlink.send(kept, message, np.array([0, 2]), 0, 0)
    nothing = int(quantizer.compress(np.zeros((1, 12)), Draws(0, 0, np.array([0])), Purpose.DOWNLINK).bits[0])
    assert bits == 2 * (full_bits(message.z) if start else nothing)
