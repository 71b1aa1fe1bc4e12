"""What the paper claims of its first experiment, and what our runs say to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fpdfp.engines.progress import format_bits
from fpdfp.experiments.graph_guided import Task
from fpdfp.experiments.runs import AUTOMATIC, FIXED_LEVELS, LEVELS, Case, Line

#: "As good as" means a relative error at most so much larger, and an accuracy at most so much lower.
MUCH, POINTS = 0.1, 0.001
#: "At first": after these shares of the rounds.
EARLY = (0.003, 0.01, 0.03)

Lines = Mapping[Case, Line]


class Claim(NamedTuple):
    """A claim of the paper, the verdict of the runs, and the numbers that it rests on."""

    claim: str
    verdict: str
    numbers: str


def judge(lines: Lines, task: Task) -> list[Claim]:
    """Return every claim with its verdict."""
    return [
        finer_is_better(lines, task),
        finest_is_as_good_as_exact(lines, task),
        few_are_faster_at_first(lines, task),
        few_are_less_accurate(lines, task),
        some_are_as_good_as_all(lines, task),
        bits_are_saved(lines, task),
        beyond(lines, task),
    ]


def finer_is_better(lines: Lines, task: Task) -> Claim:
    """Larger s, better solution."""
    ladder = [lines[Case(task.per_round, levels)] for levels in LEVELS if levels is not None]
    steps = [worse(coarse, fine) for coarse, fine in itertools.pairwise(ladder)]
    verdict = "confirmed" if all(steps) else "confirmed in part" if worse(ladder[0], ladder[-1]) else "refuted"
    return Claim(
        f"A larger s gives a better solution (n = {task.per_round}).", verdict,
        f"relative error at the end: {listed(ladder, levels_of, ended)}; "
        + "; ".join(f"{levels_of(fine)} is better than {levels_of(coarse)} for {count_worse(coarse, fine)}"
                    for coarse, fine in itertools.pairwise(ladder)) + ".",
    )  # fmt: skip


def finest_is_as_good_as_exact(lines: Lines, task: Task) -> Claim:
    """Twenty levels are as good as no quantization."""
    quantized, exact = lines[Case(task.per_round, FIXED_LEVELS)], lines[Case(task.per_round, None)]
    return Claim(
        f"s = {FIXED_LEVELS} is as good as no quantization (n = {task.per_round}).",
        verdict_of(as_good(quantized, exact)),
        f"{compared(quantized, exact, levels_of)}; {FIXED_LEVELS} levels send "
        f"{share(quantized, exact):.1f} % of the bits of exact messages.",
    )


def few_are_faster_at_first(lines: Lines, task: Task) -> Claim:
    """Small n converges faster at first."""
    few, everyone = (lines[Case(n, FIXED_LEVELS)] for n in (task.participation[0], task.clients))
    texts, by_rounds, by_bits = [], [], []
    for part in EARLY:
        at = int(np.searchsorted(everyone.rounds, max(1, part * everyone.rounds[-1])))
        bits = everyone.bits_up[0, at]
        there = int(np.searchsorted(few.bits_up[0], bits, side="right")) - 1
        by_rounds.append(mostly_less(few.error[:, at], everyone.error[:, at]))
        by_bits.append(mostly_less(few.error[:, there], everyone.error[:, at]))
        texts.append(
            f"after {everyone.rounds[at]:.0f} rounds {middle(few.error[:, at]):.3g} with n = {few.case.n}, "
            f"{middle(everyone.error[:, at]):.3g} with everyone; for the {format_bits(bits)} that everyone has sent "
            f"then, n = {few.case.n} has {middle(few.error[:, there]):.3g}"
        )
    verdict = "confirmed" if all(by_rounds) else "refuted against rounds"
    if not all(by_rounds):
        verdict += (
            ", confirmed against bits" if all(by_bits) else ", in part against bits" if any(by_bits) else " and bits"
        )
    return Claim(
        f"A small n converges faster at first (s = {FIXED_LEVELS}).", verdict, f"relative error: {'; '.join(texts)}."
    )


def few_are_less_accurate(lines: Lines, task: Task) -> Claim:
    """Small n ends less accurate."""
    few, everyone = (lines[Case(n, FIXED_LEVELS)] for n in (task.participation[0], task.clients))
    return Claim(
        f"A small n ends at a less accurate solution (s = {FIXED_LEVELS}).", verdict_of(worse(few, everyone)),
        f"{compared(few, everyone, clients_of)}.",
    )  # fmt: skip


def some_are_as_good_as_all(lines: Lines, task: Task) -> Claim:
    """Some clients are about as good as everyone."""
    some, everyone = (lines[Case(n, FIXED_LEVELS)] for n in (task.per_round, task.clients))
    return Claim(
        f"n = {task.per_round} is about as good as everyone (s = {FIXED_LEVELS}).",
        verdict_of(as_good(some, everyone)),
        f"{compared(some, everyone, clients_of)}; bits: {share(some, everyone):.1f} % of those of everyone.",
    )


def bits_are_saved(lines: Lines, task: Task) -> Claim:
    """Fitting levels and participation lower the bits."""
    ours = [one for one in lines.values() if one.case.method != AUTOMATIC]
    target = max(float(one.ended[np.isfinite(one.ended)].max(initial=0.0)) for one in ours)
    needed = {one.case: bits_to(one, target) for one in ours}
    least = min(needed, key=needed.__getitem__)
    saved = least.levels is not None and least.n < task.clients
    each = ", ".join(
        f"{case.label} {format_bits(bits) if np.isfinite(bits) else 'not reached'}" for case, bits in needed.items()
    )
    a_round = ", ".join(f"{one.case.label} {format_bits(middle(one.bits_up[:, -1]) / one.rounds[-1])}" for one in ours)
    return Claim(
        "Bits grow with the rounds in proportion; fitting levels and participation need few of them.",
        verdict_of(saved and all(proportional(one) for one in ours)),
        f"bits up a round: {a_round}. Bits up to a relative error of {target:.2g}, which all reach: {each}.",
    )


def beyond(lines: Lines, task: Task) -> Claim:
    """What the automatic method needs for the least error that FPDFP reaches."""
    theirs = [one for one in lines.values() if one.case.method != AUTOMATIC]
    best = min(theirs, key=lambda one: middle(one.ended))
    target = middle(best.ended)
    texts = []
    for one in lines.values():
        if one.case.method == AUTOMATIC:
            at = first(one, target)
            texts.append(
                f"{one.case.label}: {one.rounds[at]:.0f} rounds and {format_bits(bits_to(one, target))} up, "
                f"and {format_bits(one.once_up)} once; after {one.rounds[-1]:.0f} rounds "
                f"{middle(one.error[:, -1]):.1e}"
                if at is not None
                else f"{one.case.label}: not reached"
            )
    return Claim(
        "Beyond the paper: what `fpdfp.solve` needs with nothing given and nothing tuned.", "measured",
        f"the least relative error of FPDFP is {target:.2e} ({best.case.label}, {best.rounds[-1]:.0f} rounds, "
        f"{format_bits(middle(best.bits_up[:, -1]))} up). To that error: {'; '.join(texts)}.",
    )  # fmt: skip


def worse(one: Line, other: Line) -> bool:
    """Whether one ends with a larger error than another, in the median and for most seeds."""
    return mostly_less(other.ended, one.ended)


def mostly_less(these: np.ndarray, those: np.ndarray) -> bool:
    """Whether these are less than those, in the median and for most seeds."""
    return middle(these) < middle(those) and bool((these < those).mean() > 0.5)


def count_worse(one: Line, other: Line) -> str:
    """For how many seeds one ends with a larger error than another."""
    return f"{np.count_nonzero(one.ended > other.ended)} of {len(one.error)} seeds"


def as_good(one: Line, other: Line) -> bool:
    """Whether one ends about as well as another."""
    accuracies = middle(one.accuracy[:, -1]), middle(other.accuracy[:, -1])
    errors = middle(one.ended), middle(other.ended)
    close = np.isfinite(errors[0]) and errors[0] <= (1 + MUCH) * errors[1]
    return bool(close and accuracies[0] >= accuracies[1] - POINTS)


def compared(one: Line, other: Line, name: Callable[[Line], str]) -> str:
    """Errors, test losses and accuracies at the end."""
    both = (one, other)
    losses = ", ".join(f"{name(line)}: {middle(line.test_loss[:, -1]):.5f}" for line in both)
    accuracies = ", ".join(f"{name(line)}: {100 * middle(line.accuracy[:, -1]):.2f} %" for line in both)
    return f"relative error at the end: {listed(both, name, ended)}; test loss {losses}; test accuracy {accuracies}"


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


def middle(values: np.ndarray) -> float:
    """The median over seeds."""
    return float(np.median(values))


def ended(line: Line) -> str:
    """The error at the end: the median and the range."""
    return f"{middle(line.ended):.3e} ({line.ended.min():.3e} to {line.ended.max():.3e})"


def listed(some: Sequence[Line], name: Callable[[Line], str], what: Callable[[Line], str]) -> str:
    """Something of several lines in a row."""
    return ", ".join(f"{name(one)}: {what(one)}" for one in some)


def levels_of(line: Line) -> str:
    """The levels of a line."""
    return "exact" if line.case.levels is None else f"s = {line.case.levels}"


def clients_of(line: Line) -> str:
    """The participants of a line."""
    return f"n = {line.case.n}"


def verdict_of(holds: bool) -> str:
    """The verdict in a word."""
    return "confirmed" if holds else "refuted"
