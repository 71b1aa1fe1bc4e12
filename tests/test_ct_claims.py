"""Verdicts on the paper's second experiment: tie zones from the spread of the seeds, on results made up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from reproduce import runs as ties
from reproduce.ct import CASES, EARLY, OUR_CASES, SEVERAL, compare, judge, lines_of
from reproduce.runs import Case, Line, decide

ROUNDS = [0, 1, 56, 175, 700, 1400, 2800, 4900, 5600]
#: The objective in millions and the slice at the end.
MEASURED = {
    Case(5, 500): (1.27326, 46.29), Case(5, 1000): (1.27221, 46.98), Case(5, 3000): (1.27189, 47.25),
    Case(5, 5000): (1.27187, 47.27), Case(5, None): (1.27185, 47.28), Case(2, 1000): (1.27286, 46.59),
    Case(10, 1000): (1.27190, 47.2), Case(17, 1000): (1.27221, 46.98),
}  # fmt: skip
CLAIMS = ("worse", "faster", "levels", "too few levels", "clients", "too few clients", "bits", "fewest", "beyond")


def run(case: Case, seed: int, objective: float, psnr: float) -> dict[str, Any]:
    """A run that ends so."""
    far = np.array([50.0, 30.0, 3.0, 0.5, 0.1, 0.02, 0.005, 0.001, 0.0])
    each = case.n * (1.0 if case.levels is None else math.log2(case.levels) / 32)
    return {
        "unit": f"{case.name}-seed{seed}", "clients_per_round": case.n, "levels": case.levels,
        "method": case.method, "seed": seed, "status": "finished", "round": ROUNDS,
        "objective": (1e6 * objective * (1 + far)).tolist(), "slice_psnr": (psnr - 10 * far**0.25).tolist(),
        "psnr": (psnr - 1 - 10 * far**0.25).tolist(), "bits_up": (1e9 * each * np.array(ROUNDS)).tolist(),
        "bits_down": ROUNDS, "bits_once_up": 0, "bits_once_down": 0,
    }  # fmt: skip


def made_up(jitter: float = 0.0, seeds: int = 3, **ends: tuple[float, float]) -> dict[Case, Line]:
    """Lines with the ends above but for those given by name, each seed off by a share of 1e-4 and of 1 dB."""
    rng = np.random.default_rng(0)
    runs = {}
    for case in [*CASES, *OUR_CASES]:
        objective, psnr = ends.get(case.name.replace("-", "_"), MEASURED.get(case, (1.2718, 47.5)))
        for seed in range(seeds if case in SEVERAL else 1):
            noise = jitter * rng.standard_normal(2)
            one = run(case, seed, objective * (1 + 1e-4 * noise[0]), psnr + noise[1])
            runs[one["unit"]] = one
    return lines_of(runs)


def verdicts(lines: dict[Case, Line]) -> dict[str, str]:
    """The verdicts, by short names."""
    return dict(zip(CLAIMS, [claim["verdict"] for claim in judge(lines)], strict=True))


def test_the_tie_zone_is_a_t_interval() -> None:
    differences = np.array([0.31, 0.27, 0.35])

    def loss(some: Any) -> ties.Comparison:
        return ties.compare(some, np.zeros(len(some)))

    found = loss(differences)
    low, high = stats.t.interval(0.95, 2, differences.mean(), stats.sem(differences))
    assert found.difference == pytest.approx((low + high) / 2)
    assert found.zone == pytest.approx((high - low) / 2)
    assert decide(found) == "worse"
    assert decide(loss(-differences)) == "better"
    assert decide(loss(differences - 0.31)) == "tied"
    assert loss(differences[:1]).difference == 0.31
    assert decide(loss(differences[:1])) == "one seed"
    assert decide(loss(differences[:0])) == "one seed"
    assert decide(loss(np.array([math.inf, 0.1]))) == "worse"


def test_seeds_are_compared_one_by_one() -> None:
    """What both have in common is no spread; seeds that one has alone do not count."""
    common, case, other = [0.0, 0.5, -0.5], Case(5, 1000), Case(5, None)
    runs = {
        f"{one.levels}-{seed}": run(one, seed, 1.27, 47.0 + common[seed] - (0.3 + 0.001 * seed if one == case else 0.0))
        for one, seeds in ((case, 3), (other, 2))
        for seed in range(seeds)
    }
    lines = lines_of(runs)
    found = compare(lines[case], lines[other]).slice_psnr
    assert found.seeds == 2
    assert found.difference == pytest.approx(0.3005)
    assert decide(found) == "worse"


def test_the_verdicts_on_clear_differences() -> None:
    assert verdicts(made_up(jitter=0.01)) == {
        "worse": "confirmed",
        "faster": "refuted against rounds, confirmed against bits",
        "levels": "confirmed in part",  # 0.3 dB lost, and 1 dB with 500 levels
        "too few levels": "confirmed",
        "clients": "confirmed",
        "too few clients": "confirmed",
        "bits": "confirmed",
        "fewest": "confirmed",
        "beyond": "measured",
    }


def test_differences_within_the_spread_are_ties() -> None:
    found = verdicts(made_up(jitter=30.0))
    assert found["worse"] == found["too few levels"] == found["too few clients"] == "tied"
    assert found["levels"] == found["clients"] == "confirmed"


def test_the_opposite_refutes() -> None:
    found = verdicts(made_up(0.01, n5_s500=(1.2710, 48.0), n2_s1000=(1.2700, 48.0), n5_s1000=(1.2722, 46.0)))
    assert found["too few levels"] == found["too few clients"] == "refuted"
    assert found["levels"] == "refuted"


def test_both_measures_count() -> None:
    """A higher objective with a better image is neither confirmed nor refuted."""
    found = verdicts(made_up(0.01, n5_s500=(1.2740, 48.0), n2_s1000=(1.2700, 46.0)))
    assert found["too few levels"] == found["too few clients"] == "mixed"


def test_one_seed_is_not_judged() -> None:
    found = verdicts(made_up(0.01, seeds=1))
    assert {found[name] for name in CLAIMS[:6]} == {"not judged", "not judged against rounds, not judged against bits"}
    assert found["bits"] == "confirmed"


def test_early_rounds_are_evaluated() -> None:
    one = made_up()[Case(5, None)]
    assert [one.rounds[one.at(part)] for part in EARLY] == [56, 175, 700, 1400, 2800]


def test_a_run_that_diverged_has_no_image() -> None:
    case = Case(5, 500)
    cut = run(case, 1, 1.3, 40.0)
    cut |= {name: value[:4] for name, value in cut.items() if isinstance(value, list)} | {"status": "diverged"}
    runs = {"a": run(case, 0, 1.27, 47.0), "b": cut}
    line = lines_of(runs)[case]
    assert line["objective"][1, -1] == math.inf
    assert line["slice_psnr"][1, -1] == -math.inf
    other = {f"{seed}": run(Case(5, 1000), seed, 1.27, 47.0) for seed in range(2)}
    assert compare(line, lines_of(other)[Case(5, 1000)]).outcomes == ["worse", "worse"]
