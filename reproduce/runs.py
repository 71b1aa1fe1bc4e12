"""Runs of experiment files: cases, steps, doing many runs without doing any twice; when two cases differ."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.special

import fpdfp
from fpdfp.declarative import settings
from fpdfp.declarative.build import build
from fpdfp.declarative.runner import Job, is_done, run_job

Array: TypeAlias = np.ndarray[Any, Any]
#: "At the end" means the mean over the last part of the rounds: with some clients a round the last iterate is noisy.
LAST = 0.2
#: What is taken from the history of a run, where it has it.
COLUMNS = ("round", "objective", "test_loss", "accuracy", "psnr", "slice_psnr", "bits_up", "bits_down")
#: Values of a run that diverged, from there on. Other columns keep their last value.
WORST = {"objective": np.inf, "test_loss": np.inf, "accuracy": 0.0, "psnr": -np.inf, "slice_psnr": -np.inf}


class Case(NamedTuple):
    """One line of a figure: FPDFP with a number of levels (None: exact messages) and of clients, or another method."""

    n: int
    levels: int | None = None
    method: str = "FPDFP"

    @property
    def name(self) -> str:
        """Its name in folders and on the command line."""
        if self.method != "FPDFP":
            return f"{self.method}-n{self.n}"
        return f"n{self.n}-" + ("exact" if self.levels is None else f"s{self.levels}")

    @property
    def label(self) -> str:
        return f"{self.method}, n = {self.n}" + (f", {name_levels(self.levels)}" if self.method == "FPDFP" else "")

    def beside(self, *others: Case) -> str:
        """What distinguishes it from others: the number of clients, or the levels."""
        return name_levels(self.levels) if {one.n for one in others} <= {self.n} else f"n = {self.n}"


def name_levels(levels: int | None) -> str:
    return "exact" if levels is None else f"s = {levels}"


class Step(NamedTuple):
    """The steps γ_k = γ0/(1 + ck): γ0 in units of 1/L, with L the mean of the clients' constants, and c."""

    gamma: float
    decay: float = 0.0

    def declare(self, problem: fpdfp.Problem) -> dict[str, Any]:
        gamma0 = self.gamma / float(problem.lipschitz.mean())
        if self.decay:
            return {"kind": "Decreasing", "gamma0": gamma0, "c": self.decay}
        return {"kind": "Constant", "gamma": gamma0}


def declare(name: str, changes: Mapping[str, Any]) -> settings.Settings:
    return settings.declare(Path(__file__).with_name(f"{name}.toml"), changes)


def build_case(name: str, changes: Mapping[str, Any] | None = None) -> Any:
    """Return what an experiment file declares, built: data, problem and truth."""
    return build(declare(name, changes or {}))


class Bench:
    """The runs of an experiment, each in a folder of its own; ``processes`` do them, or this process if None."""

    def __init__(
        self, file: str, folder: Path, changes: Mapping[str, Any], bar: Any, processes: Any | None = None
    ) -> None:
        self.file, self.folder, self.changes, self.bar, self.processes = file, folder, changes, bar, processes

    def plan(self, name: str, seed: int, changes: Mapping[str, Any]) -> Job:
        """Return a run by its name, its seed, and how its settings differ from those of the experiment."""
        given = {**self.changes, "run.reference": False, "run.seeds": [seed], **changes}
        return Job(name, declare(self.file, given), seed, self.folder / name, self.folder, {})

    def compute(self, title: str, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        """Do the runs that are not done, the longest first, and return what came of all."""
        todo = sorted((job for job in jobs if not is_done(job)), key=cost, reverse=True)
        done = self.processes.imap_unordered(work, todo) if self.processes else map(work, todo)
        for _, status in self.bar.track(done, total=len(todo), description=title):
            if status == "interrupted":
                raise KeyboardInterrupt
        return [shorten(job) for job in jobs]


def cost(job: Job) -> int:
    return int(job.settings["run"]["rounds"] * job.settings["run"]["clients_per_round"])


def work(job: Job) -> tuple[str, str]:
    """Do a run, or what is left of it; return its name and how it ended."""
    with warnings.catch_warnings():
        # Some steps of a grid are meant to be too large; what diverges says so in its result.
        warnings.simplefilter("ignore", fpdfp.errors.StepTooLargeWarning)
        warnings.simplefilter("ignore", fpdfp.errors.DivergenceWarning)
        return job.name, run_job(job, progress=False)["status"]


def shorten(job: Job) -> dict[str, Any]:
    saved, run = fpdfp.runs.load(job.folder), job.settings["run"]
    info, history, (up, down) = saved.info, saved.history, saved.info["traffic"]["preconditioner"]
    return {
        "unit": job.name, "asked": run["rounds"], "version": info["versions"]["fpdfp"], "seconds": info["elapsed"],
        "clients_per_round": run["clients_per_round"], "seed": job.seed, "status": info["status"],
        "messages": info["messages"], "seconds_in_rounds": info["seconds"], "bits_once_up": up, "bits_once_down": down,
        **{name: history[name].tolist() for name in COLUMNS if name in history},
    }  # fmt: skip


def space_out(rounds: int, early: int, even: int, *more: Array) -> list[int]:
    """Rounds after which a run is evaluated: ``early`` that are closer at first, ``even`` at equal distances, more."""
    found = np.concatenate([np.geomspace(1, rounds, early), np.linspace(0, rounds, even + 1)[1:], *more])
    return sorted({max(1, round(at)) for at in found})


@dataclasses.dataclass(frozen=True)
class Line:
    """The runs of a case: ``rounds`` of the evaluations, and columns with a row for each seed."""

    case: Case
    rounds: Array
    columns: Mapping[str, Array]
    seeds: tuple[int, ...] = ()
    once_up: float = 0.0
    once_down: float = 0.0
    step: Step | None = None

    def __getitem__(self, column: str) -> Array:
        return self.columns[column]

    def change(self, **columns: Array) -> Line:
        """Return the line with other columns, or with more."""
        return dataclasses.replace(self, columns={**self.columns, **columns})

    def with_seeds_of(self, other: Line) -> Line:
        """The runs whose seeds another line has too, in their order."""
        seeds = tuple(sorted(set(self.seeds) & set(other.seeds)))
        rows = [self.seeds.index(seed) for seed in seeds]
        columns = {name: values[rows] for name, values in self.columns.items()}
        return dataclasses.replace(self, seeds=seeds, columns=columns)

    def at(self, part: float) -> int:
        """The number of the first evaluation after a part of the rounds."""
        return int(np.searchsorted(self.rounds, round(part * self.rounds[-1])))

    def ended(self, column: str, horizon: float | None = None) -> Array:
        return at_the_end(self.rounds, self[column], horizon)

    def mean(self, column: str) -> Array:
        return np.asarray(self[column].mean(axis=0))

    def reach(self, there: Array) -> tuple[float, float]:
        """The rounds and bits up to the first evaluation of those that are marked; infinite if none is."""
        at = np.flatnonzero(there)
        return (float(self.rounds[at[0]]), float(self.mean("bits_up")[at[0]])) if at.size else (np.inf, np.inf)

    @property
    def rate(self) -> float:
        """Bits up a round."""
        return float(self.mean("bits_up")[-1] / self.rounds[-1])

    @property
    def proportional(self) -> bool:
        """Whether bits grow with the rounds in proportion: to a tenth, from the hundredth part of the rounds on."""
        late = self.rounds >= 0.01 * self.rounds[-1]
        return bool((abs(self["bits_up"][:, late] / self.rounds[late] / self.rate - 1) < 0.1).all())


def of_the_paper(lines: Mapping[Case, Line]) -> list[Line]:
    """The cases of the paper's method."""
    return [one for one in lines.values() if one.case.method == "FPDFP"]


def line_of(
    case: Case, runs: Sequence[Mapping[str, Any]], names: Sequence[str], rounds: Sequence[int] = (), **more: Any
) -> Line:
    """Put the runs of a case together, a row for each; one that diverged has the worst values from there on."""
    rounds = rounds or max((one["round"] for one in runs), key=len)
    table = {name: np.empty((len(runs), len(rounds))) for name in names}
    for row, one in enumerate(runs):
        known = len(one["round"]) - (one["status"] == "diverged")
        for name in names:
            table[name][row, :known] = one[name][:known]
            table[name][row, known:] = WORST.get(name, one[name][-1])
    return Line(
        case, np.array(rounds, dtype=np.float64), table, tuple(one["seed"] for one in runs), runs[0]["bits_once_up"],
        runs[0]["bits_once_down"], **more,
    )  # fmt: skip


def at_the_end(rounds: Array, values: Array, horizon: float | None = None) -> Array:
    """The mean of values, over the last axis, at the evaluations of the last part of the rounds up to a horizon."""
    horizon = rounds[-1] if horizon is None else horizon
    return np.asarray(values[..., (rounds > (1 - LAST) * horizon) & (rounds <= horizon)].mean(axis=-1))


def ended(run: Mapping[str, Any]) -> float:
    """The objective at the end of a run, infinite if it diverged."""
    diverged = run["status"] == "diverged"
    return np.inf if diverged else float(at_the_end(np.array(run["round"]), np.array(run["objective"])))


def round_numbers(values: Any, digits: int = 6) -> list[float]:
    return [float(f"{value:.{digits}g}") for value in values]


#: The confidence of the interval for the mean difference.
CONFIDENCE = 0.95
#: With one seed there is no spread, and nothing is judged.
ONE_SEED = "one seed"


class Comparison(NamedTuple):
    """One case against another, seed by seed: the same seed draws the same clients for both.

    ``difference`` is the mean over seeds of the first minus the second. ``zone`` is the tie zone: half the width of the
    95 % confidence interval of that mean (Student's t over the paired differences), infinite for a single seed.
    ``spread`` is the larger of the two standard deviations over seeds, NaN for a single seed.
    """

    difference: float
    zone: float
    spread: float
    seeds: int

    @property
    def tied(self) -> bool:
        """Whether the seeds cannot distinguish the cases: the difference is within the tie zone."""
        return abs(self.difference) <= self.zone

    @property
    def more(self) -> bool:
        """Whether the first is more than the second by more than the tie zone."""
        return self.difference > self.zone

    @property
    def alike(self) -> bool:
        """Whether single runs cannot distinguish the cases: the difference is within the spread of runs."""
        return abs(self.difference) <= self.spread


def compare(these: Array, those: Array) -> Comparison:
    """Compare two cases by a value for each seed, given in the same order of seeds.

    A run that diverged has an infinite value: then the difference is infinite and the zone zero.

    >>> compare(np.array([2.0, 3.1, 3.9]), np.array([1.0, 2.0, 3.0])).more
    True
    >>> compare(np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.1, 0.9])).tied
    True
    """
    these, those = np.asarray(these, dtype=float), np.asarray(those, dtype=float)
    if these.shape != those.shape or these.ndim != 1:
        raise ValueError(f"both cases need a value for each of the same seeds, got shapes {these.shape}, {those.shape}")
    seeds = len(these)
    with np.errstate(invalid="ignore"):
        differences = these - those
    if seeds < 2:
        return Comparison(float(differences.sum()), math.inf, math.nan, seeds)
    if not np.isfinite(differences).all():
        both = not (np.isfinite(these).all() or np.isfinite(those).all())
        return Comparison(0.0 if both else float(np.nansum(differences)), 0.0, 0.0, seeds)
    quantile = scipy.special.stdtrit(seeds - 1, 0.5 + CONFIDENCE / 2)
    zone = float(quantile * np.std(differences, ddof=1) / math.sqrt(seeds))
    return Comparison(float(np.mean(differences)), zone, float(max(these.std(ddof=1), those.std(ddof=1))), seeds)


def compare_ratio(these: Array, those: Array) -> Comparison:
    """Compare two cases by the relative difference of the first to the second, seed by seed."""
    these, those = np.asarray(these, dtype=float), np.asarray(those, dtype=float)
    both = np.isinf(these) & np.isinf(those)
    return compare(np.where(both, 1.0, these) / np.where(both, 1.0, those), np.ones(len(those)))


def decide(found: Comparison, fall: float = 0.0) -> str:
    """Decide a comparison where less is better: better, worse, tied, falling together, or one seed.

    ``fall`` is by how much the cases fall over the last tenth of the rounds, see :func:`measure_fall`. A difference of
    at most this is one of a few rounds: the cases fall together, and nothing is decided. Where the fall is within the
    tie zone the cases are flat, and a difference within the zone is a tie.

    >>> decide(Comparison(-3.0, 1.0, 1.0, 5)), decide(Comparison(-3.0, 1.0, 1.0, 5), fall=4.0)
    ('better', 'falling together')
    """
    if found.seeds < 2:
        return ONE_SEED
    if abs(found.difference) <= max(found.zone, abs(fall)):
        return "falling together" if abs(fall) > found.zone else "tied"
    return "better" if found.difference < 0 else "worse"


def sum_up(outcomes: Sequence[str], claimed: str = "better", opposite: str = "worse") -> str:
    """The verdict on several comparisons."""
    if ONE_SEED in outcomes:
        return "not judged"
    if opposite in outcomes:
        return "mixed" if claimed in outcomes else "refuted"
    return "confirmed" if set(outcomes) == {claimed} else "confirmed in part" if claimed in outcomes else "tied"


def judge_better(_: Comparison, outcome: str) -> str:
    """The verdict on the claim that the first case is better."""
    return {"better": "confirmed", "worse": "refuted", "tied": "tied"}.get(outcome, "undecided")


def judge_as_good(found: Comparison, outcome: str) -> str:
    """The verdict on the claim that the first case is as good as the second.

    It is if it is better, or if single runs cannot distinguish the two. A tie beyond that means too few seeds.
    """
    if outcome == "better" or (outcome != "falling together" and found.alike):
        return "confirmed"
    return "refuted" if outcome == "worse" else "undecided"


def measure_fall(before: Array, after: Array) -> float:
    """By how much a value fell, in the mean over seeds; 0 if the seeds cannot show it, or if it is infinite."""
    found = compare(before, after)
    return 0.0 if found.tied or not math.isfinite(found.difference) else found.difference
