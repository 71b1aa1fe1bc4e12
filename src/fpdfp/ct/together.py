"""One object at several machines: scans with their own geometry and dose, reconstructed together by their sites."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.ct.geometry import ConeBeam, check_geometry
from fpdfp.ct.losses import ProjectionLosses
from fpdfp.ct.projector import XRayTransform
from fpdfp.ct.rectify import rectify_checked
from fpdfp.ct.scans import check_projections, check_ray_weights
from fpdfp.ct.weight import absolute_weight, left_out, ramp_power
from fpdfp.engines.result import Result
from fpdfp.engines.solve import solve
from fpdfp.errors import ArgumentError
from fpdfp.linops import Gradient, Identity, VStack
from fpdfp.penalties import GroupL12, NonNegative, Stacked
from fpdfp.problem import Problem

#: The weights that sites score.
WEIGHTS = tuple(10.0**power for power in (-4.0, -3.5, -3.0, -2.5, -2.0, -1.5))


class Site(NamedTuple):
    """The scan of one site: views of upright panels, their geometry, and the weights of their rays."""

    projections: Array
    geometry: ConeBeam
    ray_weights: Array


@dataclasses.dataclass(frozen=True)
class Together:
    """A volume that several sites have reconstructed.

    Attributes
    ----------
    volume
        The volume.
    tv
        The weight of the total variation, relative to the data.
    curves
        The weights that were tried, and the scores of each site: ``(1 + sites, n)``. Empty for a given weight.
    result
        The run of :func:`fpdfp.solve`, with every bit that was sent.
    """

    volume: Array
    tv: float
    curves: Array
    result: Result


def reconstruct_together(
    scans: Sequence[tuple[Any, ...]],
    *,
    tv: float | Literal["auto"] = "auto",
    nonnegative: bool = True,
    rounds: int = 30,
    seed: int = 0,
    progress: bool | None = False,
) -> Together:
    r"""Reconstruct one object from the scans of several sites, which keep their views.

    .. math:: \min_x \frac{1}{2V} \sum_{\text{sites}} \sum_{\text{rays}} w_r \left((Ax)_r - b_r\right)^2
              + \text{weight} \sum_{\text{voxels}} \|\nabla x\|

    with V the number of views of all sites. The scans have the same volume, and the object is at the same place in it;
    everything else may differ: distances, angles, panels, pixels and doses. Each site calibrates its scan by itself
    (:func:`fpdfp.ct.calibrate`). Views of tilted panels are resampled to upright ones.

    ``tv="auto"`` chooses the weight together. Each site excludes every fifth of its views, all sites reconstruct from
    the others with several weights, and each sends its score of its excluded views for each weight, nothing else. The
    weight with the smallest sum of scores, relative to their minima, is used for all views.

    Parameters
    ----------
    scans
        For each site ``(projections, geometry)`` or ``(projections, geometry, ray_weights)``.
    tv
        The weight, relative to the data as in :func:`fpdfp.ct.reconstruct`.
    nonnegative
        Whether to require x ≥ 0.
    rounds
        Communication rounds of each reconstruction.
    seed
        The seed of the quantizers.
    progress
        Whether to show a progress bar.

    Examples
    --------
    >>> import fpdfp
    >>> how = dict(views=12, source=60.0)
    >>> scans = [fpdfp.ct.ConeBeam.circular((12, 12, 6), (18, 10), panel=panel, **how) for panel in (80.0, 95.0)]
    >>> views = [fpdfp.ct.phantoms.thorax(scans[0]).project(scan) for scan in scans]
    >>> found = fpdfp.ct.reconstruct_together(list(zip(views, scans)), tv=0.01, rounds=10)
    >>> found.volume.shape
    (12, 12, 6)
    """
    if not isinstance(scans, Sequence) or not scans:
        raise ArgumentError("scans", "must be a list of (projections, geometry) or of these and weights of rays")
    sites = [_site(number, scan) for number, scan in enumerate(scans)]
    if len({(site.geometry.volume, site.geometry.voxel, site.geometry.centre) for site in sites}) > 1:
        raise ArgumentError("scans", "must have the same volume, voxels and centre at all sites")
    count = _checks.integer("rounds", rounds, at_least=1)
    curves = np.empty((1 + len(sites), 0))
    if isinstance(tv, str):
        if tv != "auto":
            raise ArgumentError("tv", f"must be a number of at least 0, or 'auto', got {tv!r}")
        if min(site.geometry.n_views for site in sites) < 10:
            raise ArgumentError("tv", "must be a number where a site has less than 10 views, got 'auto'")
        parts = [left_out(site.geometry.n_views) for site in sites]
        kept = [_some(site, own) for site, (own, _) in zip(sites, parts, strict=True)]
        others = [_some(site, left) for site, (_, left) in zip(sites, parts, strict=True)]
        rows = []
        for weight in WEIGHTS:
            x = _solve(kept, weight, nonnegative, count, seed, progress).x
            rows.append([weight, *(_score(site, x) for site in others)])
        curves = np.array(rows).T
        relative = curves[1:] / curves[1:].min(axis=1, keepdims=True)
        tv = float(curves[0, int(relative.sum(axis=0).argmin())])
    result = _solve(sites, _checks.real("tv", tv, at_least=0.0), nonnegative, count, seed, progress)
    return Together(np.asarray(result.x), tv, curves, result)


def _site(number: int, scan: Any) -> Site:
    if not isinstance(scan, tuple) or len(scan) not in (2, 3):
        raise ArgumentError("scans", f"must hold (projections, geometry[, ray_weights]), but entry {number} does not")
    geometry = check_geometry(scan[1])
    data = np.asarray(check_projections(scan[0], geometry), dtype=np.float32)
    weights = np.ones(geometry.data_shape, dtype=np.float32)
    if len(scan) == 3 and scan[2] is not None:
        weights = check_ray_weights(scan[2], geometry, np)
    straight, upright = rectify_checked(data, geometry)
    return Site(straight, upright, np.clip(rectify_checked(weights, geometry, order=1)[0], 0.0, None))


def _some(site: Site, views: Array) -> Site:
    return Site(site.projections[views], site.geometry.subset(views), site.ray_weights[views])


def join(sites: Sequence[Site]) -> tuple[Site, Array]:
    """Return all scans as one, on panels of the largest number of pixels, and the site of each view.

    Pixels that a site does not have get the weight 0.
    """
    nu, nv = (max(site.geometry.detector[axis] for site in sites) for axis in (0, 1))
    data, weights, panels = [], [], []
    for site in sites:
        a, b = site.geometry.detector
        beyond = ((0, 0), (0, nu - a), (0, nv - b))
        data.append(np.pad(site.projections, beyond))
        weights.append(np.pad(site.ray_weights, beyond))
        # The centre of the larger panel.
        panels.append(site.geometry.panels + 0.5 * (nu - a) * site.geometry.u + 0.5 * (nv - b) * site.geometry.v)
    of: dict[str, Any] = {
        name: np.concatenate([getattr(site.geometry, name) for site in sites]) for name in ("sources", "u", "v")
    }
    geometry = dataclasses.replace(sites[0].geometry, detector=(nu, nv), panels=np.concatenate(panels), **of)
    owners = np.repeat(np.arange(len(sites)), [site.geometry.n_views for site in sites])
    return Site(np.concatenate(data), geometry, np.concatenate(weights)), owners


def _solve(
    sites: Sequence[Site], tv: float, nonnegative: bool, rounds: int, seed: int, progress: bool | None
) -> Result:
    whole, owners = join(sites)
    # The unit of the weight: a mean over sites of numbers that each can tell.
    views = whole.geometry.n_views
    shares = [site.geometry.n_views / views for site in sites]
    each = [absolute_weight(tv, site.projections, site.geometry) for site in sites]
    weight = math.fsum(share * one for share, one in zip(shares, each, strict=True))
    losses = ProjectionLosses(whole.projections, whole.geometry, owners, ray_weights=whole.ray_weights)
    shape = whole.geometry.volume
    linop, penalty = Gradient(shape), GroupL12(weight, axis=0)
    weights = np.full(len(sites), 1.0 / views)
    if not nonnegative:
        return solve(Problem(losses, penalty, linop, weights=weights), rounds=rounds, seed=seed, progress=progress)
    both = Stacked([penalty, NonNegative()], [linop.out_shape, shape])
    problem = Problem(losses, both, VStack([linop, Identity(shape)]), weights=weights)
    return solve(problem, rounds=rounds, seed=seed, progress=progress)


def _score(site: Site, x: Array) -> float:
    """Return the ramp-weighted power of a site's residual, as in the choice of the weight by one site."""
    residual = XRayTransform(site.geometry).apply(np.asarray(x, dtype=np.float32)) - site.projections
    return ramp_power(residual * np.sqrt(site.ray_weights))
