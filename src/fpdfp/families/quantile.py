"""Quantiles by a smoothed check loss."""

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


@Scalar
def value(z: Any, y: Any, level: Any, width: Any) -> Any:
    r = (y - z) / width
    return width * (level * r + max(-r, 0.0) + math.log1p(math.exp(-abs(r))))


@Scalar
def slope(z: Any, y: Any, level: Any, width: Any) -> Any:
    r = (y - z) / width
    below = 1.0 / (1.0 + math.exp(r)) if r < 0.0 else math.exp(-r) / (1.0 + math.exp(-r))
    return below - level


@Scalar
def second(z: Any, y: Any, level: Any, width: Any) -> Any:
    tail = math.exp(-abs(y - z) / width)
    return tail / (width * (1.0 + tail) ** 2)


@dataclasses.dataclass(frozen=True, repr=False)
class Quantile(Family):
    r"""A quantile of the outcome, by the check loss smoothed with a logistic kernel of a given width.

    :math:`\varphi(z) = \tau r + h\log(1 + e^{-r/h})` with :math:`r = y - z`. It differs from the check loss by at most
    :math:`h \log 2`; with a small width the estimates are those of quantile regression, and rounds are more. This is
    no likelihood: there is no deviance that could be compared and no AIC, and standard errors are the robust ones.

    Parameters
    ----------
    link
        "identity".
    level
        τ, between 0 and 1.
    width
        h, in units of the outcome.

    References
    ----------
    X. He, X. Pan, K. M. Tan and W.-X. Zhou, "Smoothed quantile regression with large-scale inference", Journal of
    Econometrics 232 (2023).

    Examples
    --------
    >>> import fpdfp
    >>> fpdfp.families.Quantile(level=0.9)
    Quantile(link='identity', level=0.9, width=0.1)
    """

    level: float = 0.5
    width: float = 0.1

    name = "quantile"
    links = ("identity",)
    convex_links = links
    canonical = "identity"
    is_likelihood = False
    parameter_names = ("level", "width")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 < _checks.real("level", self.level) < 1.0:
            raise ArgumentError("level", f"must be between 0 and 1, got {self.level:g}")
        _checks.real("width", self.width, positive=True)

    @property
    def curvature(self) -> float:
        return 0.25 / self.width

    @property
    def functions(self) -> Functions:
        return Functions(value, slope, second, second)

    def variance(self, mu: Array) -> Array:
        return np.ones_like(mu)

    def check(self, y: Array) -> None:
        """Every number is an outcome."""

    def start(self, y: Array, weights: Array) -> Array:
        return y

    def saturated(self, y: Array, weights: Array) -> float:
        return math.nan

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        return math.nan
