"""Conversion of raw scanner images to line integrals."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.errors import AccuracyWarning, ArgumentError, ArgumentTypeError


def line_integrals(
    raw: Any,
    flat: Any,
    dark: Any = None,
    *,
    clip: float = 1e-6,
    dead: Literal["error", "interpolate"] = "error",
) -> Array:
    r"""Return the line integrals of a scan, from its images, those without the object, and those without the beam.

    .. math:: y = -\log \frac{\text{raw} - \text{dark}}{\text{flat} - \text{dark}}

    Parameters
    ----------
    raw
        The images of the object, ``(views, nu, nv)``; see :func:`from_rows`. Integers or floats.
    flat
        Images with the beam and no object: one ``(nu, nv)``, or several ``(…, nu, nv)``, whose mean is taken.
    dark
        Images without the beam, likewise; None means 0.
    clip
        The smallest valid transmission. Smaller values, for instance noise behind metal, are raised to it, with a
        warning that counts the pixels.
    dead
        How to treat pixels in which ``flat`` is not above ``dark``: ``"error"``, or ``"interpolate"`` between the
        nearest other pixels along u.

    Returns
    -------
    Array
        float32, ``(views, nu, nv)``.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> raw = np.array([[[1100, 600], [350, 1100]]], dtype=np.uint16)
    >>> flat, dark = np.full((2, 2), 1100), np.full((2, 2), 100)
    >>> fpdfp.ct.line_integrals(raw, flat, dark).round(3) + 0.0
    array([[[0.   , 0.693],
            [1.386, 0.   ]]], dtype=float32)
    """
    images = _images("raw", raw)
    if images.ndim != 3 or 0 in images.shape:
        raise ValueError(f"raw must have shape (views, nu, nv), got {images.shape}")
    least = _checks.real("clip", clip, positive=True)
    _checks.choice("dead", dead, ("error", "interpolate"))
    panel = images.shape[1:]
    black = np.zeros(panel) if dark is None else _mean("dark", dark, panel)
    open_beam = _mean("flat", flat, panel) - black
    broken = open_beam <= 0
    if broken.any() and dead == "error":
        a, b = (int(i) for i in np.argwhere(broken)[0])
        raise ValueError(
            f"flat must be above dark, but is not in {int(broken.sum())} of {broken.size} pixels, the first of them "
            f"(u, v) = ({a}, {b}); dead='interpolate' fills them from their neighbours"
        )
    scale = np.where(broken, 1.0, open_beam)
    out: Array = np.empty(images.shape, dtype=np.float32)
    low = 0
    # View by view: a scan may be most of the memory.
    for view, image in enumerate(images):
        # Dead pixels are replaced, whatever they hold.
        whole = _checks.finite(f"raw: view {view}", np.where(broken, 0.0, image))
        transmission = (whole - black) / scale
        low += int(((transmission < least) & ~broken).sum())
        out[view] = -np.log(np.maximum(transmission, least))
    if low:
        warn(
            f"raw: {low} of {out.size} pixels have a transmission below {least:g}, some 0 or less; "
            "they are set to that value",
            AccuracyWarning,
        )
    if broken.any():
        _fill(out, broken)
    return out


def from_rows(images: Any, *, first: Literal["bottom", "top"] = "bottom") -> Array:
    """Return images ``(views, rows, columns)``, the order of image files, as projections ``(views, nu, nv)``.

    Parameters
    ----------
    images
        Columns are counted along u, rows along v (z).
    first
        Whether the first row is the bottom of the image, where z is lowest, or its top.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> fpdfp.ct.from_rows(np.array([[[1, 2, 3], [4, 5, 6]]]), first="top")
    array([[[4, 1],
            [5, 2],
            [6, 3]]])
    """
    array = _images("images", images)
    if array.ndim != 3:
        raise ValueError(f"images must have shape (views, rows, columns), got {array.shape}")
    if _checks.choice("first", first, ("bottom", "top")) == "top":
        array = array[:, ::-1]
    return np.ascontiguousarray(array.swapaxes(1, 2))


def _images(name: str, value: Any) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise ArgumentTypeError(name, "must not be a masked array: fill in or leave out what is masked")
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ArgumentTypeError(name, f"must hold real numbers, got dtype {array.dtype}")
    return array


def _mean(name: str, value: Any, panel: tuple[int, ...]) -> Array:
    array = _images(name, value)
    if array.ndim < 2 or array.shape[-2:] != panel or 0 in array.shape:
        raise ArgumentError(name, f"must be images of shape {panel}, one or a stack, got shape {array.shape}")
    _checks.finite(name, array)
    mean: Array = array.reshape(-1, *panel).mean(axis=0, dtype=np.float64)
    return mean


def _fill(projections: Array, broken: Array) -> None:
    """Replace pixels by what lies on the line between the nearest others along u."""
    for row in np.flatnonzero(broken.any(axis=0)):
        bad = np.flatnonzero(broken[:, row])
        good = np.flatnonzero(~broken[:, row])
        if good.size == 0:
            raise ValueError(
                f"flat must be above dark somewhere in every row, but row v = {int(row)} has no such pixel"
            )
        after = np.searchsorted(good, bad)
        left, right = good[np.maximum(after - 1, 0)], good[np.minimum(after, good.size - 1)]
        # Beyond the last good pixel there is one neighbour only.
        left, right = np.where(left > bad, right, left), np.where(right < bad, left, right)
        gap = np.maximum(right - left, 1)
        part = ((bad - left) / gap).astype(projections.dtype)
        # At the ends left and right are the same pixel, and its value is taken as it is.
        part[left == right] = 0.0
        projections[:, bad, row] = (1 - part) * projections[:, left, row] + part * projections[:, right, row]
