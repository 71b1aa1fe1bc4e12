"""What the paper's experiments share: cases, steps, and the runs of settings that are declared in files beside this."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fpdfp
from fpdfp import steps
from fpdfp._typing import Array
from fpdfp.declarative import made, settings
from fpdfp.declarative.build import build, solve_options

#: "At the end" means the mean over the last part of the rounds: with some clients a round the last iterate is noisy.
LAST = 0.2


class Case(NamedTuple):
    """One line of a figure: FPDFP with so many levels (None: exact messages) and clients, or another method."""

    n: int
    levels: int | None = None
    method: str = "FPDFP"

    @property
    def label(self) -> str:
        """Its name in tables."""
        return f"{self.method}, n = {self.n}" + (f", {name_levels(self.levels)}" if self.method == "FPDFP" else "")


def name_levels(levels: int | None) -> str:
    """A number of levels."""
    return "exact" if levels is None else f"s = {levels}"


class Step(NamedTuple):
    """The steps γ_k = γ0/(1 + ck): γ0 in units of 1/L, with L the mean of the clients' constants, and c."""

    gamma: float
    decay: float = 0.0

    def schedule(self, problem: fpdfp.Problem) -> steps.Schedule:
        """The steps for a problem."""
        gamma0 = self.gamma / float(problem.lipschitz.mean())
        return steps.Decreasing(gamma0, self.decay) if self.decay else steps.Constant(gamma0)

    def declare(self, problem: fpdfp.Problem) -> dict[str, Any]:
        """The same as a file of settings has it."""
        return made.plain(self.schedule(problem))


def declare(name: str, changes: Mapping[str, Any]) -> settings.Settings:
    """Return the settings of an experiment of the paper, with other values for some keys."""
    return settings.declare(Path(__file__).with_name(f"{name}.toml"), changes)


def solve(given: settings.Settings, seed: int, **options: Any) -> fpdfp.Result:
    """Do the run of some settings with a seed; ``options`` of ``fpdfp.solve`` go before what the settings say."""
    built = build(given)
    with warnings.catch_warnings():
        # Some steps of a grid are meant to be too large; what diverges says so in its result.
        warnings.simplefilter("ignore", fpdfp.errors.StepTooLargeWarning)
        warnings.simplefilter("ignore", fpdfp.errors.DivergenceWarning)
        asked = {"seed": seed, "metrics": built.metrics, "progress": False, **solve_options(given), **options}
        return fpdfp.solve(built.problem, **asked)


def space_out(rounds: int, early: int, even: int, *more: Array) -> list[int]:
    """Rounds after which a run is evaluated: so many that are closer at first, so many at even distances, and more."""
    found = np.concatenate([np.geomspace(1, rounds, early), np.linspace(0, rounds, even + 1)[1:], *more])
    return sorted({max(1, round(at)) for at in found})


def gather(
    runs: Sequence[Mapping[str, Any]], names: Sequence[str], length: int, worst: Mapping[str, float]
) -> dict[str, Array]:
    """Put the columns of runs together, a row for each; one that diverged has the worst from there on.

    A column without a worst value stays what it was last.
    """
    table = {name: np.empty((len(runs), length)) for name in names}
    for row, one in enumerate(runs):
        known = len(one["round"]) - has_diverged(one)
        for name in names:
            table[name][row, :known] = one[name][:known]
            table[name][row, known:] = worst.get(name, one[name][-1])
    return table


def has_diverged(run: Mapping[str, Any]) -> bool:
    """Whether a run diverged, as its file says."""
    return run["status"] == "diverged" if "status" in run else bool(run["diverged"][0])


def at_the_end(rounds: Array, values: Array, horizon: float | None = None) -> Any:
    """The mean of values, over the last axis, at the evaluations of the last part of the rounds up to a horizon."""
    horizon = rounds[-1] if horizon is None else horizon
    return values[..., (rounds > (1 - LAST) * horizon) & (rounds <= horizon)].mean(axis=-1)


def final(run: Mapping[str, Any]) -> float:
    """The objective at the end of a run; infinite if it diverged."""
    ended = at_the_end(np.array(run["round"]), np.array(run["objective"]))
    return math.inf if has_diverged(run) else float(ended)


def round_numbers(values: Any) -> list[float]:
    """Numbers with six digits."""
    return [float(f"{value:.6g}") for value in values]


def finite(values: Sequence[float]) -> list[float | None]:
    """Numbers as JSON has them."""
    return [one if math.isfinite(one) else None for one in values]


class Clock:
    """Where the time goes."""

    def __init__(self) -> None:
        self.last, self.laps = time.perf_counter(), dict[str, float]()

    def lap(self, name: str) -> None:
        """Charge the time since the last call."""
        now = time.perf_counter()
        self.laps[name], self.last = now - self.last, now

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.laps.items())
        return f"{sum(self.laps.values()):.0f} s in all: {parts}"
