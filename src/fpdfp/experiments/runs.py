"""The runs of the first experiment: FPDFP for several levels and participations, and the automatic method.

All cases of FPDFP run with one step γ_k, tuned on the case that both comparisons have in common; where a task has
studies, also with a step tuned for each, and with every step of the grid for several numbers of levels.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp import steps
from fpdfp._typing import Array
from fpdfp._units import format_bits
from fpdfp.engines.checkpoint import fingerprint
from fpdfp.experiments import pool
from fpdfp.experiments.graph_guided import Setting, Task, cached_setting

LEVELS: tuple[int | None, ...] = (5, 10, 20, None)
#: The levels where participation varies.
FIXED_LEVELS = 20
#: The grid of FPDFP's steps, γ_k = γ0/(1 + ck): γ0 in units of 1/L with L the mean of the clients' constants, and c.
GAMMAS = (1.0, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
DECAYS = (0.0, 0.001, 0.005)
#: The first stage of tuning has this part of the rounds. Of each c the best γ0 goes on, of c = 0 the best two, since
#: the noise of a constant step shows late; of those, after all rounds, the best so many are run with every tuning seed.
FIRST_STAGE, FINALISTS = 0.1, 2
TUNING_SEEDS = (0, 1)
#: "At the end" means the mean over the last part of the rounds: with some clients a round the last iterate is noisy.
LAST = 0.2
#: Where the cases are compared, as parts of the rounds.
HORIZONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
#: The numbers of levels that run with every step of the grid, and for which part of the rounds.
SWEPT: tuple[int | None, ...] = (1, 2, *LEVELS)
SWEEP = 0.25
#: Rounds of the automatic method.
FEW = 100
AUTOMATIC = "automatic"
COLUMNS = ("round", "objective", "bits_up", "bits_down", "test_loss", "accuracy")


class Case(NamedTuple):
    """One line of a figure: FPDFP with so many levels (None: exact messages) and clients, or the automatic method."""

    n: int
    levels: int | None = None
    method: str = "FPDFP"

    @property
    def label(self) -> str:
        """Its name in tables."""
        if self.method == AUTOMATIC:
            return f"automatic, n = {self.n}"
        return f"FPDFP, n = {self.n}, " + ("exact" if self.levels is None else f"s = {self.levels}")


class Step(NamedTuple):
    """γ0 in units of 1/L, and c."""

    gamma: float
    decay: float


class Job(NamedTuple):
    """A run: its key, what it is, and where to keep its checkpoint."""

    key: str
    case: Case
    step: Step | None
    seed: int
    rounds: int
    folder: str


def cases(task: Task) -> list[Case]:
    """All cases of FPDFP, each once."""
    by_levels = [Case(task.per_round, levels) for levels in LEVELS]
    return [*by_levels, *(Case(n, FIXED_LEVELS) for n in task.participation if n != task.per_round)]


def reference(task: Task) -> Case:
    """The case that both comparisons have in common: the step of all cases is tuned on it."""
    return Case(task.per_round, FIXED_LEVELS)


def automatic_cases(task: Task) -> list[Case]:
    """The automatic method with as many clients, and with everyone."""
    return [Case(n, None, AUTOMATIC) for n in (task.per_round, task.clients)]


def evaluations(rounds: int) -> list[int]:
    """The rounds after which a run is evaluated: every one at first, later fewer, and ten before each horizon."""
    spaced = [np.geomspace(1, rounds, 40), np.linspace(0, rounds, 31)[1:]]
    spaced += [np.linspace(0.7 * horizon, horizon, 10) for horizon in horizons(rounds)]
    return sorted({max(1, round(at)) for at in np.concatenate(spaced)})


def horizons(rounds: int) -> list[int]:
    """The rounds at which cases are compared; at least ten, unless there are fewer."""
    return sorted({round(part * rounds) for part in HORIZONS if part * rounds >= 10} | {rounds})


_data: Any = None
_task: Task


def start_worker(task: Task, directory: Any) -> None:
    """Say what a worker process works on."""
    global _data, _task
    _task, _data = task, directory


def work(job: Job) -> tuple[str, dict[str, list[float]] | None]:
    """Do a run in a worker; what is returned are the columns of its history, None if it was interrupted."""
    return job.key, run(cached_setting(_task, _data), job)


def run(where: Setting, job: Job) -> dict[str, list[float]] | None:
    """Do a run, going on from its checkpoint if there is one."""
    case, checkpoint = job.case, Path(job.folder) / f"{job.key}.npz"
    how: dict[str, Any] = {}
    if case.method != AUTOMATIC:
        assert job.step is not None
        how = {"method": fpdfp.FPDFP(schedule(where.problem, job.step)), "compressor": compressor(case)}
    with warnings.catch_warnings():
        # Some steps of a grid are meant to be too large.
        warnings.simplefilter("ignore", fpdfp.errors.StepTooLargeWarning)
        warnings.simplefilter("ignore", fpdfp.errors.DivergenceWarning)
        result = fpdfp.solve(
            where.problem,
            **how,
            rounds=job.rounds,
            clients_per_round=case.n,
            seed=job.seed,
            evaluate_every=evaluations(job.rounds),
            metrics={"test_loss": where.test_loss, "accuracy": where.accuracy},
            checkpoint=checkpoint,
            resume=True,
            progress=False,
        )
    if result.status == "interrupted":
        return None
    checkpoint.unlink(missing_ok=True)
    columns = {name: result.history[name].tolist() for name in COLUMNS}
    return {**columns, "once_up": [result.bits_once_up], "diverged": [float(result.status == "diverged")]}


def schedule(problem: fpdfp.Problem, step: Step) -> steps.Schedule:
    """Return γ_k = γ0/(1 + ck) with γ0 given in units of 1/L."""
    gamma0 = step.gamma / float(problem.lipschitz.mean())
    return steps.Decreasing(gamma0, step.decay) if step.decay else steps.Constant(gamma0)


def compressor(case: Case) -> Any:
    """The messages of a case."""
    return None if case.levels is None else fpdfp.QSGD(case.levels)


class Bench:
    """The runs of a task on a pool, with what is done already taken from a file."""

    def __init__(self, where: Setting, scores: pool.Scores, folder: Path) -> None:
        self.where, self.scores, self.folder = where, scores, folder
        # FPDFP needs little beside its own modules; what the automatic method does depends on much of the package.
        self.code = {False: pool.code(fpdfp.FPDFP), True: pool.package_code()}
        self.problem = fingerprint(where.problem)

    def job(self, case: Case, step: Step | None, seed: int, rounds: int) -> Job:
        """Return the job of a run; its key tells everything that its outcome depends on."""
        how = "" if step is None else f"-{step.gamma:g}-{step.decay:g}"
        what = f"{case.method}-{case.n}-{case.levels}{how}-{seed}-{rounds}-{len(evaluations(rounds))}"
        key = f"{what}-{self.problem[:12]}-{self.code[case.method == AUTOMATIC]}-{fpdfp.__version__}"
        return Job(key, case, step, seed, rounds, str(self.folder))

    def compute(self, title: str, jobs: Sequence[Job]) -> list[dict[str, list[float]]]:
        """Do the runs, the longest first."""
        longest = sorted(jobs, key=cost, reverse=True)
        found = dict(zip((job.key for job in longest), self.scores.compute(title, longest, cost, say), strict=True))
        return [found[job.key] for job in jobs]

    def tune(self, case: Case, rounds: int) -> Step:
        """Return the step of the grid with the least objective at the end, by stages."""

        def best(grid: Sequence[Step], count: int, go_on: int, seeds: Sequence[int] = TUNING_SEEDS[:1]) -> list[Step]:
            jobs = [self.job(case, step, seed, count) for step in grid for seed in seeds]
            found = self.compute(f"tuning {case.label}, {count} rounds,", jobs)
            scores = [sum(map(final, found[i : i + len(seeds)])) for i in range(0, len(found), len(seeds))]
            return [grid[i] for i in np.argsort(scores, kind="stable")[:go_on]]

        first = max(1, round(FIRST_STAGE * rounds))
        promising = [
            step
            for decay in DECAYS
            for step in best([Step(gamma, decay) for gamma in GAMMAS], first, 1 if decay else 2)
        ]
        (chosen,) = best(best(promising, rounds, FINALISTS), rounds, 1, TUNING_SEEDS)
        return chosen


def final(found: dict[str, list[float]]) -> float:
    """The objective at the end of a run; infinite if it diverged."""
    ended = at_the_end(np.array(found["round"]), np.array(found["objective"]))
    return math.inf if found["diverged"][0] else float(ended)


def at_the_end(rounds: Array, values: Array, horizon: float | None = None) -> Any:
    """The mean of values, over the last axis, at the evaluations of the last part of the rounds up to a horizon."""
    horizon = rounds[-1] if horizon is None else horizon
    return values[..., (rounds > (1 - LAST) * horizon) & (rounds <= horizon)].mean(axis=-1)


def cost(job: Job) -> int:
    """What a run costs: gradients of clients."""
    return job.rounds * job.case.n


def say(job: Job, found: dict[str, list[float]]) -> str:
    """Tell of a run that is done."""
    return f"objective {found['objective'][-1]:.6g}, {format_bits(found['bits_up'][-1])} up"


class Line(NamedTuple):
    """What is shown of a case at its evaluations: ``rounds``, and arrays with a row for each seed."""

    case: Case
    step: Step | None
    rounds: Array
    error: Array
    test_loss: Array
    accuracy: Array
    bits_up: Array
    bits_down: Array
    once_up: float

    @property
    def ended(self) -> Array:
        """The relative error at the end, for each seed."""
        ended: Array = at_the_end(self.rounds, self.error)
        return ended

    @property
    def test_error(self) -> Array:
        """The share of the test rows that are classified wrongly."""
        return 1.0 - self.accuracy


def line(case: Case, step: Step | None, runs: Sequence[dict[str, list[float]]], best: float, rounds: int) -> Line:
    """Put the runs of all seeds together; one that diverged has an infinite error and no accuracy from there on."""
    at = np.array([0, *evaluations(rounds)])
    table = {name: np.empty((len(runs), len(at))) for name in COLUMNS}
    for row, found in enumerate(runs):
        known = len(found["round"]) - int(found["diverged"][0])
        rest = {"objective": np.inf, "test_loss": np.inf, "accuracy": 0.0}
        for name in COLUMNS:
            table[name][row, :known] = found[name][:known]
            table[name][row, known:] = rest.get(name, found[name][-1])
    return Line(
        case, step, at, table["objective"] / best - 1.0, table["test_loss"], table["accuracy"],
        table["bits_up"], table["bits_down"], runs[0]["once_up"][0],
    )  # fmt: skip


class Sweep(NamedTuple):
    """The relative errors at the end, one for each seed, for numbers of levels and γ0 in units of 1/L."""

    errors: Mapping[tuple[int | None, float], Array]

    def best(self, levels: int | None) -> float:
        """The γ0 with the least error in the mean over seeds."""
        return min(GAMMAS, key=lambda gamma: float(self.errors[levels, gamma].mean()))


class Findings(NamedTuple):
    """All runs of a task: with the common step, with each case tuned for itself, and with every step of the grid."""

    task: Task
    lines: Mapping[Case, Line]
    own: Mapping[Case, Line]
    sweep: Sweep
