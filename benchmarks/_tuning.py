"""The one rule by which methods are tuned on all pages, and what the benchmarks share beside `benchmarks._scores`.

A method takes γ_k = γ0/(1 + ck) with γ0 in GAMMAS/L, L the mean of the clients' Lipschitz constants, c in DECAYS (0
alone where its step is constant), and messages with s in LEVELS where it sends compressed ones. For each s all settings
run 250 rounds with seed 0, the best third goes on to 1,000, the best two of those to the end: by relative error, and by
bits where the smallest target was reached. Of all these runs, the setting that a page shows for an accuracy is the one
that needed the fewest bits, up and down and what was sent once together: another one for each accuracy, as a run that
is told its target would have. It then runs again with the seeds of the page.

The ends of the grid do not decide. After the first stage and after the last, where the best setting for an accuracy
(the one with the least error where none reached it) lies at an end of the grid, its neighbours beyond it, with a γ0 or
s twice or half as large, or a c ten times as large, run as long as that stage did, then the neighbours of the best one
again: until all neighbours of the best were tried, or lie beyond LIMITS.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from benchmarks._problems import Setting
from fpdfp import steps

GAMMAS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
DECAYS = (0.0, 0.001, 0.01)
LEVELS = (2, 5, 20)
#: How far the grid may grow: the smallest and largest γ0 and s, the largest c.
LIMITS = {"gamma": (2.0**-8, 2.0**11), "levels": (1, 100_000), "decay": (0.0, 1.0)}
#: Rounds of the stages of tuning before the last, and how many of so many settings go on.
STAGES: tuple[tuple[int, Callable[[int], int]], ...] = ((250, lambda count: math.ceil(count / 3)), (1000, lambda _: 2))
#: What is looked at when a run is first within a relative error.
COLUMNS = ("round", "total_up", "total_down", "evaluation_up", "evaluation_down", "seconds")

#: Rounds, bits and seconds to each target, None where a run did not get there.
Totals = dict[str, dict[str, float] | None]


class Choice(NamedTuple):
    """A setting of the grid: γ0 L, c, and the levels of messages; None where they are not compressed."""

    gamma: float
    decay: float
    levels: int | None

    def __str__(self) -> str:
        levels = "" if self.levels is None else f", s = {self.levels}"
        return f"{self.gamma:g}/L, c = {self.decay:g}{levels}"


class Outcome(NamedTuple):
    """What came of a run: its relative error at the end, infinite where it diverged, and how it got to each target."""

    error: float
    totals: Totals


def positive(text: str) -> int:
    """Read a positive integer from the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def choices(
    *,
    falling: bool = True,
    levels: Sequence[int | None] = LEVELS,
    gammas: Sequence[float] = GAMMAS,
    decays: Sequence[float] = DECAYS,
) -> list[Choice]:
    """Return the grid of a method; ``falling`` says whether its step may fall, ``levels`` is (None,) for exact ones."""
    return [Choice(gamma, decay, s) for s in levels for gamma in gammas for decay in (decays if falling else (0.0,))]


def tune(
    grid: Iterable[Choice],
    rounds: int,
    compute: Callable[[Sequence[Choice], int], Sequence[Outcome]],
    before: Sequence[tuple[int, Callable[[int], int]]] = STAGES,
) -> dict[Choice, Outcome]:
    """Return what came of the settings of a grid and of those beyond its ends, each run as long as the rule lets it."""
    found: dict[Choice, Outcome] = {}

    def look(settings: Sequence[Choice], count: int) -> None:
        found.update(zip(settings, compute(settings, count), strict=True))

    def grow(count: int) -> None:
        while further := sorted({other for one in leaders(found) for other in beyond(one, found)} - found.keys()):
            look(further, count)

    left = list(grid)
    for stage, (count, survivors) in enumerate(stages(rounds, before)):
        look(left, count)
        if stage == 0:
            grow(count)
            left = list(found)
        left = [
            one
            for levels in dict.fromkeys(one.levels for one in left)
            for one in go_on([one for one in left if one.levels == levels], found, survivors)
        ]
    grow(rounds)
    return found


def go_on(same: Sequence[Choice], found: Mapping[Choice, Outcome], survivors: Callable[[int], int]) -> list[Choice]:
    """Return the settings with which tuning goes on, best first."""
    return sorted(same, key=lambda one: ranked(found[one]))[: survivors(len(same))]


def leaders(found: Mapping[Choice, Outcome]) -> set[Choice]:
    """Return the best setting for every accuracy; the one with the least error where none got there."""
    closest = min(found, key=lambda one: found[one].error)
    targets = next(iter(found.values())).totals
    return {best(found, float(target)) or closest for target in targets}


def beyond(one: Choice, tried: Iterable[Choice]) -> list[Choice]:
    """Return the settings next to one along every axis: the next values that were tried, or one beyond their ends."""
    neighbours = []
    for name, factor in (("gamma", 2), ("levels", 2), ("decay", 10)):
        value, seen = getattr(one, name), sorted({getattr(other, name) for other in tried} - {None})
        if len(seen) < 2:
            continue  # a method that does not compress, or whose step is constant
        axis = [type(value)(seen[0] / factor), *seen, seen[-1] * factor]
        at = axis.index(value, 1)
        neighbours += [one._replace(**{name: other}) for other in (axis[at - 1], axis[at + 1])]
    return [other for other in neighbours if within(other)]


def within(one: Choice) -> bool:
    """Whether a setting lies within the limits of the grid."""
    values = one._asdict().items()
    return all(value is None or LIMITS[name][0] <= value <= LIMITS[name][1] for name, value in values)


def stages(
    rounds: int, before: Sequence[tuple[int, Callable[[int], int]]] = STAGES
) -> list[tuple[int, Callable[[int], int]]]:
    """Return the stages of tuning, the last of which has all rounds."""
    return [*(stage for stage in before if stage[0] < rounds), (rounds, lambda count: count)]


def ranked(outcome: Outcome) -> float:
    """What settings of a stage are ordered by: the relative error, or bits where the smallest target was reached."""
    last = list(outcome.totals.values())[-1]
    return outcome.error if last is None else -1.0 / (1.0 + bits(last))


def bits(one: dict[str, float]) -> float:
    """Up and down."""
    return one["bits_up"] + one["bits_down"]


def best(found: Mapping[Choice, Outcome], target: float) -> Choice | None:
    """Return the setting that needed the fewest bits to a relative error, None where none got there."""
    there = {one: totals for one, outcome in found.items() if (totals := outcome.totals[f"{target:g}"]) is not None}
    return min(there, key=lambda one: bits(there[one])) if there else None


def at_the_end(one: Choice) -> bool:
    """Whether a best setting is where the grid may not grow any further."""
    return one.gamma in LIMITS["gamma"] or one.levels == LIMITS["levels"][1]


def schedule(where: Setting, gamma: float, decay: float) -> steps.Schedule:
    """Return γ_k = γ0/(1 + ck) with γ0 given in units of 1/L."""
    gamma0 = gamma / float(where.federated.lipschitz.mean())
    return steps.Decreasing(gamma0, decay) if decay else steps.Constant(gamma0)


def run_until(where: Setting, problem: fpdfp.Problem, method: Any, error: float, **arguments: Any) -> fpdfp.Result:
    """Run until the relative error of the objective is at most so much, or to the end; Ctrl-C ends everything."""

    def close(now: fpdfp.Run) -> bool:
        return now.history.last()["objective"] <= where.best * (1 + error)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some steps of a grid are meant to be too large
        result = fpdfp.solve(problem, method, callbacks=[close], progress=False, **arguments)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result


def outcome(where: Setting, result: fpdfp.Result, targets: Sequence[float]) -> Outcome:
    """Return what came of a run."""
    error = float(result.history.objective[-1] / where.best - 1)
    totals: Totals = {}
    for target in targets:
        found = first_within(where, result.history, target, COLUMNS)
        totals[f"{target:g}"] = None if found is None else all_bits(found)
    return Outcome(math.inf if result.status == "diverged" else error, totals)


def all_bits(found: dict[str, float]) -> dict[str, float]:
    """Return rounds and seconds, and all that was sent but for evaluations, which are made to draw curves."""
    sent = {f"bits_{way}": found[f"total_{way}"] - found[f"evaluation_{way}"] for way in ("up", "down")}
    return {"round": found["round"], **sent, "seconds": found["seconds"]}


def first_within(where: Setting, history: fpdfp.History, error: float, names: Sequence[str]) -> dict[str, float] | None:
    """Return some columns at the first evaluation within a relative error; None if there is none."""
    within = np.flatnonzero(history.objective <= where.best * (1 + error))
    return {name: float(history[name][within[0]]) for name in names} if len(within) else None


class Spread(NamedTuple):
    """The median over seeds, the least and the largest; runs that did not get there count as larger than all others."""

    median: float
    least: float
    largest: float


def spread(runs_of_seeds: Sequence[Totals], target: float, value: Callable[[dict[str, float]], float]) -> Spread | None:
    """Return the spread of a number over seeds; None where most did not get to the target."""
    found = [value(one) if one is not None else math.inf for one in (totals[f"{target:g}"] for totals in runs_of_seeds)]
    ordered = sorted(found)
    median = ordered[len(ordered) // 2]
    return None if math.isinf(median) else Spread(median, ordered[0], ordered[-1])
