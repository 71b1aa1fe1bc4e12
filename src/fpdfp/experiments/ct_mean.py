"""``fpdfp reproduce ct --model mean``: the second experiment with another scaling of the data term, and tuned steps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fpdfp
from fpdfp._array import namespace
from fpdfp.ct.device import device_name
from fpdfp.declarative import pool
from fpdfp.declarative.scan import ITERATIONS
from fpdfp.declarative.settings import MEAN
from fpdfp.experiments import ct_claims, ct_figures, ct_page, page
from fpdfp.experiments.cases import Case, Clock, Step, final, round_numbers
from fpdfp.experiments.ct_lines import Line, lines_of
from fpdfp.experiments.ct_runs import (
    FIXED_LEVELS,
    MINIMUM,
    PAPER,
    PARTICIPATION,
    SIZES,
    Bench,
    Size,
    Unit,
    cases,
    describe_scan,
    name_of,
    our_cases,
)  # fmt: skip

#: The grid of FPDFP's steps, γ_k = γ0/(1 + ck): γ0 in units of 1/L, and c in units of one over the number of rounds.
GAMMAS = (1.0, 1.5, 1.9)
DECAYS = (0.0, 2.0, 8.0)
#: With c = 0 the γ0 of the grid are compared after this part of the rounds; with the best every c runs to the end.
FIRST_STAGE = 0.1
SEED = 1


class TunedBench(Bench):
    """The runs of a setting whose names tell everything that their outcome depends on, and what came of them."""

    def unit(self, case: Case, step: Step | None, rounds: int) -> Unit:
        """Return a run; FPDFP has steps, ours has none."""
        given = "" if step is None else f"-{step.gamma:g}-{step.decay:g}"
        rounding = namespace(self.where.there).__name__
        return Unit(f"{name_of(case)}{given}-{rounds}-{rounding}-{pool.package_code()}", case, SEED, rounds, step)

    def compute(self, units: Sequence[Unit], say: Any) -> list[dict[str, Any]]:
        """Do runs, and return what came of them."""
        self.keep_setting({"model": MEAN, "size": self.size.name})
        self.run_all(units, None, say)
        return [self.store.read(unit.name) for unit in units]

    def tune(self, n: int, rounds: int, say: Any) -> Step:
        """Return the step of the grid with the least objective at the end where n take part, in two stages."""

        def best(grid: Sequence[Step], count: int) -> Step:
            found = self.compute([self.unit(Case(n, FIXED_LEVELS), step, count) for step in grid], say)
            return grid[int(np.argmin(list(map(final, found))))]

        gamma = best([Step(gamma) for gamma in GAMMAS], max(1, round(FIRST_STAGE * rounds))).gamma
        return best([Step(gamma, decay / rounds) for decay in DECAYS], rounds)


def reproduce(
    size: str,
    output: Path,
    *,
    volume: Path | None = None,
    device: str = "auto",
    rounds: int | None = None,
    tune_at: str | None = None,
) -> dict[str, Any]:
    """Run the experiment at a size and write its results into a folder.

    Runs that are done are kept in ``runs`` in that folder, so that the same call goes on where another was interrupted.
    The steps are tuned at the size ``tune_at``, by default at the small one: in units of 1/L they carry over.
    """
    from rich.console import Console

    console, clock, chosen, folder = Console(), Clock(), SIZES[MEAN, size], output / "runs"
    rounds = chosen.rounds if rounds is None else rounds
    tuned_size = SIZES[MEAN, tune_at or ("tiny" if size == "tiny" else "small")]
    bench = TunedBench(folder, chosen, device, volume)
    there = bench if tuned_size == chosen else TunedBench(folder / "tuning", tuned_size, device, volume)
    tuned_rounds = min(rounds, tuned_size.rounds)

    def say(text: str) -> None:
        console.print(text, highlight=False)

    where = bench.where
    console.print(f"{where.problem}; {where.source}; on the {'CPU' if namespace(where.there) is np else 'GPU'}")
    clock.lap("data and constants")
    central = Unit(MINIMUM, None, 0, ITERATIONS)
    (best,) = bench.compute([central], say)
    best = {"objective": float(f"{best['objective']:.6g}"), "psnr": float(f"{best['psnr']:.6g}"),
            "iterations": best["iterations"]}  # fmt: skip
    clock.lap("minimum")
    steps = {n: there.tune(n, tuned_rounds, say) for n in PARTICIPATION}
    clock.lap("tuning of FPDFP")
    # c is in units of one over the rounds, and so carries over to other numbers of them.
    carried = {n: step._replace(decay=step.decay * tuned_rounds / rounds) for n, step in steps.items()}
    units = [bench.unit(case, carried[case.n], rounds) for case in cases()]
    units += [bench.unit(case, None, min(rounds, chosen.few)) for case in our_cases()]
    runs = dict(zip((unit.name for unit in units), bench.compute(units, say), strict=True))
    clock.lap("runs")
    lines = {
        case: one._replace(step=carried[case.n] if case in cases() else None)
        for case, one in lines_of(runs, {name: bench.store.picture(name) for name in runs}).items()
    }
    # In single precision any of them may be the nearest to the minimum.
    best["objective"] = min(best["objective"], *round_numbers([one.objective.min() for one in lines.values()]))
    summary = results(bench, best, lines, rounds, tuned_rounds, tuned_size)
    truth, shown = bench.store.picture("setting"), {"PSNR of the volume": "psnr"}
    text = ct_page.write_mean(summary, ct_figures.draw(lines, truth, best["objective"], output, shown))
    clock.lap("figures and text")
    spent = {name: {"seconds": one["seconds"], "rounds": one["seconds_in_rounds"]} for name, one in runs.items()}
    times = {"device": device_name(namespace(where.there)), "laps": clock.laps, "runs": spent}
    (output / "times.json").write_text(json.dumps(times, indent=1) + "\n")
    page.publish(output, summary, text, clock)
    return summary


def results(
    bench: Bench, best: dict[str, float], lines: dict[Case, Line], rounds: int, tuned_rounds: int, tuned_size: Size
) -> dict[str, Any]:
    """Everything in numbers, so that figures can be drawn anew from it."""
    size, volume = bench.size, bench.changes.get("data.volume")
    return {
        "experiment": "federated cone-beam CT with total variation",
        "version": fpdfp.__version__,
        "model": MEAN,
        "size": size.name,
        "problem": {
            **describe_scan(size, bench.where), "weight_of_a_ray": size.scan.pixel_area,
            "file": "" if volume is None else Path(volume).name,
        },
        "minimum": best,
        "tuning": {
            "what": "FPDFP's step γ_k = γ0/(1 + ck), for each n", "levels": FIXED_LEVELS, "size": tuned_size.name,
            "gamma0_times_L": GAMMAS, "c_times_rounds": DECAYS, "by": "objective",
            "rounds": [max(1, round(FIRST_STAGE * tuned_rounds)), tuned_rounds],
        },
        "rounds": rounds,
        "cases": [describe(one, rounds) for one in lines.values()],
        "claims": [claim._asdict() for claim in ct_claims.judge_mean(lines)],
    }  # fmt: skip


def describe(one: Line, rounds: int) -> dict[str, Any]:
    """A case in numbers."""
    step = {} if one.step is None else {
        "gamma0_times_L": one.step.gamma, "c_times_rounds": float(f"{one.step.decay * rounds:.6g}"),
    }  # fmt: skip
    return {
        "label": one.case.label, "method": one.case.method, "clients_per_round": one.case.n, "levels": one.case.levels,
        **step, "psnr_in_the_paper": PAPER.get(one.case), "bits_once_up": one.once_up,
        "round": one.rounds.astype(int).tolist(), "objective": round_numbers(one.objective[0]),
        "psnr": round_numbers(one.psnr[0]),
        **{name: getattr(one, name)[0].astype(int).tolist() for name in ("bits_up", "bits_down")},
    }  # fmt: skip
