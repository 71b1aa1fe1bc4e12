"""What clients send for the smoothing width of a quantile: how many residuals are near zero, in units of the width."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.cohorts.question import Question, question, reveals
from fpdfp.errors import MessageError
from fpdfp.problem import LocalLosses


class SpreadSums(NamedTuple):
    """The weight of the rows of each client, and Σ w K(r/h) with the residuals r, the kernel K and the width h."""

    numbers: Array


@question("spread")
@dataclasses.dataclass(frozen=True)
class Spread(Question):
    """Everyone sends the mean kernel weight of its residuals at the coefficients of a model of a quantile.

    The width is the model's own: a point at which few rows share the curvature is refused as for gradients.

    Attributes
    ----------
    x
        The coefficients.
    """

    x: Array

    reveals = reveals(points="x", uses="spread_at")

    def __post_init__(self) -> None:
        if self.x.dtype != np.float64 or not np.isfinite(self.x).all():
            raise ValueError("x must be finite numbers in float64")

    def answer(self, local: LocalLosses) -> SpreadSums:
        """Return what clients send."""
        if self.x.shape != local.losses.shape:
            raise MessageError(f"x must be a point of shape {local.losses.shape}, got {self.x.shape}")
        found = local.losses.spread_at(self.x, local.clients)
        if found is None:
            raise MessageError(f"{local.losses.family} has no quantile")
        return SpreadSums(found)
