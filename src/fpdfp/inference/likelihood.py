"""Log-likelihoods at an estimated dispersion, and information criteria, from sums."""

from __future__ import annotations

import math

from fpdfp import _checks
from fpdfp.inference.information import Information


def log_likelihood(total: Information, family: str, dispersion: float | None = None) -> float:
    """Return the log-likelihood of all rows at a dispersion, from the sum at dispersion 1.

    Parameters
    ----------
    total
        The sums of all sites.
    family
        ``"gaussian"``, ``"gamma"`` or ``"inverse gaussian"``; the sum itself is returned for others without a
        dispersion, and NaN for those, as Tweedie, whose density has no closed form.
    dispersion
        By default the deviance divided by the number of rows, or for the last two families by the sum of weights. This
        is what R computes its AIC from: the maximum-likelihood estimate, for the gamma family nearly so.

    Examples
    --------
    Four residuals of 1 about their mean:

    >>> import numpy as np
    >>> at_one = float(-0.5 * (4.0 + 4 * np.log(2 * np.pi)))
    >>> total = Information(4, 4.0, at_one, 4.0, 4.0, np.zeros(1), np.eye(1))
    >>> round(log_likelihood(total, "gaussian", 4.0), 4)
    -6.9483
    """
    name = family.lower().replace("_", " ").replace(".", " ").replace("-", " ")
    if name not in ("gaussian", "gamma", "inverse gaussian", "tweedie"):
        return total.log_likelihood
    if name == "tweedie":
        return math.nan
    count = float(total.rows) if name == "gaussian" else total.weight
    if dispersion is None:
        dispersion = total.deviance / count
        if dispersion == 0:
            return math.inf
    phi = _checks.real("dispersion", dispersion, positive=True)
    # All three densities have a factor exp(−d/(2φ)), with d the unit deviance.
    found = total.log_likelihood + total.deviance / 2.0 * (1.0 - 1.0 / phi)
    if name != "gamma":
        return found - count / 2.0 * math.log(phi)
    shape = 1.0 / phi
    return found + count * (shape * math.log(shape) - math.lgamma(shape) - shape + 1.0)


def information_criteria(log_likelihood: float, parameters: int, rows: int) -> tuple[float, float]:
    """Return Akaike's and the Bayesian information criterion; an estimated dispersion is one of the parameters.

    >>> information_criteria(-10.0, 3, 100)[0]
    26.0
    """
    return 2.0 * parameters - 2.0 * log_likelihood, math.log(rows) * parameters - 2.0 * log_likelihood
