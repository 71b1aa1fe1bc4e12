"""``fpdfp reproduce``: the paper's first experiment with its figures, its claims, and the numbers behind them."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import fpdfp
from fpdfp.experiments import claims, figures, page, pool
from fpdfp.experiments.graph_guided import TASKS, Setting, Task, cached_setting
from fpdfp.experiments.runs import (
    DECAYS,
    FEW,
    FINALISTS,
    FIRST_STAGE,
    GAMMAS,
    LAST,
    SWEEP,
    SWEPT,
    TUNING_SEEDS,
    Bench,
    Case,
    Findings,
    Line,
    Step,
    Sweep,
    automatic_cases,
    cases,
    line,
    reference,
    start_worker,
    work,
)

TOLERANCE = 1e-9
#: A case, its step and its rounds.
Planned: TypeAlias = tuple[Case, Step | None, int]


def reproduce(
    name: str,
    output: Path,
    *,
    data: Path | None = None,
    rounds: int | None = None,
    seeds: int | None = None,
    jobs: int | None = None,
) -> dict[str, Any]:
    """Run the experiment of a data set and write its results into a folder.

    Runs that are done are kept in ``runs`` in that folder, so that the same call goes on where another was interrupted.
    """
    from rich.console import Console

    console, task = Console(), TASKS[name]
    rounds = task.rounds if rounds is None else rounds
    seeds = task.seeds if seeds is None else seeds
    folder, clock = output / "runs", Clock()
    where = cached_setting(task, data)
    folder.mkdir(parents=True, exist_ok=True)
    for torn in folder.glob(".*.tmp"):  # what a killed worker was writing
        torn.unlink()
    console.print(f"{where.problem}; {len(where.test_labels)} rows to test on; a graph of {where.graph.edges} edges")
    clock.lap("data, graph and constants")
    best = optimum(where, output)
    console.print(f"optimum: {best['objective']:.12g}, certified to a relative {best['relative_gap']:.1e}")
    clock.lap("optimum")
    with pool.bar() as bar, pool.workers(start_worker, task, data, jobs=jobs) as processes:
        bench = Bench(where, pool.Scores(folder / "runs.jsonl", processes, work, bar), folder)
        common = bench.tune(reference(task), rounds)
        clock.lap("tuning of the common step")
        plan: list[Planned] = [(case, common, rounds) for case in cases(task)]
        plan += [(case, None, min(FEW, rounds)) for case in automatic_cases(task)]
        lines = measure(bench, plan, seeds, best["objective"])
        clock.lap("runs")
        own, sweep = dict[Case, Line](), Sweep({})
        if task.studies:
            steps = {case: bench.tune(case, rounds) for case in cases(task)}
            own = measure(bench, [(case, step, rounds) for case, step in steps.items()], seeds, best["objective"])
            clock.lap("each case tuned for itself")
            sweep = swept(bench, task, common.decay, max(1, round(SWEEP * rounds)), seeds, best["objective"])
            clock.lap("every step for every number of levels")
    found = Findings(task, lines, own, sweep)
    summary = results(where, best, found, rounds, seeds)
    (output / "results.json").write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    names = figures.draw(found, output)
    (output / "claims.md").write_text(page.write(task.name, summary, names))
    clock.lap("figures and text")
    for claim in summary["claims"]:
        console.print(f"[bold]{claim['verdict']}[/bold]: {claim['claim']}")
    console.print(f"{clock}\nresults, figures and claims: {output}", highlight=False)
    return summary


def measure(bench: Bench, plan: Sequence[Planned], seeds: int, best: float) -> dict[Case, Line]:
    """Run cases with their steps and rounds, every one with every seed."""
    jobs = [bench.job(case, step, seed, count) for case, step, count in plan for seed in seeds_of(seeds)]
    found = bench.compute(f"{seeds} seeds,", jobs)
    return {
        case: line(case, step, found[i * seeds : (i + 1) * seeds], best, count)
        for i, (case, step, count) in enumerate(plan)
    }


def swept(bench: Bench, task: Task, decay: float, rounds: int, seeds: int, best: float) -> Sweep:
    """Run every γ0 of the grid for several numbers of levels, with one c, for a part of the rounds."""
    found = {}
    for gamma in GAMMAS:
        plan: list[Planned] = [(Case(task.per_round, levels), Step(gamma, decay), rounds) for levels in SWEPT]
        for case, one in measure(bench, plan, seeds, best).items():
            found[case.levels, gamma] = one.ended
    return Sweep(found)


def seeds_of(count: int) -> range:
    """The seeds of the runs: those of the tuning are not among them."""
    return range(len(TUNING_SEEDS), len(TUNING_SEEDS) + count)


def optimum(where: Setting, output: Path) -> dict[str, Any]:
    """F* with a certificate: x and v are kept, and give the gap anew without being trusted."""
    file, model = output / "optimum.npz", where.problem.model
    if file.is_file():
        with np.load(file) as kept:
            x, v = kept["x"], kept["v"]
        if x.shape == model.shape and v.shape == model.dual_shape:
            certificate = where.problem.certificate(x, v, dual_steps=0)
            if certificate.relative_gap is not None and certificate.relative_gap <= TOLERANCE:
                return {"objective": certificate.objective, "relative_gap": certificate.relative_gap}
    found = fpdfp.reference_solution(where.problem, tol=TOLERANCE)
    np.savez(file, x=found.x, v=found.v)
    return {"objective": found.objective, "relative_gap": found.certificate.relative_gap}


def results(where: Setting, best: dict[str, Any], found: Findings, rounds: int, seeds: int) -> dict[str, Any]:
    """Everything in numbers, so that figures can be drawn anew from it."""
    task, sizes = where.task, where.problem.losses.sizes
    return {
        "experiment": f"graph-guided logistic regression, {task.name}",
        "version": fpdfp.__version__,
        "problem": {
            "training_rows": int(sizes.sum()), "test_rows": len(where.test_labels), "features": where.graph.n_features,
            "clients": task.clients, "mu1": task.weight, "mu2": task.weight, "split": "at random, in equal shares",
            "graph": {"alpha": task.alpha, "edges": where.graph.edges, "shrinkage": where.graph.shrinkage},
        },
        "optimum": {**best, "file": "optimum.npz"},
        "tuning": {
            "what": "FPDFP's step γ_k = γ0/(1 + ck)", "gamma0_times_L": GAMMAS, "c": DECAYS,
            "on": reference(task).label,
            "L": float(where.problem.lipschitz.mean()), "seeds": TUNING_SEEDS,
            "by": f"objective, mean over the last {100 * LAST:g} % of the rounds",
            "stages": [
                [round(FIRST_STAGE * rounds), "all; of each c the best γ0 goes on, of c = 0 the best two"],
                [rounds, f"those; the best {FINALISTS} go on with all seeds"],
            ],
        },
        "rounds": rounds,
        "seeds": list(seeds_of(seeds)),
        "cases": [described(one) for one in found.lines.values()],
        "each_tuned_for_itself": [described(one) for one in found.own.values()],
        "sweep": {
            "rounds": max(1, round(SWEEP * rounds)), "levels": SWEPT,
            "errors": [
                {"levels": levels, "gamma0_times_L": gamma,
                 "error_at_the_end": [one if math.isfinite(one) else None for one in rounded(errors)]}
                for (levels, gamma), errors in found.sweep.errors.items()
            ],
        },
        "horizons": claims.by_horizon(found),
        "claims": [claim._asdict() for claim in claims.judge(found)],
    }  # fmt: skip


def described(one: Line) -> dict[str, Any]:
    """A case in numbers: at each evaluation the median over seeds, the least and the largest."""
    step = {} if one.step is None else {
        "gamma0_times_L": one.step.gamma, "c": one.step.decay,
        "at_the_end_of_the_grid": one.step.gamma in (GAMMAS[0], GAMMAS[-1]) or one.step.decay == DECAYS[-1],
    }  # fmt: skip
    columns = {
        name: {kind: rounded(of(getattr(one, name))) for kind, of in KINDS.items()}
        for name in ("error", "test_loss", "accuracy", "bits_up", "bits_down")
    }
    return {
        "label": one.case.label, "method": one.case.method, "clients_per_round": one.case.n, "levels": one.case.levels,
        **step, "error_at_the_end": rounded(one.ended), "bits_once_up": one.once_up, "round": one.rounds.tolist(),
        **columns,
    }  # fmt: skip


KINDS: dict[str, Any] = {
    "median": lambda values: np.median(values, axis=0),
    "least": lambda values: values.min(axis=0),
    "largest": lambda values: values.max(axis=0),
}


def rounded(values: Any) -> list[float]:
    """Numbers with six digits."""
    return [float(f"{value:.6g}") for value in values]


class Clock:
    """Where the time goes."""

    def __init__(self) -> None:
        self.last, self.laps = time.perf_counter(), dict[str, float]()

    def lap(self, name: str) -> None:
        """Charge the time since the last call."""
        now = time.perf_counter()
        self.laps[name], self.last = now - self.last, now

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.laps.items())
        return f"{sum(self.laps.values()):.0f} s in all: {parts}"
