"""Continuous outcomes: normal, gamma, inverse Gaussian and Tweedie distributions, and quantiles."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from scipy.special import gammaln

from fpdfp import _checks
from fpdfp._kernels.glm import Scalar, squared, squared_slope
from fpdfp._kernels.jit import serial
from fpdfp._numbers import relative_entropy
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.families.base import Family, Functions, compose, link_of


@Scalar
def one(z: Any, y: Any, p: Any, q: Any) -> Any:
    return 1.0


@serial
def gaussian_half_deviance(mu: Any, y: Any) -> Any:
    return 0.5 * (mu - y) ** 2


@serial
def unit(mu: Any) -> Any:
    return 1.0


@serial
def zero(mu: Any) -> Any:
    return 0.0


@dataclasses.dataclass(frozen=True, repr=False)
class Gaussian(Family):
    r"""Normal outcomes: :math:`V(\mu) = 1`, links identity, log and inverse.

    >>> import fpdfp
    >>> fpdfp.families.Gaussian()
    Gaussian(link='identity')
    """

    name = "gaussian"
    links = ("identity", "log", "inverse")
    convex_links = ("identity",)
    canonical = "identity"
    has_dispersion = True

    @property
    def curvature(self) -> float:
        return 1.0 if self.link == "identity" else np.inf

    @property
    def functions(self) -> Functions:
        if self.link == "identity":
            return Functions(squared, squared_slope, one, one)
        return compose(self.name, self.link, gaussian_half_deviance, unit, zero)

    def variance(self, mu: Array) -> Array:
        return np.ones_like(mu)

    def check(self, y: Array) -> None:
        if self.link == "log" and not (y > 0).any():
            self._refuse(np.ones(len(y), dtype=bool), y, "positive somewhere with the log link")

    def start(self, y: Array, weights: Array) -> Array:
        if self.link == "identity":
            return y
        return link_of(self.link, np.maximum(y, 0.1 * max(float(np.abs(y).mean()), 1e-300)))

    def saturated(self, y: Array, weights: Array) -> float:
        return float(np.log(weights[weights > 0]).sum())

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        return -0.5 * (rows * (math.log(2.0 * math.pi * deviance / rows) + 1.0) - saturated)

    def young_gaps(self, z: Array, y: Array, change: Array, scale: float) -> Array | None:
        if self.link != "identity":
            return None
        gaps: Array = 0.5 * np.square((scale - 1.0) * (z - y) - scale * change)
        return gaps


@serial
def gamma_half_deviance(mu: Any, y: Any) -> Any:
    return (y - mu) / mu - math.log(y / mu) if mu > 0.0 else math.inf


@serial
def gamma_variance(mu: Any) -> Any:
    return mu * mu


@serial
def gamma_variance_slope(mu: Any) -> Any:
    return 2.0 * mu


@Scalar
def gamma_log_value(z: Any, y: Any, p: Any, q: Any) -> Any:
    return y * math.exp(-z) - 1.0 + z - math.log(y)


@Scalar
def gamma_log_slope(z: Any, y: Any, p: Any, q: Any) -> Any:
    return 1.0 - y * math.exp(-z)


@Scalar
def gamma_log_weight(z: Any, y: Any, p: Any, q: Any) -> Any:
    return 1.0


@Scalar
def gamma_log_second(z: Any, y: Any, p: Any, q: Any) -> Any:
    return y * math.exp(-z)


@dataclasses.dataclass(frozen=True, repr=False)
class Positive(Family):
    """The part that families of positive outcomes share."""

    has_dispersion = True

    def check(self, y: Array) -> None:
        self._refuse(y <= 0, y, "positive")

    def start(self, y: Array, weights: Array) -> Array:
        return link_of(self.link, y)

    def saturated(self, y: Array, weights: Array) -> float:
        return float((weights * np.log(y)).sum())


@dataclasses.dataclass(frozen=True, repr=False)
class Gamma(Positive):
    r"""Positive outcomes of constant coefficient of variation: :math:`V(\mu) = \mu^2`, links inverse, log and identity.

    >>> import fpdfp
    >>> fpdfp.families.Gamma("log")
    Gamma(link='log')
    """

    name = "gamma"
    links = ("inverse", "log", "identity")
    convex_links = ("inverse", "log")
    canonical = "inverse"

    @property
    def functions(self) -> Functions:
        if self.link == "log":
            return Functions(gamma_log_value, gamma_log_slope, gamma_log_weight, gamma_log_second)
        return compose(self.name, self.link, gamma_half_deviance, gamma_variance, gamma_variance_slope)

    def variance(self, mu: Array) -> Array:
        return mu**2

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


@serial
def inverse_half_deviance(mu: Any, y: Any) -> Any:
    return 0.5 * (y - mu) ** 2 / (y * mu * mu) if mu > 0.0 else math.inf


@serial
def inverse_variance(mu: Any) -> Any:
    return mu**3


@serial
def inverse_variance_slope(mu: Any) -> Any:
    return 3.0 * mu**2


@dataclasses.dataclass(frozen=True, repr=False)
class InverseGaussian(Positive):
    r"""Positive outcomes with heavy tails: :math:`V(\mu) = \mu^3`, links 1/mu^2, log, inverse and identity.

    >>> import fpdfp
    >>> fpdfp.families.InverseGaussian()
    InverseGaussian(link='1/mu^2')
    """

    name = "inverse gaussian"
    links = ("1/mu^2", "log", "inverse", "identity")
    convex_links = ("1/mu^2",)
    canonical = "1/mu^2"

    @property
    def functions(self) -> Functions:
        return compose(self.name, self.link, inverse_half_deviance, inverse_variance, inverse_variance_slope)

    def variance(self, mu: Array) -> Array:
        return mu**3

    def log_likelihood(self, deviance: float, saturated: float, weight: float, rows: int) -> float:
        return -0.5 * (weight * (math.log(2.0 * math.pi * deviance / weight) + 1.0) + 3.0 * saturated)


@Scalar
def tweedie_log_value(z: Any, y: Any, power: Any, q: Any) -> Any:
    a, b = 1.0 - power, 2.0 - power
    known = y**b / (a * b) if y > 0.0 else 0.0
    return known - y * math.exp(a * z) / a + math.exp(b * z) / b


@Scalar
def tweedie_log_slope(z: Any, y: Any, power: Any, q: Any) -> Any:
    return math.exp((2.0 - power) * z) - y * math.exp((1.0 - power) * z)


@Scalar
def tweedie_log_weight(z: Any, y: Any, power: Any, q: Any) -> Any:
    return math.exp((2.0 - power) * z)


@Scalar
def tweedie_log_second(z: Any, y: Any, power: Any, q: Any) -> Any:
    a, b = 1.0 - power, 2.0 - power
    return b * math.exp(b * z) - a * y * math.exp(a * z)


@dataclasses.dataclass(frozen=True, repr=False)
class Tweedie(Family):
    r"""Outcomes with many zeros, such as costs: :math:`V(\mu) = \mu^p` with 1 < p < 2, link log.

    The likelihood has no closed form, so AIC is not available.

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
        return Functions(tweedie_log_value, tweedie_log_slope, tweedie_log_weight, tweedie_log_second)

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


@Scalar
def quantile_value(z: Any, y: Any, level: Any, width: Any) -> Any:
    r = (y - z) / width
    return width * (level * r + max(-r, 0.0) + math.log1p(math.exp(-abs(r))))


@Scalar
def quantile_slope(z: Any, y: Any, level: Any, width: Any) -> Any:
    r = (y - z) / width
    below = 1.0 / (1.0 + math.exp(r)) if r < 0.0 else math.exp(-r) / (1.0 + math.exp(-r))
    return below - level


@Scalar
def quantile_second(z: Any, y: Any, level: Any, width: Any) -> Any:
    tail = math.exp(-abs(y - z) / width)
    return tail / (width * (1.0 + tail) ** 2)


@dataclasses.dataclass(frozen=True, repr=False)
class Quantile(Family):
    r"""A quantile of the outcome, by the check loss smoothed with a logistic kernel.

    :math:`\varphi(z) = \tau r + h\log(1 + e^{-r/h})` with :math:`r = y - z`. It differs from the check loss by at most
    :math:`h \log 2`; with a small width the estimates equal quantile regression, and rounds are more. This is
    no likelihood: deviances cannot be compared, AIC is not available, and standard errors are robust.

    The width is also the bandwidth with which standard errors estimate the density of residuals. By default estimators
    choose it in units of the residuals' spread: h = κσ with :math:`\kappa = \max(0.05, ((p + \log n)/n)^{2/5}/2)` for n
    rows and p coefficients. He et al. propose it for medians and residuals of unit scale. The spread σ is the spread of
    normal residuals with the same mean kernel weight at the fit, a bounded function that few outliers hardly change
    (:meth:`share`). It is a sum over all sites, so the width scales with the outcome.

    Few rows are within the width of the quantile: about m = 6 Σ K(r/h) of them, K the logistic kernel, decide the
    density that standard errors need. Of these p fit themselves, so the robust covariance is divided by (1 − p/m)², as
    HC3 does with the leverage p/m. Tests and intervals use Student's t with m − p degrees of freedom.

    Parameters
    ----------
    link
        "identity".
    level
        τ, between 0 and 1.
    width
        h, in units of the outcome; None to have it chosen from the residuals.

    References
    ----------
    X. He, X. Pan, K. M. Tan and W.-X. Zhou, "Smoothed quantile regression with large-scale inference", Journal of
    Econometrics 232 (2023).

    Examples
    --------
    >>> import fpdfp
    >>> fpdfp.families.Quantile(level=0.9)
    Quantile(link='identity', level=0.9, width=None)
    """

    level: float = 0.5
    width: float | None = None

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
        if self.width is not None:
            _checks.real("width", self.width, positive=True)

    @property
    def parameters(self) -> tuple[float, float]:
        return self.level, self._known_width

    @property
    def _known_width(self) -> float:
        if self.width is None:
            raise ArgumentError("width", "must be a positive number; estimators alone choose it from the residuals")
        return self.width

    @property
    def curvature(self) -> float:
        return 0.25 / self._known_width

    def relative_width(self, rows: int, coefficients: int) -> float:
        """Return κ, the width in units of the spread of residuals.

        >>> round(Quantile().relative_width(235, 2), 4)
        0.1258
        """
        return max(0.05, 0.5 * math.pow((coefficients + math.log(rows)) / rows, 0.4))

    def share(self, relative: float) -> float:
        """Return the mean kernel weight of normal residuals of unit spread, at a width; the data must have the same.

        >>> round(Quantile().share(0.1258), 4)
        0.0489
        """
        from scipy.special import expit, ndtri

        u, step = np.linspace(-40.0, 40.0, 1601, retstep=True)
        density = np.exp(-0.5 * (ndtri(self.level) + relative * u) ** 2) / math.sqrt(2.0 * math.pi)
        return relative * float(step) * float((expit(u) * expit(-u) * density).sum())

    @property
    def functions(self) -> Functions:
        return Functions(quantile_value, quantile_slope, quantile_second, quantile_second)

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
