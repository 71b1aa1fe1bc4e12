"""The volumes of CT runs for the page: as many bits and voxels as fit, with the quality of every slice."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import RunFolderError
from fpdfp.report.sections import number
from fpdfp.runs import SavedRun

#: The page holds this many bytes of volumes, before base64.
LIMIT = 20_000_000
#: The Gaussian window of the paper: 11 × 11 pixels with a standard deviation of 1.5.
SIGMA, RADIUS = 1.5, 5
#: The constants that avoid 0/0, relative to the peak.
K1, K2 = 0.01, 0.03


class Volumes(NamedTuple):
    """The reconstruction of a run, the truth if it is known, and how near each slice is."""

    image: Array
    truth: Array | None
    psnr: list[list[float | None]]
    ssim: list[list[float | None]]


def volumes_of(run: SavedRun) -> Volumes | None:
    """Return the volumes of a CT run; None for other runs and before there are any."""
    if run.info.get("kind") != "ct":
        return None
    try:
        image, truth = run.x, run.truth
    except RunFolderError:
        return None
    if image is None:
        return None
    if truth is not None and image.shape != truth.shape and image.size == truth.size:
        image = image.reshape(truth.shape)
    if image.ndim != 3 or image.size == 0 or not np.isfinite(image).all():
        return None
    if truth is None or truth.shape != image.shape or not np.isfinite(truth).all():
        return Volumes(image, None, [], [])
    psnr = [[number(value) for value in slice_psnr(image, truth, axis=axis).tolist()] for axis in range(3)]
    similar = [[number(value) for value in ssim(image, truth, axis=axis).tolist()] for axis in range(3)]
    return Volumes(image, truth, psnr, similar)


def pack(found: Mapping[str, Volumes], limit: int = LIMIT) -> dict[str, Any]:
    """Return the volumes of runs, by their identities, as the page wants them: each array once, in base64."""
    arrays: dict[str, Array] = {}
    runs = []
    for identity, one in found.items():
        names: dict[str, str | None] = {"truth": None, "image": _digest(one.image)}
        arrays[_digest(one.image)] = one.image
        if one.truth is not None:
            names["truth"] = _digest(one.truth)
            arrays[_digest(one.truth)] = one.truth
        runs.append({"run": identity, **names, "psnr": one.psnr, "ssim": one.ssim, "shape": list(one.image.shape)})
    bits, factor = choose_size(sum(array.size for array in arrays.values()), limit)
    return {
        "runs": runs,
        "volumes": {name: _volume(array, bits, factor) for name, array in arrays.items()},
        "bits": bits,
        "factor": factor,
    }


def choose_size(voxels: int, limit: int) -> tuple[int, int]:
    """Return bits of a voxel and how many voxels a side become one, so that all fit into a given number of bytes.

    >>> choose_size(1_000_000, 20_000_000), choose_size(15_000_000, 20_000_000), choose_size(30_000_000, 20_000_000)
    ((16, 1), (8, 1), (16, 2))
    """
    if 2 * voxels <= limit:
        return 16, 1
    if voxels <= limit:
        return 8, 1
    factor = 2
    while 2 * voxels > limit * factor**3:
        factor += 1
    return 16, factor


def coarser(volume: Array, factor: int) -> Array:
    """Return the means of cubes of a given number of voxels a side; at the far ends the cubes may be cut.

    >>> coarser(np.arange(4.0).reshape(4, 1, 1), 2).ravel()
    array([0.5, 2.5])
    """
    for axis, length in enumerate(volume.shape):
        starts = np.arange(0, length, factor)
        counts = np.diff(np.append(starts, length)).reshape([-1 if i == axis else 1 for i in range(3)])
        volume = np.add.reduceat(volume, starts, axis=axis) / counts
    return volume


def _volume(volume: Array, bits: int, factor: int) -> dict[str, Any]:
    if factor > 1:
        volume = coarser(volume.astype(np.float64), factor)
    low, high = float(volume.min()), float(volume.max())
    top = 2**bits - 1
    scaled = np.rint((volume.astype(np.float64) - low) * (top / ((high - low) or 1.0)))
    data = np.ascontiguousarray(scaled, dtype=f"<u{bits // 8}").tobytes()
    return {"shape": list(volume.shape), "low": low, "high": high, "data": base64.b64encode(data).decode()}


def _digest(array: Array) -> str:
    contents = np.ascontiguousarray(array)
    return hashlib.sha256(f"{contents.shape} {contents.dtype}".encode() + contents.tobytes()).hexdigest()[:16]


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
