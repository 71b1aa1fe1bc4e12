"""Tweedie distributions."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._kernels.glm import Scalar
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.families.base import Family, Functions
from fpdfp.families.means import link_of


@Scalar
def log_value(z: Any, y: Any, power: Any, q: Any) -> Any:
    a, b = 1.0 - power, 2.0 - power
    known = y**b / (a * b) if y > 0.0 else 0.0
    return known - y * math.exp(a * z) / a + math.exp(b * z) / b


@Scalar
def log_slope(z: Any, y: Any, power: Any, q: Any) -> Any:
    return math.exp((2.0 - power) * z) - y * math.exp((1.0 - power) * z)


@Scalar
def log_weight(z: Any, y: Any, power: Any, q: Any) -> Any:
    return math.exp((2.0 - power) * z)


@Scalar
def log_second(z: Any, y: Any, power: Any, q: Any) -> Any:
    a, b = 1.0 - power, 2.0 - power
    return b * math.exp(b * z) - a * y * math.exp(a * z)


@dataclasses.dataclass(frozen=True, repr=False)
class Tweedie(Family):
    r"""Outcomes with many zeros, such as costs: :math:`V(\mu) = \mu^p` with 1 < p < 2, link log.

    The likelihood has no closed form, so there is no AIC.

    Parameters
    ----------
    link
        "log".
    power
        p.

    Examples
    --------
    >>> import fpdfp
    >>> fpdfp.families.Tweedie(power=1.7)
    Tweedie(link='log', power=1.7)
    """

    power: float = 1.5

    name = "tweedie"
    links = ("log",)
    convex_links = links
    has_dispersion = True
    parameter_names = ("power",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1.0 < _checks.real("power", self.power) < 2.0:
            raise ArgumentError(
                "power", f"must be between 1 and 2, got {self.power:g}; 1 is Poisson, 2 gamma, 3 inverse Gaussian"
            )

    @property
    def functions(self) -> Functions:
        return Functions(log_value, log_slope, log_weight, log_second)

    def variance(self, mu: Array) -> Array:
        return mu**self.power

    def check(self, y: Array) -> None:
        self._refuse(y < 0, y, "at least 0")

    def start(self, y: Array, weights: Array) -> Array:
        mean = float((weights * y).sum() / max(float(weights.sum()), 1e-300))
        return link_of(self.link, np.maximum(y, 0.1 * max(mean, 1e-300)))

    def saturated(self, y: Array, weights: Array) -> float:
        return math.nan

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        return math.nan
