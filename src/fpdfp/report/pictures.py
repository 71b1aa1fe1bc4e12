"""The volumes of CT runs for the page: as many bits and voxels as fit, with the quality of every slice."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fpdfp._typing import Array
from fpdfp.errors import RunFolderError
from fpdfp.report.plain import number
from fpdfp.report.quality import slice_psnr, ssim
from fpdfp.runs import SavedRun

#: The page holds so many bytes of volumes, before base64.
LIMIT = 20_000_000


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
    """Return bits of a voxel and how many voxels a side become one, so that all fit into so many bytes.

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
    """Return the means of cubes of so many voxels a side; at the far ends the cubes may be cut.

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
