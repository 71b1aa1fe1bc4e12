"""The paper's first experiment: graph-guided logistic regression among 100 clients.

    min  1/m Σ_j log(1 + exp(−b_j s_jᵀx)) + μ1/2 ‖x‖² + μ2 ‖Bx‖₁,   B = [G; I]

with G by sparse inverse covariance selection on the training features. What the paper leaves open is fixed in the files
of settings: the number of clients, the split (dealt out at random), the seed of the split into training and test rows,
the penalty of the graphical lasso.

All cases of FPDFP run with one step γ_k, tuned on the case that both comparisons have in common; where a task has
studies, also with a step tuned for each, and with every step of the grid for several numbers of levels.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import fpdfp
from fpdfp._typing import Array
from fpdfp._units import format_bits
from fpdfp.declarative import pool
from fpdfp.declarative.build import build
from fpdfp.declarative.rows import BuiltRows
from fpdfp.declarative.settings import Settings
from fpdfp.engines.checkpoint import fingerprint
from fpdfp.experiments.cases import Case, Step, at_the_end, declare, final, gather, solve, space_out

LEVELS: tuple[int | None, ...] = (5, 10, 20, None)
#: The levels where participation varies.
FIXED_LEVELS = 20
#: The grid of FPDFP's steps, γ_k = γ0/(1 + ck): γ0 in units of 1/L, and c.
GAMMAS = (1.0, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
DECAYS = (0.0, 0.001, 0.005)
#: The first stage of tuning has this part of the rounds. Of each c the best γ0 goes on, of c = 0 the best two, since
#: the noise of a constant step shows late; of those, after all rounds, the best so many are run with every tuning seed.
FIRST_STAGE, FINALISTS = 0.1, 2
TUNING_SEEDS = (0, 1)
#: Where the cases are compared, as parts of the rounds.
HORIZONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
#: The numbers of levels that run with every step of the grid, and for which part of the rounds.
SWEPT: tuple[int | None, ...] = (1, 2, *LEVELS)
SWEEP = 0.25
#: Rounds of the automatic method.
FEW = 100
AUTOMATIC = "automatic"
COLUMNS = ("round", "objective", "bits_up", "bits_down", "test_loss", "accuracy")


class Task(NamedTuple):
    """A data set, and what varies on it.

    Attributes
    ----------
    name
        Its name, and that of its file of settings.
    participation
        How many clients take part in a round where that varies.
    studies
        Whether there are also runs with each case tuned for itself, and with every step of the grid for every number of
        levels; they multiply the cost.
    """

    name: str
    participation: tuple[int, ...]
    studies: bool = True

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return int(_declared(self.name)["split"]["clients"])

    @property
    def per_round(self) -> int:
        """How many of them take part in a round where the levels vary."""
        return int(_declared(self.name)["run"]["clients_per_round"])

    @property
    def cases(self) -> list[Case]:
        """All cases of FPDFP, each once."""
        by_levels = [Case(self.per_round, levels) for levels in LEVELS]
        return [*by_levels, *(Case(n, FIXED_LEVELS) for n in self.participation if n != self.per_round)]

    @property
    def common(self) -> Case:
        """The case that both comparisons have in common: the step of all cases is tuned on it."""
        return Case(self.per_round, FIXED_LEVELS)

    @property
    def automatic_cases(self) -> list[Case]:
        """The automatic method with as many clients, and with everyone."""
        return [Case(n, None, AUTOMATIC) for n in (self.per_round, self.clients)]


TASKS = {
    "a9a": Task("a9a", (10, 20, 50, 100)),
    "covtype": Task("covtype", (5, 20, 50, 100), studies=False),
    "breast-cancer": Task("breast-cancer", (2, 5, 10, 20)),
}


@functools.cache
def _declared(name: str) -> Settings:
    return declare(name, {})


def declare_task(name: str, directory: Path | None = None, changes: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of a task, with the folder of its data, and other values for some keys."""
    where = {} if directory is None or name == "breast-cancer" else {"data.directory": str(directory)}
    return declare(name, {**where, **(changes or {})})


def build_task(name: str, directory: Path | None = None, changes: Mapping[str, Any] | None = None) -> BuiltRows:
    """Make the problem of a task."""
    built = build(declare_task(name, directory, changes))
    assert isinstance(built, BuiltRows)
    return built


def evaluations(rounds: int) -> list[int]:
    """The rounds after which a run is evaluated: every one at first, later fewer, and ten before each horizon."""
    return space_out(rounds, 40, 30, *(np.linspace(0.7 * horizon, horizon, 10) for horizon in horizons(rounds)))


def horizons(rounds: int) -> list[int]:
    """The rounds at which cases are compared; at least ten, unless there are fewer."""
    return sorted({round(part * rounds) for part in HORIZONS if part * rounds >= 10} | {rounds})


class Job(NamedTuple):
    """A run: its key, its settings and seed, and where to keep its checkpoint."""

    key: str
    settings: Settings
    seed: int
    folder: str

    @property
    def cost(self) -> int:
        """What it costs: gradients of clients."""
        return int(self.settings["run"]["rounds"] * self.settings["run"]["clients_per_round"])


def work(job: Job) -> tuple[str, dict[str, list[float]] | None]:
    """Do a run, from its checkpoint on if there is one; return the columns of its history, None if interrupted."""
    checkpoint = Path(job.folder) / f"{job.key}.checkpoint"
    result = solve(job.settings, job.seed, checkpoint=checkpoint, resume=True)
    if result.status == "interrupted":
        return job.key, None
    checkpoint.unlink(missing_ok=True)
    columns = {name: result.history[name].tolist() for name in COLUMNS}
    return job.key, {**columns, "once_up": [result.bits_once_up], "diverged": [float(result.status == "diverged")]}


#: A case, its step and its rounds.
Planned: TypeAlias = tuple[Case, Step | None, int]


class Bench:
    """The runs of a task on a pool, with what is done already taken from a file."""

    def __init__(self, name: str, data: Path | None, folder: Path, processes: Any, bar: Any) -> None:
        self.name, self.data, self.folder = name, data, folder
        self.problem = build_task(name, data).problem
        self.scores = pool.Scores(folder / "runs.jsonl", processes, work, bar)
        # FPDFP needs little beside its own modules; what the automatic method does depends on much of the package.
        self.code = {False: pool.code(fpdfp.FPDFP), True: pool.package_code()}
        self.digest = fingerprint(self.problem)[:12]

    def job(self, case: Case, step: Step | None, seed: int, rounds: int) -> Job:
        """Return the job of a run; its key tells everything that its outcome depends on."""
        given, at = "" if step is None else f"-{step.gamma:g}-{step.decay:g}", evaluations(rounds)
        what = f"{case.method}-{case.n}-{case.levels}{given}-{seed}-{rounds}-{len(at)}"
        key = f"{what}-{self.digest}-{self.code[case.method == AUTOMATIC]}-{fpdfp.__version__}"
        changes: dict[str, Any] = {"run.clients_per_round": case.n, "run.rounds": rounds, "run.evaluate_every": at}
        if step is None:
            changes["method"] = {"kind": AUTOMATIC}
        else:
            changes["method.step"] = step.declare(self.problem)
            quantized = {"kind": "none"} if case.levels is None else {"kind": "QSGD", "levels": case.levels}
            changes["compressor"] = quantized
        return Job(key, declare_task(self.name, self.data, changes), seed, str(self.folder))

    def compute(self, title: str, jobs: Sequence[Job]) -> list[dict[str, list[float]]]:
        """Do the runs, the longest first."""
        longest = sorted(jobs, key=lambda job: job.cost, reverse=True)
        found = self.scores.compute(title, longest, lambda job: job.cost, say)
        by_key = dict(zip((job.key for job in longest), found, strict=True))
        return [by_key[job.key] for job in jobs]

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

    def measure(self, plan: Sequence[Planned], seeds: Sequence[int], best: float) -> dict[Case, Line]:
        """Run cases with their steps and rounds, every one with every seed."""
        jobs = [self.job(case, step, seed, count) for case, step, count in plan for seed in seeds]
        found = self.compute(f"{len(seeds)} seeds,", jobs)
        return {
            case: line(case, step, found[i * len(seeds) : (i + 1) * len(seeds)], best, count)
            for i, (case, step, count) in enumerate(plan)
        }

    def sweep(self, n: int, decay: float, rounds: int, seeds: Sequence[int], best: float) -> Sweep:
        """Run every γ0 of the grid for several numbers of levels, with one c, for a part of the rounds."""
        found = {}
        for gamma in GAMMAS:
            plan: list[Planned] = [(Case(n, levels), Step(gamma, decay), rounds) for levels in SWEPT]
            for case, one in self.measure(plan, seeds, best).items():
                found[case.levels, gamma] = one.ended
        return Sweep(found)


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
    table = gather(runs, COLUMNS, len(at), {"objective": np.inf, "test_loss": np.inf, "accuracy": 0.0})
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
