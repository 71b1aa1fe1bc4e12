"""The paper's first experiment: graph-guided logistic regression among 100 clients.

    min  1/m Σ_j log(1 + exp(−b_j s_jᵀx)) + μ1/2 ‖x‖² + μ2 ‖Bx‖₁,   B = [G; I]

with G by sparse inverse covariance selection on the training features. What the paper leaves open is fixed in the
experiment files: the number of clients, the split (dealt out at random), the seed of the split into training and test
rows, the penalty of the graphical lasso. The page (``paper.md``) describes how steps are tuned and claims are judged.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp.declarative import pool
from fpdfp.declarative.build import BuiltRows
from fpdfp.declarative.runner import Job
from reproduce import runs as ties
from reproduce.output import COLOURS, Curve, Panel, draw_cases, format_bits, publish
from reproduce.runs import Array, Bench, Case, Line, Step, declare, ended, line_of, name_levels, of_the_paper

LEVELS: tuple[int | None, ...] = (5, 10, 20, None)
#: The levels where participation varies.
FIXED_LEVELS = 20
#: The grid of FPDFP's steps, γ_k = γ0/(1 + ck): γ0 in units of 1/L, and c.
GAMMAS = (1.0, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0)
DECAYS = (0.0, 0.001, 0.005)
#: The first stage of tuning has this part of the rounds. Of each c the best γ0 goes on, of c = 0 the best two, since
#: the noise of a constant step shows late. Of those, after all rounds, the finalists run with every tuning seed.
FIRST_STAGE, FINALISTS = 0.1, 2
TUNING_SEEDS = (0, 1)
#: The numbers of levels that run with every step of the grid, and for which part of the rounds.
SWEPT: tuple[int | None, ...] = (1, 2, *LEVELS)
SWEEP = 0.25
#: Rounds of the automatic method.
FEW = 100
AUTOMATIC = "automatic"
#: How near the optimum is, relative to it, and below which errors are not shown.
TOLERANCE = 1e-9
ERROR = "(F(x) − F*) / F*"
#: What figures show of the test rows: columns, axes, which are logarithmic, and the scale.
QUALITIES = [("test_loss", "test loss", "xy", 1.0), ("accuracy", "test accuracy (%)", "x", 0.01)]
#: "At first": after these rounds.
EARLY = (10, 30, 100)
#: A run does not converge if it diverges, or keeps more than this part of its error at the start.
CONVERGED = 0.1

#: The median over seeds.
middle = functools.partial(np.median, axis=0)

Lines = Mapping[Case, Line]
#: What cases are compared by: a column, its name, how numbers are written.
COMPARED = (("error", "relative error", "{:.3e}".format), ("test_error", "test error", "{:.2%}".format))
#: A claim, its verdict with one step for all cases, the numbers; perhaps the verdict with each case tuned for itself.
Claim = tuple[str, ...]


class Task(NamedTuple):
    """A data set: numbers of clients in a round, that where the levels vary, and whether there are studies.

    Studies are runs with each case tuned for itself, and with every step of the grid for every number of levels.
    """

    name: str
    participation: tuple[int, ...]
    per_round: int
    studies: bool = True

    @property
    def clients(self) -> int:
        return self.participation[-1]

    @property
    def by_levels(self) -> list[Case]:
        return [Case(self.per_round, levels) for levels in LEVELS]

    @property
    def by_clients(self) -> list[Case]:
        return [Case(n, FIXED_LEVELS) for n in self.participation]

    @property
    def cases(self) -> list[Case]:
        return list(dict.fromkeys([*self.by_levels, *self.by_clients]))

    @property
    def common(self) -> Case:
        """The case that both comparisons have in common: the step of all cases is tuned on it."""
        return Case(self.per_round, FIXED_LEVELS)

    @property
    def automatic_cases(self) -> list[Case]:
        """The automatic method with the same number of clients, and with all clients."""
        return [Case(n, None, AUTOMATIC) for n in (self.per_round, self.clients)]


TASKS = {
    "a9a": Task("a9a", (10, 20, 50, 100), 20),
    "covtype": Task("covtype", (5, 20, 50, 100), 20, studies=False),
    "breast-cancer": Task("breast-cancer", (2, 5, 10, 20), 10),
}


class Findings(NamedTuple):
    """All runs of a task: with the common step, with each case tuned for itself, and with every step of the grid.

    ``sweep`` has the relative errors at the end, one for each seed, by levels and γ0 in units of 1/L.
    """

    task: Task
    lines: Mapping[Case, Line]
    own: Mapping[Case, Line]
    sweep: Mapping[tuple[int | None, float], Array]

    @property
    def start(self) -> float:
        """The relative error at the start."""
        return float(self.lines[self.task.common]["error"][0, 0])

    def best(self, levels: int | None) -> float:
        """The γ0 with the least error of the sweep, in the mean over seeds."""
        return min(GAMMAS, key=lambda gamma: float(self.sweep[levels, gamma].mean()))


def evaluations(rounds: int) -> list[int]:
    """The rounds after which a run is evaluated: closer at first, and ten before each halving of the rounds."""
    ends = [round(rounds / part) for part in (1, 2, 4, 8, 16) if part == 1 or rounds / part >= 10]
    return ties.space_out(rounds, 40, 30, *(np.linspace(0.7 * end, end, 10) for end in ends))


class Experiment:
    """The runs of a task: tuned steps, lines of cases, and a sweep over steps."""

    def __init__(self, bench: Bench, problem: fpdfp.Problem, best: float, rounds: int, seeds: Sequence[int]) -> None:
        self.bench, self.problem, self.best, self.rounds, self.seeds = bench, problem, best, rounds, seeds

    def plan(self, case: Case, step: Step | None, rounds: int, seed: int) -> Job:
        """Return a run of a case; the automatic method has no step."""
        run: dict[str, Any] = {
            "run.clients_per_round": case.n, "run.rounds": rounds, "run.evaluate_every": evaluations(rounds),
            "run.checkpoint_every": max(200, rounds // 20),
        }  # fmt: skip
        if step is None:
            name = f"{AUTOMATIC}-n{case.n}-{rounds}-seed{seed}"
            return self.bench.plan(name, seed, {**run, "method": {"kind": AUTOMATIC}})
        messages = {"kind": "none"} if case.levels is None else {"kind": "QSGD", "levels": case.levels}
        name = f"{case.name}-{step.gamma:g}-{step.decay:g}-{rounds}-seed{seed}"
        return self.bench.plan(name, seed, {**run, "method.step": step.declare(self.problem), "compressor": messages})

    def rank(
        self, title: str, grids: Mapping[Case, Sequence[Step]], rounds: int, seeds: Sequence[int]
    ) -> dict[Case, list[Step]]:
        """Run every step of some grids with every seed; sort each grid by the objective at the end, the least first."""
        runs = [(case, step) for case, grid in grids.items() for step in grid]
        found = self.bench.compute(title, [self.plan(*run, rounds, seed) for run in runs for seed in seeds])
        scores = dict(zip(runs, np.reshape(list(map(ended, found)), (len(runs), -1)).sum(axis=1), strict=True))
        return {case: sorted(grid, key=lambda step: scores[case, step]) for case, grid in grids.items()}

    def tune(self, cases: Sequence[Case]) -> dict[Case, Step]:
        """Return, for each case, the step of the grid with the least objective at the end, by stages."""
        first, grid = max(1, round(FIRST_STAGE * self.rounds)), [Step(g, c) for c in DECAYS for g in GAMMAS]
        ranked = self.rank("tuning, first stage", dict.fromkeys(cases, grid), first, TUNING_SEEDS[:1])
        promising = {
            case: [step for c in DECAYS for step in [one for one in steps if one.decay == c][: 1 if c else 2]]
            for case, steps in ranked.items()
        }
        ranked = self.rank("tuning, all rounds", promising, self.rounds, TUNING_SEEDS[:1])
        finalists = {case: steps[:FINALISTS] for case, steps in ranked.items()}
        ranked = self.rank("tuning, finalists", finalists, self.rounds, TUNING_SEEDS)
        return {case: steps[0] for case, steps in ranked.items()}

    def measure(self, title: str, cases: Sequence[tuple[Case, Step | None, int]]) -> list[Line]:
        """Run cases with their steps and rounds, every one with every seed."""
        found = self.bench.compute(title, [self.plan(*case, seed) for case in cases for seed in self.seeds])
        columns, count, lines = ("objective", "test_loss", "accuracy", "bits_up", "bits_down"), len(self.seeds), []
        for i, (case, step, rounds) in enumerate(cases):
            one = line_of(case, found[i * count :][:count], columns, [0, *evaluations(rounds)], step=step)
            lines.append(one.change(error=one["objective"] / self.best - 1.0, test_error=1.0 - one["accuracy"]))
        return lines

    def sweep(self, n: int, decay: float) -> dict[tuple[int | None, float], Array]:
        """Run every γ0 of the grid for several numbers of levels, with one c, for a part of the rounds."""
        keys, rounds = [(levels, gamma) for gamma in GAMMAS for levels in SWEPT], max(1, round(SWEEP * self.rounds))
        cases = [(Case(n, levels), Step(gamma, decay), rounds) for levels, gamma in keys]
        lines = self.measure("every step for every number of levels", cases)
        return {key: one.ended("error") for key, one in zip(keys, lines, strict=True)}


class Judged(NamedTuple):
    """Verdicts on the objective and on the test accuracy, and the numbers that they rest on."""

    objective: str
    accuracy: str
    numbers: str

    @property
    def verdict(self) -> str:
        both = f"{self.objective} on the objective, {self.accuracy} on the accuracy"
        return self.objective if self.objective == self.accuracy else both


class Compared(NamedTuple):
    """A claim on pairs of cases, the first of each better or as good, and its note on the bits sent.

    The first pair decides; it is confirmed in part if the other pairs are not.
    """

    claim: str
    rule: Callable[[ties.Comparison, str], str]
    pairs: Sequence[tuple[Case, Case]]
    note: str = ""
    objective_alone: bool = False

    def judge(self, lines: Lines) -> Judged:
        found = [self.compare(lines[one], lines[other]) for one, other in self.pairs]
        objective, accuracy = (
            "confirmed in part" if first == "confirmed" and set(others) - {"confirmed"} else first
            for first, *others in zip(*((one.objective, one.accuracy) for one in found), strict=True)
        )
        one, other = (lines[case] for case in self.pairs[0])
        note = self.note.format(share=100 * middle(one["bits_up"][:, -1]) / middle(other["bits_up"][:, -1]))
        numbers = " ".join(judged.numbers for judged in found) + note
        return Judged(objective, objective if self.objective_alone else accuracy, numbers)

    def compare(self, one: Line, other: Line) -> Judged:
        verdicts, texts, before_end = [], [], 0.9 * float(one.rounds[-1])
        for column, title, show in COMPARED:
            values = one.ended(column), other.ended(column)
            found, before = ties.compare(*values), (each.ended(column, before_end) for each in (one, other))
            fall = max(map(ties.measure_fall, before, values), key=abs)
            outcome = ties.decide(found, fall)
            verdicts.append(self.rule(found, outcome))
            falling = f", fall in the last tenth {show(fall)}" if fall else ""
            texts.append(
                f"{title} {show(values[0].mean())} and {show(values[1].mean())} (tie zone {show(found.zone)}, spread "
                f"of runs {show(found.spread)}{falling}), {outcome}"
            )
        names = f"{one.case.beside(other.case)} with {other.case.beside(one.case)}"
        return Judged(verdicts[0], verdicts[1], f"Comparing {names}: {'; '.join(texts)}.")


def comparisons(task: Task) -> list[Compared]:
    n, few, s, coarse = task.per_round, task.participation[0], FIXED_LEVELS, LEVELS[0]
    ladder, exact = [Case(n, levels) for levels in LEVELS if levels is not None], Case(n, None)
    fewest, everyone = (Case(count, s) for count in (few, task.clients))
    return [
        Compared(f"A larger s gives a better solution (n = {n}).", ties.judge_better,
                 [(ladder[-1], ladder[0]), *((fine, rough) for rough, fine in itertools.pairwise(ladder))]),
        Compared(f"s = {s} is as good as no quantization (n = {n}).", ties.judge_as_good, [(task.common, exact)],
                 f" {s} levels send {{share:.1f}} % of the bits of exact messages."),
        Compared(f"A smaller s ends at a higher objective (s = {coarse} against exact, n = {n}).", ties.judge_better,
                 [(exact, ladder[0])], objective_alone=True),
        Compared(f"A small n ends at a less accurate solution (n = {few}, s = {s}).", ties.judge_better,
                 [(everyone, fewest)]),
        Compared(f"n = {n} is about as good as everyone (s = {s}).", ties.judge_as_good, [(task.common, everyone)],
                 " Bits: {share:.1f} % of those of everyone."),
    ]  # fmt: skip


def judge(found: Findings) -> list[dict[str, str]]:
    task, n, s, first = found.task, found.task.per_round, FIXED_LEVELS, "converges faster at first"
    coarse, few = LEVELS[0], task.participation[0]
    levels = f"A smaller s {first} (s = {coarse} against exact, n = {n})."
    clients = f"A small n {first} (n = {few} against everyone, s = {s})."
    claims = [
        *(twice(found, one) for one in comparisons(task)),
        faster(found, levels, Case(n, coarse), Case(n, None)),
        faster(found, clients, Case(few, s), Case(task.clients, s)),
        *([larger_steps(found), small_levels_fail(found)] if found.sweep else []),
        bits_are_saved(found.lines, task),
        beyond(found.lines),
    ]
    return [dict(zip(("claim", "verdict", "numbers", "own"), (*one, ""), strict=False)) for one in claims]


def twice(found: Findings, one: Compared) -> Claim:
    """Judge a claim with the common step, and beside it with each case tuned for itself."""
    common = one.judge(found.lines)
    if not found.own:
        return one.claim, common.verdict, common.numbers
    own = one.judge(found.own)
    same = "the same steps." if own.numbers == common.numbers else own.numbers
    return one.claim, common.verdict, f"{common.numbers} Each tuned for itself: {same}", own.verdict


def faster(found: Findings, claim: str, small: Case, large: Case) -> Claim:
    """Judge whether a case is ahead of another in its first rounds, and for the same bits."""
    texts, by_rounds, by_bits = [], [], []
    one, other = found.lines[small], found.lines[large]
    for at in sorted({min(int(np.searchsorted(other.rounds, rounds)), len(other.rounds) - 1) for rounds in EARLY}):
        bits = middle(other["bits_up"][:, at])
        there = int(np.searchsorted(middle(one["bits_up"]), bits, side="right")) - 1
        here, then, theirs = one["error"][:, at], one["error"][:, there], other["error"][:, at]
        in_rounds, in_bits = ties.compare(here, theirs), ties.compare(then, theirs)
        by_rounds.append(ties.decide(in_rounds))
        by_bits.append(ties.decide(in_bits))
        texts.append(
            f"after {other.rounds[at]:.0f} rounds {here.mean():.3g} against {theirs.mean():.3g} (tie zone "
            f"{in_rounds.zone:.1g}); for the {format_bits(bits)} that the other has sent then, {then.mean():.3g}"
        )
    verdict = f"{ties.sum_up(by_rounds)} against rounds, {ties.sum_up(by_bits)} against bits"
    return claim, verdict, f"Relative error: {'; '.join(texts)}."


def larger_steps(found: Findings) -> Claim:
    """A larger s allows a larger step: with few levels the step that is best for exact messages costs accuracy."""
    largest, verdicts, losses = found.best(None), dict[str, list[str]](), []
    for levels in SWEPT[:-1]:
        best = found.best(levels)
        with_largest, with_best = found.sweep[levels, largest], found.sweep[levels, best]
        lost = ties.compare(with_largest, with_best)
        unknown = "undecided" if largest == GAMMAS[-1] else "refuted"
        verdict = unknown if best >= largest else "confirmed" if lost.more else "tied"
        verdicts.setdefault(verdict, []).append(str(levels))
        means = f"{with_largest.mean():.3g} against {with_best.mean():.3g}"
        losses.append(f"{name_levels(levels)} {means} (tie zone {lost.zone:.1g})")
    converging = {s: max((g for g in GAMMAS if converges(found, s, g)), default=0.0) for s in SWEPT}
    several = ", ".join(f"{word} for s = {', '.join(levels)}" for word, levels in verdicts.items())
    steps = ", ".join(f"{name_levels(s)} {found.best(s):g} and {converging[s]:g}" for s in SWEPT)
    numbers = (
        f"Best γ0, of the grid, and the largest at which all seeds converge, in units of 1/L: {steps}. The step that "
        f"is best for exact messages, {largest:g}/L, against each one's own best: {'; '.join(losses)}."
    )
    return "A larger s allows a larger step.", several if len(verdicts) > 1 else next(iter(verdicts)), numbers


def small_levels_fail(found: Findings) -> Claim:
    coarse, sweep, common = SWEPT[0], found.sweep, found.lines[found.task.common].step
    assert common is not None
    own, shared = found.best(coarse), common.gamma
    ends = [f"{sweep[key].mean():.3g}" for key in ((coarse, shared), (coarse, own), (None, shared))]
    with_own = "confirmed with the common step, refuted with its own" if converges(found, coarse, own) else "confirmed"
    numbers = (
        f"Relative error at the end: s = {coarse} {ends[0]} with the common γ0 = {shared:g}/L, {ends[1]} with its "
        f"best, {own:g}/L; exact messages {ends[2]}. At the start it is {found.start:.3g}; to converge means here to "
        f"end below {CONVERGED * found.start:.2g}."
    )
    verdict = "refuted" if converges(found, coarse, shared) else with_own
    return f"With too few levels the method does not converge (s = {coarse}).", verdict, numbers


def converges(found: Findings, levels: int | None, gamma: float) -> bool:
    return bool((found.sweep[levels, gamma] < CONVERGED * found.start).all())


def bits_are_saved(lines: Lines, task: Task) -> Claim:
    theirs = of_the_paper(lines)
    ends = [one.ended("error") for one in theirs]
    target = max(float(end[np.isfinite(end)].max(initial=0.0)) for end in ends)
    needed = {one.case: one.reach(middle(one["error"]) <= target)[1] for one in theirs}
    least = min(needed, key=needed.__getitem__)
    each = ", ".join(
        f"{case.label} {format_bits(bits) if np.isfinite(bits) else 'not reached'}" for case, bits in needed.items()
    )
    saved = least.levels is not None and least.n < task.clients and all(one.proportional for one in theirs)
    rates = ", ".join(f"{one.case.label} {format_bits(one.rate)}" for one in theirs)
    claim = "Bits grow with the rounds in proportion; fitting levels and participation need few of them."
    numbers = f"Bits up a round: {rates}. Bits up to a relative error of {target:.2g}, which all reach: {each}."
    return claim, "confirmed" if saved else "refuted", numbers


def beyond(lines: Lines) -> Claim:
    """What the automatic method needs for the least error that FPDFP reaches."""
    best, texts = min(of_the_paper(lines), key=lambda one: middle(one.ended("error"))), []
    target = middle(best.ended("error"))
    for one in (one for one in lines.values() if one.case.method == AUTOMATIC):
        errors = middle(one["error"])
        rounds, bits = one.reach(errors <= target)
        needed = f"{rounds:.0f} rounds and {format_bits(bits + one.once_up)} up in all" if bits < np.inf else "never"
        once, last = format_bits(one.once_up), f"{one.rounds[-1]:.0f} rounds {errors[-1]:.1e}"
        texts.append(f"{one.case.label}: {needed}, {once} of them once; after {last}")
    reached = f"{best.case.label}, {best.rounds[-1]:.0f} rounds, {format_bits(best.mean('bits_up')[-1])} up"
    numbers = f"The least relative error of FPDFP is {target:.2e} ({reached}). To that error: {'; '.join(texts)}."
    return "Beyond the paper: what `fpdfp.solve` needs with its default settings.", "measured", numbers


def reproduce(
    name: str, output: Path, data: Path | None = None, rounds: int | None = None, seeds: int | None = None,
    jobs: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run the experiment of a data set and write its results into a folder; runs that are done are not repeated."""
    task, changes = TASKS[name], {} if data is None else {"data.directory": str(data.absolute())}
    settings, where = declare(name, changes), ties.build_case(name, changes)
    rounds, count = rounds or settings["run"]["rounds"], seeds or len(settings["run"]["seeds"])
    # The seeds of the runs: those of the tuning are not among them.
    shown = list(range(len(TUNING_SEEDS), len(TUNING_SEEDS) + count))
    output.mkdir(parents=True, exist_ok=True)
    optimum = find_optimum(where.problem, output)
    with pool.bar() as bar, contextlib.nullcontext() if jobs == 1 else pool.workers(jobs=jobs) as processes:
        bench = Bench(name, output / "runs", changes, bar, processes)
        found = run_all(Experiment(bench, where.problem, optimum["objective"], rounds, shown), task)
    summary = summarise(found, where, settings, rounds, shown) | {"optimum": optimum}
    draw_all(found, output)
    publish(output, summary, summary["claims"])
    return summary


def run_all(experiment: Experiment, task: Task) -> Findings:
    rounds, step = experiment.rounds, experiment.tune([task.common])[task.common]
    plan: list[tuple[Case, Step | None, int]] = [(case, step, rounds) for case in task.cases]
    plan += [(case, None, min(FEW, rounds)) for case in task.automatic_cases]
    lines = {one.case: one for one in experiment.measure("one step for all", plan)}
    if not task.studies:
        return Findings(task, lines, {}, {})
    tuned = [(case, step, rounds) for case, step in experiment.tune(task.cases).items()]
    own = {one.case: one for one in experiment.measure("each case tuned for itself", tuned)}
    return Findings(task, lines, own, experiment.sweep(task.per_round, step.decay))


def summarise(
    found: Findings, where: BuiltRows, settings: Mapping[str, Any], rounds: int, seeds: Sequence[int]
) -> dict[str, Any]:
    """Everything in numbers, so that the page can be made anew from it."""
    task, graph, operator = found.task, where.graph, settings["operator"]
    assert graph is not None
    return {
        "experiment": f"graph-guided logistic regression, {task.name}",
        "version": fpdfp.__version__,
        "problem": {
            "training_rows": len(where.labels), "test_rows": len(where.test_labels), "features": graph.n_features,
            "clients": task.clients, "mu1": settings["loss"]["l2"], "mu2": settings["penalty"]["weight"],
            "graph": {"alpha": operator["alpha"], "edges": graph.edges, "shrinkage": graph.shrinkage},
        },
        "tuning": {
            "gamma0_times_L": GAMMAS, "c": DECAYS, "on": task.common.label, "seeds": TUNING_SEEDS,
            "L": float(where.problem.lipschitz.mean()), "stages": [[round(FIRST_STAGE * rounds)], [rounds]],
        },
        "rounds": rounds,
        "seeds": seeds,
        "cases": [describe(one) for one in found.lines.values()],
        "each_tuned_for_itself": [describe(one) for one in found.own.values()],
        "sweep": {
            "rounds": max(1, round(SWEEP * rounds)), "levels": SWEPT,
            "errors": [
                {"levels": levels, "gamma0_times_L": gamma,
                 "error_at_the_end": [one if np.isfinite(one) else None for one in ties.round_numbers(errors)]}
                for (levels, gamma), errors in found.sweep.items()
            ],
        },
        "claims": judge(found),
    }  # fmt: skip


def find_optimum(problem: fpdfp.Problem, output: Path) -> dict[str, Any]:
    """F* with a certificate; its x and v are written, so that anybody can compute the gap anew."""
    best = fpdfp.minimize(problem, tol=TOLERANCE)
    np.savez(output / "optimum.npz", x=best.x, v=best.certificate.v)
    found = problem.certificate(best.x, best.certificate.v, dual_steps=0)
    return {"objective": found.objective, "relative_gap": found.relative_gap, "file": "optimum.npz"}


def describe(one: Line) -> dict[str, Any]:
    """A case in numbers: at each evaluation the median over seeds, the least and the largest."""
    step = {}
    if one.step is not None:
        gamma, decay = one.step
        at_the_end = gamma in (GAMMAS[0], GAMMAS[-1]) or decay == DECAYS[-1]
        step = {"gamma0_times_L": gamma, "c": decay, "at_the_end_of_the_grid": at_the_end}
    kinds: dict[str, Any] = {"median": np.median, "least": np.min, "largest": np.max}
    columns = {
        name: {kind: ties.round_numbers(of(one[name], axis=0)) for kind, of in kinds.items()}
        for name in ("error", "test_loss", "accuracy", "bits_up", "bits_down")
    }
    return {
        "label": one.case.label, "method": one.case.method, "clients_per_round": one.case.n, "levels": one.case.levels,
        **step, "error_at_the_end": ties.round_numbers(one.ended("error")), "bits_once_up": one.once_up,
        "round": one.rounds.astype(int).tolist(), **columns,
    }  # fmt: skip


def draw_all(found: Findings, folder: Path) -> list[str]:
    """Draw all figures into a folder; return their names."""
    task, lines = found.task, found.lines
    groups = {
        "levels": (f"{task.name}, n = {task.per_round}", [lines[case] for case in task.by_levels]),
        "participation": (f"{task.name}, s = {FIXED_LEVELS}", [lines[case] for case in task.by_clients]),
    }
    more = {}
    if found.sweep:
        swept = [
            Curve(np.array(GAMMAS), np.stack([found.sweep[levels, one] for one in GAMMAS], axis=1), name, colour, "o-")
            for levels, name, colour in zip(SWEPT, map(name_levels, SWEPT), COLOURS, strict=False)
        ]
        more["steps"] = [Panel(swept, "γ0 in units of 1/L", f"{ERROR} at the end", groups["levels"][0], "xy")]
    ours = [lines[case] for case in task.automatic_cases]
    return draw_cases(folder, groups, ours, ERROR, QUALITIES, floor=TOLERANCE, unit="Mbit", more=more)
