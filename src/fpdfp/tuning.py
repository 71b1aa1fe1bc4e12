"""One rule to tune steps and quantization levels, the same for every method."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp.engines.solve import solve
from fpdfp.problem import Problem
from fpdfp.steps import Constant, Decreasing, Schedule

#: The grid: values of γ₀L and of c in γ_k = γ₀/(1 + ck), and levels of messages.
GAMMAS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
DECAYS = (0.0, 0.001, 0.01)
LEVELS = (2, 5, 20)
#: The smallest and largest values to which the grid may grow.
LIMITS = {"gamma": (2.0**-8, 2.0**11), "levels": (1, 100_000), "decay": (0.0, 1.0)}
#: The rounds of each stage before the last, and the number of settings that continue.
STAGES: tuple[tuple[int, Callable[[int], int]], ...] = ((250, lambda count: math.ceil(count / 3)), (1000, lambda _: 2))

#: For each relative error the rounds, bits and seconds until it was reached, or None.
Totals = dict[str, dict[str, float] | None]


class Choice(NamedTuple):
    """A setting of the grid: γ₀L, c, and the levels of messages (None: full precision).

    >>> print(Choice(4.0, 0.001, 20))
    4/L, c = 0.001, s = 20
    """

    gamma: float
    decay: float
    levels: int | None

    def __str__(self) -> str:
        levels = "" if self.levels is None else f", s = {self.levels}"
        return f"{self.gamma:g}/L, c = {self.decay:g}{levels}"

    def schedule(self, lipschitz: float) -> Schedule:
        """Return the step schedule γ_k = γ₀/(1 + ck) for a Lipschitz constant L."""
        gamma0 = self.gamma / lipschitz
        return Decreasing(gamma0, self.decay) if self.decay else Constant(gamma0)


class Outcome(NamedTuple):
    """The relative error at the end of a run (infinite after divergence), and the cost of reaching each target."""

    error: float
    totals: Totals


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The settings that were tried, with their outcomes.

    Attributes
    ----------
    outcomes
        The outcome of each setting, after as many rounds as the rule gave it.
    lipschitz
        The mean of the clients' Lipschitz constants.
    """

    outcomes: Mapping[Choice, Outcome]
    lipschitz: float

    def best(self, error: float) -> Choice | None:
        """Return the setting that sent the fewest bits to a relative error; None if none reached it."""
        return best(self.outcomes, error)

    def step(self, choice: Choice) -> Schedule:
        """Return the step schedule of a setting."""
        return choice.schedule(self.lipschitz)


def tune(
    problem: Problem,
    make: Callable[[Schedule, int | None], tuple[Any, Any]],
    *,
    minimum: float,
    rounds: int = 4000,
    errors: Sequence[float] = (1e-2, 1e-3, 1e-6),
    levels: Sequence[int | None] = LEVELS,
    falling: bool = True,
    seed: int = 0,
    **options: Any,
) -> Tuned:
    r"""Tune the step and the quantization levels of a method on a grid that grows where its ends are best.

    The steps are :math:`\gamma_k = \gamma_0 / (1 + c k)`. All settings of the grid run 250 rounds. For each number of
    levels, the best third continues to 1,000 rounds, and the best two of those to the end. If the best setting for an
    error lies at an end of the grid, its neighbours beyond that end run too. Settings are ordered by relative error,
    and by bits once the smallest error was reached. Tune with a seed that you do not report.

    Parameters
    ----------
    problem
        The problem.
    make
        Returns the method and the compressor for a step schedule and a number of levels.
    minimum
        The minimum of the objective, for example ``minimize(problem).objective``.
    rounds
        The rounds of the last stage.
    errors
        The relative errors for which :meth:`Tuned.best` can be called, largest first.
    levels
        The levels of the grid; ``(None,)`` for messages at full precision.
    falling
        Whether the step may decrease.
    seed
        The seed of all runs.
    options
        Passed to :func:`fpdfp.solve`.

    Examples
    --------
    >>> import numpy as np, fpdfp
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((60, 5))
    >>> losses = fpdfp.losses.LeastSquares(X, X[:, 0] + 0.1 * rng.standard_normal(60), clients=np.arange(60) % 3)
    >>> problem = fpdfp.Problem(losses, fpdfp.penalties.L1(0.1))
    >>> minimum = fpdfp.minimize(problem).objective
    >>> tuned = tune(
    ...     problem, lambda step, _: (fpdfp.FPDFP(step=step), None), minimum=minimum, rounds=20, errors=[1e-2],
    ...     levels=[None], falling=False,
    ... )
    >>> tuned.best(1e-2) in tuned.outcomes
    True
    """
    minimum = _checks.real("minimum", minimum)
    rounds = _checks.integer("rounds", rounds, at_least=1)
    lipschitz = float(problem.losses.lipschitz().mean())

    def compute(settings: Sequence[Choice], count: int) -> list[Outcome]:
        return [run(one, count) for one in settings]

    def run(one: Choice, count: int) -> Outcome:
        method, compressor = make(one.schedule(lipschitz), one.levels)

        def close(now: Any) -> bool:
            return bool(now.history.last()["objective"] <= minimum * (1 + errors[-1]))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some steps of the grid are too large
            result = solve(
                problem, method, rounds=count, compressor=compressor, seed=seed, callbacks=[close], progress=False,
                **options,
            )  # fmt: skip
        if result.status == "interrupted":
            raise KeyboardInterrupt
        history = result.history
        totals: Totals = {}
        for error in errors:
            within = np.flatnonzero(history.objective <= minimum * (1 + error))
            totals[f"{error:g}"] = {
                "round": float(history.round[within[0]]),
                "bits_up": float(history.total_up[within[0]] - history.evaluation_up[within[0]]),
                "bits_down": float(history.total_down[within[0]] - history.evaluation_down[within[0]]),
            } if len(within) else None  # fmt: skip
        end = float(history.objective[-1] / minimum - 1)
        return Outcome(math.inf if result.status == "diverged" else end, totals)

    return Tuned(search(choices(falling=falling, levels=levels), rounds, compute), lipschitz)


def choices(
    *,
    falling: bool = True,
    levels: Sequence[int | None] = LEVELS,
    gammas: Sequence[float] = GAMMAS,
    decays: Sequence[float] = DECAYS,
) -> list[Choice]:
    """Return the grid of a method.

    Parameters
    ----------
    falling
        Whether the step may decrease; otherwise c = 0.
    levels
        Levels of messages; ``(None,)`` for full precision.
    gammas
        Values of γ₀L.
    decays
        Values of c.

    Examples
    --------
    >>> len(choices()), len(choices(falling=False, levels=(None,)))
    (72, 8)
    """
    return [Choice(gamma, decay, s) for s in levels for gamma in gammas for decay in (decays if falling else (0.0,))]


def search(
    grid: Iterable[Choice],
    rounds: int,
    compute: Callable[[Sequence[Choice], int], Sequence[Outcome]],
    before: Sequence[tuple[int, Callable[[int], int]]] = STAGES,
) -> dict[Choice, Outcome]:
    """Return the outcomes of the settings of a grid and beyond its ends, each run as long as the rule lets it.

    Parameters
    ----------
    grid
        The settings of the first stage.
    rounds
        The rounds of the last stage.
    compute
        Runs some settings for a number of rounds and returns their outcomes.
    before
        The stages before the last: rounds, and the number that continue as a function of the number tried.

    Examples
    --------
    >>> def compute(settings, rounds):
    ...     return [Outcome(abs(one.gamma - 2.0), {"0.01": None}) for one in settings]
    >>> found = search(choices(falling=False, levels=(None,)), 100, compute)
    >>> print(min(found, key=lambda one: found[one].error))
    2/L, c = 0
    """
    found: dict[Choice, Outcome] = {}

    def look(settings: Sequence[Choice], count: int) -> None:
        found.update(zip(settings, compute(settings, count), strict=True))

    def grow(count: int) -> None:
        while further := sorted({other for one in _leaders(found) for other in _beyond(one, found)} - found.keys()):
            look(further, count)

    left = list(grid)
    for stage, (count, survivors) in enumerate(_stages(rounds, before)):
        look(left, count)
        if stage == 0:
            grow(count)
            left = list(found)
        left = [
            one
            for levels in dict.fromkeys(one.levels for one in left)
            for one in _survivors([one for one in left if one.levels == levels], found, survivors)
        ]
    grow(rounds)
    return found


def best(found: Mapping[Choice, Outcome], target: float) -> Choice | None:
    """Return the setting that needed the fewest bits to a relative error; None if none reached it.

    >>> sent = {"0.01": {"bits_up": 5.0, "bits_down": 1.0}}
    >>> found = {Choice(1.0, 0.0, 5): Outcome(1e-3, sent), Choice(2.0, 0.0, 5): Outcome(0.1, {"0.01": None})}
    >>> print(best(found, 1e-2))
    1/L, c = 0, s = 5
    """
    there = {one: totals for one, outcome in found.items() if (totals := outcome.totals[f"{target:g}"]) is not None}
    return min(there, key=lambda one: bits(there[one])) if there else None


def bits(one: Mapping[str, float]) -> float:
    """Return the bits up and down.

    >>> bits({"bits_up": 5.0, "bits_down": 1.0})
    6.0
    """
    return one["bits_up"] + one["bits_down"]


def at_the_end(one: Choice) -> bool:
    """Return whether a best setting is where the grid may not grow any further.

    >>> at_the_end(Choice(2.0**11, 0.0, 5))
    True
    """
    return one.gamma in LIMITS["gamma"] or one.levels == LIMITS["levels"][1]


def _survivors(
    same: Sequence[Choice], found: Mapping[Choice, Outcome], survivors: Callable[[int], int]
) -> list[Choice]:
    """Return the settings that continue, best first."""
    return sorted(same, key=lambda one: _rank(found[one]))[: survivors(len(same))]


def _leaders(found: Mapping[Choice, Outcome]) -> set[Choice]:
    """Return the best setting for every target; the one with the least error where none reached it."""
    closest = min(found, key=lambda one: found[one].error)
    targets = next(iter(found.values())).totals
    return {best(found, float(target)) or closest for target in targets}


def _beyond(one: Choice, tried: Iterable[Choice]) -> list[Choice]:
    """Return the settings next to one along every axis: the next values that were tried, or one beyond their ends."""
    neighbours = []
    for name, factor in (("gamma", 2), ("levels", 2), ("decay", 10)):
        value, seen = getattr(one, name), sorted({getattr(other, name) for other in tried} - {None})
        if len(seen) < 2:
            continue  # a method that does not compress, or whose step is constant
        axis = [type(value)(seen[0] / factor), *seen, seen[-1] * factor]
        at = axis.index(value, 1)
        neighbours += [one._replace(**{name: other}) for other in (axis[at - 1], axis[at + 1])]
    return [other for other in neighbours if _is_within(other)]


def _is_within(one: Choice) -> bool:
    values = one._asdict().items()
    return all(value is None or LIMITS[name][0] <= value <= LIMITS[name][1] for name, value in values)


def _stages(rounds: int, before: Sequence[tuple[int, Callable[[int], int]]]) -> list[tuple[int, Callable[[int], int]]]:
    """Return the stages of tuning, the last of which has all rounds."""
    return [*(stage for stage in before if stage[0] < rounds), (rounds, lambda count: count)]


def _rank(outcome: Outcome) -> float:
    """Return the order of settings: by relative error, or by bits where the smallest target was reached."""
    last = list(outcome.totals.values())[-1]
    return outcome.error if last is None else -1.0 / (1.0 + bits(last))
