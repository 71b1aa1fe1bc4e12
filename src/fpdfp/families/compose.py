"""Loss functions of the linear predictor, from a variance, a unit deviance and a link."""

from __future__ import annotations

import functools
from typing import Any

from fpdfp._kernels.glm import Scalar
from fpdfp.families.base import Functions
from fpdfp.families.links import LINKS

# In their place come compiled functions of a family and a link.
half_deviance: Any = None
variance: Any = None
variance_slope: Any = None
mean: Any = None
first: Any = None
bend: Any = None


@Scalar
def value(z: Any, y: Any, p: Any, q: Any) -> Any:
    return half_deviance(mean(z), y)


@Scalar
def slope(z: Any, y: Any, p: Any, q: Any) -> Any:
    mu = mean(z)
    return (mu - y) * first(z) / variance(mu)


@Scalar
def weight(z: Any, y: Any, p: Any, q: Any) -> Any:
    return first(z) ** 2 / variance(mean(z))


@Scalar
def second(z: Any, y: Any, p: Any, q: Any) -> Any:
    mu, rate = mean(z), first(z)
    spread = variance(mu)
    return (rate**2 + (mu - y) * (bend(z) - rate**2 * variance_slope(mu) / spread)) / spread


@functools.cache
def compose(family: str, link: str, half_deviance: Any, variance: Any, variance_slope: Any) -> Functions:
    """Return the functions of a family with a link of :mod:`fpdfp.families.links`.

    ``half_deviance(mu, y)``, ``variance(mu)`` and ``variance_slope(mu)`` are compiled functions.
    """
    names = ("mean", "first", "bend", "half_deviance", "variance", "variance_slope")
    others = dict(zip(names, (*LINKS[link], half_deviance, variance, variance_slope), strict=True))
    name = "".join(one if one.isalnum() else "_" for one in f"{family}_{link}")
    return Functions(*(one.bind(f"{one.function.__name__}_{name}", others) for one in (value, slope, weight, second)))
