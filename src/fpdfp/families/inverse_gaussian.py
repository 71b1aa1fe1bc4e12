"""The inverse Gaussian distribution."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fpdfp._kernels.jit import serial
from fpdfp._typing import Array
from fpdfp.families.base import Family, Functions
from fpdfp.families.compose import compose
from fpdfp.families.means import link_of


@serial
def half_deviance(mu: Any, y: Any) -> Any:
    return 0.5 * (y - mu) ** 2 / (y * mu * mu) if mu > 0.0 else math.inf


@serial
def variance(mu: Any) -> Any:
    return mu**3


@serial
def variance_slope(mu: Any) -> Any:
    return 3.0 * mu**2


@dataclasses.dataclass(frozen=True, repr=False)
class InverseGaussian(Family):
    r"""Positive outcomes with heavy tails: :math:`V(\mu) = \mu^3`, links 1/mu^2, log, inverse and identity.

    >>> import fpdfp
    >>> fpdfp.families.InverseGaussian()
    InverseGaussian(link='1/mu^2')
    """

    name = "inverse gaussian"
    links = ("1/mu^2", "log", "inverse", "identity")
    convex_links = ("1/mu^2",)
    canonical = "1/mu^2"
    has_dispersion = True

    @property
    def functions(self) -> Functions:
        return compose(self.name, self.link, half_deviance, variance, variance_slope)

    def variance(self, mu: Array) -> Array:
        return mu**3

    def check(self, y: Array) -> None:
        self._refuse(y <= 0, y, "positive")

    def start(self, y: Array, weights: Array) -> Array:
        return link_of(self.link, y)

    def saturated(self, y: Array, weights: Array) -> float:
        return float((weights * np.log(y)).sum())

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        return -0.5 * (weight * (math.log(2.0 * math.pi * deviance / weight) + 1.0) + 3.0 * saturated)
