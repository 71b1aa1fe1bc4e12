"""``fpdfp reproduce``: the paper's first experiment with its figures, its claims, and the numbers behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import fpdfp
from fpdfp.declarative import pool
from fpdfp.declarative.rows import BuiltRows
from fpdfp.declarative.settings import Settings
from fpdfp.experiments import claims, figures, page
from fpdfp.experiments import graph_guided as guided
from fpdfp.experiments.cases import LAST, Case, Clock, finite, round_numbers
from fpdfp.experiments.graph_guided import Bench, Findings, Line, Planned, Sweep, build_task, declare_task

#: How near the optimum is, relative to it.
TOLERANCE = 1e-9


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

    console, clock, task, folder = Console(), Clock(), guided.TASKS[name], output / "runs"
    settings = declare_task(name, data)
    rounds = settings["run"]["rounds"] if rounds is None else rounds
    # The seeds of the runs: those of the tuning are not among them.
    shown = range(len(guided.TUNING_SEEDS), len(guided.TUNING_SEEDS) + (seeds or len(settings["run"]["seeds"])))
    where = build_task(name, data)
    assert where.graph is not None
    folder.mkdir(parents=True, exist_ok=True)
    for torn in folder.glob(".*.tmp"):  # what a killed worker was writing
        torn.unlink()
    console.print(f"{where.problem}; {len(where.test_labels)} rows to test on; a graph of {where.graph.edges} edges")
    clock.lap("data, graph and constants")
    optimum = find_optimum(where.problem, output)
    best = optimum["objective"]
    console.print(f"optimum: {best:.12g}, certified to a relative {optimum['relative_gap']:.1e}")
    clock.lap("optimum")
    with pool.bar() as bar, pool.workers(jobs=jobs) as processes:
        bench = Bench(name, data, folder, processes, bar)
        common = bench.tune(task.common, rounds)
        clock.lap("tuning of the common step")
        plan: list[Planned] = [(case, common, rounds) for case in task.cases]
        plan += [(case, None, min(guided.FEW, rounds)) for case in task.automatic_cases]
        lines = bench.measure(plan, shown, best)
        clock.lap("runs")
        own, sweep = dict[Case, Line](), Sweep({})
        if task.studies:
            steps = {case: bench.tune(case, rounds) for case in task.cases}
            own = bench.measure([(case, step, rounds) for case, step in steps.items()], shown, best)
            clock.lap("each case tuned for itself")
            sweep = bench.sweep(task.per_round, common.decay, max(1, round(guided.SWEEP * rounds)), shown, best)
            clock.lap("every step for every number of levels")
    found = Findings(task, lines, own, sweep)
    summary = results(where, settings, optimum, found, rounds, list(shown))
    text = page.write(task.name, summary, figures.draw(found, output))
    clock.lap("figures and text")
    page.publish(output, summary, text, clock)
    return summary


def find_optimum(problem: fpdfp.Problem, output: Path) -> dict[str, Any]:
    """F* with a certificate: x and v are kept, and give the gap anew without being trusted."""
    file, model = output / "optimum.npz", problem.model
    certificate = None
    if file.is_file():
        with np.load(file) as kept:
            x, v = kept["x"], kept["v"]
        if x.shape == model.shape and v.shape == model.dual_shape:
            certificate = problem.certificate(x, v, dual_steps=0)
    if certificate is None or certificate.relative_gap is None or certificate.relative_gap > TOLERANCE:
        found = fpdfp.minimize(problem, tol=TOLERANCE)
        np.savez(file, x=found.x, v=found.certificate.v)
        # As it is computed from what was kept, so that a second call finds the same number.
        certificate = problem.certificate(found.x, found.certificate.v, dual_steps=0)
    return {"objective": certificate.objective, "relative_gap": certificate.relative_gap}


def results(
    where: BuiltRows, settings: Settings, best: dict[str, Any], found: Findings, rounds: int, seeds: list[int]
) -> dict[str, Any]:
    """Everything in numbers, so that figures can be drawn anew from it."""
    task, graph = found.task, where.graph
    assert graph is not None
    return {
        "experiment": f"graph-guided logistic regression, {task.name}",
        "version": fpdfp.__version__,
        "problem": {
            "training_rows": len(where.labels), "test_rows": len(where.test_labels), "features": graph.n_features,
            "clients": task.clients, "mu1": settings["loss"]["l2"], "mu2": settings["penalty"]["weight"],
            "split": "at random, in equal shares",
            "graph": {"alpha": settings["operator"]["alpha"], "edges": graph.edges, "shrinkage": graph.shrinkage},
        },
        "optimum": {**best, "file": "optimum.npz"},
        "tuning": {
            "what": "FPDFP's step γ_k = γ0/(1 + ck)", "gamma0_times_L": guided.GAMMAS, "c": guided.DECAYS,
            "on": task.common.label,
            "L": float(where.problem.lipschitz.mean()), "seeds": guided.TUNING_SEEDS,
            "by": f"objective, mean over the last {100 * LAST:g} % of the rounds",
            "stages": [
                [round(guided.FIRST_STAGE * rounds), "all; of each c the best γ0 goes on, of c = 0 the best two"],
                [rounds, f"those; the best {guided.FINALISTS} go on with all seeds"],
            ],
        },
        "rounds": rounds,
        "seeds": seeds,
        "cases": [describe(one) for one in found.lines.values()],
        "each_tuned_for_itself": [describe(one) for one in found.own.values()],
        "sweep": {
            "rounds": max(1, round(guided.SWEEP * rounds)), "levels": guided.SWEPT,
            "errors": [
                {"levels": levels, "gamma0_times_L": gamma, "error_at_the_end": finite(round_numbers(errors))}
                for (levels, gamma), errors in found.sweep.errors.items()
            ],
        },
        "horizons": claims.by_horizon(found),
        "claims": [claim._asdict() for claim in claims.judge(found)],
    }  # fmt: skip


def describe(one: Line) -> dict[str, Any]:
    """A case in numbers: at each evaluation the median over seeds, the least and the largest."""
    step = {}
    if one.step is not None:
        (gamma, decay), ends = one.step, (guided.GAMMAS[0], guided.GAMMAS[-1])
        at_the_end = gamma in ends or decay == guided.DECAYS[-1]
        step = {"gamma0_times_L": gamma, "c": decay, "at_the_end_of_the_grid": at_the_end}
    kinds: dict[str, Any] = {"median": np.median, "least": np.min, "largest": np.max}
    columns = {
        name: {kind: round_numbers(of(getattr(one, name), axis=0)) for kind, of in kinds.items()}
        for name in ("error", "test_loss", "accuracy", "bits_up", "bits_down")
    }
    return {
        "label": one.case.label, "method": one.case.method, "clients_per_round": one.case.n, "levels": one.case.levels,
        **step, "error_at_the_end": round_numbers(one.ended), "bits_once_up": one.once_up, "round": one.rounds.tolist(),
        **columns,
    }  # fmt: skip
