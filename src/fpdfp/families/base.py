"""Families: a distribution of outcomes around a mean, and a link from the linear predictor to that mean."""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from fpdfp import _checks
from fpdfp._kernels.glm import Scalar
from fpdfp._kernels.jit import serial
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError


@np.errstate(all="ignore")
def mean_of(link: str, eta: Array) -> Array:
    """Return the mean at a linear predictor; not a number outside the domain of the link.

    >>> mean_of("cloglog", np.array([0.0])).round(4)
    array([0.6321])
    """
    mean: Array = IN_NUMPY[link][0](eta)
    return np.where(eta > 0, mean, np.nan) if link in POSITIVE else mean


def link_of(link: str, mu: Array) -> Array:
    """Return the linear predictor of a mean.

    >>> link_of("cloglog", mean_of("cloglog", np.array([0.5]))).round(4)
    array([0.5])
    """
    eta: Array = IN_NUMPY[link][1](mu)
    return eta


#: The mean of a linear predictor and the linear predictor of a mean, in NumPy.
IN_NUMPY: dict[str, tuple[Callable[[Array], Any], Callable[[Array], Any]]] = {
    "identity": (lambda eta: eta, lambda mu: mu),
    "log": (np.exp, np.log),
    "log(mu-1)": (lambda eta: 1.0 + np.exp(eta), lambda mu: np.log(mu - 1.0)),
    "inverse": (lambda eta: 1.0 / eta, lambda mu: 1.0 / mu),
    "1/mu^2": (lambda eta: eta**-0.5, lambda mu: mu**-2.0),
    "sqrt": (lambda eta: eta**2, np.sqrt),
    "logit": (expit, logit),
    "probit": (ndtr, ndtri),
    "cloglog": (lambda eta: -np.expm1(-np.exp(eta)), lambda mu: np.log(-np.log1p(-mu))),
}
#: Links whose linear predictors are positive.
POSITIVE = ("inverse", "1/mu^2", "sqrt")


class Link(NamedTuple):
    """μ(z), μ'(z) and μ''(z), compiled, each not a number outside the domain of the link."""

    mean: Any
    first: Any
    second: Any


@serial
def identity_mean(z: Any) -> Any:
    return z


@serial
def identity_first(z: Any) -> Any:
    return 1.0


@serial
def identity_second(z: Any) -> Any:
    return 0.0


@serial
def log_mean(z: Any) -> Any:
    return math.exp(z)


@serial
def inverse_mean(z: Any) -> Any:
    return 1.0 / z if z > 0.0 else math.nan


@serial
def inverse_first(z: Any) -> Any:
    return -1.0 / (z * z)


@serial
def inverse_second(z: Any) -> Any:
    return 2.0 / (z * z * z)


@serial
def inverse_squared_mean(z: Any) -> Any:
    return z**-0.5 if z > 0.0 else math.nan


@serial
def inverse_squared_first(z: Any) -> Any:
    return -0.5 * z**-1.5


@serial
def inverse_squared_second(z: Any) -> Any:
    return 0.75 * z**-2.5


@serial
def sqrt_mean(z: Any) -> Any:
    return z * z if z > 0.0 else math.nan


@serial
def sqrt_first(z: Any) -> Any:
    return 2.0 * z


@serial
def sqrt_second(z: Any) -> Any:
    return 2.0


@serial
def excess_mean(z: Any) -> Any:
    return 1.0 + math.exp(z)


LINKS = {
    "identity": Link(identity_mean, identity_first, identity_second),
    "log": Link(log_mean, log_mean, log_mean),
    "log(mu-1)": Link(excess_mean, log_mean, log_mean),
    "inverse": Link(inverse_mean, inverse_first, inverse_second),
    "1/mu^2": Link(inverse_squared_mean, inverse_squared_first, inverse_squared_second),
    "sqrt": Link(sqrt_mean, sqrt_first, sqrt_second),
}


class Functions(NamedTuple):
    """Functions of the linear predictor z of a row, its outcome y and the family's parameters p and q.

    Attributes
    ----------
    value
        Half the unit deviance, infinite or not a number outside the domain.
    slope
        Its derivative in z, −(y − μ)μ'/V(μ).
    weight
        The expected second derivative, μ'²/V(μ), which is positive.
    second
        The second derivative.
    """

    value: Scalar
    slope: Scalar
    weight: Scalar
    second: Scalar


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
    """Return the functions of a family with a link of ``LINKS``.

    ``half_deviance(mu, y)``, ``variance(mu)`` and ``variance_slope(mu)`` are compiled functions.
    """
    names = ("mean", "first", "bend", "half_deviance", "variance", "variance_slope")
    others = dict(zip(names, (*LINKS[link], half_deviance, variance, variance_slope), strict=True))
    name = "".join(one if one.isalnum() else "_" for one in f"{family}_{link}")
    return Functions(*(one.bind(f"{one.function.__name__}_{name}", others) for one in (value, slope, weight, second)))


@dataclasses.dataclass(frozen=True)
class Family(abc.ABC):
    """A distribution of outcomes; equal by value.

    A family is one class, with compiled functions for its link, and what follows in NumPy. To write one, derive from
    this class, name the links and define what is abstract. Nothing else needs to know of it, kernels included.

    Parameters
    ----------
    link
        The name of the link; "" for the first of ``links``.
    """

    link: str = ""

    name: ClassVar[str]
    #: The links that it has, the usual one first.
    links: ClassVar[tuple[str, ...]]
    #: Those for which the loss is convex in the linear predictor.
    convex_links: ClassVar[tuple[str, ...]] = ()
    #: Those for which the weight is the second derivative.
    canonical: ClassVar[str] = ""
    #: Whether the variance has a factor that is estimated: tests then are t and F.
    has_dispersion: ClassVar[bool] = False
    #: Whether the loss is that of a distribution; if not, standard errors are the robust ones.
    is_likelihood: ClassVar[bool] = True
    #: The names of the parameters, at most two.
    parameter_names: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        if not self.link:
            object.__setattr__(self, "link", self.links[0])
        _checks.choice("link", self.link, self.links)

    @property
    def parameters(self) -> tuple[float, float]:
        """The two numbers that the compiled functions are given; 0 where there are fewer parameters."""
        found = [float(getattr(self, name)) for name in self.parameter_names]
        first, second = [*found, 0.0, 0.0][:2]
        return first, second

    @property
    def is_convex(self) -> bool:
        """Whether the loss of a row is convex in its linear predictor."""
        return self.link in self.convex_links

    @property
    def curvature(self) -> float:
        """A bound of the second derivative of the loss of a row; infinite where it is unbounded."""
        return np.inf

    @property
    @abc.abstractmethod
    def functions(self) -> Functions:
        """The functions of the linear predictor for the link, compiled when they are first used."""

    def derivatives(self, y: Array) -> Callable[[slice, Array], tuple[Array, Array, Array]]:
        """Return what gives the value, slope and second derivative of some rows of outcomes at linear predictors."""
        functions, parameters = self.functions, self.parameters

        def find(rows: slice, z: Array) -> tuple[Array, Array, Array]:
            value, slope, second = functions.value, functions.slope, functions.second
            return value(z, y[rows], parameters), slope(z, y[rows], parameters), second(z, y[rows], parameters)

        return find

    def mean(self, eta: Array) -> Array:
        """Return the mean at the linear predictor: the inverse link."""
        return mean_of(self.link, eta)

    @abc.abstractmethod
    def variance(self, mu: Array) -> Array:
        """Return the variance at a mean, without the dispersion."""

    @abc.abstractmethod
    def check(self, y: Array) -> None:
        """Refuse outcomes that the family does not have."""

    @abc.abstractmethod
    def start(self, y: Array, weights: Array) -> Array:
        """Return the linear predictor that a fit starts from, row by row."""

    def weight_slope(self, eta: Array) -> Array | None:
        """Return the derivative of the expected second derivative in the linear predictor; None if not available."""
        return None

    @abc.abstractmethod
    def saturated(self, y: Array, weights: Array) -> float:
        """Return what :meth:`log_likelihood` needs of the rows next to the deviance: a sum."""

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        """Return the log-likelihood, as R has it; NaN for families without one.

        Where there is a dispersion it is at its maximum likelihood estimate, or where that has no closed form at the
        deviance divided by the weight.
        """
        return saturated - 0.5 * deviance

    def young_gaps(self, z: Array, y: Array, change: Array, scale: float) -> Array | None:
        """Return φ(z) + φ*(θ) − zθ of each row at θ = scale (φ'(z) − change), None where φ* is not known."""
        return None

    def _refuse(self, bad: Array, y: Array, wanted: str) -> None:
        """Raise an error where outcomes are bad."""
        if bad.any():
            raise ArgumentError("y", f"must be {wanted} for the family {self.name}, got {y[bad][0]:g}")

    def __repr__(self) -> str:
        given = [f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self)]
        return f"{type(self).__name__}({', '.join(given)})"
