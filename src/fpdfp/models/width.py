"""Quantile regression with a width that follows from the spread of residuals, over all sites together."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp._warn import warn
from fpdfp.cohorts.local import clients_of
from fpdfp.cohorts.losses import Spread
from fpdfp.engines import Result
from fpdfp.errors import DataWarning
from fpdfp.families import Quantile
from fpdfp.problem import Problem

#: A width that changes by less, relatively, is found.
FOUND = 0.01
#: The most fits with different widths: each makes a width that is too large at least about three times smaller.
MOST = 50


class Width:
    """The width h = κσ of :class:`fpdfp.families.Quantile`: fits in turn with the spread σ of their residuals.

    At each fit, σ is h/κ times the ratio of the share of kernel weight that normal residuals would have to that of the
    data. The first width is that for the deviation of least squares, which outliers only make too large.

    Attributes
    ----------
    family
        The family, with its level.
    exchanges, rounds, up, down
        The exchanges for the width, the rounds of all fits but the last, and the bits of both.
    """

    name = "width"

    def __init__(self, family: Quantile) -> None:
        self.family = family
        self.exchanges = self.rounds = self.up = self.down = 0

    def alternate(
        self, estimator: Any, problem: Problem, method: Any, rebuild: Callable[[], Problem]
    ) -> tuple[Result, Problem]:
        """Return the fit, and its problem; ``rebuild`` makes the problem of the estimator's present family."""
        result: Result = estimator._solve(problem, method)  # of least squares
        rows, coefficients = int(problem.losses.sizes.sum()), math.prod(problem.losses.shape)
        relative = self.family.relative_width(rows, coefficients)
        wanted = self.family.share(relative)
        width = relative * math.sqrt(2.0 * result.objective)
        if not width > 0.0:
            width = relative  # least squares leave nothing: any width is small enough
        for _ in range(MOST):
            estimator.family_ = Quantile(level=self.family.level, width=width)
            self.rounds, self.up = self.rounds + result.rounds, self.up + result.total_up
            self.down += result.total_down
            problem = rebuild()
            result = estimator._solve(problem, method, x0=result.x)
            told = clients_of(problem).ask(Spread(result.x.astype(np.float64)))
            self.exchanges, self.up, self.down = self.exchanges + 1, self.up + told.up, self.down + told.down
            weight, inside = map(float, told.sums.numbers)
            before, width = width, width * wanted * weight / inside if inside > 0.0 else 2.0 * width
            if abs(math.log(width / before)) <= FOUND:
                return result, problem
        warn(f"the width of the quantile's kernel still changes after {MOST} fits", DataWarning)
        return result, problem
