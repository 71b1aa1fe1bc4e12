"""The gamma distribution."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from scipy.special import gammaln

from fpdfp._kernels.glm import Scalar
from fpdfp._kernels.jit import serial
from fpdfp._numbers import relative_entropy
from fpdfp._typing import Array
from fpdfp.families.base import Family, Functions
from fpdfp.families.compose import compose
from fpdfp.families.means import link_of


@serial
def half_deviance(mu: Any, y: Any) -> Any:
    return (y - mu) / mu - math.log(y / mu) if mu > 0.0 else math.inf


@serial
def variance(mu: Any) -> Any:
    return mu * mu


@serial
def variance_slope(mu: Any) -> Any:
    return 2.0 * mu


@Scalar
def log_value(z: Any, y: Any, p: Any, q: Any) -> Any:
    return y * math.exp(-z) - 1.0 + z - math.log(y)


@Scalar
def log_slope(z: Any, y: Any, p: Any, q: Any) -> Any:
    return 1.0 - y * math.exp(-z)


@Scalar
def log_weight(z: Any, y: Any, p: Any, q: Any) -> Any:
    return 1.0


@Scalar
def log_second(z: Any, y: Any, p: Any, q: Any) -> Any:
    return y * math.exp(-z)


@dataclasses.dataclass(frozen=True, repr=False)
class Gamma(Family):
    r"""Positive outcomes of constant coefficient of variation: :math:`V(\mu) = \mu^2`, links inverse, log and identity.

    >>> import fpdfp
    >>> fpdfp.families.Gamma("log")
    Gamma(link='log')
    """

    name = "gamma"
    links = ("inverse", "log", "identity")
    convex_links = ("inverse", "log")
    canonical = "inverse"
    has_dispersion = True

    @property
    def functions(self) -> Functions:
        if self.link == "log":
            return Functions(log_value, log_slope, log_weight, log_second)
        return compose(self.name, self.link, half_deviance, variance, variance_slope)

    def variance(self, mu: Array) -> Array:
        return mu**2

    def check(self, y: Array) -> None:
        self._refuse(y <= 0, y, "positive")

    def start(self, y: Array, weights: Array) -> Array:
        return link_of(self.link, y)

    def saturated(self, y: Array, weights: Array) -> float:
        return float((weights * np.log(y)).sum())

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        shape = weight / deviance
        return float(
            weight * (shape * math.log(shape) - gammaln(shape)) - shape * (0.5 * deviance + weight) - saturated
        )

    def young_gaps(self, z: Array, y: Array, change: Array, scale: float) -> Array | None:
        if self.link != "log":
            return None
        # With t = y exp(−z), φ' = 1 − t, and the gap is a relative entropy of the new t.
        t = y * np.exp(-z)
        return relative_entropy(1.0 - scale * (1.0 - t - change), t)
