"""Families of outcomes: derivatives, links, conjugates, likelihoods, and what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize_scalar

from fpdfp import families
from fpdfp.families import (
    Binomial,
    Family,
    Gamma,
    Gaussian,
    InverseGaussian,
    NegativeBinomial,
    Poisson,
    Quantile,
    Tweedie,
)
from fpdfp.families.base import link_of, mean_of

RNG = np.random.default_rng(0)
COUNTS, POSITIVE = RNG.poisson(2.0, 40).astype(float), RNG.gamma(2.0, size=40)
CASES: list[tuple[Family, Any]] = [
    *((Gaussian(link), RNG.normal(3.0, 1.0, 40)) for link in Gaussian.links),
    *((Binomial(link), RNG.integers(0, 2, 40).astype(float)) for link in Binomial.links),
    *((Binomial(link), RNG.random(40)) for link in Binomial.links),
    *((Poisson(link), COUNTS) for link in Poisson.links),
    *((Gamma(link), POSITIVE) for link in Gamma.links),
    *((InverseGaussian(link), POSITIVE) for link in InverseGaussian.links),
    (NegativeBinomial(theta=1.7), COUNTS),
    (Tweedie(power=1.6), COUNTS * POSITIVE),
    (Quantile(level=0.3, width=0.2), RNG.normal(size=40)),
]
IDS = [f"{family.name} {family.link} {i}" for i, (family, _) in enumerate(CASES)]


def predictors(family: Family) -> Any:
    """Linear predictors inside the domain of the link."""
    z = 0.7 * np.random.default_rng(1).standard_normal(40)
    if family.link in ("inverse", "1/mu^2", "sqrt") or (family.link == "identity" and family.links[0] != "identity"):
        return np.abs(z) + 0.3
    return -np.abs(z) - 0.1 if isinstance(family, Binomial) and family.link == "log" else z


@pytest.mark.parametrize(("family", "y"), CASES, ids=IDS)
def test_derivatives_are_those_of_the_value(family: Family, y: Any) -> None:
    z, step = predictors(family), 1e-6
    value, slope, weight, second = (one.__call__ for one in family.functions)
    p = family.parameters
    near = (value(z + step, y, p) - value(z - step, y, p)) / (2 * step)
    np.testing.assert_allclose(slope(z, y, p), near, rtol=1e-5, atol=1e-7)
    bend = (slope(z + step, y, p) - slope(z - step, y, p)) / (2 * step)
    np.testing.assert_allclose(second(z, y, p), bend, rtol=1e-5, atol=1e-6)
    assert (value(z, y, p) >= -1e-12).all()
    if family.is_convex:
        assert (second(z, y, p) >= -1e-12).all()
    if family.canonical == family.link:
        np.testing.assert_allclose(weight(z, y, p), second(z, y, p), rtol=1e-12)
    if not isinstance(family, Quantile):
        first = (family.mean(z + step) - family.mean(z - step)) / (2 * step)
        mu = family.mean(z)
        np.testing.assert_allclose(weight(z, y, p), first**2 / family.variance(mu), rtol=1e-6)
        np.testing.assert_allclose(slope(z, y, p), (mu - y) * first / family.variance(mu), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(link_of(family.link, mu), z, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("family", "y"), CASES, ids=IDS)
def test_gaps_are_those_of_the_conjugate(family: Family, y: Any) -> None:
    z = predictors(family)
    value, slope, _, second = family.functions
    change = 0.05 * np.random.default_rng(2).standard_normal(40) * second(z, y, family.parameters)
    gaps = family.young_gaps(z, y, change, 0.97)
    if gaps is None:
        return
    theta = 0.97 * (slope(z, y, family.parameters) - change)
    for i in range(40):

        def away(t: float, i: int = i) -> float:
            return float(value(np.array([t]), y[i : i + 1], family.parameters)[0] - theta[i] * t)

        found = minimize_scalar(away, bounds=(-60.0, 60.0), method="bounded", options={"xatol": 1e-11}).fun
        expected = float(value(z[i : i + 1], y[i : i + 1], family.parameters)[0]) - z[i] * theta[i] - found
        np.testing.assert_allclose(gaps[i], expected, atol=1e-9)


@pytest.mark.parametrize("z", [-800.0, -40.0, 40.0, 800.0])
def test_far_from_zero_nothing_overflows(z: float) -> None:
    for family in (Binomial("logit"), Binomial("probit"), Quantile(width=0.1)):
        for y in (0.0, 1.0):
            found = [float(one(np.array([z]), np.array([y]), family.parameters)[0]) for one in family.functions]
            assert np.isfinite(found).all()
    value, slope, _, _ = Binomial("probit").functions
    np.testing.assert_allclose(value(np.array([-40.0]), np.array([1.0])), -stats.norm.logcdf(-40.0), rtol=1e-12)
    np.testing.assert_allclose(
        slope(np.array([-20.0]), np.array([1.0])),
        -np.exp(stats.norm.logpdf(-20.0) - stats.norm.logcdf(-20.0)),
        rtol=1e-9,
    )


def test_likelihoods_are_those_of_scipy() -> None:
    rng = np.random.default_rng(3)
    mu, n = rng.uniform(1.0, 4.0, 50), 50
    ones = np.ones(n)

    def likelihood(family: Family, y: Any) -> float:
        deviance = 2.0 * float(family.functions.value(link_of(family.link, mu), y, family.parameters).sum())
        return family.log_likelihood(deviance, family.saturated(y, ones), float(n), n)

    counts = rng.poisson(mu).astype(float)
    np.testing.assert_allclose(likelihood(Poisson(), counts), stats.poisson.logpmf(counts, mu).sum())
    negative = NegativeBinomial(theta=1.5)
    expected = stats.nbinom.logpmf(counts, 1.5, 1.5 / (1.5 + mu)).sum()
    np.testing.assert_allclose(likelihood(negative, counts), expected)
    y = rng.normal(mu, 0.5)
    deviation = np.sqrt(np.mean((y - mu) ** 2))
    np.testing.assert_allclose(likelihood(Gaussian(), y), stats.norm.logpdf(y, mu, deviation).sum())
    y = rng.gamma(3.0, mu / 3.0)
    phi = 2.0 * float(Gamma("log").functions.value(np.log(mu), y, (0.0, 0.0)).sum()) / n
    np.testing.assert_allclose(likelihood(Gamma("log"), y), stats.gamma.logpdf(y, 1 / phi, scale=mu * phi).sum())
    y = stats.invgauss.rvs(mu / 2.0, scale=2.0, random_state=rng)
    phi = float(np.mean((y - mu) ** 2 / (y * mu**2)))
    expected = stats.invgauss.logpdf(y, mu * phi, scale=1 / phi).sum()
    np.testing.assert_allclose(likelihood(InverseGaussian("log"), y), expected)


def test_trials_are_weights() -> None:
    trials, hits = np.array([5.0, 8.0, 1.0]), np.array([2.0, 8.0, 0.0])
    mu = np.array([0.3, 0.6, 0.2])
    family = Binomial()
    deviance = 2.0 * float((trials * family.functions.value(link_of("logit", mu), hits / trials)).sum())
    found = family.log_likelihood(deviance, family.saturated(hits / trials, trials), 14.0, 3)
    np.testing.assert_allclose(found, stats.binom.logpmf(hits, trials, mu).sum())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: families.make("poison"), "family must be one of"),
        (lambda: families.make("poisson", "logit"), "link must be one of"),
        (lambda: families.make("poisson", power=1.5), "power is not a parameter of the family poisson"),
        (lambda: families.make(3), "family must be a name or a Family, got"),
        (lambda: families.make(Poisson(), "sqrt"), "link must be None where family is a Family"),
        (lambda: Tweedie(power=2.0), "power must be between 1 and 2, got 2"),
        (lambda: NegativeBinomial(theta=0.0), "theta must be"),
        (lambda: Quantile(level=1.0), "level must be between 0 and 1"),
        (lambda: Poisson().check(np.array([1.0, -2.0])), "y must be at least 0 for the family poisson, got -2"),
        (lambda: Gamma().check(np.array([0.0])), "y must be positive for the family gamma, got 0"),
        (lambda: Binomial().check(np.array([0.0, 2.0])), "y must be 0 or 1, or a share"),
    ],
)
def test_what_is_refused(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make()


def test_families_are_equal_by_value() -> None:
    assert Poisson() == families.make("poisson") != Poisson("sqrt")
    assert families.make("tweedie", power=1.2).parameters == (1.2, 0.0)
    assert mean_of("sqrt", np.array([-1.0]))[0] != mean_of("sqrt", np.array([-1.0]))[0]  # outside its domain
