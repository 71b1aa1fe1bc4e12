"""Small generalised linear models for tests of inference, fitted by textbook code on all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.inference import Information

NAMES = ["Intercept", "age", "dose", "smoker"]


class TextbookFamily(NamedTuple):
    """Mean, derivative of the mean, variance, and unit deviance."""

    mean: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    variance: Callable[[Array], Array]
    deviance: Callable[[Array, Array], Array]
    has_dispersion: bool


def _xlogy(x: Array, y: Array) -> Array:
    return np.where(x > 0, x * np.log(np.where(x > 0, y, 1.0)), 0.0)


FAMILIES = {
    "gaussian": TextbookFamily(lambda z: z, np.ones_like, np.ones_like, lambda y, m: (y - m) ** 2, True),
    "binomial": TextbookFamily(
        lambda z: 1 / (1 + np.exp(-z)),
        lambda z: np.exp(-z) / (1 + np.exp(-z)) ** 2,
        lambda m: m * (1 - m),
        lambda y, m: -2 * (_xlogy(y, m) + _xlogy(1 - y, 1 - m)),
        False,
    ),
    "poisson": TextbookFamily(np.exp, np.exp, lambda m: m, lambda y, m: 2 * (_xlogy(y, y / m) - (y - m)), False),
    "gamma": TextbookFamily(
        np.exp, np.exp, lambda m: m**2, lambda y, m: 2 * ((y - m) / m - np.log(y / m)), True
    ),
}  # fmt: skip


def rows(count: int = 60) -> tuple[Array, Array]:
    """Return a matrix with an intercept, and the site of each row: no random numbers, so the same everywhere."""
    i = np.arange(count, dtype=np.float64)
    X = np.stack([np.ones(count), np.sin(i) + i / count, np.cos(1.7 * i) * (1 + i % 3), (i * 7 % 5 < 2) * 1.0], axis=1)
    return X, (i * 3 // count + (i % 4 == 0)).astype(int) % 3


def outcomes(name: str, count: int = 60) -> Array:
    """Return outcomes of a family."""
    X, _ = rows(count)
    i = np.arange(count, dtype=np.float64)
    noise = np.sin(12.9898 * i + 1) * 43758.5453
    noise -= np.floor(noise)  # between 0 and 1
    eta: Array = X @ np.array([0.3, 0.5, -0.4, 0.6])
    if name == "gaussian":
        return np.round(eta + 2.0 * noise - 1.0, 3)
    if name == "binomial":
        return np.where(noise < FAMILIES[name].mean(eta), 1.0, 0.0)
    if name == "poisson":
        return np.floor(np.exp(eta) * (0.3 + 1.6 * noise))
    return np.round(np.exp(eta) * (0.2 + 1.6 * noise), 3)


def fit(name: str, X: Array, y: Array, weights: Array | None = None) -> Array:
    """Return the coefficients by iteratively reweighted least squares."""
    family, weights = FAMILIES[name], np.ones(len(y)) if weights is None else weights
    x = np.linalg.lstsq(X, y if name == "gaussian" else np.log(y + 0.5) if name != "binomial" else 4 * y - 2)[0]
    for _ in range(200):
        z = X @ x
        m, d = family.mean(z), family.slope(z)
        curvature = weights * d**2 / family.variance(m)
        step = np.linalg.solve(X.T @ (X * curvature[:, None]), X.T @ (weights * (y - m) * d / family.variance(m)))
        x = x + step
        if np.abs(step).max() < 1e-14:
            break
    return x


def information(name: str, X: Array, y: Array, x: Array, weights: Array | None = None, **more: Any) -> Information:
    """Return the sums of rows at coefficients x."""
    family, weights = FAMILIES[name], np.ones(len(y)) if weights is None else weights
    z = X @ x
    m, d = family.mean(z), family.slope(z)
    v = family.variance(m)
    return Information.of_rows(
        X,
        weights * (y - m) * d / v,
        weights * d**2 / v,
        weight=weights.sum(),
        deviance=(weights * family.deviance(y, m)).sum(),
        pearson=(weights * (y - m) ** 2 / v).sum(),
        **more,
    )


def by_site(name: str, X: Array, y: Array, owner: Array, x: Array, weights: Array | None = None) -> list[Information]:
    """Return the sums of each site."""
    weights = np.ones(len(y)) if weights is None else weights
    return [information(name, X[owner == s], y[owner == s], x, weights[owner == s]) for s in np.unique(owner)]
