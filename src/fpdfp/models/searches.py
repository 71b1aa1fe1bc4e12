"""Parameters of a family that are found together with the coefficients, each by exchanges with all sites.

θ of the negative binomial family, and the width of smoothed quantiles.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fpdfp._warn import warn
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.losses import Overdispersions, Spread
from fpdfp.engines import Result
from fpdfp.errors import DataWarning
from fpdfp.families import Family, NegativeBinomial, Poisson, Quantile
from fpdfp.methods.base import Method
from fpdfp.problem import Problem
from fpdfp.traffic import for_purpose

if TYPE_CHECKING:
    from fpdfp.models.fitting import Fitting

#: A θ that changes by less, relatively, is found; a Newton step that is shorter leaves about its square.
FOUND_THETA, SHORT = 1e-9, 1e-5
#: The most changes between θ, or a width, and coefficients, and Newton steps for one θ. Each change makes a width that
#: is too large at least about three times smaller.
MOST = 50
#: With a larger θ, relative to the mean, counts cannot be distinguished from Poisson's.
LARGEST = 1e8


class Theta:
    """The estimate of θ, as of ``glm.nb`` of R's MASS.

    Attributes
    ----------
    value, standard_error
        θ and its standard error; infinite and NaN where there is no more variance than Poisson's.
    rounds, up, down
        The rounds of all fits but the last, and the bits of these and of what is asked for θ.
    """

    def __init__(self) -> None:
        self.value, self.standard_error = math.inf, math.nan
        self.rounds = self.up = self.down = 0

    def alternate(
        self, fitting: Fitting, problem: Problem, method: Method | None, rebuild: Callable[[], Problem]
    ) -> tuple[Result, Problem]:
        """Return the fit, and its problem; ``rebuild`` makes the problem of the present family."""
        result: Result = fitting.solve(problem, method)
        weight, excess, spread, _, _ = self._ask(problem, result, 1.0)
        if excess <= 0.0:
            return self._give_up(result, problem)
        theta = self._search(problem, result, weight / max(spread, weight / LARGEST))
        for _ in range(MOST):
            if not math.isfinite(theta):
                fitting.outcome = _with_family(fitting.outcome, Poisson())
                problem = rebuild()
                self._count(result)
                return self._give_up(fitting.solve(problem, method), problem)
            fitting.outcome = _with_family(fitting.outcome, NegativeBinomial("log", theta))
            problem = rebuild()
            self._count(result)
            result = fitting.solve(problem, method, x0=result.x)
            before, theta = theta, self._search(problem, result, theta)
            if abs(theta - before) <= FOUND_THETA * before:
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
            if abs(step) <= FOUND_THETA:
                return theta
            theta *= math.exp(float(np.clip(step, -2.0, 2.0)))
            if theta > LARGEST:
                return math.inf
            if abs(step) <= SHORT:
                return theta
        return theta

    def _ask(self, problem: Problem, result: Result, theta: float) -> tuple[float, ...]:
        with for_purpose("theta"):
            told = clients_of(problem).ask(Overdispersions(np.asarray(result.x, dtype=np.float64), float(theta)))
        self.up, self.down = self.up + told.up, self.down + told.down
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


#: A width that changes by less, relatively, is found.
FOUND_WIDTH = 0.01


class Width:
    """The width h = κσ of :class:`fpdfp.families.Quantile`: fits in turn with the spread σ of their residuals.

    At each fit, σ is h/κ times the ratio of the share of kernel weight that normal residuals would have to that of the
    data. The first width is that for the deviation of least squares, which outliers only make too large.

    Attributes
    ----------
    family
        The family, with its level.
    rounds, up, down
        The rounds of all fits but the last, and the bits of these and of what is asked for the width.
    """

    def __init__(self, family: Quantile) -> None:
        self.family = family
        self.rounds = self.up = self.down = 0

    def alternate(
        self, fitting: Fitting, problem: Problem, method: Method | None, rebuild: Callable[[], Problem]
    ) -> tuple[Result, Problem]:
        """Return the fit, and its problem; ``rebuild`` makes the problem of the present family."""
        result: Result = fitting.solve(problem, method)  # of least squares
        rows, coefficients = int(problem.losses.sizes.sum()), math.prod(problem.losses.shape)
        relative = self.family.relative_width(rows, coefficients)
        wanted = self.family.share(relative)
        width = relative * math.sqrt(2.0 * result.objective)
        if not width > 0.0:
            width = relative  # least squares leave nothing: any width is small enough
        for _ in range(MOST):
            fitting.outcome = _with_family(fitting.outcome, Quantile(level=self.family.level, width=width))
            self.rounds, self.up = self.rounds + result.rounds, self.up + result.total_up
            self.down += result.total_down
            problem = rebuild()
            result = fitting.solve(problem, method, x0=result.x)
            with for_purpose("width"):
                told = clients_of(problem).ask(Spread(result.x.astype(np.float64)))
            self.up, self.down = self.up + told.up, self.down + told.down
            weight, inside = map(float, told.sums.numbers)
            before, width = width, width * wanted * weight / inside if inside > 0.0 else 2.0 * width
            if abs(math.log(width / before)) <= FOUND_WIDTH:
                return result, problem
        warn(f"the width of the quantile's kernel still changes after {MOST} fits", DataWarning)
        return result, problem


def _with_family(outcome: Any, family: Family) -> Any:
    """Return the same outcome with another family."""
    return dataclasses.replace(outcome, distribution=family)
