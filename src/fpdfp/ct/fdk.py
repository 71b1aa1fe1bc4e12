"""Filtered back-projection of cone-beam scans on a circle (Feldkamp, Davis and Kress)."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, Literal

import numpy as np

from fpdfp import _checks, _cuda, _kernels
from fpdfp._array import namespace
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.ct.circle import Circle, circle, coverage, redundancy
from fpdfp.ct.geometry import ConeBeam
from fpdfp.ct.rectify import on_circle
from fpdfp.ct.scans import check_projections
from fpdfp.errors import AccuracyWarning

Window = Literal["ram-lak", "shepp-logan", "cosine", "hamming", "hann"]
WINDOWS: tuple[str, ...] = ("ram-lak", "shepp-logan", "cosine", "hamming", "hann")
#: Numbers that are filtered at a time, on the processor and on a GPU.
CHUNK, DEVICE_CHUNK = 1 << 22, 1 << 26


def fdk(projections: Any, geometry: ConeBeam, *, window: Window = "ram-lak") -> Array:
    """Reconstruct a volume from a scan on a circle by filtered back projection.

    Each view is weighted, filtered with a ramp along u, and back-projected. Up to sampling, the result is exact in the
    plane of the circle, and above and below it is more accurate the smaller the cone angle is. Full turns and short
    scans with any angles are supported, and so are detectors with an offset. If the panel sees a little more than one
    half of the object in a full turn, the views are weighted accordingly. Rows may run from the top. Views of tilted
    panels, and of sources and panels that are up to 1 % of the radius off a circle, are resampled to those of the
    nearest one.

    Parameters
    ----------
    projections
        Line integrals, ``(views, nu, nv)``, of NumPy or of CuPy, float32 or float64.
    geometry
        The scan.
    window
        What high frequencies are multiplied with: ``"ram-lak"`` (1), for the sharpest image, ``"shepp-logan"``,
        ``"cosine"``, ``"hamming"``, ``"hann"``, for the smoothest.

    Returns
    -------
    Array
        ``(nx, ny, nz)``, of the dtype and on the device of ``projections``.

    References
    ----------
    L. A. Feldkamp, L. C. Davis and J. W. Kress, "Practical cone-beam algorithm", J. Opt. Soc. Am. A 1 (1984);
    D. L. Parker, "Optimal short scan convolution reconstruction for fan beam CT", Med. Phys. 9 (1982); G. Wang, "X-ray
    micro-CT with a displaced detector array", Med. Phys. 29 (2002).

    Examples
    --------
    >>> import fpdfp
    >>> scan = fpdfp.ct.ConeBeam.circular((24, 24, 24), (48, 48), views=90, source=80.0, panel=120.0)
    >>> ball = fpdfp.ct.Ellipsoids([[0, 0, 0]], [[8, 8, 8]], [1.0])
    >>> image = fpdfp.ct.fdk(ball.project(scan), scan)
    >>> print(f"{image[10:14, 10:14, 10:14].mean():.2f}")
    1.00
    """
    _checks.choice("window", window, WINDOWS)
    return filter_projections(check_projections(projections, geometry), geometry, window)


def filter_projections(data: Array, geometry: ConeBeam, window: Window = "ram-lak") -> Array:
    """Do what :func:`fdk` does with projections that were checked."""
    data, geometry = on_circle(data, geometry)
    xp = namespace(data)
    return back_project_filtered(data, geometry, window, geometry, xp, CHUNK if xp is np else DEVICE_CHUNK)


def back_project_filtered(
    data: Array, geometry: ConeBeam, window: Window, part: ConeBeam, xp: ModuleType, most: int
) -> Array:
    """Filter the views of a scan on a circle, and back-project them into a part of its volume.

    Parameters
    ----------
    data, geometry, window
        As of :func:`fdk`.
    part
        The scan with the volume that is computed.
    xp
        NumPy, or CuPy for a GPU, where some views are moved at a time.
    most
        The numbers that are filtered at a time.
    """
    found = circle(geometry)
    nu, nv = geometry.detector
    columns = found.offset[0] + (np.arange(nu) - 0.5 * (nu - 1)) * found.pitch[0]
    rows = found.offset[1] + (np.arange(nv) - 0.5 * (nv - 1)) * found.pitch[1]
    cosines = found.distance / np.sqrt(found.distance**2 + columns[:, None] ** 2 + rows**2)
    weights = _view_weights(geometry, found, columns)
    before, after = _beyond(geometry)
    # A filtered value is at most this many columns from what it is made of.
    size, response = ramp(nu + max(before, after), found.pitch[0] * found.radius / found.distance, window)
    cosines, weights, response = (xp.asarray(array, dtype=data.dtype) for array in (cosines, weights, response))
    numbers = tables(part, found)
    numbers[:, 6] += before
    add = _kernels.fdk.back_project if xp is np else _cuda.fdk.back_project
    out: Array = xp.zeros(part.volume, dtype=data.dtype)
    step = max(1, most // (size * nv))
    for begin in range(0, geometry.n_views, step):
        some = slice(begin, begin + step)
        weighted = xp.pad(xp.asarray(data[some]) * cosines * weights[some, :, None], ((0, 0), (before, after), (0, 0)))
        add(_convolve(xp, weighted, size, response), numbers[some], out)
    return out


def _view_weights(geometry: ConeBeam, found: Circle, columns: Array) -> Array:
    """The weights of every column of every view: its part of the circle, and the weight of its lines."""
    covered = coverage(found.angles)
    short = min(-columns[0], columns[-1]) / found.pitch[0]
    if short < 0.499 and abs(columns[0] + columns[-1]) > found.pitch[0]:
        warn(
            "geometry: the panel hardly sees the axis of rotation, or not at all: some lines through the volume are in "
            "no view, and the reconstruction will be wrong near the axis or everywhere",
            AccuracyWarning,
        )
    fans = np.arctan2(found.turn * columns, found.distance)
    edge = np.abs(found.offset[0] + geometry.shadow()[..., 0] * found.pitch[0]).max()
    needed = math.atan2(edge, found.distance)
    if not covered.is_full:
        enough = math.pi + 2 * min(needed, float(np.abs(fans).max()))
        if covered.arc < enough - 2 * float(covered.shares.max()):
            warn(
                f"geometry: its angles cover {math.degrees(covered.arc):.0f}°, but {math.degrees(enough):.0f}° are "
                "needed to see every line through the volume; the reconstruction will have streaks",
                AccuracyWarning,
            )
    return covered.shares[:, None] * redundancy(covered, found.angles, fans, needed)


def _beyond(geometry: ConeBeam) -> tuple[int, int]:
    """Return how many columns the shadow of the volume reaches beyond the first and the last one.

    A filtered view does not end where the panel does: beyond, it is negative, and voxels that are seen in a part of the
    views only would come out too bright without that.
    """
    places = geometry.shadow()[..., 0]
    count = geometry.detector[0]
    # A shadow that just fits may be a hair's breadth over.
    before, after = (math.ceil(reach - 0.5 * count - 1e-6) for reach in (-places.min(), places.max()))
    # The shadow of a corner that is near the source is endless; what is far from the panel is next to nothing.
    return min(max(before, 0), 2 * count), min(max(after, 0), 2 * count)


def ramp(count: int, spacing: float, window: str = "ram-lak") -> tuple[int, Array]:
    """Return the length to which views are padded with zeros, and the factors of their frequencies.

    The ramp is the transform of samples of the band-limited filter: for short views, its lowest frequencies differ from
    the ramp sampled, and the mean of the image would be wrong with that.

    >>> size, response = ramp(4, 1.0)
    >>> size, response.round(3)
    (8, array([0.025, 0.123, 0.25 , 0.377, 0.475]))
    """
    from scipy import fft

    size = int(fft.next_fast_len(2 * count, real=True))
    places = np.minimum(np.arange(size), size - np.arange(size))
    kernel = np.zeros(size)
    kernel[0] = 0.25
    odd = places % 2 == 1
    kernel[odd] = -1 / (math.pi * places[odd]) ** 2
    frequencies = fft.rfftfreq(size)  # in periods a sample: 1/2 is the highest
    windows = {
        "ram-lak": np.ones_like(frequencies),
        "shepp-logan": np.sinc(frequencies),
        "cosine": np.cos(math.pi * frequencies),
        "hamming": 0.54 + 0.46 * np.cos(2 * math.pi * frequencies),
        "hann": 0.5 + 0.5 * np.cos(2 * math.pi * frequencies),
    }
    response: Array = fft.rfft(kernel).real * windows[window] / spacing
    return size, response


def _convolve(xp: ModuleType, views: Array, size: int, response: Array) -> Array:
    """Filter views along u."""
    if xp is np:
        import numba
        from scipy import fft

        threads = {"workers": numba.get_num_threads()}
    else:
        fft, threads = xp.fft, {}
    spectra = fft.rfft(views, size, axis=1, **threads)
    spectra *= response[:, None]
    whole: Array = xp.ascontiguousarray(fft.irfft(spectra, size, axis=1, **threads)[:, : views.shape[1]])
    return whole


def tables(geometry: ConeBeam, found: Circle) -> Array:
    """Return what back projection knows of each view: ten numbers.

    Let d = t₀ + i t₁ + j t₂ be the distance of voxel (i, j, k) from the source across the panel, in multiples of the
    axis's distance. The shadow of the voxel is at column (t₃ + i t₄ + j t₅)/d + t₆ and row (t₇ + k t₈)/d + t₉. It
    counts 1/d².
    """
    voxel = np.array(geometry.voxel)
    first = geometry.first_voxel
    towards, along = found.positions[:, 0], found.positions[:, 1]
    start = first[:2] - found.axis
    enlarged = found.distance / found.radius
    numbers = np.empty((geometry.n_views, 10))
    numbers[:, 0] = 1.0 - towards @ start / found.radius
    numbers[:, 1:3] = -towards * voxel[:2] / found.radius
    numbers[:, 3] = along @ start * (enlarged / found.pitch[0])
    numbers[:, 4:6] = along * voxel[:2] * (enlarged / found.pitch[0])
    numbers[:, 6] = 0.5 * (geometry.detector[0] - 1) - found.offset[0] / found.pitch[0]
    numbers[:, 7] = (first[2] - found.height) * (enlarged / found.pitch[1])
    numbers[:, 8] = voxel[2] * (enlarged / found.pitch[1])
    numbers[:, 9] = 0.5 * (geometry.detector[1] - 1) - found.offset[1] / found.pitch[1]
    return numbers
