"""Whether sites differ: their own coefficients to first order, and one test of all, from the sums of the common fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError
from fpdfp.inference.hypotheses import HypothesisTest, judge
from fpdfp.inference.information import SINGULAR, Information, add_up, as_sites
from fpdfp.inference.table import Table

#: How the estimates of sites are made here.
ONE_STEP = "of a site, by one Newton step from the common fit"
#: The kinds of standard errors that a site has by itself.
SiteErrors: TypeAlias = Literal["model", "HC0", "HC1", "robust"]
#: A coefficient is a site's own business if at most this part of it lies where the site has no information.
ESTIMABLE = 1e-8


def site_tables(
    names: Sequence[str],
    coefficients: Array,
    sites: Sequence[Information],
    *,
    has_dispersion: bool,
    errors: SiteErrors = "model",
    level: float = 0.95,
    exponentiate: bool = False,
) -> list[Table | None]:
    """Return each site's own coefficients, by one Newton step from the common fit.

    For least squares these are the site's own fit. For other families they are near it where the site does not differ
    much from all (the error is of second order in the difference), and no further exchange is needed.

    Parameters
    ----------
    names, coefficients
        Of the common fit.
    sites
        The sums of each site at these coefficients.
    has_dispersion
        Whether the family has a dispersion, which is then estimated at each site.
    errors
        ``"model"``, or ``"HC0"`` for robust ones; ``"HC1"``, also called ``"robust"``, with the factor n/(n − p).
    level, exponentiate
        As of :class:`Table`.

    Returns
    -------
    list of Table or None
        With the coefficients that the rows of the site determine, or None without enough rows.

    Examples
    --------
    Two sites with means 1 and 3, and a common mean of 2:

    >>> sums = [Information.of_rows(np.ones((4, 1)), slopes, np.ones(4), weight=4, pearson=(slopes**2).sum())
    ...         for slopes in (np.array([-2.0, 0.0, -1.0, -1.0]), np.array([2.0, 0.0, 1.0, 1.0]))]
    >>> [table.coefficients.tolist() for table in site_tables(["mean"], np.array([2.0]), sums, has_dispersion=True)]
    [[1.0], [3.0]]
    """
    _checks.choice("errors", errors, get_args(SiteErrors))
    tables: list[Table | None] = []
    for site in as_sites(sites):
        inverse, kept, rank = _pseudo_inverse(site.hessian)
        left = site.rows - rank
        if not len(kept) or ((has_dispersion or errors in ("HC1", "robust")) and left < 1):
            tables.append(None)
            continue
        step = inverse @ site.score
        # What remains of Pearson's sum after the step, exactly so for least squares.
        dispersion = max(site.pearson - float(site.score @ step), 0.0) / left if has_dispersion else 1.0
        spread = dispersion * inverse if errors == "model" else _robust(site, inverse)
        spread = spread * site.rows / left if errors in ("HC1", "robust") else spread
        tables.append(
            Table(
                [names[j] for j in kept],
                (coefficients + step)[kept],
                spread[np.ix_(kept, kept)],
                df=float(left) if has_dispersion else None,
                errors=ONE_STEP + {"model": "", "HC0": "; robust (HC0)"}.get(errors, "; robust (HC1)"),
                level=level,
                exponentiate=exponentiate,
            )
        )
    return tables


def homogeneity_test(sites: Sequence[Information], *, has_dispersion: bool) -> HypothesisTest:
    """Test that all sites have the same coefficients, from their scores at the common fit without a penalty.

    Σ Sᵀ H⁻¹ S over the sites: the score test, which for least squares is the F test of Chow (1960). Coefficients that
    only one site determines, as an intercept of each site, do not count.

    Parameters
    ----------
    sites
        The sums of each site at the coefficients of the common fit.
    has_dispersion
        Whether the family has a dispersion.

    Examples
    --------
    >>> sums = [Information.of_rows(np.ones((4, 1)), slopes, np.ones(4), weight=4, pearson=(slopes**2).sum())
    ...         for slopes in (np.array([-2.0, 0.0, -1.0, -1.0]), np.array([2.0, 0.0, 1.0, 1.0]))]
    >>> homogeneity_test(sums, has_dispersion=True)
    the same coefficients at all sites: F = 12.00 on 1 and 6 degrees of freedom, p = 0.013
    """
    found = as_sites(sites)
    total = add_up(found)
    gain, ranks = 0.0, 0
    for site in found:
        inverse, _, rank = _pseudo_inverse(site.hessian)
        gain += float(site.score @ inverse @ site.score)
        ranks += rank
    df = ranks - _pseudo_inverse(total.hessian)[2]
    if df < 1:
        raise ArgumentError("sites", "must be at least two that determine a coefficient in common")
    name = "the same coefficients at all sites"
    if not has_dispersion:
        return judge(name, gain, df, None)
    left = total.rows - ranks
    if left < 1:
        raise ArgumentError(
            "sites", f"must have more rows than the {ranks} coefficients of all sites, got {total.rows}"
        )
    return judge(name, gain / ((total.pearson - gain) / left), df, float(left))


def _robust(site: Information, inverse: Array) -> Array:
    """Return the robust covariance of a site's own coefficients: at the common ones, scores do not add up to zero."""
    if site.meat is None:
        raise ArgumentError("errors", "'HC0' needs the sum of squared scores (meat), which some sites did not send")
    robust: Array = inverse @ (site.meat - np.outer(site.score, site.score) / site.rows) @ inverse
    return robust


def _pseudo_inverse(hessian: Array) -> tuple[Array, Array, int]:
    """Return the inverse where a site has information, the coefficients that it determines, and the rank."""
    diagonal = np.diag(hessian)
    scale = np.where(diagonal > 0, 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
    values, vectors = np.linalg.eigh(hessian * np.outer(scale, scale))
    good = values > SINGULAR * len(hessian)
    inverse = (vectors[:, good] / values[good]) @ vectors[:, good].T * np.outer(scale, scale)
    outside = (vectors[:, ~good] ** 2).sum(axis=1)
    return inverse, np.flatnonzero((outside < ESTIMABLE) & (diagonal > 0)), int(good.sum())
