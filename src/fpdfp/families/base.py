"""What a family is: a distribution of outcomes around a mean, and a link from the linear predictor to that mean."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._kernels.functions import Scalar
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.families.means import mean_of


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


@dataclasses.dataclass(frozen=True)
class Family(abc.ABC):
    """A distribution of outcomes; equal by value.

    A family is one class in one file: compiled functions for its link, and what follows in NumPy. To write one, derive
    from this class, name the links and define what is abstract. Nothing else needs to know of it, kernels included.

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
        """A bound of the second derivative of the loss of a row; infinite where there is none."""
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
        """Return the mean at the linear predictor: that of the link."""
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

    @abc.abstractmethod
    def saturated(self, y: Array, weights: Array) -> float:
        """Return what :meth:`log_likelihood` needs of the rows beside the deviance: a sum."""

    @abc.abstractmethod
    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        """Return the log-likelihood, as R has it; not a number where there is none.

        Where there is a dispersion it is at its maximum likelihood estimate, or where that has no closed form at the
        deviance divided by the weight.
        """

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
