"""Negative binomial models with an unknown θ: coefficients and θ in turn, each by exchanges with all sites."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp._warn import warn
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.losses import Overdispersions
from fpdfp.engines import Result
from fpdfp.errors import DataWarning
from fpdfp.families import NegativeBinomial, Poisson
from fpdfp.problem import Problem

#: A θ that changes by less, relatively, is found; a Newton step that is shorter leaves about its square.
FOUND, SHORT = 1e-9, 1e-5
#: The most changes between θ and coefficients, and Newton steps for one θ.
MOST = 50
#: With a larger θ, relative to the mean, counts cannot be told from Poisson's.
LARGEST = 1e8


class Theta:
    """The estimate of θ, as of ``glm.nb`` of R's MASS.

    Attributes
    ----------
    value, standard_error
        θ and its standard error; infinite and NaN where there is no more variance than Poisson's.
    exchanges, rounds, up, down
        The exchanges for θ, the rounds of all fits but the last, and the bits of both.
    """

    name = "theta"

    def __init__(self) -> None:
        self.value, self.standard_error = math.inf, math.nan
        self.exchanges = self.rounds = self.up = self.down = 0

    def alternate(
        self, estimator: Any, problem: Problem, method: Any, rebuild: Callable[[], Problem]
    ) -> tuple[Result, Problem]:
        """Return the fit, and its problem; ``rebuild`` makes the problem of the estimator's present family."""
        result: Result = estimator._solve(problem, method)
        weight, excess, spread, _, _ = self._ask(problem, result, 1.0)
        if excess <= 0.0:
            return self._give_up(result, problem)
        theta = self._search(problem, result, weight / max(spread, weight / LARGEST))
        for _ in range(MOST):
            if not math.isfinite(theta):
                estimator.family_ = Poisson()
                problem = rebuild()
                self._count(result)
                return self._give_up(estimator._solve(problem, method), problem)
            estimator.family_ = NegativeBinomial("log", theta)
            problem = rebuild()
            self._count(result)
            result = estimator._solve(problem, method, x0=result.x)
            before, theta = theta, self._search(problem, result, theta)
            if abs(theta - before) <= FOUND * before:
                self.value = before
                return result, problem
        warn(f"θ of the negative binomial family still changes after {MOST} fits", DataWarning)
        self.value = before
        return result, problem

    def _search(self, problem: Problem, result: Result, theta: float) -> float:
        """Return θ for given coefficients, by Newton's method in its logarithm; infinite if it grows without end."""
        for _ in range(MOST):
            _, _, _, score, information = self._ask(problem, result, theta)
            curvature = theta * information - score
            step = score / curvature if curvature > 0 else math.copysign(1.0, score)
            self.standard_error = 1.0 / math.sqrt(information) if information > 0 else math.nan
            if abs(step) <= FOUND:
                return theta
            theta *= math.exp(float(np.clip(step, -2.0, 2.0)))
            if theta > LARGEST:
                return math.inf
            if abs(step) <= SHORT:
                return theta
        return theta

    def _ask(self, problem: Problem, result: Result, theta: float) -> tuple[float, ...]:
        told = clients_of(problem).ask(Overdispersions(np.asarray(result.x, dtype=np.float64), float(theta)))
        self.exchanges, self.up, self.down = self.exchanges + 1, self.up + told.up, self.down + told.down
        return tuple(map(float, told.sums.numbers))

    def _count(self, result: Result) -> None:
        """Count a fit that is not the last."""
        self.rounds, self.up = self.rounds + result.rounds, self.up + result.total_up
        self.down += result.total_down

    def _give_up(self, result: Result, problem: Problem) -> tuple[Result, Problem]:
        self.value, self.standard_error = math.inf, math.nan
        warn(
            "counts vary no more than Poisson's: θ of the negative binomial family is infinite, and the model is that "
            "of the Poisson family",
            DataWarning,
        )
        return result, problem
