"""The binomial distribution."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from scipy.special import gammaln, xlogy

from fpdfp._kernels.glm import Scalar
from fpdfp._kernels.jit import serial
from fpdfp._numbers import kullback_leibler
from fpdfp._typing import Array
from fpdfp.families.base import Family, Functions, link_of, mean_of


@serial
def entropy(y: Any) -> Any:
    """The part of half a unit deviance that does not depend on the mean: 0 for y of 0 and 1."""
    return (y * math.log(y) if y > 0.0 else 0.0) + ((1.0 - y) * math.log1p(-y) if y < 1.0 else 0.0)


@serial
def expit(z: Any) -> Any:
    return 1.0 / (1.0 + math.exp(-z)) if z >= 0.0 else math.exp(z) / (1.0 + math.exp(z))


@Scalar
def logit_value(z: Any, y: Any, p: Any, q: Any) -> Any:
    return entropy(y) + max(z, 0.0) - y * z + math.log1p(math.exp(-abs(z)))


@Scalar
def logit_slope(z: Any, y: Any, p: Any, q: Any) -> Any:
    return (1.0 - y) * expit(z) - y * expit(-z)


@Scalar
def logit_weight(z: Any, y: Any, p: Any, q: Any) -> Any:
    return expit(z) * expit(-z)


@serial
def log_tail(z: Any) -> Any:
    """The logarithm of the normal probability below z."""
    if z > -30.0:
        return math.log(0.5 * math.erfc(-z * math.sqrt(0.5)))
    s = 1.0 / (z * z)
    return -0.5 * z * z - math.log(-z) - 0.5 * math.log(2.0 * math.pi) + math.log1p(-s + 3.0 * s * s - 15.0 * s**3)


@serial
def mills(z: Any) -> Any:
    """The normal density at z divided by the probability below z."""
    return math.exp(-0.5 * z * z - 0.5 * math.log(2.0 * math.pi) - log_tail(z))


@Scalar
def probit_value(z: Any, y: Any, p: Any, q: Any) -> Any:
    total = entropy(y)
    if y > 0.0:
        total -= y * log_tail(z)
    if y < 1.0:
        total -= (1.0 - y) * log_tail(-z)
    return total


@Scalar
def probit_slope(z: Any, y: Any, p: Any, q: Any) -> Any:
    return (1.0 - y) * mills(-z) - y * mills(z)


@Scalar
def probit_weight(z: Any, y: Any, p: Any, q: Any) -> Any:
    return mills(z) * mills(-z)


@Scalar
def probit_second(z: Any, y: Any, p: Any, q: Any) -> Any:
    above, below = mills(z), mills(-z)
    return y * above * (above + z) + (1.0 - y) * below * (below - z)


@serial
def log_cloglog(z: Any) -> Any:
    """The logarithm of 1 − exp(−exp(z))."""
    rate = math.exp(z)
    return math.log(-math.expm1(-rate)) if rate > 1e-10 else z


@serial
def cloglog_rate(z: Any) -> Any:
    """e/(exp(e) − 1) with e = exp(z): the derivative of the logarithm of the mean."""
    rate = math.exp(z)
    if rate > 700.0:
        return 0.0
    return rate / math.expm1(rate) if rate > 1e-10 else 1.0


@Scalar
def cloglog_value(z: Any, y: Any, p: Any, q: Any) -> Any:
    total = entropy(y) + (1.0 - y) * math.exp(z)
    return total - y * log_cloglog(z) if y > 0.0 else total


@Scalar
def cloglog_slope(z: Any, y: Any, p: Any, q: Any) -> Any:
    return (1.0 - y) * math.exp(z) - y * cloglog_rate(z)


@Scalar
def cloglog_weight(z: Any, y: Any, p: Any, q: Any) -> Any:
    return math.exp(z) * cloglog_rate(z)


@Scalar
def cloglog_second(z: Any, y: Any, p: Any, q: Any) -> Any:
    # The derivative of e/(exp(e) − 1) in z is r (1 − e − r).
    rate, share = math.exp(z), cloglog_rate(z)
    bend = share * (rate + share - 1.0) if rate > 1e-5 else 0.5 * rate
    return (1.0 - y) * rate + y * bend


@Scalar
def log_value(z: Any, y: Any, p: Any, q: Any) -> Any:
    if z >= 0.0:
        return math.inf
    return entropy(y) - y * z - ((1.0 - y) * math.log(-math.expm1(z)) if y < 1.0 else 0.0)


@Scalar
def log_slope(z: Any, y: Any, p: Any, q: Any) -> Any:
    return (1.0 - y) * math.exp(z) / -math.expm1(z) - y


@Scalar
def log_weight(z: Any, y: Any, p: Any, q: Any) -> Any:
    return math.exp(z) / -math.expm1(z)


@Scalar
def log_second(z: Any, y: Any, p: Any, q: Any) -> Any:
    return (1.0 - y) * math.exp(z) / math.expm1(z) ** 2


FUNCTIONS = {
    "logit": Functions(logit_value, logit_slope, logit_weight, logit_weight),
    "probit": Functions(probit_value, probit_slope, probit_weight, probit_second),
    "cloglog": Functions(cloglog_value, cloglog_slope, cloglog_weight, cloglog_second),
    "log": Functions(log_value, log_slope, log_weight, log_second),
}


@dataclasses.dataclass(frozen=True, repr=False)
class Binomial(Family):
    r"""Outcomes of 0 or 1, or shares of successes with trials as weights: :math:`V(\mu) = \mu(1 - \mu)`.

    Links are logit, probit, cloglog and log. With the log link (relative risks) linear predictors must be negative.

    >>> import fpdfp
    >>> fpdfp.families.Binomial("cloglog")
    Binomial(link='cloglog')
    """

    name = "binomial"
    links = ("logit", "probit", "cloglog", "log")
    convex_links = links
    canonical = "logit"

    @property
    def curvature(self) -> float:
        return {"logit": 0.25, "probit": 1.0}.get(self.link, np.inf)

    @property
    def functions(self) -> Functions:
        return FUNCTIONS[self.link]

    def variance(self, mu: Array) -> Array:
        return mu * (1.0 - mu)

    def check(self, y: Array) -> None:
        self._refuse((y < 0) | (y > 1), y, "0 or 1, or a share of successes from 0 to 1 (with weights as trials)")

    def start(self, y: Array, weights: Array) -> Array:
        return link_of(self.link, (weights * y + 0.5) / (weights + 1.0))

    def weight_slope(self, eta: Array) -> Array | None:
        if self.link != "logit":
            return None
        mu, other = mean_of("logit", eta), mean_of("logit", -eta)
        slope: Array = mu * other * (other - mu)
        return slope

    def saturated(self, y: Array, weights: Array) -> float:
        trials = np.where((weights > 1) | (y * (1 - y) > 0), np.round(weights), 1.0)
        hits = np.round(trials * y)
        choices = gammaln(trials + 1) - gammaln(hits + 1) - gammaln(trials - hits + 1)
        shares = np.where(trials > 0, weights / np.maximum(trials, 1.0), 0.0)
        return float((shares * choices).sum() + (weights * (xlogy(y, y) + xlogy(1 - y, 1 - y))).sum())

    def young_gaps(self, z: Array, y: Array, change: Array, scale: float) -> Array | None:
        if self.link != "logit":
            return None
        # θ = q − y with q the probability: φ + φ* − zθ is the divergence of the new q from q.
        mu, other = mean_of("logit", z), mean_of("logit", -z)
        moved = (scale - 1.0) * np.where(y > 0.5, -other + (1 - y), mu - y) - scale * change
        return kullback_leibler(moved, mu) + kullback_leibler(-moved, other)


@dataclasses.dataclass(frozen=True, repr=False)
class QuasiBinomial(Binomial):
    r"""Shares with trials as weights, whose variance is φ times the variance of :class:`Binomial`.

    Estimates are the same, errors have the estimated φ, and there is no likelihood.

    >>> import fpdfp
    >>> fpdfp.families.QuasiBinomial()
    QuasiBinomial(link='logit')
    """

    name = "quasi-binomial"
    has_dispersion = True

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        return math.nan
