"""What clients send to estimate the θ of negative binomial outcomes."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.cohorts.question import Question, question, reveals
from fpdfp.errors import MessageError
from fpdfp.problem import LocalLosses


class OverdispersionSums(NamedTuple):
    """The numbers of each client; see :func:`fpdfp.families.counts.theta_sums`."""

    numbers: Array


@question("overdispersion")
@dataclasses.dataclass(frozen=True)
class Overdispersions(Question):
    """Everyone sends sums from which θ is found, at the coefficients of a model of counts.

    Attributes
    ----------
    x
        The coefficients.
    theta
        θ, at which the score and the information of θ are wanted.
    """

    x: Array
    theta: float

    reveals = reveals(points="x", settings="theta", uses="overdispersion_at")

    def __post_init__(self) -> None:
        if self.x.dtype != np.float64 or not np.isfinite(self.x).all():
            raise ValueError("x must be finite numbers in float64")
        if not 0.0 < self.theta < np.inf:
            raise ValueError("theta must be positive")

    @property
    def tells_pairs(self) -> bool:
        """These sums go along with an expected information, and are refused where that is."""
        return True

    def answer(self, local: LocalLosses) -> OverdispersionSums:
        """Return what clients send."""
        if self.x.shape != local.losses.shape:
            raise MessageError(f"x must be a point of shape {local.losses.shape}, got {self.x.shape}")
        found = local.losses.overdispersion_at(self.x, local.clients, self.theta)
        if found is None:
            raise MessageError(f"{local.losses.family} has no counts")
        return OverdispersionSums(found)
