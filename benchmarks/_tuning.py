"""What benchmarks share beside `benchmarks._scores`; methods are tuned by the rule of `fpdfp.tuning`.

The setting that a page shows for an accuracy is the one that needed the fewest bits, up and down and what was sent once
together: another one for each accuracy, as a run that is given its target would have. It then runs again with the seeds
of the page.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from benchmarks._problems import Setting
from fpdfp import steps
from fpdfp.tuning import Choice, Outcome, Totals

#: What is looked at when a run is first within a relative error.
COLUMNS = ("round", "total_up", "total_down", "evaluation_up", "evaluation_down", "seconds")


def positive(text: str) -> int:
    """Read a positive integer from the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


def schedule(where: Setting, gamma: float, decay: float) -> steps.Schedule:
    """Return γ_k = γ0/(1 + ck) with γ0 given in units of 1/L."""
    return Choice(gamma, decay, None).schedule(float(where.federated.lipschitz.mean()))


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
