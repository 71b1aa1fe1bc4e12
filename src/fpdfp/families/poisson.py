"""The Poisson distribution."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import gammaln, xlogy

from fpdfp._kernels.functions import Scalar
from fpdfp._kernels.jit import serial
from fpdfp._numbers import relative_entropy
from fpdfp._typing import Array
from fpdfp.families.base import Family, Functions
from fpdfp.families.compose import compose
from fpdfp.families.means import link_of


@serial
def half_deviance(mu: Any, y: Any) -> Any:
    if y == 0.0 and mu >= 0.0:
        return mu
    return y * math.log(y / mu) - (y - mu) if mu > 0.0 else math.inf


@serial
def variance(mu: Any) -> Any:
    return mu


@serial
def variance_slope(mu: Any) -> Any:
    return 1.0


@Scalar
def log_value(z: Any, y: Any, p: Any, q: Any) -> Any:
    return (y * (math.log(y) - 1.0 - z) if y > 0.0 else 0.0) + math.exp(z)


@Scalar
def log_slope(z: Any, y: Any, p: Any, q: Any) -> Any:
    return math.exp(z) - y


@Scalar
def log_weight(z: Any, y: Any, p: Any, q: Any) -> Any:
    return math.exp(z)


@dataclasses.dataclass(frozen=True, repr=False)
class Poisson(Family):
    r"""Counts: :math:`V(\mu) = \mu`, links log, identity, sqrt and log(mu-1).

    The last is that of relative survival: deaths y of a row of which population tables expect d have the mean
    :math:`d + e^\eta`, an excess with a log link. That is the model of y/d with weight d and offset −log d. Where d
    is 0, give a number that is small beside the excess.

    >>> import fpdfp
    >>> fpdfp.families.Poisson()
    Poisson(link='log')
    """

    name = "poisson"
    links = ("log", "identity", "sqrt", "log(mu-1)")
    convex_links = ("log", "identity", "sqrt")
    canonical = "log"

    @property
    def functions(self) -> Functions:
        if self.link == "log":
            return Functions(log_value, log_slope, log_weight, log_weight)
        return compose(self.name, self.link, half_deviance, variance, variance_slope)

    def derivatives(self, y: Array) -> Callable[[slice, Array], tuple[Array, Array, Array]]:
        if self.link != "log":
            return super().derivatives(y)
        constants = xlogy(y, y) - y

        def find(rows: slice, z: Array) -> tuple[Array, Array, Array]:
            with np.errstate(over="ignore"):
                mu = np.exp(z)
            return constants[rows] - y[rows] * z + mu, mu - y[rows], mu

        return find

    def variance(self, mu: Array) -> Array:
        return mu

    def check(self, y: Array) -> None:
        self._refuse(y < 0, y, "at least 0")

    def start(self, y: Array, weights: Array) -> Array:
        return link_of(self.link, (y if self.link != "log(mu-1)" else np.maximum(y, 1.0)) + 0.1)

    def saturated(self, y: Array, weights: Array) -> float:
        return float((weights * (xlogy(y, y) - y - gammaln(y + 1.0))).sum())

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        return saturated - 0.5 * deviance

    def young_gaps(self, z: Array, y: Array, change: Array, scale: float) -> Array | None:
        if self.link != "log":
            return None
        mu = np.exp(z)
        return relative_entropy(scale * (mu - change) + (1.0 - scale) * y, mu)
