"""The normal distribution."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fpdfp._kernels.glm import Scalar, squared, squared_slope
from fpdfp._kernels.jit import serial
from fpdfp._typing import Array
from fpdfp.families.base import Family, Functions
from fpdfp.families.compose import compose


@Scalar
def one(z: Any, y: Any, p: Any, q: Any) -> Any:
    return 1.0


@serial
def half_deviance(mu: Any, y: Any) -> Any:
    return 0.5 * (mu - y) ** 2


@serial
def unit(mu: Any) -> Any:
    return 1.0


@serial
def zero(mu: Any) -> Any:
    return 0.0


@dataclasses.dataclass(frozen=True, repr=False)
class Gaussian(Family):
    r"""Normal outcomes: :math:`V(\mu) = 1`, links identity, log and inverse.

    >>> import fpdfp
    >>> fpdfp.families.Gaussian()
    Gaussian(link='identity')
    """

    name = "gaussian"
    links = ("identity", "log", "inverse")
    convex_links = ("identity",)
    canonical = "identity"
    has_dispersion = True

    @property
    def curvature(self) -> float:
        return 1.0 if self.link == "identity" else np.inf

    @property
    def functions(self) -> Functions:
        if self.link == "identity":
            return Functions(squared, squared_slope, one, one)
        return compose(self.name, self.link, half_deviance, unit, zero)

    def variance(self, mu: Array) -> Array:
        return np.ones_like(mu)

    def check(self, y: Array) -> None:
        if self.link == "log" and not (y > 0).any():
            self._refuse(np.ones(len(y), dtype=bool), y, "positive somewhere with the log link")

    def start(self, y: Array, weights: Array) -> Array:
        from fpdfp.families.means import link_of

        if self.link == "identity":
            return y
        return link_of(self.link, np.maximum(y, 0.1 * max(float(np.abs(y).mean()), 1e-300)))

    def saturated(self, y: Array, weights: Array) -> float:
        return float(np.log(weights[weights > 0]).sum())

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        return -0.5 * (rows * (math.log(2.0 * math.pi * deviance / rows) + 1.0) - saturated)

    def young_gaps(self, z: Array, y: Array, change: Array, scale: float) -> Array | None:
        if self.link != "identity":
            return None
        gaps: Array = 0.5 * np.square((scale - 1.0) * (z - y) - scale * change)
        return gaps
