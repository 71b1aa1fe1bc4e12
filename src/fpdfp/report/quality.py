"""The quality of the slices of a volume, compared with those of the truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array

#: The Gaussian window of the paper: 11 × 11 pixels with a standard deviation of 1.5.
SIGMA, RADIUS = 1.5, 5
#: The constants that avoid 0/0, relative to the peak.
K1, K2 = 0.01, 0.03


def ssim(a: Any, b: Any, *, axis: int = 2, peak: float | None = None) -> Array:
    """Return the structural similarity of each slice of two volumes: 1 where they are the same.

    It is the mean over pixels of the index of Z. Wang, A. C. Bovik, H. R. Sheikh and E. P. Simoncelli, "Image quality
    assessment: from error visibility to structural similarity", IEEE Transactions on Image Processing, 2004, with their
    Gaussian window and constants. At the border the image is extended by its mirror image.

    Parameters
    ----------
    a, b
        Volumes of the same shape, or images, which have one slice.
    axis
        The axis that counts the slices of a volume.
    peak
        The range of the values; by default the range of ``b``, the truth.

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.zeros((16, 16, 2))
    >>> truth[4:12, 4:12] = 1.0
    >>> ssim(truth, truth)
    array([1., 1.])
    >>> noisy = truth.copy()
    >>> noisy[:, :, 1] += 0.1 * np.random.default_rng(0).standard_normal((16, 16))
    >>> ssim(noisy, truth).round(2)
    array([1.  , 0.64])
    """
    from scipy.ndimage import gaussian_filter

    found, truth = _slices(a, b, axis)
    height = _range(truth) if peak is None else _checks.real("peak", peak, positive=True)
    c1, c2 = (K1 * height) ** 2, (K2 * height) ** 2

    def mean(values: Array) -> Array:
        smooth: Array = gaussian_filter(values, (0, SIGMA, SIGMA), radius=(0, RADIUS, RADIUS), mode="reflect")
        return smooth

    mean_a, mean_b = mean(found), mean(truth)
    variances = mean(found * found) - mean_a**2 + mean(truth * truth) - mean_b**2
    covariance = mean(found * truth) - mean_a * mean_b
    index = (2 * mean_a * mean_b + c1) * (2 * covariance + c2) / ((mean_a**2 + mean_b**2 + c1) * (variances + c2))
    means: Array = index.mean(axis=(1, 2))
    return means


def slice_psnr(a: Any, b: Any, *, axis: int = 2, peak: float | None = None) -> Array:
    """Return the peak signal-to-noise ratio of each slice in dB; infinite where a slice is exact.

    ``peak`` is the largest value that the truth ``b`` may have, by default the largest that it has in any slice.

    >>> slice_psnr(np.full((2, 2, 1), 0.9), np.ones((2, 2, 1))).round(6)
    array([20.])
    """
    found, truth = _slices(a, b, axis)
    height = float(np.abs(truth).max()) or 1.0 if peak is None else _checks.real("peak", peak, positive=True)
    errors = np.square(found - truth).mean(axis=(1, 2))
    return np.array([math.inf if error == 0 else 10 * math.log10(height**2 / error) for error in errors])


def _slices(a: Any, b: Any, axis: int) -> tuple[Array, Array]:
    """Check two volumes and return them with the axis of the slices in front."""
    found, truth = _checks.float_array("a", a).astype(np.float64), _checks.float_array("b", b).astype(np.float64)
    if truth.ndim not in (2, 3) or truth.size == 0:
        raise ValueError(f"b must be an image or a volume that is not empty, got the shape {truth.shape}")
    if found.shape != truth.shape:
        raise ValueError(f"a must have the shape {truth.shape} of b, got {found.shape}")
    if truth.ndim == 2:
        return found[None], truth[None]
    axis = _checks.integer("axis", axis, at_least=0, at_most=2)
    return np.moveaxis(found, axis, 0), np.moveaxis(truth, axis, 0)


def _range(values: Array) -> float:
    """The range of the values, or 1 where they are all the same."""
    return float(values.max() - values.min()) or 1.0
