"""Cohorts of images with a known map of coefficients."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, IntArray
from fpdfp.errors import ArgumentError


class ImageCohort(NamedTuple):
    """Subjects with images and outcomes at several sites, and the map that made the outcomes.

    Attributes
    ----------
    images
        float32, ``(subjects, voxels of the mask)``.
    outcomes
        0 or 1, or numbers.
    sites
        The site of each subject.
    mask
        The voxels that have values: an ellipse or an ellipsoid.
    truth
        The map, in the shape of the mask.
    """

    images: Array
    outcomes: Array
    sites: IntArray
    mask: Array
    truth: Array


def image_cohort(
    shape: Any = (16, 16, 16),
    *,
    subjects: int = 200,
    sites: int = 5,
    family: Literal["binomial", "gaussian"] = "binomial",
    smoothing: float = 1.0,
    noise: float = 0.5,
    seed: int = 0,
) -> ImageCohort:
    """Return a cohort whose outcomes depend on a ball of positive and a box of negative coefficients.

    Images are smoothed noise; the images of each site are shifted and scaled a little, as from different scanners.

    Parameters
    ----------
    shape
        The voxels along each of 2 or 3 axes, at least 8.
    subjects, sites
        How many there are; sites have different sizes.
    family
        The outcomes: ``"binomial"`` or ``"gaussian"``.
    smoothing
        The standard deviation of the smoothing, in voxels.
    noise
        The standard deviation of what the map does not explain, relative to what it does.
    seed
        The seed of the random numbers.

    Examples
    --------
    >>> import fpdfp
    >>> cohort = fpdfp.datasets.image_cohort((12, 12), subjects=50, sites=2)
    >>> cohort.images.shape[0], cohort.mask.shape, sorted(set(cohort.sites.tolist()))
    (50, (12, 12), [0, 1])
    """
    from scipy.ndimage import gaussian_filter

    lengths = _checks.shape("shape", shape)
    if len(lengths) not in (2, 3) or min(lengths) < 8:
        raise ArgumentError("shape", f"must have 2 or 3 axes of at least 8 voxels, got {lengths}")
    _checks.choice("family", family, ("binomial", "gaussian"))
    count = _checks.integer("subjects", subjects, at_least=1)
    places = _checks.integer("sites", sites, at_least=1)
    width = _checks.real("smoothing", smoothing, at_least=0.0)
    spread = _checks.real("noise", noise, at_least=0.0)
    rng = np.random.default_rng(_checks.integer("seed", seed, at_least=0))
    grid = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in lengths), indexing="ij"))
    mask = (grid**2).sum(axis=0) <= 1.1

    def away(*centre: float) -> Array:
        middle = np.array(centre[: len(lengths)]).reshape(-1, *[1] * len(lengths))
        distances: Array = grid - middle
        return distances

    truth = np.zeros(lengths)
    truth[np.sqrt((away(0.4, 0.2, 0.0) ** 2).sum(axis=0)) < 0.35] = 1.0
    truth[(abs(away(-0.4, -0.3, 0.2)) < 0.25).all(axis=0)] = -1.0
    truth[~mask] = 0.0
    # The first sites are the largest.
    shares = 1.0 / (1.0 + np.arange(places))
    owners = np.sort(rng.choice(places, size=count, p=shares / shares.sum()))
    images = np.empty((count, int(mask.sum())), dtype=np.float32)
    for image in images:
        image[:] = gaussian_filter(rng.standard_normal(lengths, dtype=np.float32), width)[mask]
    images /= images.std()
    images *= rng.uniform(0.9, 1.1, places).astype(np.float32)[owners, None]
    images += rng.uniform(-0.1, 0.1, places).astype(np.float32)[owners, None]
    signal = images @ truth[mask].astype(np.float32)
    signal = (signal - signal.mean()) / max(float(signal.std()), 1e-30)
    values = signal + spread * rng.standard_normal(count)
    outcomes: Array = (values > 0).astype(np.int64) if family == "binomial" else values.astype(np.float64)
    return ImageCohort(images, outcomes, owners, mask, truth)
