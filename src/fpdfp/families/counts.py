"""Counts: the Poisson and the negative binomial distribution."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import digamma, gammaln, polygamma, xlogy

from fpdfp import _checks
from fpdfp._kernels.glm import Scalar
from fpdfp._kernels.jit import serial
from fpdfp._numbers import kullback_leibler, relative_entropy
from fpdfp._typing import Array
from fpdfp.families.base import Family, Functions, compose, link_of


@serial
def poisson_half_deviance(mu: Any, y: Any) -> Any:
    if y == 0.0 and mu >= 0.0:
        return mu
    return y * math.log(y / mu) - (y - mu) if mu > 0.0 else math.inf


@serial
def poisson_variance(mu: Any) -> Any:
    return mu


@serial
def poisson_variance_slope(mu: Any) -> Any:
    return 1.0


@Scalar
def poisson_log_value(z: Any, y: Any, p: Any, q: Any) -> Any:
    return (y * (math.log(y) - 1.0 - z) if y > 0.0 else 0.0) + math.exp(z)


@Scalar
def poisson_log_slope(z: Any, y: Any, p: Any, q: Any) -> Any:
    return math.exp(z) - y


@Scalar
def poisson_log_weight(z: Any, y: Any, p: Any, q: Any) -> Any:
    return math.exp(z)


@dataclasses.dataclass(frozen=True, repr=False)
class Poisson(Family):
    r"""Counts: :math:`V(\mu) = \mu`, links log, identity, sqrt and log(mu-1).

    The last belongs to relative survival: deaths y of a row of which population tables expect d have the mean
    :math:`d + e^\eta`, an excess with a log link. That is the model of y/d with weight d and offset −log d. Where d
    is 0, give a number that is small besides the excess.

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
            return Functions(poisson_log_value, poisson_log_slope, poisson_log_weight, poisson_log_weight)
        return compose(self.name, self.link, poisson_half_deviance, poisson_variance, poisson_variance_slope)

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

    def weight_slope(self, eta: Array) -> Array | None:
        return np.exp(eta) if self.link == "log" else None

    def saturated(self, y: Array, weights: Array) -> float:
        return float((weights * (xlogy(y, y) - y - gammaln(y + 1.0))).sum())

    def young_gaps(self, z: Array, y: Array, change: Array, scale: float) -> Array | None:
        if self.link != "log":
            return None
        mu = np.exp(z)
        return relative_entropy(scale * (mu - change) + (1.0 - scale) * y, mu)


@serial
def log_sum(z: Any, theta: Any) -> Any:
    """The logarithm of exp(z) + θ."""
    level = math.log(theta)
    return max(z, level) + math.log1p(math.exp(-abs(z - level)))


@serial
def share(z: Any, theta: Any) -> Any:
    """exp(z)/(exp(z) + θ)."""
    return 1.0 / (1.0 + theta * math.exp(-z)) if z > 0.0 else math.exp(z) / (math.exp(z) + theta)


@Scalar
def overdispersed_value(z: Any, y: Any, theta: Any, q: Any) -> Any:
    known = (y * math.log(y) if y > 0.0 else 0.0) - (y + theta) * math.log(y + theta)
    return known + (y + theta) * log_sum(z, theta) - y * z


@Scalar
def overdispersed_slope(z: Any, y: Any, theta: Any, q: Any) -> Any:
    return theta * share(z, theta) - y * (1.0 - share(z, theta))


@Scalar
def overdispersed_weight(z: Any, y: Any, theta: Any, q: Any) -> Any:
    return theta * share(z, theta)


@Scalar
def overdispersed_second(z: Any, y: Any, theta: Any, q: Any) -> Any:
    p = share(z, theta)
    return (y + theta) * p * (1.0 - p)


@dataclasses.dataclass(frozen=True, repr=False)
class QuasiPoisson(Poisson):
    r"""Counts whose variance is φμ: the estimates of :class:`Poisson`, errors with the estimated φ, no likelihood.

    >>> import fpdfp
    >>> fpdfp.families.QuasiPoisson()
    QuasiPoisson(link='log')
    """

    name = "quasi-poisson"
    has_dispersion = True

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        return math.nan


@dataclasses.dataclass(frozen=True, repr=False)
class NegativeBinomial(Family):
    r"""Counts with more variance than Poisson's: :math:`V(\mu) = \mu + \mu^2/\theta`, link log.

    Parameters
    ----------
    link
        "log".
    theta
        θ. :class:`fpdfp.FederatedGLM` estimates it for ``family="negative binomial"``.

    Examples
    --------
    >>> import fpdfp
    >>> fpdfp.families.NegativeBinomial(theta=2.0)
    NegativeBinomial(link='log', theta=2.0)
    """

    theta: float = 1.0

    name = "negative binomial"
    links = ("log",)
    convex_links = links
    parameter_names = ("theta",)

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.real("theta", self.theta, positive=True)

    @property
    def functions(self) -> Functions:
        return Functions(overdispersed_value, overdispersed_slope, overdispersed_weight, overdispersed_second)

    def variance(self, mu: Array) -> Array:
        return mu + mu**2 / self.theta

    def check(self, y: Array) -> None:
        self._refuse(y < 0, y, "at least 0")

    def start(self, y: Array, weights: Array) -> Array:
        return link_of(self.link, y + np.where(y == 0, 1.0 / 6.0, 0.0))

    def saturated(self, y: Array, weights: Array) -> float:
        theta = self.theta
        known = gammaln(y + theta) - gammaln(theta) - gammaln(y + 1.0) + theta * np.log(theta) + xlogy(y, y)
        return float((weights * (known - (y + theta) * np.log(y + theta))).sum())

    def young_gaps(self, z: Array, y: Array, change: Array, scale: float) -> Array | None:
        # (y + θ) times the loss of a binomial outcome y/(y + θ), with the share as probability.
        count = y + self.theta
        p = 1.0 / (1.0 + self.theta * np.exp(-z))
        moved = (scale - 1.0) * (p - y / count) - scale * change / count
        gaps: Array = count * (kullback_leibler(moved, p) + kullback_leibler(-moved, 1.0 - p))
        return gaps


def theta_sums(y: Array, mu: Array, weights: Array, theta: float) -> Array:
    """Return the sums over rows from which θ is found, given means: of a client, or of all.

    These are the sum of weights, and the variance beyond Poisson's, Σ w ((y − μ)² − y). A first θ is guessed from the
    squared relative residuals Σ w (y/μ − 1)². At θ, the derivative of the log-likelihood in θ follows, and minus its
    second derivative.

    >>> weight, excess, spread, score, information = theta_sums(np.array([0.0, 4.0]), np.full(2, 2.0), np.ones(2), 1.0)
    >>> float(weight), float(excess), float(spread), round(float(score), 4)
    (2.0, 4.0, 2.0, -0.1139)
    """
    away = theta + mu
    score = digamma(theta + y) - digamma(theta) + np.log(theta) + 1.0 - np.log(away) - (y + theta) / away
    information = polygamma(1, theta) - polygamma(1, theta + y) - 1.0 / theta + 2.0 / away - (y + theta) / away**2
    each = (np.ones_like(y), (y - mu) ** 2 - y, (y / mu - 1.0) ** 2, score, information)
    return np.array([float((weights * one).sum()) for one in each])
