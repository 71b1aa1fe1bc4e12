"""Covariances of unpenalised estimates: of the model, robust, and clustered by site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.errors import ArgumentError, DataWarning
from fpdfp.inference.information import Information, add_up, as_sites, invert

#: The kinds of standard errors.
Kind: TypeAlias = Literal["model", "HC0", "HC1", "robust", "sites", "jackknife"]
KINDS: tuple[str, ...] = get_args(Kind)

#: Errors that are clustered by site need as many sites at least, …
LEAST_SITES = 3
#: … and with fewer than these are known to be too small.
MANY_SITES = 30


def covariance(
    sites: Information | Sequence[Information],
    dispersion: float = 1.0,
    errors: Kind = "model",
    *,
    names: Sequence[str] | None = None,
) -> Array:
    """Return the covariance of the coefficients of a fit without a penalty.

    With H the summed Hessian, n the rows, p the coefficients, s the score of a row and S the score of a site:

    - ``"model"``: φ H⁻¹, with φ the dispersion. Right if the model is.
    - ``"HC0"``: H⁻¹ (Σ s sᵀ) H⁻¹, right for large n even if the variance function is not; ``"HC1"``, also called
      ``"robust"``, has the factor n/(n − p).
    - ``"sites"``: H⁻¹ (Σ S Sᵀ) H⁻¹ · m/(m − 1) · (n − 1)/(n − p) for m sites, right for many sites even if the rows of
      a site depend on each other. Refused for fewer than 3 sites; a warning is given for fewer than 30.
    - ``"jackknife"``: (m − 1)/m Σ δ δᵀ where δ = (H − H_site)⁻¹ S is the change, to first order, of leaving a site out
      (known as CR3). It has the purpose of ``"sites"``, and is larger, which is better when there are few.

    Parameters
    ----------
    sites
        The sums of each site; their total is enough for all but the last two.
    dispersion
        φ; used by ``"model"`` alone.
    errors
        The kind, as above.
    names
        Of the coefficients, for errors.

    Returns
    -------
    numpy.ndarray
        Of shape (p, p).

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0], [1.0, 4.0]])
    >>> residuals = np.array([1.0, -2.0, 1.0, 0.0])
    >>> site = Information.of_rows(rows, residuals, np.ones(4), weight=4.0, pearson=(residuals**2).sum())
    >>> np.sqrt(np.diag(covariance(site, site.dispersion()))).round(3).tolist()
    [1.342, 0.586]
    """
    _checks.choice("errors", errors, KINDS)
    found = as_sites(sites)
    total = add_up(found)
    if errors in ("sites", "jackknife"):
        _check_sites(found, errors)
    if errors == "jackknife":
        return _jackknife(found, total, names)
    bread = invert(total.hessian, names)
    if errors == "model":
        bread *= _checks.real("dispersion", dispersion, at_least=0.0)
        return bread
    if errors == "sites":
        scores = np.array([site.score for site in found])
        scale = len(found) / (len(found) - 1) * _small_sample(total, total.rows - 1)
        return _sandwich(bread, scale * (scores.T @ scores))
    if total.meat is None:
        raise ArgumentError(
            "errors", f"{errors!r} needs the sum of squared scores (meat), which some sites did not send"
        )
    scale = 1.0 if errors == "HC0" else _small_sample(total, total.rows)
    return _sandwich(bread, scale * total.meat)


def _sandwich(bread: Array, meat: Array) -> Array:
    product = bread @ meat @ bread
    halved: Array = (product + product.T) / 2.0
    return halved


def _small_sample(total: Information, rows: int) -> float:
    """Return rows/(n − p)."""
    if total.rows <= total.parameters:
        raise ArgumentError("errors", f"needs more rows than the {total.parameters} coefficients, got {total.rows}")
    return rows / (total.rows - total.parameters)


def _check_sites(found: list[Information], errors: str) -> None:
    if len(found) < LEAST_SITES:
        raise ArgumentError(
            "errors", f"{errors!r} needs the sums of at least {LEAST_SITES} sites, each for itself, got {len(found)}"
        )
    if len(found) < MANY_SITES:
        advice = "" if errors == "jackknife" else "; errors='jackknife' is more careful"
        warn(
            f"errors clustered by site rest on {len(found)} sites: with fewer than {MANY_SITES} they tend to be too "
            f"small{advice}",
            DataWarning,
        )


def _jackknife(found: list[Information], total: Information, names: Sequence[str] | None) -> Array:
    """Return the covariance from excluding each site."""
    invert(total.hessian, names)  # if it is the whole that is singular, state it
    changes = []
    for number, site in enumerate(found):
        try:
            changes.append(invert(total.hessian - site.hessian, names) @ site.score)
        except ArgumentError as error:
            raise ArgumentError(
                "errors",
                f"'jackknife' excludes one site at a time, and without site {number} the Hessian {error.args[1]}",
            ) from None
    array = np.array(changes)
    jackknife: Array = (len(found) - 1) / len(found) * (array.T @ array)
    return jackknife
