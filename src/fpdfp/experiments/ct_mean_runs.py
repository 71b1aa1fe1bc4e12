"""The runs of the second experiment with the model ``mean``: FPDFP tuned for each participation, and ours."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp._units import format_bits
from fpdfp.ct.quality import psnr
from fpdfp.experiments import pool
from fpdfp.experiments.ct_cases import FIXED_LEVELS, compressors, ours
from fpdfp.experiments.ct_setting import Setting
from fpdfp.experiments.runs import Case, Step, final, schedule

#: The grid of FPDFP's steps, γ_k = γ0/(1 + ck): γ0 in units of 1/L with L the mean of the clients' constants, and c in
#: units of one over the number of rounds.
GAMMAS = (1.0, 1.5, 1.9)
DECAYS = (0.0, 2.0, 8.0)
#: With c = 0 the γ0 of the grid are compared after this part of the rounds; with the best every c runs to the end.
FIRST_STAGE = 0.1
SEED = 1
COLUMNS = ("round", "objective", "bits_up", "bits_down", "psnr")


class Job(NamedTuple):
    """A run: its key, and what it is."""

    key: str
    case: Case
    step: Step | None
    rounds: int


def evaluations(rounds: int) -> list[int]:
    """The rounds after which a run is evaluated, about 30: closer at first."""
    spaced = np.concatenate([np.geomspace(1, rounds, 12), np.linspace(0, rounds, 21)[1:]])
    return sorted(set(spaced.round().astype(int).tolist()))


class Here:
    """A pool of workers that does everything in this process, one after the other: the projector has all cores."""

    def imap_unordered(self, work: Callable[[Any], Any], jobs: Iterable[Any]) -> Iterator[Any]:
        """Do the jobs."""
        return map(work, jobs)


class Bench:
    """The runs of a setting, with what is done already taken from files."""

    def __init__(self, where: Setting, folder: Path, progress: Any) -> None:
        self.where, self.folder = where, folder
        self.scores = pool.Scores(folder / "runs.jsonl", Here(), self.work, progress)
        self.code, self.rounding = pool.package_code(), type(where.truth).__module__.split(".")[0]

    def job(self, case: Case, step: Step | None, rounds: int) -> Job:
        """Return the job of a run; its key tells everything that its outcome depends on."""
        how = "" if step is None else f"-{step.gamma:g}-{step.decay:g}"
        what = f"{case.method}-{case.n}-{case.levels}{how}-{SEED}-{rounds}"
        sent = repr(compressors(case) if step is not None else ours())
        settings = hashlib.sha256(sent.encode()).hexdigest()[:8]
        return Job(f"{what}-{self.where.digest}-{settings}-{self.rounding}-{self.code}", case, step, rounds)

    def compute(self, title: str, jobs: Sequence[Job]) -> list[dict[str, list[float]]]:
        """Do the runs."""
        found: list[dict[str, list[float]]] = self.scores.compute(title, jobs, cost, say)
        return found

    def work(self, job: Job) -> tuple[str, dict[str, list[float]] | None]:
        """Do a run, and keep the slice that is shown and the time that it took."""
        started = time.perf_counter()
        result = run(self.where, job)
        if result.status == "interrupted":
            return job.key, None
        np.save(self.slice_file(job), to_host(result.x[:, :, self.where.middle]).astype(np.float32))
        seconds = result.history.seconds
        lap = {"run": job.key, "seconds": time.perf_counter() - started, "rounds": float(seconds[-1])}
        with (self.folder / "times.jsonl").open("a") as file:
            file.write(json.dumps(lap) + "\n")
        columns = {name: result.history[name].tolist() for name in COLUMNS}
        diverged = [float(result.status == "diverged")]
        return job.key, {**columns, "once_up": [result.bits_once_up], "diverged": diverged}

    def slice_file(self, job: Job) -> Path:
        """Where the slice of a run is kept."""
        return self.folder / f"{job.key}.npy"

    def times(self) -> dict[str, dict[str, float]]:
        """For each run its seconds, in all and in rounds."""
        file = self.folder / "times.jsonl"
        laps = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
        return {lap["run"]: {"seconds": lap["seconds"], "rounds": lap["rounds"]} for lap in laps}

    def tune(self, n: int, rounds: int) -> Step:
        """Return the step of the grid with the least objective at the end where n take part, in two stages."""
        case = Case(n, FIXED_LEVELS)
        gamma = self.best(case, [Step(gamma, 0.0) for gamma in GAMMAS], max(1, round(FIRST_STAGE * rounds))).gamma
        return self.best(case, [Step(gamma, decay / rounds) for decay in DECAYS], rounds)

    def best(self, case: Case, grid: Sequence[Step], rounds: int) -> Step:
        """Return the best of some steps after so many rounds."""
        jobs = [self.job(case, step, rounds) for step in grid]
        found = self.compute(f"tuning {case.label}, {rounds} rounds,", jobs)
        return grid[int(np.argmin([final(one) for one in found]))]


def run(where: Setting, job: Job) -> fpdfp.Result:
    """Do a run."""
    how = ours()
    if job.step is not None:
        how = {"method": fpdfp.FPDFP(schedule(where.problem, job.step)), "compressor": compressors(job.case)}
    with warnings.catch_warnings():
        # Some steps of a grid are meant to be too large.
        warnings.simplefilter("ignore", fpdfp.errors.StepTooLargeWarning)
        warnings.simplefilter("ignore", fpdfp.errors.DivergenceWarning)
        return fpdfp.solve(
            where.problem,
            **how,
            rounds=job.rounds,
            clients_per_round=job.case.n,
            seed=SEED,
            evaluate_every=evaluations(job.rounds),
            metrics={"psnr": where.psnr},
            progress=False,
        )


def cost(job: Job) -> int:
    """What a run costs: gradients of clients."""
    return job.rounds * job.case.n


def say(job: Job, found: dict[str, list[float]]) -> str:
    """Tell of a run that is done."""
    return f"objective {found['objective'][-1]:.6g}, {found['psnr'][-1]:.2f} dB, {format_bits(found['bits_up'][-1])} up"


class Line(NamedTuple):
    """What is shown of a case at its evaluations, and its slice at the end."""

    case: Case
    step: Step | None
    rounds: Array
    objective: Array
    psnr: Array
    bits_up: Array
    bits_down: Array
    once_up: float
    picture: Array

    @property
    def qualities(self) -> dict[str, Array]:
        """What figures show of the image, by title."""
        return {"PSNR of the volume": self.psnr}

    def picture_psnr(self, truth: Array) -> float:
        """The PSNR of the picture."""
        return psnr(self.picture, truth, peak=1.0)

    @property
    def ended(self) -> float:
        """The PSNR at the end."""
        return float(self.psnr[-1])


def line(bench: Bench, job: Job, found: dict[str, list[float]]) -> Line:
    """Put a run's numbers and its slice together."""
    columns = {name: np.array(found[name], dtype=np.float64) for name in COLUMNS}
    return Line(
        job.case, job.step, columns["round"], columns["objective"], columns["psnr"], columns["bits_up"],
        columns["bits_down"], found["once_up"][0], np.load(bench.slice_file(job)),
    )  # fmt: skip
