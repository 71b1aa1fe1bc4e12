"""Differential privacy in one number: μ of Gaussian differential privacy.

A release of a sum whose value changes by at most S with one row, with Gaussian noise of standard deviation S/μ, is
μ-GDP. Several releases, each chosen after the ones before, are together √(Σμ²)-GDP: squares add up, nothing else is
needed (J. Dong, A. Roth and W. J. Su, *Gaussian differential privacy*, 2022). μ-GDP is (ε, δ)-differential privacy with

    δ = Φ(−ε/μ + μ/2) − exp(ε) Φ(−ε/μ − μ/2),

exactly (B. Balle and Y.-X. Wang, *Improving the Gaussian mechanism for differential privacy*, 2018). Noise is the
discrete Gaussian distribution, or a sum of several. Its δ differs from the Gaussian one's by less than 10⁻⁴ of itself
where the noise of each share has a standard deviation of 25 or more. Ours has 10⁴ or more.
"""

from __future__ import annotations

import dataclasses
import math

from fpdfp.errors import ArgumentError

#: The largest ε that is accepted: more is no protection.
MOST = 100.0


def mu_of(epsilon: float, delta: float) -> float:
    """Return the μ that is (ε, δ)-differential privacy.

    >>> round(mu_of(1.0, 1e-6), 4)
    0.2367
    """
    from scipy.optimize import brentq

    if not 0 < epsilon <= MOST:
        raise ArgumentError("epsilon", f"must be positive and at most {MOST:g}, got {epsilon}")
    if not 0 < delta < 1:
        raise ArgumentError("delta", f"must be between 0 and 1, got {delta}")
    high = math.sqrt(2 * epsilon)
    while delta_of(epsilon, high) < delta:
        high *= 2
    found = brentq(lambda mu: delta_of(epsilon, mu) - delta, 1e-8, high, xtol=1e-15, rtol=1e-14)
    # rounding errors may cost privacy only downwards
    return float(found) * (1 - 1e-12)


def delta_of(epsilon: float, mu: float) -> float:
    """Return the δ of μ-GDP at an ε.

    >>> delta_of(1.0, 0.0)
    0.0
    """
    from scipy.special import log_ndtr

    if mu <= 0:
        return 0.0
    first = float(log_ndtr(-epsilon / mu + mu / 2))
    second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    # exp(first) − exp(second), where both may be tiny and close
    return max(-math.exp(first) * math.expm1(min(second - first, 0.0)), 0.0)


def epsilon_of(mu: float, delta: float) -> float:
    """Return the ε of μ-GDP at a δ.

    >>> round(epsilon_of(mu_of(3.0, 1e-6), 1e-6), 9)
    3.0
    """
    from scipy.optimize import brentq

    if not 0 < delta < 1:
        raise ArgumentError("delta", f"must be between 0 and 1, got {delta}")
    if delta_of(0.0, mu) <= delta:
        return 0.0
    high = 1.0
    while delta_of(high, mu) > delta:
        high *= 2
    return float(brentq(lambda epsilon: delta_of(epsilon, mu) - delta, 0.0, high, xtol=1e-14, rtol=1e-14))


@dataclasses.dataclass(frozen=True)
class Spent:
    """The cost of a private result, with its unit.

    Attributes
    ----------
    epsilon, delta, mu
        The price.
    releases
        What was released: the kind of sum and its μ.
    unit
        Whom it protects: one row.
    """

    epsilon: float
    delta: float
    mu: float
    releases: tuple[tuple[str, float], ...]
    unit: str = "one row more or less at one site"

    def __str__(self) -> str:
        kinds: dict[str, int] = {}
        for kind, _ in self.releases:
            kinds[kind] = kinds.get(kind, 0) + 1
        told = ", ".join(f"{count} × {kind}" for kind, count in kinds.items())
        return (
            f"differential privacy: epsilon = {self.epsilon:.3g}, delta = {self.delta:g} for {self.unit}; "
            f"released with noise: {told}"
        )
