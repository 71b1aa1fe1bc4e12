"""What is to be run: every setting with every seed; and runs that differ in their penalty alone, solved together."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.declarative.build import Built, build, problem_key
from fpdfp.declarative.settings import Case, Settings
from fpdfp.engines.result import COLUMNS, SENT, History
from fpdfp.engines.traffic import Bits, Traffic
from fpdfp.runs import writing
from fpdfp.runs.recorded import Ended, write_folder
from fpdfp.selection import ManyResult, solve_many

#: How runs end, by how their problems do.
STATUS = {"converged": "converged", "stalled": "rounding", "unfinished": "finished"}
MESSAGES = {
    "converged": "no decrease beyond tol is expected",
    "rounding": "the objective does not decrease any more",
    "finished": "all rounds are done",
    "interrupted": "stopped by the user",
}


class Job(NamedTuple):
    """A run: what it is called in tables and reports, its settings, its seed, its folder, and that of the experiment.

    ``changes`` are the values of the keys that are swept.
    """

    name: str
    settings: Settings
    seed: int
    folder: Path
    output: Path
    changes: Mapping[str, Any]


def list_jobs(cases: Iterable[Case], output: Path) -> list[Job]:
    """Return all runs of an experiment: every setting with every seed."""
    found = []
    for case in cases:
        run, title = case.settings["run"], case.label.replace(",", ", ") or case.settings["name"]
        for seed in run["seeds"]:
            name = f"{title}, seed {seed}" if len(run["seeds"]) > 1 else title
            settings = {**case.settings, "run": {**run, "seeds": [seed]}}
            found.append(Job(name, settings, seed, output / case.label / f"seed-{seed}", output, case.changes))
    return found


def find_reference(job: Job) -> float:
    """Return the minimum of a run's problem, found once for all runs that share it."""
    digest = hashlib.sha256(problem_key(job.settings).encode()).hexdigest()[:16]
    path = job.output / "references" / f"{digest}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return float(json.loads(path.read_text())["objective"])
    began = time.perf_counter()
    objective = build(job.settings).reference()
    writing.write_json(path, {"objective": objective, "seconds": time.perf_counter() - began})
    return objective


def group(jobs: Sequence[Job]) -> list[list[Job]]:
    """Return which runs are done at once: those with ``run.together`` that differ in the penalty alone."""
    found: dict[str, list[Job]] = {}
    for number, job in enumerate(jobs):
        rest = {name: value for name, value in job.settings.items() if name != "penalty"}
        key = json.dumps(rest, sort_keys=True) if job.settings["run"]["together"] else str(number)
        found.setdefault(key, []).append(job)
    return list(found.values())


def run_together(jobs: Sequence[Job], progress: bool | None) -> None:
    """Solve the problems of some runs at once, and write the folders of those that were begun.

    Answers are kept until all have ended, so that an interrupted group goes on to the same bits.
    """
    ordered = sorted(jobs, key=lambda job: -float(job.settings["penalty"].get("weight", 0.0)))
    built = [build(job.settings) for job in ordered]
    run = ordered[0].settings["run"]
    text = json.dumps([job.settings for job in ordered], sort_keys=True)
    kept = ordered[0].output / "together" / hashlib.sha256(text.encode()).hexdigest()[:16]
    began = time.perf_counter()
    found = solve_many(
        [one.problem for one in built], tol=run["tol"], rounds=run["rounds"], progress=progress, checkpoint=kept
    )
    seconds = time.perf_counter() - began
    interrupted = "unfinished" in found.status and found.rounds < run["rounds"]
    ups, downs = (share(bits, found.evaluations) for bits in (found.bits_up, found.bits_down))
    for place, (job, one) in enumerate(zip(ordered, built, strict=True)):
        if not np.isfinite(found.objective[place]):
            continue  # it was not begun
        status = "interrupted" if interrupted else STATUS[found.status[place]]
        traffic = Traffic({"rounds": Bits(int(ups[place]), int(downs[place]))})
        ended = Ended(
            found.x[place], status, MESSAGES[status], found.rounds, run["rounds"], traffic, seconds / len(jobs),
            _write_history(one, found, place, traffic, seconds / len(jobs)), "many problems at once (fpdfp.solve_many)",
            ["fixed point, by the tolerance"],
            {"estimated_gap": float(found.gap[place]), "together": _describe(found, seconds)},
        )  # fmt: skip
        reference = find_reference(job) if run["reference"] else None
        write_folder(
            job.folder, one.problem, ended, name=job.name, seed=job.seed, config=job.settings, model=one.model or {},
            reference=reference, form=run["history"],
        )  # fmt: skip
    if not np.isfinite(found.objective).any():
        raise KeyboardInterrupt
    if found.converged:
        shutil.rmtree(kept)


def share(bits: int, evaluations: IntArray) -> IntArray:
    """Divide the bits of all runs by how often each was asked about, to whole numbers that add up.

    >>> share(10, np.array([1, 1, 2]))
    array([2, 3, 5])
    """
    ends: Array = np.cumsum(np.maximum(evaluations, 1))
    shares: IntArray = np.diff([0, *(bits * int(end) // int(ends[-1]) for end in ends)])
    return shares


def _describe(found: ManyResult, seconds: float) -> dict[str, Any]:
    """Return what all runs have cost."""
    return {
        "runs": len(found.status), "rounds": found.rounds, "total_up": found.bits_up, "total_down": found.bits_down,
        "seconds": seconds,
    }  # fmt: skip


def _write_history(built: Built, found: ManyResult, place: int, traffic: Traffic, seconds: float) -> History:
    """Return the table of a run: its start, at zero, and its end."""
    history, x = History(), found.x[place]
    for round_, point, objective, sent in (
        (0, np.zeros_like(x), built.problem.objective(np.zeros_like(x)), False),
        (found.rounds, x, float(found.objective[place]), True),
    ):
        row: dict[str, Any] = dict.fromkeys(COLUMNS, 0) | {"round": round_, "objective": objective, "step": 1.0}
        if sent:
            row |= {name: value for name, value in traffic.totals.items() if name in SENT} | {"seconds": seconds}
        history.append(row | {name: measure(point) for name, measure in built.metrics.items()})
    return history
