"""What the paper claims of its first experiment, and what our runs say to it.

Cases are compared on the objective (its relative error) and on the test accuracy, seed by seed, with the tie zone of
:mod:`fpdfp.experiments.ties`; and with one step for all cases. Where cases were also tuned each for itself, that is
judged too, and said beside the verdict.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp._units import format_bits
from fpdfp.experiments import graph_guided as guided
from fpdfp.experiments import ties
from fpdfp.experiments.cases import Case, at_the_end, name_levels
from fpdfp.experiments.graph_guided import Findings, Line, Sweep, Task, horizons

#: "At first": after these rounds.
EARLY = (10, 30, 100)
#: A run does not converge if it diverges, or keeps more than this part of its error at the start.
CONVERGED = 0.1

Lines = Mapping[Case, Line]


class Claim(NamedTuple):
    """A claim of the paper, the verdict of the runs, and the numbers that it rests on."""

    claim: str
    verdict: str
    numbers: str


class TunedClaim(NamedTuple):
    """A claim with its verdict for one step for all cases; ``own`` is that for each tuned for itself, if any."""

    claim: str
    verdict: str
    numbers: str
    own: str = ""


class Judged(NamedTuple):
    """Verdicts on the objective and on the test accuracy, and the numbers that they rest on."""

    objective: str
    accuracy: str
    numbers: str

    @property
    def verdict(self) -> str:
        """Both in words."""
        if self.objective == self.accuracy:
            return self.objective
        return f"{self.objective} on the objective, {self.accuracy} on the accuracy"


def judge(found: Findings) -> list[TunedClaim]:
    """Return every claim with its verdict."""
    task = found.task
    n, few = task.per_round, task.participation[0]
    claims = [
        twice(found, f"A larger s gives a better solution (n = {n}).", finer_is_better),
        twice(found, f"s = {guided.FIXED_LEVELS} is as good as no quantization (n = {n}).", finest_is_as_good_as_exact),
        faster(found, f"A smaller s converges faster at first (s = {guided.LEVELS[0]} against exact, n = {n}).",
               Case(n, guided.LEVELS[0]), Case(n, None)),
        twice(found, f"A smaller s ends at a higher objective (s = {guided.LEVELS[0]} against exact, n = {n}).",
              coarsest_is_worse),
        faster(found, f"A small n converges faster at first (n = {few} against everyone, s = {guided.FIXED_LEVELS}).",
               Case(few, guided.FIXED_LEVELS), Case(task.clients, guided.FIXED_LEVELS)),
        twice(found, f"A small n ends at a less accurate solution (n = {few}, s = {guided.FIXED_LEVELS}).",
              few_are_less_accurate),
        twice(found, f"n = {n} is about as good as everyone (s = {guided.FIXED_LEVELS}).", some_are_as_good_as_all),
    ]  # fmt: skip
    if found.sweep.errors:
        claims += [larger_steps(found), small_levels_fail(found)]
    return [*claims, bits_are_saved(found.lines, task), beyond(found.lines)]


def by_horizon(found: Findings) -> list[dict[str, Any]]:
    """Return the relative errors of all cases at several horizons, and the verdicts there, with the common step."""
    theirs = [one for one in found.lines.values() if one.case.method != guided.AUTOMATIC]
    task = found.task
    names = {"n": task.per_round, "few": task.participation[0], "s": guided.FIXED_LEVELS, "coarse": guided.LEVELS[0]}
    return [
        {
            "rounds": horizon,
            "error": {one.case.label: middle(ended(one, "error", horizon)) for one in theirs},
            "verdicts": {
                name.format(**names): judged(found.lines, task, horizon).verdict for name, judged in COMPARED.items()
            },
        }
        for horizon in horizons(int(theirs[0].rounds[-1]))
    ]


def twice(found: Findings, claim: str, judged: Callable[[Lines, Task, float | None], Judged]) -> TunedClaim:
    """Judge a claim with the common step, and beside it with each case tuned for itself."""
    common = judged(found.lines, found.task, None)
    if not found.own:
        return TunedClaim(claim, common.verdict, common.numbers)
    own = judged(found.own, found.task, None)
    same = own.numbers == common.numbers
    numbers = f"{common.numbers} Each tuned for itself: {'the same steps.' if same else own.numbers}"
    return TunedClaim(claim, common.verdict, numbers, own.verdict)


def finer_is_better(lines: Lines, task: Task, horizon: float | None) -> Judged:
    """Larger s, better solution: the coarsest against the finest, and all neighbours."""
    ladder = [lines[Case(task.per_round, levels)] for levels in guided.LEVELS if levels is not None]
    whole = better(ladder[-1], ladder[0], levels_of, horizon)
    steps = [better(fine, coarse, levels_of, horizon) for coarse, fine in itertools.pairwise(ladder)]

    def verdict(of_whole: str, of_steps: list[str]) -> str:
        all_of_them = all(one == "confirmed" for one in of_steps)
        return of_whole if of_whole != "confirmed" or all_of_them else "confirmed in part"

    return Judged(
        verdict(whole.objective, [one.objective for one in steps]),
        verdict(whole.accuracy, [one.accuracy for one in steps]),
        " ".join(one.numbers for one in (whole, *steps)),
    )


def finest_is_as_good_as_exact(lines: Lines, task: Task, horizon: float | None) -> Judged:
    """Twenty levels are as good as no quantization."""
    quantized, exact = lines[Case(task.per_round, guided.FIXED_LEVELS)], lines[Case(task.per_round, None)]
    judged = as_good(quantized, exact, levels_of, horizon)
    sent = f" {guided.FIXED_LEVELS} levels send {share(quantized, exact):.1f} % of the bits of exact messages."
    return judged._replace(numbers=judged.numbers + sent)


def coarsest_is_worse(lines: Lines, task: Task, horizon: float | None) -> Judged:
    """Few levels end at a higher objective than exact messages; the claim is on the objective alone."""
    coarse, exact = lines[Case(task.per_round, guided.LEVELS[0])], lines[Case(task.per_round, None)]
    judged = better(exact, coarse, levels_of, horizon)
    return judged._replace(accuracy=judged.objective)


def few_are_less_accurate(lines: Lines, task: Task, horizon: float | None) -> Judged:
    """Small n ends less accurate: everyone is better."""
    few, everyone = (lines[Case(n, guided.FIXED_LEVELS)] for n in (task.participation[0], task.clients))
    return better(everyone, few, clients_of, horizon)


def some_are_as_good_as_all(lines: Lines, task: Task, horizon: float | None) -> Judged:
    """Some clients are about as good as everyone."""
    some, everyone = (lines[Case(n, guided.FIXED_LEVELS)] for n in (task.per_round, task.clients))
    judged = as_good(some, everyone, clients_of, horizon)
    return judged._replace(numbers=f"{judged.numbers} Bits: {share(some, everyone):.1f} % of those of everyone.")


#: What is judged at every horizon.
COMPARED: dict[str, Callable[[Lines, Task, float | None], Judged]] = {
    "a larger s is better": finer_is_better,
    "s = {s} as good as exact": finest_is_as_good_as_exact,
    "s = {coarse} ends higher than exact": coarsest_is_worse,
    "n = {few} less accurate": few_are_less_accurate,
    "n = {n} as good as everyone": some_are_as_good_as_all,
}


def faster(found: Findings, claim: str, small: Case, large: Case) -> TunedClaim:
    """Judge whether a case is ahead of another in its first rounds, and for the same bits."""
    texts, outcomes = [], list[tuple[ties.Outcome, ties.Outcome]]()
    one, other = found.lines[small], found.lines[large]
    for rounds in EARLY:
        at = min(int(np.searchsorted(other.rounds, rounds)), len(other.rounds) - 1)
        bits = middle(other.bits_up[:, at])
        there = int(np.searchsorted(np.median(one.bits_up, axis=0), bits, side="right")) - 1
        in_rounds = ties.compare(one.error[:, at], other.error[:, at])
        in_bits = ties.compare(one.error[:, there], other.error[:, at])
        outcomes.append((ties.decide(in_rounds), ties.decide(in_bits)))
        texts.append(
            f"after {other.rounds[at]:.0f} rounds {one.error[:, at].mean():.3g} against "
            f"{other.error[:, at].mean():.3g} (tie zone {in_rounds.zone:.1g}); for the {format_bits(bits)} that the "
            f"other has sent then, {one.error[:, there].mean():.3g}"
        )
    return TunedClaim(
        claim, f"{sum_up([each[0] for each in outcomes])} against rounds, "
        f"{sum_up([each[1] for each in outcomes])} against bits", f"Relative error: {'; '.join(texts)}.",
    )  # fmt: skip


def sum_up(outcomes: Sequence[ties.Outcome]) -> str:
    """The verdict on the claim that a case is better at several points."""
    verdicts = [ties.judge_better(one) for one in outcomes]
    if "confirmed" in verdicts and "refuted" not in verdicts:
        return "confirmed" if set(verdicts) == {"confirmed"} else "confirmed in part"
    if "refuted" in verdicts:
        return "mixed" if "confirmed" in verdicts else "refuted"
    return "tied"


def larger_steps(found: Findings) -> TunedClaim:
    """A larger s allows a larger step: with few levels the step that is best for exact messages costs accuracy."""
    sweep, largest = found.sweep, found.sweep.best(None)

    def verdict(levels: int | None) -> str:
        best = sweep.best(levels)
        lost = ties.compare(sweep.errors[levels, largest], sweep.errors[levels, best])
        if best >= largest:
            return "undecided" if largest == guided.GAMMAS[-1] else "refuted"
        return "confirmed" if lost.more else "tied"

    verdicts = {levels: verdict(levels) for levels in guided.SWEPT if levels is not None}
    words = [
        f"{word} for s = {', '.join(str(levels) for levels, one in verdicts.items() if one == word)}"
        for word in dict.fromkeys(verdicts.values())
    ]
    return TunedClaim(
        "A larger s allows a larger step.",
        words[0].split(" for ")[0] if len(words) == 1 else ", ".join(words),
        "Best γ0, of the grid, and the largest at which all seeds converge, in units of 1/L: "
        + ", ".join(f"{name_levels(s)} {sweep.best(s):g} and {largest_step(found, s):g}" for s in guided.SWEPT)
        + f". The step that is best for exact messages, {largest:g}/L, against each one's own best: "
        + "; ".join(f"{name_levels(levels)} {sweep.errors[levels, largest].mean():.3g} against "
                    f"{sweep.errors[levels, sweep.best(levels)].mean():.3g} (tie zone {lost_zone(sweep, levels):.1g})"
                    for levels in guided.SWEPT if levels is not None) + ".",
    )  # fmt: skip


def small_levels_fail(found: Findings) -> TunedClaim:
    """Too few levels do not converge."""
    coarse, sweep = guided.SWEPT[0], found.sweep
    common = found.lines[found.task.common].step
    assert common is not None
    own = sweep.best(coarse)
    verdict = (
        "refuted" if converges(found, coarse, common.gamma)
        else "confirmed with the common step, refuted with its own" if converges(found, coarse, own) else "confirmed"
    )  # fmt: skip
    return TunedClaim(
        f"With too few levels the method does not converge (s = {coarse}).", verdict,
        f"Relative error at the end: s = {coarse} {sweep.errors[coarse, common.gamma].mean():.3g} with the common "
        f"γ0 = {common.gamma:g}/L, {sweep.errors[coarse, own].mean():.3g} with its best, {own:g}/L; exact messages "
        f"{sweep.errors[None, common.gamma].mean():.3g}. At the start it is {start_of(found):.3g}; to converge means "
        f"here to end below {CONVERGED * start_of(found):.2g}.",
    )  # fmt: skip


def start_of(found: Findings) -> float:
    """The relative error at the start."""
    return float(found.lines[found.task.common].error[0, 0])


def converges(found: Findings, levels: int | None, gamma: float) -> bool:
    """Whether all seeds end below a part of the error at the start."""
    return bool((found.sweep.errors[levels, gamma] < CONVERGED * start_of(found)).all())


def largest_step(found: Findings, levels: int | None) -> float:
    """The largest γ0 of the grid at which all seeds converge."""
    return max((gamma for gamma in guided.GAMMAS if converges(found, levels, gamma)), default=0.0)


def lost_zone(sweep: Sweep, levels: int | None) -> float:
    """The tie zone of the best step for exact messages against the best step."""
    return ties.compare(sweep.errors[levels, sweep.best(None)], sweep.errors[levels, sweep.best(levels)]).zone


def better(one: Line, other: Line, name: Callable[[Line], str], horizon: float | None) -> Judged:
    """Judge the claim that one case is better than another."""
    return compare_lines(one, other, name, horizon, lambda found, outcome: ties.judge_better(outcome))


def as_good(one: Line, other: Line, name: Callable[[Line], str], horizon: float | None) -> Judged:
    """Judge the claim that one case is as good as another."""
    return compare_lines(one, other, name, horizon, ties.judge_as_good)


def compare_lines(
    one: Line,
    other: Line,
    name: Callable[[Line], str],
    horizon: float | None,
    verdict: Callable[[ties.Comparison, ties.Outcome], str],
) -> Judged:
    """Judge two cases at a horizon on the objective and on the accuracy."""
    verdicts, texts = dict[str, str](), []
    for column, title, show in (
        ("error", "relative error", "{:.3e}".format),
        ("test_error", "test error", "{:.2%}".format),
    ):
        values = ended(one, column, horizon), ended(other, column, horizon)
        found = ties.compare(*values)
        fall = max(measure_fallen(one, column, horizon), measure_fallen(other, column, horizon), key=abs)
        outcome = ties.decide(found, fall)
        verdicts[column] = verdict(found, outcome)
        falling = f", fall in the last tenth {show(fall)}" if fall else ""
        texts.append(
            f"{title} {show(values[0].mean())} and {show(values[1].mean())} (tie zone {show(found.zone)}, spread of "
            f"runs {show(found.spread)}{falling}), {outcome}"
        )
    return Judged(
        verdicts["error"], verdicts["test_error"], f"Comparing {name(one)} with {name(other)}: {'; '.join(texts)}."
    )


def ended(one: Line, column: str, horizon: float | None = None) -> Array:
    """A column at the end of a run, or at a horizon, for each seed."""
    found: Array = at_the_end(one.rounds, getattr(one, column), horizon)
    return found


def measure_fallen(one: Line, column: str, horizon: float | None) -> float:
    """By how much a column falls over the last tenth of the rounds."""
    last = float(one.rounds[-1]) if horizon is None else horizon
    return ties.measure_fall(ended(one, column, 0.9 * last), ended(one, column, last))


def bits_are_saved(lines: Lines, task: Task) -> TunedClaim:
    """Fitting levels and participation lower the bits."""
    ours = [one for one in lines.values() if one.case.method != guided.AUTOMATIC]
    target = max(float(one.ended[np.isfinite(one.ended)].max(initial=0.0)) for one in ours)
    needed = {one.case: bits_to(one, target) for one in ours}
    least = min(needed, key=needed.__getitem__)
    saved = least.levels is not None and least.n < task.clients
    each = ", ".join(
        f"{case.label} {format_bits(bits) if np.isfinite(bits) else 'not reached'}" for case, bits in needed.items()
    )
    a_round = ", ".join(f"{one.case.label} {format_bits(middle(one.bits_up[:, -1]) / one.rounds[-1])}" for one in ours)
    return TunedClaim(
        "Bits grow with the rounds in proportion; fitting levels and participation need few of them.",
        verdict_of(saved and all(proportional(one) for one in ours)),
        f"Bits up a round: {a_round}. Bits up to a relative error of {target:.2g}, which all reach: {each}.",
    )


def beyond(lines: Lines) -> TunedClaim:
    """What the automatic method needs for the least error that FPDFP reaches."""
    theirs = [one for one in lines.values() if one.case.method != guided.AUTOMATIC]
    best = min(theirs, key=lambda one: middle(one.ended))
    target = middle(best.ended)
    texts = []
    for one in lines.values():
        if one.case.method == guided.AUTOMATIC:
            at = first(one, target)
            texts.append(
                f"{one.case.label}: {one.rounds[at]:.0f} rounds and {format_bits(bits_to(one, target) + one.once_up)} "
                f"up in all, {format_bits(one.once_up)} of them once; after {one.rounds[-1]:.0f} rounds "
                f"{middle(one.error[:, -1]):.1e}"
                if at is not None
                else f"{one.case.label}: not reached"
            )
    return TunedClaim(
        "Beyond the paper: what `fpdfp.solve` needs with its default settings.", "measured",
        f"The least relative error of FPDFP is {target:.2e} ({best.case.label}, {best.rounds[-1]:.0f} rounds, "
        f"{format_bits(middle(best.bits_up[:, -1]))} up). To that error: {'; '.join(texts)}.",
    )  # fmt: skip


def proportional(one: Line) -> bool:
    """Whether bits grow with the rounds in proportion, to a tenth, from the hundredth part on."""
    late = one.rounds >= 0.01 * one.rounds[-1]
    rate = one.bits_up[:, late] / one.rounds[late]
    return bool((abs(rate / rate[:, -1:] - 1) < 0.1).all())


def share(one: Line, other: Line) -> float:
    """The bits of one in percent of the bits of another."""
    return 100 * middle(one.bits_up[:, -1]) / middle(other.bits_up[:, -1])


def first(one: Line, target: float) -> int | None:
    """The first evaluation at which the middle of the errors is within a target."""
    within = np.flatnonzero(np.median(one.error, axis=0) <= target)
    return int(within[0]) if len(within) else None


def bits_to(one: Line, target: float) -> float:
    """The bits up to that evaluation."""
    at = first(one, target)
    return np.inf if at is None else middle(one.bits_up[:, at])


def middle(values: Array) -> float:
    """The median over seeds."""
    return float(np.median(values))


def levels_of(line: Line) -> str:
    """The levels of a line."""
    return name_levels(line.case.levels)


def clients_of(line: Line) -> str:
    """The participants of a line."""
    return f"n = {line.case.n}"


def verdict_of(holds: bool) -> str:
    """The verdict in a word."""
    return "confirmed" if holds else "refuted"
