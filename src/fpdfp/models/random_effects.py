"""Random intercepts of sites: their variance, from the effects and the information at a penalised fit.

Penalised quasi-likelihood (N. E. Breslow and D. G. Clayton, 1993) replaces the losses near a fit by their quadratic
model, in which intercepts b of sites with a normal distribution of variance σ² are a ridge with weight λ = φ/σ². With
C = (H + λD)⁻¹, D the diagonal of ones for b, the variance and the dispersion φ are where

    σ² = ‖b‖² / (S − λ tr C_bb),   φ = Σ w (y − μ)²/V / (n − tr HC)

for S sites: the equations of restricted maximum likelihood (R. Schall, 1991), which for the gaussian family are exact.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.inference import Information

#: The most runs, the change of log λ at which they have settled, and the same for the steps of the server.
STEPS, SETTLED = 50, 1e-6
SERVER_STEPS, SERVER_SETTLED = 5000, 1e-10
#: Where the ridge is so much larger than the information of any effect, the variance is 0.
VANISHED = 1e7


class Sums(NamedTuple):
    """Sums of all sites at a fit: coefficients, score, information, other ridges, Pearson's sum, rows.

    Only of columns that are not kept at zero; the last ones, ``effects`` of them, belong to sites.
    """

    x: Array
    score: Array
    information: Array
    ridge: Array
    pearson: float
    rows: int
    effects: int


class Variances(NamedTuple):
    """The ridge λ, the variance of the effects (0 where they vanish), and the dispersion."""

    ridge: float
    variance: float
    dispersion: float


def estimate(sums: Sums, ridge: float, *, has_dispersion: bool) -> Variances:
    """Return the variances that fit the quadratic model at a minimum with the given ridge, by steps of Schall's.

    >>> rng = np.random.default_rng(0)
    >>> y = 2.0 + np.repeat(rng.standard_normal(30), 4) + 0.5 * rng.standard_normal(120)
    >>> X = np.column_stack([np.ones(120), np.repeat(np.eye(30), 4, axis=0)])
    >>> penalty = np.append(0.0, np.ones(30))
    >>> x = np.linalg.solve(X.T @ X + np.diag(penalty), X.T @ y)
    >>> sums = Sums(x, X.T @ (y - X @ x), X.T @ X, np.zeros(31), ((y - X @ x) ** 2).sum(), 120, 30)
    >>> found = estimate(sums, 1.0, has_dispersion=True)
    >>> groups = y.reshape(30, 4)
    >>> between, within = 4 * groups.mean(axis=1).var(ddof=1), groups.var(axis=1, ddof=1).mean()
    >>> bool(abs(found.dispersion - within) < 1e-6 and abs(found.variance - (between - within) / 4) < 1e-6)
    True
    """
    own = np.zeros(len(sums.x))
    own[len(own) - sums.effects :] = 1.0
    fixed = sums.information + np.diag(sums.ridge)
    most = VANISHED * float(np.diag(sums.information)[own > 0].max())
    start, dispersion = ridge, 1.0
    for _ in range(SERVER_STEPS):
        C = np.linalg.pinv(fixed + ridge * np.diag(own), hermitian=True)
        step = -(C @ ((ridge - start) * own * sums.x))
        effects = (sums.x + step)[own > 0]
        if has_dispersion:
            left = sums.pearson - 2.0 * float(sums.score @ step) + float(step @ sums.information @ step)
            dispersion = left / max(sums.rows - float(np.trace(sums.information @ C)), 1e-8)
        freedom = sums.effects - ridge * float(np.diag(C)[own > 0].sum())
        variance = float(effects @ effects) / max(freedom, 1e-12)
        if variance * most <= dispersion:
            return Variances(most, 0.0, dispersion)
        before, ridge = ridge, dispersion / variance
        if abs(np.log(ridge / before)) <= SERVER_SETTLED:
            break
    return Variances(ridge, variance, dispersion)


def integrate(sites: list[Information], effects: int, found: Variances) -> list[Information]:
    """Return the sums of each site for the coefficients of features alone, with its own effect integrated out.

    Their Hessians add up to XᵀV⁻¹X, whose inverse has the variances of fixed effects in a mixed model. Pearson's sums
    are scaled to the dispersion of the mixed model.
    """
    kept = sites[0].parameters - effects
    rows, pearson = sum(site.rows for site in sites), sum(site.pearson for site in sites)
    share = found.dispersion * (rows - kept) / pearson if pearson > 0 else 1.0
    made = []
    for number, site in enumerate(sites):
        own = kept + number
        link = site.hessian[:kept, own]
        hessian = site.hessian[:kept, :kept] - np.outer(link, link) / (site.hessian[own, own] + found.ridge)
        made.append(
            dataclasses.replace(
                site,
                score=site.score[:kept],
                hessian=hessian,
                meat=None,
                pearson=share * site.pearson,
                log_likelihood=np.nan,
            )
        )
    return made
