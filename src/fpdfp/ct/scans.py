"""Projections: from raw scanner images to line integrals, their corrections, and common mistakes in them."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from fpdfp import _checks
from fpdfp._array import namespace, to_host
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.ct.circle import circle
from fpdfp.ct.geometry import ConeBeam, check_geometry
from fpdfp.errors import AccuracyWarning, ArgumentError, ArgumentTypeError, DataWarning

#: The number of views that are examined.
VIEWS = 48
#: The share of the counts besides the object that must be air.
AIR = 0.4
#: Of the brightest counts: rows whose level besides the object is lower show the object there. The beam of a tube falls
#: by up to a third towards the anode, so that air may have two thirds of the brightest counts.
FULL = 0.6


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


def air(raw: Any, dark: Any = None) -> Array:
    """Return the unattenuated intensity of each row, read from the air besides the object, as an image for ``flat``.

    For scans without flat images. The outer eighth of the columns on either side is looked at in all views. Per row,
    the intensity is the mean of the shortest interval that holds two fifths of the counts there: it lies on the air
    even if the object covers half of these pixels. Rows without air take the value of the nearest other
    row, with an :class:`fpdfp.errors.AccuracyWarning`.

    Parameters
    ----------
    raw
        The images of the object, ``(views, nu, nv)``.
    dark
        Images without the beam, one ``(nu, nv)`` or a stack; None means 0.

    Returns
    -------
    Array
        ``(nu, nv)``, dark included, the same along u.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> raw = np.full((4, 16, 3), 1000.0)
    >>> raw[:, 5:11] = 300.0
    >>> fpdfp.ct.air(raw)[0]
    array([1000., 1000., 1000.])
    """
    images = _images("raw", raw)
    if images.ndim != 3 or 0 in images.shape:
        raise ValueError(f"raw must have shape (views, nu, nv), got {images.shape}")
    columns, rows = images.shape[1:]
    black = np.zeros((columns, rows)) if dark is None else _mean("dark", dark, (columns, rows))
    # The outermost columns of panels are often defective.
    edge, width = columns // 50, max(1, columns // 8)
    sides = np.r_[edge:width, columns - width : columns - edge] if width > edge else np.array([0, columns - 1])
    counts = np.sort((images[:, sides] - black[sides]).reshape(-1, rows), axis=0)
    _checks.finite("raw: the sides of the views", counts)
    part = max(1, math.ceil(AIR * len(counts)))
    begins = (counts[part - 1 :] - counts[: len(counts) - part + 1]).argmin(axis=0)
    level = np.array([counts[b : b + part, row].mean() for row, b in enumerate(begins)])
    covered = level < FULL * np.quantile(counts, 0.98)
    if covered.all():
        raise ValueError("raw: no row shows air next to the object; give flat images")
    if covered.any():
        warn(
            f"raw: the object fills the view in {int(covered.sum())} of {rows} rows, the first of them "
            f"{int(covered.argmax())}: their unattenuated intensity is that of the nearest other row",
            AccuracyWarning,
        )
        known = np.flatnonzero(~covered)
        nearest = known[np.abs(np.arange(rows)[:, None] - known).argmin(axis=1)]
        level = level[nearest]
    flat: Array = level + black
    return flat


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
    array = _checks.host_array(name, value)
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
        # At the ends left and right are the same pixel, and its value is taken unchanged.
        part[left == right] = 0.0
        projections[:, bad, row] = (1 - part) * projections[:, left, row] + part * projections[:, right, row]


def fill_excluded(projections: Array, weights: Array) -> Array:
    """Return projections in which pixels of weight 0 lie between their nearest neighbours along u, or are 0.

    The filtered back-projection that a reconstruction starts from does not know weights.
    """
    xp = namespace(projections)
    excluded = to_host(weights) <= 0
    if not excluded.any():
        return projections
    data = to_host(projections).copy()
    places = np.arange(data.shape[1])
    for view, row in np.argwhere(excluded.any(axis=1)):
        bad = excluded[view, :, row]
        good = places[~bad]
        data[view, bad, row] = np.interp(places[bad], good, data[view, good, row]) if good.size else 0.0
    filled: Array = xp.asarray(data)
    return filled


def check_projections(projections: Any, geometry: ConeBeam) -> Array:
    """Return the projections of a scan as an array of floats, where they are; warn of common mistakes."""
    check_geometry(geometry)
    check_shape(projections, geometry)
    module = namespace(projections) if hasattr(projections, "__cuda_array_interface__") else np
    data = _checks.float_array("projections", projections, shape=geometry.data_shape, xp=module)
    warn_of_projections(data, geometry)
    return data


def check_ray_weights(weights: Any, geometry: ConeBeam, module: Any) -> Array:
    """Return the weights of rays as float32, where the projections are; raise an error for negative ones."""
    given: Array = _checks.float_array("ray_weights", weights, shape=geometry.data_shape, dtype=np.float32, xp=module)
    if float(given.min()) < 0 or not float(given.max()) > 0:
        raise ArgumentError("ray_weights", "must not be negative, and some must be above 0")
    return given


def count_weights(projections: Any, counts: float, *, electronic: float = 0.0) -> Array:
    r"""Return the inverse variances of line integrals of photon counts, with a mean of 1.

    With N₀ counts of the unattenuated beam, an expected count N = N₀ e^{−y}, and electronic noise of the standard
    deviation σ in counts, the variance of y is (N + σ²)/N².

    Parameters
    ----------
    projections
        Line integrals, ``(views, nu, nv)``.
    counts
        N₀.
    electronic
        σ.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> fpdfp.ct.count_weights(np.array([[[0.0, np.log(3.0)]]]), 1000.0).round(2)
    array([[[1.5, 0.5]]])
    """
    data = _checks.float_array("projections", projections)
    expected = _checks.real("counts", counts, positive=True) * np.exp(-data)
    noise = _checks.real("electronic", electronic, at_least=0.0)
    precision = expected**2 / (expected + noise**2)
    weights: Array = (precision / precision.mean()).astype(data.dtype)
    return weights


def check_shape(projections: Any, geometry: ConeBeam) -> None:
    """Raise an error for integers, which are counts, and for axes in another order."""
    dtype, shape = getattr(projections, "dtype", None), tuple(np.shape(projections))
    wanted = geometry.data_shape
    if shape != wanted and sorted(shape) == sorted(wanted):
        raise ValueError(
            f"projections must have shape {wanted}, views, columns (u), rows (v), got {shape}: the axes are in another "
            "order; fpdfp.ct.from_rows converts images (views, rows, columns)"
        )
    if dtype is not None and np.dtype(dtype).kind in "iu":
        raise TypeError(
            f"projections must be line integrals in floating point, got {dtype}, which looks like counts; convert "
            "counts with fpdfp.ct.line_integrals(raw, flat, dark), and line integrals stored as integers to floats"
        )


def warn_of_projections(projections: Array, geometry: ConeBeam) -> None:
    """Warn of projections that look like counts, or as if columns and rows were swapped."""
    for text in (_counts(projections), _swap(projections, geometry)):
        if text is not None:
            warn(f"projections: {text}", DataWarning)


def _counts(projections: Array) -> str | None:
    """Line integrals are smallest besides the object, counts and transmissions largest, and never 0 or less."""
    some = _views(projections, np.linspace(0, len(projections) - 1, VIEWS).astype(int))
    columns = some.shape[1]
    if columns < 8 or not some.min() > 0:
        return None
    side, middle = max(1, columns // 20), slice(columns // 2 - columns // 10, columns // 2 + columns // 10 + 1)
    beside = float(np.median(np.concatenate([some[:, :side], some[:, -side:]], axis=1)))
    if beside >= 0.7 * float(np.quantile(some, 0.995)) and float(np.median(some[:, middle])) < 0.8 * beside:
        return (
            f"they look like counts or transmissions, not line integrals: all are above 0, and they are largest at the "
            f"sides of the panel ({beside:.4g}), where rays go through least; fpdfp.ct.line_integrals(raw, flat, dark) "
            "converts counts; for transmissions take −log"
        )
    return None


def _swap(projections: Array, geometry: ConeBeam) -> str | None:
    """On a circle around z, how much is seen at each height is nearly the same in all views; not so along u."""
    try:
        circle(geometry)
    except ValueError:
        return None
    some = _views(projections, np.unique(np.linspace(0, len(projections) - 1, VIEWS).astype(int)))
    columns, rows = some.shape[1:]
    along_u, along_v = (float(some.mean(axis=axis).var(axis=0).mean()) for axis in (2, 1))
    # Where nothing but noise changes between views, these are as the numbers of rows and columns.
    if along_v > 4 * max(1.0, rows / columns) * along_u and along_v > 1e-3 * float(np.square(some.mean(axis=0)).mean()):
        return (
            "columns (u) and rows (v) look swapped: on a circle around z what is seen along v hardly changes between "
            "views, but here it changes most along the last axis; fpdfp.ct.from_rows converts images (views, "
            "rows, columns)"
        )
    return None


def _views(projections: Array, views: Array) -> Array:
    return to_host(projections[views.tolist()]).astype(np.float64)


def remove_rings(projections: Any, *, width: int = 5) -> Array:
    """Return projections without the stripes of pixels whose gain is wrong, which become rings in the volume.

    A wrong gain adds a constant to the line integrals of its pixel. The values of each pixel are sorted over views; the
    constant is the median over ranks of their difference from the median of neighbouring pixels at the same rank. Edges
    of the object are kept, since its shadow moves and a stripe does not.

    Parameters
    ----------
    projections
        Line integrals, ``(views, nu, nv)``.
    width
        The columns of the median filter, an odd number above twice the width of the widest stripe.

    References
    ----------
    N. T. Vo, R. C. Atwood and M. Drakopoulos, "Superior techniques for eliminating ring artifacts in X-ray
    micro-tomography", Optics Express 26 (2018): algorithm 3 sorts likewise, but filters every value.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> data = np.zeros((8, 32, 2))
    >>> data[:, 10] = 0.1
    >>> float(abs(fpdfp.ct.remove_rings(data)).max())
    0.0
    """
    from scipy.ndimage import median_filter

    data = _stack(projections)
    size = _checks.integer("width", width, at_least=3)
    if size % 2 == 0 or size > data.shape[1]:
        raise ArgumentError("width", f"must be an odd number of at most {data.shape[1]} columns, got {size}")
    constants = np.empty(data.shape[1:], dtype=data.dtype)
    for row in range(data.shape[2]):
        ranked = np.sort(data[:, :, row], axis=0)
        constants[:, row] = np.median(ranked - median_filter(ranked, size=(1, size), mode="nearest"), axis=0)
    return data - constants


def correct_hardening(projections: Any, coefficients: Any) -> Array:
    r"""Return the line integrals that a beam of one energy would give, by a polynomial without a constant term.

    .. math:: y' = \sum_k c_k y^k, \quad k = 1, 2, \dots

    Soft rays are absorbed first, so that thick parts look too thin: the coefficients beyond the first are usually
    positive. Fit them to images of steps of known thickness.

    Parameters
    ----------
    projections
        Line integrals, ``(views, nu, nv)``.
    coefficients
        c₁, c₂, …, such that y' grows with y over the range of the data.

    Examples
    --------
    >>> import numpy as np
    >>> import fpdfp
    >>> fpdfp.ct.correct_hardening(np.array([[[0.0, 1.0, 2.0]]]), [1.0, 0.1])
    array([[[0. , 1.1, 2.4]]])
    """
    data = _stack(projections)
    factors = _checks.float_array("coefficients", coefficients, dtype=np.float64)
    if factors.ndim != 1 or factors.size == 0:
        raise ArgumentError("coefficients", f"must be a list of at least one number, got shape {factors.shape}")
    polynomial = np.polynomial.Polynomial([0.0, *factors.tolist()])
    places = np.linspace(min(float(data.min()), 0.0), max(float(data.max()), 0.0), 1000)
    if (polynomial.deriv()(places) <= 0).any():
        raise ArgumentError(
            "coefficients", f"must give values that grow with the data, from {places[0]:.3g} to {places[-1]:.3g}"
        )
    corrected: Array = polynomial(data).astype(data.dtype, copy=False)
    return corrected


def _stack(projections: Any) -> Array:
    data = _checks.float_array("projections", projections)
    if data.ndim != 3 or 0 in data.shape:
        raise ArgumentError("projections", f"must have shape (views, nu, nv), got {data.shape}")
    return data
