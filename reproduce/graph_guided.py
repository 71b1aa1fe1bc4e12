"""The paper's first experiment: graph-guided logistic regression among 100 clients.

    min  1/m Σ_j log(1 + exp(−b_j s_jᵀx)) + μ1/2 ‖x‖² + μ2 ‖Bx‖₁,   B = [G; I]

with G by sparse inverse covariance selection on the training features. What the paper leaves open is fixed in the
experiment files: the number of clients, the split (dealt out at random), the seed of the split into training and test
rows, the penalty of the graphical lasso.

All cases of FPDFP run with one step γ_k, tuned on the case that both comparisons have in common; where a task has
studies, also with a step tuned for each, and with every step of the grid for several numbers of levels.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp.declarative import pool
from fpdfp.declarative.build import BuiltRows, build
from reproduce import runs as ties
from reproduce.output import COLOURS, Curve, Panel, braces, curves, draw, fill, format_bits, publish, rows
from reproduce.runs import LAST, Array, Bench, Case, Line, Planned, Step, declare, line_of, name_levels

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
#: Where the cases are compared, as parts of the rounds.
HORIZONS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
#: The numbers of levels that run with every step of the grid, and for which part of the rounds.
SWEPT: tuple[int | None, ...] = (1, 2, *LEVELS)
SWEEP = 0.25
#: Rounds of the automatic method.
FEW = 100
AUTOMATIC = "automatic"
#: How near the optimum is, relative to it.
TOLERANCE = 1e-9


class Task(NamedTuple):
    """A data set, and what varies on it.

    ``participation`` has the numbers of clients per round. ``studies`` says whether there are also runs with each case
    tuned for itself, and with every step of the grid for every number of levels; they multiply the cost.
    """

    name: str
    participation: tuple[int, ...]
    studies: bool = True

    @property
    def clients(self) -> int:
        return self.participation[-1]

    @property
    def per_round(self) -> int:
        """How many of them take part in a round where the levels vary."""
        return int(declare(self.name, {})["run"]["clients_per_round"])

    @property
    def cases(self) -> list[Case]:
        by_levels = [Case(self.per_round, levels) for levels in LEVELS]
        return [*by_levels, *(Case(n, FIXED_LEVELS) for n in self.participation if n != self.per_round)]

    @property
    def common(self) -> Case:
        """The case that both comparisons have in common: the step of all cases is tuned on it."""
        return Case(self.per_round, FIXED_LEVELS)

    @property
    def automatic_cases(self) -> list[Case]:
        """The automatic method with the same number of clients, and with all clients."""
        return [Case(n, None, AUTOMATIC) for n in (self.per_round, self.clients)]


TASKS = {
    "a9a": Task("a9a", (10, 20, 50, 100)),
    "covtype": Task("covtype", (5, 20, 50, 100), studies=False),
    "breast-cancer": Task("breast-cancer", (2, 5, 10, 20)),
}


class Findings(NamedTuple):
    """All runs of a task: with the common step, with each case tuned for itself, and with every step of the grid.

    ``sweep`` has the relative errors at the end, one for each seed, by levels and γ0 in units of 1/L.
    """

    task: Task
    lines: Mapping[Case, Line]
    own: Mapping[Case, Line]
    sweep: Mapping[tuple[int | None, float], Array]

    def best(self, levels: int | None) -> float:
        """The γ0 with the least error of the sweep, in the mean over seeds."""
        return min(GAMMAS, key=lambda gamma: float(self.sweep[levels, gamma].mean()))


def changes_for(name: str, directory: Path | None = None) -> dict[str, Any]:
    """Return how the settings of a task change for data that lie in a folder."""
    return {} if directory is None or name == "breast-cancer" else {"data.directory": str(directory.absolute())}


def build_task(name: str, directory: Path | None = None, changes: Mapping[str, Any] | None = None) -> BuiltRows:
    built = build(declare(name, {**changes_for(name, directory), **(changes or {})}))
    assert isinstance(built, BuiltRows)
    return built


def evaluations(rounds: int) -> list[int]:
    """The rounds after which a run is evaluated: every one at first, later fewer, and ten before each horizon."""
    return ties.space_out(rounds, 40, 30, *(np.linspace(0.7 * horizon, horizon, 10) for horizon in horizons(rounds)))


def horizons(rounds: int) -> list[int]:
    """The rounds at which cases are compared; at least ten, unless there are fewer."""
    return sorted({round(part * rounds) for part in HORIZONS if part * rounds >= 10} | {rounds})


def plan(problem: fpdfp.Problem, case: Case, step: Step | None, seed: int, rounds: int) -> Planned:
    """Return a run of a case; the automatic method has no step."""
    run: dict[str, Any] = {
        "run.clients_per_round": case.n, "run.rounds": rounds, "run.evaluate_every": evaluations(rounds),
        "run.checkpoint_every": max(200, rounds // 20),
    }  # fmt: skip
    if step is None:
        return Planned(f"{AUTOMATIC}-n{case.n}-{rounds}-seed{seed}", {**run, "method": {"kind": AUTOMATIC}}, seed)
    messages = {"kind": "none"} if case.levels is None else {"kind": "QSGD", "levels": case.levels}
    name = f"{case.name}-{step.gamma:g}-{step.decay:g}-{rounds}-seed{seed}"
    return Planned(name, {**run, "method.step": step.declare(problem), "compressor": messages}, seed)


class Experiment:
    """The runs of a task: tuned steps, lines of cases, and a sweep over steps."""

    def __init__(self, bench: Bench, problem: fpdfp.Problem, best: float, rounds: int, seeds: Sequence[int]) -> None:
        self.bench, self.problem, self.best, self.rounds, self.seeds = bench, problem, best, rounds, seeds

    def tune(self, cases: Sequence[Case]) -> dict[Case, Step]:
        """Return, for each case, the step of the grid with the least objective at the end, by stages."""

        def rank(title: str, grids: Mapping[Case, Sequence[Step]], rounds: int, seeds: Sequence[int]) -> Any:
            def run(case: Case, step: Step, seed: int) -> Planned:
                return plan(self.problem, case, step, seed, rounds)

            return ties.rank(self.bench, title, grids, seeds, run)

        first, grid = max(1, round(FIRST_STAGE * self.rounds)), [Step(g, c) for c in DECAYS for g in GAMMAS]
        ranked = rank("tuning, first stage", dict.fromkeys(cases, grid), first, TUNING_SEEDS[:1])
        promising = {
            case: [step for c in DECAYS for step in [one for one in steps if one.decay == c][: 1 if c else 2]]
            for case, steps in ranked.items()
        }
        ranked = rank("tuning, all rounds", promising, self.rounds, TUNING_SEEDS[:1])
        finalists = {case: steps[:FINALISTS] for case, steps in ranked.items()}
        return {
            case: steps[0] for case, steps in rank("tuning, finalists", finalists, self.rounds, TUNING_SEEDS).items()
        }

    def measure(self, title: str, cases: Sequence[tuple[Case, Step | None, int]]) -> list[Line]:
        """Run cases with their steps and rounds, every one with every seed."""
        plans = [plan(self.problem, case, step, seed, rounds) for case, step, rounds in cases for seed in self.seeds]
        found, count = self.bench.compute(title, plans), len(self.seeds)
        columns, lines = ("objective", "test_loss", "accuracy", "bits_up", "bits_down"), []
        for i, (case, step, rounds) in enumerate(cases):
            one = line_of(case, found[i * count :][:count], columns, [0, *evaluations(rounds)], step=step)
            lines.append(one.change(error=one["objective"] / self.best - 1.0, test_error=1.0 - one["accuracy"]))
        return lines

    def sweep(self, n: int, decay: float) -> dict[tuple[int | None, float], Array]:
        """Run every γ0 of the grid for several numbers of levels, with one c, for a part of the rounds."""
        rounds = max(1, round(SWEEP * self.rounds))
        cases = [(Case(n, levels), Step(gamma, decay), rounds) for gamma in GAMMAS for levels in SWEPT]
        lines = self.measure("every step for every number of levels", cases)
        return {
            (case.levels, step.gamma): one.ended("error") for (case, step, _), one in zip(cases, lines, strict=True)
        }


#: "At first": after these rounds.
EARLY = (10, 30, 100)
#: A run does not converge if it diverges, or keeps more than this part of its error at the start.
CONVERGED = 0.1

Lines = Mapping[Case, Line]
Claim = dict[str, str]


class Judged(NamedTuple):
    """Verdicts on the objective and on the test accuracy, and the numbers that they rest on."""

    objective: str
    accuracy: str
    numbers: str

    @property
    def verdict(self) -> str:
        if self.objective == self.accuracy:
            return self.objective
        return f"{self.objective} on the objective, {self.accuracy} on the accuracy"


class Compared(NamedTuple):
    """A claim on pairs of cases, the first of each better or as good; its short name, its note on the bits sent.

    The first pair decides; it is confirmed in part if the other pairs are not.
    """

    name: str
    claim: str
    rule: Callable[[ties.Comparison, ties.Outcome], str]
    pairs: Sequence[tuple[Case, Case]]
    note: str = ""
    objective_alone: bool = False

    def judge(self, lines: Lines, horizon: float | None = None) -> Judged:
        found = [self.compare(lines[one], lines[other], horizon) for one, other in self.pairs]
        objective, accuracy = (
            "confirmed in part" if first == "confirmed" and set(others) - {"confirmed"} else first
            for first, *others in zip(*((one.objective, one.accuracy) for one in found), strict=True)
        )
        one, other = (lines[case] for case in self.pairs[0])
        note = self.note.format(share=100 * middle(one["bits_up"][:, -1]) / middle(other["bits_up"][:, -1]))
        numbers = " ".join(judged.numbers for judged in found) + note
        return Judged(objective, objective if self.objective_alone else accuracy, numbers)

    def compare(self, one: Line, other: Line, horizon: float | None) -> Judged:
        verdicts, texts, last = [], [], float(one.rounds[-1]) if horizon is None else horizon
        for column, title, show in (
            ("error", "relative error", "{:.3e}".format),
            ("test_error", "test error", "{:.2%}".format),
        ):
            values = one.ended(column, last), other.ended(column, last)
            found = ties.compare(*values)
            falls = (
                ties.measure_fall(each.ended(column, 0.9 * last), each.ended(column, last)) for each in (one, other)
            )
            fall = max(falls, key=abs)
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
        Compared("a larger s is better", f"A larger s gives a better solution (n = {n}).", ties.judge_better,
                 [(ladder[-1], ladder[0]), *((fine, rough) for rough, fine in itertools.pairwise(ladder))]),
        Compared(f"s = {s} as good as exact", f"s = {s} is as good as no quantization (n = {n}).", ties.judge_as_good,
                 [(task.common, exact)], f" {s} levels send {{share:.1f}} % of the bits of exact messages."),
        Compared(f"s = {coarse} ends higher than exact",
                 f"A smaller s ends at a higher objective (s = {coarse} against exact, n = {n}).", ties.judge_better,
                 [(exact, ladder[0])], objective_alone=True),
        Compared(f"n = {few} less accurate", f"A small n ends at a less accurate solution (n = {few}, s = {s}).",
                 ties.judge_better, [(everyone, fewest)]),
        Compared(f"n = {n} as good as everyone", f"n = {n} is about as good as everyone (s = {s}).",
                 ties.judge_as_good, [(task.common, everyone)], " Bits: {share:.1f} % of those of everyone."),
    ]  # fmt: skip


def judge(found: Findings) -> list[Claim]:
    task, n, coarse = found.task, found.task.per_round, LEVELS[0]
    finer, as_good, higher, less, some = (twice(found, one) for one in comparisons(task))
    few, s, first = task.participation[0], FIXED_LEVELS, "converges faster at first"
    few_levels = faster(
        found, f"A smaller s {first} (s = {coarse} against exact, n = {n}).", Case(n, coarse), Case(n, None)
    )
    few_clients = faster(
        found, f"A small n {first} (n = {few} against everyone, s = {s}).", Case(few, s), Case(task.clients, s)
    )
    steps = [larger_steps(found), small_levels_fail(found)] if found.sweep else []
    return [
        finer, as_good, few_levels, higher, few_clients, less, some, *steps, bits_are_saved(found.lines, task),
        beyond(found.lines),
    ]  # fmt: skip


def by_horizon(found: Findings) -> list[dict[str, Any]]:
    """Return the relative errors of all cases at several horizons, and the verdicts there, with the common step."""
    theirs = of_the_paper(found.lines)
    return [
        {
            "rounds": horizon,
            "error": {one.case.label: middle(one.ended("error", horizon)) for one in theirs},
            "verdicts": {one.name: one.judge(found.lines, horizon).verdict for one in comparisons(found.task)},
        }
        for horizon in horizons(int(theirs[0].rounds[-1]))
    ]


def claim_of(claim: str, verdict: str, numbers: str, own: str = "") -> Claim:
    """A claim with its verdict for one step for all cases; ``own`` is that for each tuned for itself, if any."""
    return {"claim": claim, "verdict": verdict, "numbers": numbers, "own": own}


def twice(found: Findings, one: Compared) -> Claim:
    """Judge a claim with the common step, and beside it with each case tuned for itself."""
    common = one.judge(found.lines)
    if not found.own:
        return claim_of(one.claim, common.verdict, common.numbers)
    own = one.judge(found.own)
    same = "the same steps." if own.numbers == common.numbers else own.numbers
    return claim_of(one.claim, common.verdict, f"{common.numbers} Each tuned for itself: {same}", own.verdict)


def faster(found: Findings, claim: str, small: Case, large: Case) -> Claim:
    """Judge whether a case is ahead of another in its first rounds, and for the same bits."""
    texts, by_rounds, by_bits = [], [], []
    one, other = found.lines[small], found.lines[large]
    for rounds in EARLY:
        at = min(int(np.searchsorted(other.rounds, rounds)), len(other.rounds) - 1)
        bits = middle(other["bits_up"][:, at])
        there = int(np.searchsorted(np.median(one["bits_up"], axis=0), bits, side="right")) - 1
        here, then, theirs = one["error"][:, at], one["error"][:, there], other["error"][:, at]
        in_rounds, in_bits = ties.compare(here, theirs), ties.compare(then, theirs)
        by_rounds.append(ties.judge_better(in_rounds, ties.decide(in_rounds)))
        by_bits.append(ties.judge_better(in_bits, ties.decide(in_bits)))
        texts.append(
            f"after {other.rounds[at]:.0f} rounds {here.mean():.3g} against {theirs.mean():.3g} (tie zone "
            f"{in_rounds.zone:.1g}); for the {format_bits(bits)} that the other has sent then, {then.mean():.3g}"
        )
    verdict = f"{sum_up(by_rounds)} against rounds, {sum_up(by_bits)} against bits"
    return claim_of(claim, verdict, f"Relative error: {'; '.join(texts)}.")


def sum_up(verdicts: Sequence[str]) -> str:
    if "refuted" in verdicts:
        return "mixed" if "confirmed" in verdicts else "refuted"
    if "confirmed" in verdicts:
        return "confirmed" if set(verdicts) == {"confirmed"} else "confirmed in part"
    return "tied"


def larger_steps(found: Findings) -> Claim:
    """A larger s allows a larger step: with few levels the step that is best for exact messages costs accuracy."""
    sweep, largest, verdicts, losses = found.sweep, found.best(None), dict[str, list[str]](), []
    for levels in SWEPT[:-1]:
        best = found.best(levels)
        lost = ties.compare(sweep[levels, largest], sweep[levels, best])
        unknown = "undecided" if largest == GAMMAS[-1] else "refuted"
        verdict = unknown if best >= largest else "confirmed" if lost.more else "tied"
        verdicts.setdefault(verdict, []).append(str(levels))
        losses.append(
            f"{name_levels(levels)} {sweep[levels, largest].mean():.3g} against {sweep[levels, best].mean():.3g} "
            f"(tie zone {lost.zone:.1g})"
        )
    converging = {s: max((g for g in GAMMAS if converges(found, s, g)), default=0.0) for s in SWEPT}
    several = [f"{word} for s = {', '.join(levels)}" for word, levels in verdicts.items()]
    return claim_of(
        "A larger s allows a larger step.", next(iter(verdicts)) if len(verdicts) == 1 else ", ".join(several),
        "Best γ0, of the grid, and the largest at which all seeds converge, in units of 1/L: "
        + ", ".join(f"{name_levels(s)} {found.best(s):g} and {converging[s]:g}" for s in SWEPT)
        + f". The step that is best for exact messages, {largest:g}/L, against each one's own best: "
        + "; ".join(losses) + ".",
    )  # fmt: skip


def small_levels_fail(found: Findings) -> Claim:
    coarse, sweep, common = SWEPT[0], found.sweep, found.lines[found.task.common].step
    assert common is not None
    own, start = found.best(coarse), float(found.lines[found.task.common]["error"][0, 0])
    with_own = "confirmed with the common step, refuted with its own" if converges(found, coarse, own) else "confirmed"
    return claim_of(
        f"With too few levels the method does not converge (s = {coarse}).",
        "refuted" if converges(found, coarse, common.gamma) else with_own,
        f"Relative error at the end: s = {coarse} {sweep[coarse, common.gamma].mean():.3g} with the common "
        f"γ0 = {common.gamma:g}/L, {sweep[coarse, own].mean():.3g} with its best, {own:g}/L; exact messages "
        f"{sweep[None, common.gamma].mean():.3g}. At the start it is {start:.3g}; to converge means "
        f"here to end below {CONVERGED * start:.2g}.",
    )


def converges(found: Findings, levels: int | None, gamma: float) -> bool:
    start = float(found.lines[found.task.common]["error"][0, 0])
    return bool((found.sweep[levels, gamma] < CONVERGED * start).all())


def bits_are_saved(lines: Lines, task: Task) -> Claim:
    theirs = of_the_paper(lines)
    ends = [one.ended("error") for one in theirs]
    target = max(float(end[np.isfinite(end)].max(initial=0.0)) for end in ends)
    needed = {one.case: reach(one, target)[1] for one in theirs}
    least = min(needed, key=needed.__getitem__)
    proportional = True
    for one in theirs:  # to a tenth, from the hundredth part of the rounds on
        late = one.rounds >= 0.01 * one.rounds[-1]
        rate = one["bits_up"][:, late] / one.rounds[late]
        proportional &= bool((abs(rate / rate[:, -1:] - 1) < 0.1).all())
    each = ", ".join(
        f"{case.label} {format_bits(bits) if np.isfinite(bits) else 'not reached'}" for case, bits in needed.items()
    )
    rates = [f"{one.case.label} {format_bits(middle(one['bits_up'][:, -1]) / one.rounds[-1])}" for one in theirs]
    return claim_of(
        "Bits grow with the rounds in proportion; fitting levels and participation need few of them.",
        "confirmed" if least.levels is not None and least.n < task.clients and proportional else "refuted",
        f"Bits up a round: {', '.join(rates)}. Bits up to a relative error of {target:.2g}, which all reach: {each}.",
    )


def beyond(lines: Lines) -> Claim:
    """What the automatic method needs for the least error that FPDFP reaches."""
    best = min(of_the_paper(lines), key=lambda one: middle(one.ended("error")))
    target, texts = middle(best.ended("error")), []
    for one in (one for one in lines.values() if one.case.method == AUTOMATIC):
        rounds, bits = reach(one, target)
        texts.append(
            f"{one.case.label}: {rounds:.0f} rounds and {format_bits(bits + one.once_up)} "
            f"up in all, {format_bits(one.once_up)} of them once; after {one.rounds[-1]:.0f} rounds "
            f"{middle(one['error'][:, -1]):.1e}"
            if np.isfinite(rounds)
            else f"{one.case.label}: not reached"
        )
    return claim_of(
        "Beyond the paper: what `fpdfp.solve` needs with its default settings.", "measured",
        f"The least relative error of FPDFP is {target:.2e} ({best.case.label}, {best.rounds[-1]:.0f} rounds, "
        f"{format_bits(middle(best['bits_up'][:, -1]))} up). To that error: {'; '.join(texts)}.",
    )  # fmt: skip


def of_the_paper(lines: Lines) -> list[Line]:
    return [one for one in lines.values() if one.case.method != AUTOMATIC]


def reach(one: Line, target: float) -> tuple[float, float]:
    """The rounds and bits up to the first evaluation at which the middle of the errors is within a target, or ∞."""
    within = np.flatnonzero(np.median(one["error"], axis=0) <= target)
    return (one.rounds[within[0]], middle(one["bits_up"][:, within[0]])) if len(within) else (np.inf, np.inf)


def middle(values: Array) -> float:
    return float(np.median(values))


#: Errors below this are within the certificate of the optimum.
FLOOR = 1e-9
ERROR = "(F(x) − F*) / F*"


def reproduce(
    name: str, output: Path, data: Path | None = None, rounds: int | None = None, seeds: int | None = None,
    jobs: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Run the experiment of a data set and write its results into a folder; runs that are done are not repeated."""
    from rich.console import Console

    task, settings, where = TASKS[name], declare(name, changes_for(name, data)), build_task(name, data)
    rounds, problem, graph = rounds or settings["run"]["rounds"], where.problem, where.graph
    assert graph is not None
    # The seeds of the runs: those of the tuning are not among them.
    first = len(TUNING_SEEDS)
    shown = list(range(first, first + (seeds or len(settings["run"]["seeds"]))))
    Console().print(f"{problem}; {len(where.test_labels)} rows to test on; a graph of {graph.edges} edges")
    output.mkdir(parents=True, exist_ok=True)
    optimum = find_optimum(problem, output)
    with pool.bar() as bar, contextlib.nullcontext() if jobs == 1 else pool.workers(jobs=jobs) as processes:
        bench = Bench(name, output / "runs", changes_for(name, data), bar, processes)
        experiment = Experiment(bench, problem, optimum["objective"], rounds, shown)
        step = experiment.tune([task.common])[task.common]
        plan: list[tuple[Case, Step | None, int]] = [(case, step, rounds) for case in task.cases]
        plan += [(case, None, min(FEW, rounds)) for case in task.automatic_cases]
        lines = {one.case: one for one in experiment.measure("one step for all", plan)}
        own, sweep = dict[Case, Line](), {}
        if task.studies:
            steps = experiment.tune(task.cases)
            tuned = [(case, step, rounds) for case, step in steps.items()]
            own = {one.case: one for one in experiment.measure("each case tuned for itself", tuned)}
            sweep = experiment.sweep(task.per_round, step.decay)
    found = Findings(task, lines, own, sweep)
    summary: dict[str, Any] = {
        "experiment": f"graph-guided logistic regression, {name}",
        "version": fpdfp.__version__,
        "problem": {
            "training_rows": len(where.labels), "test_rows": len(where.test_labels), "features": graph.n_features,
            "clients": task.clients, "mu1": settings["loss"]["l2"], "mu2": settings["penalty"]["weight"],
            "split": "at random, in equal shares",
            "graph": {"alpha": settings["operator"]["alpha"], "edges": graph.edges, "shrinkage": graph.shrinkage},
        },
        "optimum": {**optimum, "file": "optimum.npz"},
        "tuning": {
            "what": "FPDFP's step γ_k = γ0/(1 + ck)", "gamma0_times_L": GAMMAS, "c": DECAYS,
            "on": task.common.label, "L": float(problem.lipschitz.mean()), "seeds": TUNING_SEEDS,
            "by": f"objective, mean over the last {100 * LAST:g} % of the rounds",
            "stages": [
                [round(FIRST_STAGE * rounds), "all; of each c the best γ0 goes on, of c = 0 the best two"],
                [rounds, f"those; the best {FINALISTS} go on with all seeds"],
            ],
        },
        "rounds": rounds,
        "seeds": shown,
        "cases": [describe(one) for one in lines.values()],
        "each_tuned_for_itself": [describe(one) for one in own.values()],
        "sweep": {
            "rounds": max(1, round(SWEEP * rounds)), "levels": SWEPT,
            "errors": [
                {"levels": levels, "gamma0_times_L": gamma,
                 "error_at_the_end": [one if np.isfinite(one) else None for one in ties.round_numbers(errors)]}
                for (levels, gamma), errors in sweep.items()
            ],
        },
        "horizons": by_horizon(found),
        "claims": judge(found),
    }  # fmt: skip
    publish(output, summary, write(name, summary, draw_all(found, output)), summary["claims"])
    return summary


def find_optimum(problem: fpdfp.Problem, output: Path) -> dict[str, Any]:
    """F* with a certificate: x and v are kept, and give the gap anew without being trusted."""
    file, model = output / "optimum.npz", problem.model
    if file.is_file():
        with np.load(file) as kept:
            x, v = kept["x"], kept["v"]
        if x.shape == model.shape and v.shape == model.dual_shape:
            found = problem.certificate(x, v, dual_steps=0)
            if found.relative_gap is not None and found.relative_gap <= TOLERANCE:
                return {"objective": found.objective, "relative_gap": found.relative_gap}
    best = fpdfp.minimize(problem, tol=TOLERANCE)
    np.savez(file, x=best.x, v=best.certificate.v)
    # As it is computed from what was kept, so that a second call finds the same number.
    found = problem.certificate(best.x, best.certificate.v, dual_steps=0)
    return {"objective": found.objective, "relative_gap": found.relative_gap}


def describe(one: Line) -> dict[str, Any]:
    """A case in numbers: at each evaluation the median over seeds, the least and the largest."""
    step = {}
    if one.step is not None:
        (gamma, decay), ends = one.step, (GAMMAS[0], GAMMAS[-1])
        at_the_end = gamma in ends or decay == DECAYS[-1]
        step = {"gamma0_times_L": gamma, "c": decay, "at_the_end_of_the_grid": at_the_end}
    kinds: dict[str, Any] = {"median": np.median, "least": np.min, "largest": np.max}
    return {
        "label": one.case.label, "method": one.case.method, "clients_per_round": one.case.n, "levels": one.case.levels,
        **step, "error_at_the_end": ties.round_numbers(one.ended("error")), "bits_once_up": one.once_up,
        "round": one.rounds.astype(int).tolist(),
        **{
            name: {kind: ties.round_numbers(of(one[name], axis=0)) for kind, of in kinds.items()}
            for name in ("error", "test_loss", "accuracy", "bits_up", "bits_down")
        },
    }  # fmt: skip


def draw_all(found: Findings, folder: Path) -> list[str]:
    """Draw all figures into a folder; return their names."""
    task, lines, sent = found.task, found.lines, "bits sent by clients"
    by_levels, by_clients = f"{task.name}, n = {task.per_round}", f"{task.name}, s = {FIXED_LEVELS}"
    groups = {
        by_levels: [lines[Case(task.per_round, levels)] for levels in LEVELS],
        by_clients: [lines[Case(n, FIXED_LEVELS)] for n in task.participation],
    }
    figures = {
        name: [
            Panel(curves(groups[title], "error"), "round", ERROR, f"{title}: training", "y"),
            Panel(curves(groups[title], "test_loss"), "round", "test loss", "test loss", "xy"),
            Panel(curves(groups[title], "accuracy", scale=0.01), "round", "accuracy (%)", "test accuracy", "x"),
        ]
        for name, title in (("levels", by_levels), ("participation", by_clients))
    }
    figures["first-rounds"] = [
        Panel(curves(some, "error", x, most=2 * EARLY[-1]), x, ERROR, title, "xy")
        for title, some in groups.items()
        for x in ("round", sent)
    ]
    if found.sweep:
        swept = []
        for levels, colour in zip(SWEPT, COLOURS, strict=False):
            kept = [gamma for gamma in GAMMAS if np.isfinite(found.sweep[levels, gamma]).all()]
            if kept:
                errors = np.stack([found.sweep[levels, gamma] for gamma in kept], axis=1)
                swept.append(Curve(np.array(kept), errors, name_levels(levels), colour, "o-"))
        figures["steps"] = [Panel(swept, "γ0 in units of 1/L", f"{ERROR} at the end", by_levels, "xy", ticks=GAMMAS)]
    figures["bits"] = [
        Panel(curves(some, "bits_up", scale=1e6), "round", "Mbit sent by clients", title)
        for title, some in groups.items()
    ]
    both = [*groups[by_levels], *(one for one in lines.values() if one.case.method == AUTOMATIC)]
    figures["against-bits"] = [
        Panel(curves(both, "error", x, floor=FLOOR), x, ERROR, title, "xy")
        for x, title in (("round", f"{task.name}, FPDFP with n = {task.per_round}"), (sent, "with what is sent once"))
    ]
    draw(folder, figures, beside=("against-bits",))
    return list(figures)


def write(name: str, summary: dict[str, Any], figures: Sequence[str]) -> str:
    tuning, seeds, horizons, own = (summary[key] for key in ("tuning", "seeds", "horizons", "each_tuned_for_itself"))
    at = [f"{one['rounds']:,} rounds" for one in horizons]

    def transpose(what: str, form: str) -> list[list[str]]:
        return [[key, *(form.format(one[what][key]) for one in horizons)] for key in horizons[0][what]]

    def table(cases: Sequence[dict[str, Any]]) -> str:
        header = ("step", "relative error at the end", "test loss", "accuracy", "Mbit up, in all")
        return rows([f"case ({summary['rounds']} rounds unless said)", *header], map(row, cases))

    judged = [[one["claim"], one["verdict"], *([one["own"]] if own else [])] for one in summary["claims"]]
    return fill(
        "graph_guided", summary, figures, name=name, gammas=braces(tuning["gamma0_times_L"]),
        decays=braces(tuning["c"]), last_part=100 * LAST, finalists=FINALISTS, count=len(seeds), first=seeds[0],
        last=seeds[-1], table=table(summary["cases"]), own=own and table(own), no_studies=not own,
        horizons=rows(["case", *at], transpose("error", "{:.2e}")),
        verdicts=rows(["claim", *at], transpose("verdicts", "{}")),
        verdict_table=rows(["claim", "one step for all", *(["each tuned for itself"] if own else [])], judged),
    )  # fmt: skip


def row(case: dict[str, Any]) -> list[str]:
    sent, once = case["bits_up"]["median"][-1] / 1e6, case["bits_once_up"] / 1e6
    if "gamma0_times_L" in case:
        end = " (end of the grid)" if case["at_the_end_of_the_grid"] else ""
        label, step = case["label"], f"{case['gamma0_times_L']:g}/L, c = {case['c']:g}{end}"
        bits = f"{sent:,.1f}"
    else:
        label, step = f"{case['label']}, {case['round'][-1]} rounds", "default settings"
        bits = f"{sent + once:,.1f}, of which {once:,.1f} once"
    test_loss, accuracy = (case[name]["median"][-1] for name in ("test_loss", "accuracy"))
    ended = f"{statistics.median(case['error_at_the_end']):.2e}"
    return [label, step, ended, f"{test_loss:.5f}", f"{100 * accuracy:.2f} %", bits]
