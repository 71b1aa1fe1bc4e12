"""Links in NumPy: the mean of a linear predictor, and the linear predictor of a mean."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit, ndtr, ndtri

from fpdfp._typing import Array


def mean_of(link: str, eta: Array) -> Array:
    """Return the mean at a linear predictor; not a number outside the domain of the link.

    >>> mean_of("cloglog", np.array([0.0])).round(4)
    array([0.6321])
    """
    with np.errstate(all="ignore"):
        if link == "identity":
            return eta
        if link == "log":
            return np.exp(eta)
        if link == "log(mu-1)":
            return 1.0 + np.exp(eta)
        if link == "inverse":
            return np.where(eta > 0, 1.0 / eta, np.nan)
        if link == "1/mu^2":
            return np.where(eta > 0, eta**-0.5, np.nan)
        if link == "sqrt":
            return np.where(eta > 0, eta**2, np.nan)
        if link == "logit":
            logistic: Array = expit(eta)
            return logistic
        if link == "probit":
            normal: Array = ndtr(eta)
            return normal
        complement: Array = -np.expm1(-np.exp(eta))
        return complement


def link_of(link: str, mu: Array) -> Array:
    """Return the linear predictor of a mean.

    >>> link_of("cloglog", mean_of("cloglog", np.array([0.5]))).round(4)
    array([0.5])
    """
    found: Array
    if link == "identity":
        found = mu
    elif link == "log":
        found = np.log(mu)
    elif link == "log(mu-1)":
        found = np.log(mu - 1.0)
    elif link == "inverse":
        found = 1.0 / mu
    elif link == "1/mu^2":
        found = mu**-2.0
    elif link == "sqrt":
        found = np.sqrt(mu)
    elif link == "logit":
        found = logit(mu)
    elif link == "probit":
        found = ndtri(mu)
    else:
        found = np.log(-np.log1p(-mu))
    return found
