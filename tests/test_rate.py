"""Theorems 1 and 2 on a problem whose constants are known: what is measured is below the bounds and falls as they do.

Clients differ, three of six take part, gradients are of mini-batches, and both messages are quantized, so every source
of noise of the theorems is there. Theorem 2 is a bound, so it says a slope of log E V_k against log k of at most −1 in
the long run. The same measurement with a constant step, and with a prox that is wrong by 10 %, must fail: the margin
means something.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fpdfp
from fpdfp import steps
from reproduce import page, theory
from reproduce.__main__ import main

MARGIN = 0.15
COMMITTED = Path(__file__).parents[1] / "docs" / "results" / "theory"


class TenPerCentOff(fpdfp.penalties.L1):
    """A prox of g* that clips at 1.1 times the right bound."""

    def conjugate_prox(self, y: Any, sigma: float) -> Any:
        return np.clip(y, -1.1 * self.weight, 1.1 * self.weight)


def test_the_constants_are_those_of_the_problem() -> None:
    """By differences of gradients over all batches of a client, and over clients, at several points."""
    problem, known = theory.build_quadratics(True).problem, theory.constants(full_row_rank=True, noisy=True)
    a, generator = theory.build_quadratics(True).centres, np.random.default_rng(3)
    everyone = np.arange(theory.CLIENTS)
    for _ in range(3):
        x, y = generator.standard_normal((2, theory.FEATURES)) * 5
        each = problem.losses.gradients(x, everyone)
        mean = each.mean(axis=0)
        assert np.mean(np.sum((each - mean) ** 2, axis=1)) == pytest.approx(known.delta2)
        change = mean - problem.losses.gradients(y, everyone).mean(axis=0)
        assert known.mu - 1e-12 <= change @ (x - y) / np.sum((x - y) ** 2)
        assert np.linalg.norm(change) <= known.lipschitz * np.linalg.norm(x - y) + 1e-12
    variances = []
    for i in everyone:
        batches = itertools.combinations(range(theory.SAMPLES), theory.BATCH)
        means = np.array([a[i, list(batch)].mean(axis=0) for batch in batches])
        variances.append(np.mean(np.sum((theory.CURVATURES * (means - a[i].mean(axis=0))) ** 2, axis=1)))
    assert known.sigma2 == pytest.approx(max(variances))
    singular = np.linalg.svd(np.diff(np.eye(theory.FEATURES), axis=0), compute_uv=False)
    assert (known.rho_max, known.rho_min) == pytest.approx((singular[0] ** 2, singular[-1] ** 2))
    deficient = theory.constants(full_row_rank=False, noisy=True)
    assert deficient.rho_min == 0
    linop = theory.build_quadratics(False).problem.linop
    B = np.stack([linop.apply(unit) for unit in np.eye(theory.FEATURES)], axis=1)
    assert np.linalg.matrix_rank(B) < len(B)


@pytest.mark.parametrize("noisy", [True, False])
def test_below_the_bound_of_theorem_1(noisy: bool) -> None:
    known = theory.constants(full_row_rank=False, noisy=noisy)
    schedule = steps.Decreasing(known.largest_step, 0.01, power=0.6)
    found = theory.measure(False, noisy, schedule, rounds=1000, seeds=2)
    mean, bound = found.weighted.mean(axis=0), theory.bound_theorem1(found, known)
    assert (mean <= bound).all()
    assert (found.primal.mean(axis=0).min() <= bound).all()
    # The bound says something: a twentieth of it would be too little.
    assert mean[-1] > bound[-1] / 20


@pytest.mark.parametrize("noisy", [True, False])
def test_below_the_bound_of_theorem_2(noisy: bool) -> None:
    known = theory.constants(full_row_rank=True, noisy=noisy)
    found = theory.measure(True, noisy, steps.Theorem2(theory.D1), rounds=600, seeds=2)
    first = theory.first_round(found, known)
    assert found.gammas[first] <= known.largest_step < found.gammas[first - 1] or (
        found.gammas[first] <= known.rho_min / known.rho_max / theory.D1 < found.gammas[first - 1]
    )
    k, bound = theory.bound_theorem2(found, known)
    assert k[0] == first + 1
    assert (found.lyapunov.mean(axis=0)[k] <= bound).all()
    # The bound falls as 1/k, once what is left of the start is small.
    assert bound[-1] * k[-1] == pytest.approx(4 * known.d2 / theory.D1**2, rel=0.05)


def test_theorem_2_has_nothing_for_a_deficient_row_rank() -> None:
    known = theory.constants(full_row_rank=False, noisy=True)
    found = theory.measure(False, True, steps.Theorem2(theory.D1), rounds=50, seeds=1)
    assert theory.first_round(found, known) == len(found.gammas)


#: Rounds and seeds from which a slope is taken: enough to tell, after every change, and for the margin.
LENGTHS = [(1000, 4), pytest.param(theory.ROUNDS, theory.SEEDS, marks=pytest.mark.slow)]


@pytest.mark.parametrize(("rounds", "seeds"), LENGTHS)
def test_one_over_k(rounds: int, seeds: int) -> None:
    found = theory.measure(True, True, steps.Theorem2(theory.D1), rounds=rounds, seeds=seeds)
    assert theory.slope(found.lyapunov) < -1.0 + MARGIN


@pytest.mark.slow
def test_theorem_1_goes_on_falling_where_a_constant_step_stops() -> None:
    known = theory.constants(full_row_rank=False, noisy=True)
    falling = theory.measure(False, True, steps.Decreasing(known.largest_step, 0.01, power=0.6), seeds=8).primal
    constant = theory.measure(False, True, fpdfp.steps.Constant(known.largest_step), seeds=8).primal
    assert falling[:, 3000:].mean() < 0.3 * constant[:, 3000:].mean()
    assert constant[:, 3000:].mean() > 0.7 * constant[:, 1000:2000].mean()


@pytest.mark.parametrize(("rounds", "seeds"), LENGTHS)
def test_a_constant_step_would_fail(rounds: int, seeds: int) -> None:
    found = theory.measure(True, True, fpdfp.steps.Constant(0.05), rounds=rounds, seeds=seeds)
    assert theory.slope(found.lyapunov) > -1.0 + 2 * MARGIN


@pytest.mark.parametrize(("rounds", "seeds"), LENGTHS)
def test_a_wrong_prox_would_fail(rounds: int, seeds: int) -> None:
    wrong = TenPerCentOff(theory.WEIGHT)
    found = theory.measure(True, True, steps.Theorem2(theory.D1), rounds=rounds, seeds=seeds, penalty=wrong)
    assert theory.slope(found.lyapunov) > -1.0 + 2 * MARGIN


@pytest.mark.slow
def test_the_command_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["theory", "--rounds", "400", "--seeds", "2", "--output", str(tmp_path)]
    assert main(arguments) == 0
    summary = json.loads((tmp_path / "results.json").read_text())
    assert [len(summary["theorems"][number]) for number in "12"] == [3, 3]
    for number in "12":
        assert (tmp_path / f"theorem{number}.png").read_bytes().startswith(b"\x89PNG")
    assert main([*arguments[:2], "100", *arguments[3:]]) == 1
    assert "at least 400" in capsys.readouterr().err


def test_the_page_of_the_experiments_has_the_stored_numbers() -> None:
    assert page.write() == (page.RESULTS / "paper.md").read_text(), "run `python -m reproduce page`"


def test_committed_errors_are_below_their_bounds() -> None:
    summary = json.loads((COMMITTED / "results.json").read_text())
    for entries in summary["theorems"].values():
        for one in entries:
            if one["bound_at_the_end"] is not None:
                assert one["largest_share_of_bound"] < 1
    assert all(one["slope"] < -1.0 + MARGIN for one in summary["theorems"]["2"])
