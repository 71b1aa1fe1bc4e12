"""Tuning on a grid by stages: what the benchmarks share beside `fpdfp.experiments.pool`."""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fpdfp
from benchmarks._problems import Setting
from fpdfp import steps
from fpdfp.experiments import runs


def positive(text: str) -> int:
    """Read a positive integer from the command line."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


#: Rounds of the stages of tuning before the last, and how many of so many settings go on.
STAGES: tuple[tuple[int, Callable[[int], int]], ...] = ((250, lambda count: math.ceil(count / 3)), (1000, lambda _: 2))


def stages(rounds: int, last: Callable[[int], int]) -> list[tuple[int, Callable[[int], int]]]:
    """Return the stages of tuning, the last of which has all rounds."""
    return [*(stage for stage in STAGES if stage[0] < rounds), (rounds, last)]


def schedule(where: Setting, gamma: float, decay: float) -> steps.Schedule:
    """Return γ_k = γ0/(1 + ck) with γ0 given in units of 1/L."""
    return runs.schedule(where.federated, runs.Step(gamma, decay))


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


def first_within(where: Setting, history: fpdfp.History, error: float, names: Sequence[str]) -> dict[str, float] | None:
    """Return some columns at the first evaluation within a relative error; None if there is none."""
    within = np.flatnonzero(history.objective <= where.best * (1 + error))
    return {name: float(history[name][within[0]]) for name in names} if len(within) else None
