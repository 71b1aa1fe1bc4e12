"""What clients send for standard errors and tests: sums at the solution of a run."""

from __future__ import annotations

import dataclasses

import numpy as np

from fpdfp._typing import Array
from fpdfp.cohorts.question import Question, question, reveals
from fpdfp.errors import MessageError
from fpdfp.losses.base import InformationSums
from fpdfp.problem import LocalLosses


@question("information")
@dataclasses.dataclass(frozen=True)
class Informations(Question):
    """Everyone sends the score, the expected information and some numbers at a point.

    Attributes
    ----------
    x
        The point.
    robust
        Whether the squares of the rows' scores are wanted too.
    """

    x: Array
    robust: bool = True

    reveals = reveals(points="x", settings="robust", uses="sums_at")

    def __post_init__(self) -> None:
        if self.x.dtype != np.float64 or not np.isfinite(self.x).all():
            raise ValueError("x must be finite numbers in float64")

    @property
    def tells_pairs(self) -> bool:
        """An expected information is products of pairs of features."""
        return True

    def answer(self, local: LocalLosses) -> InformationSums:
        """Return what clients send."""
        if self.x.shape != local.losses.shape:
            raise MessageError(f"x must be a point of shape {local.losses.shape}, got {self.x.shape}")
        found = local.losses.sums_at(self.x, local.clients, robust=self.robust)
        if found is None:
            raise MessageError(f"{local.losses.family} has no likelihood")
        return found
