"""Detection of common mistakes in projections and angles: counts, swapped axes, degrees."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpdfp._array import to_host
from fpdfp._typing import Array
from fpdfp._warn import warn
from fpdfp.ct.circle import circle
from fpdfp.ct.geometry import ConeBeam
from fpdfp.errors import DataWarning

#: The number of views that are examined.
VIEWS = 48


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
    """Line integrals are smallest beside the object, counts and transmissions largest, and never 0 or less."""
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


def check_radians(name: str, angles: Array, *, turns: bool) -> None:
    """Raise an error for angles that look like degrees; ``turns``: whether many turns are usual, as on a helix."""
    steps = np.diff(np.unique(angles))
    if not steps.size:
        return
    span, step = float(np.ptp(angles)), float(np.median(steps))
    # As radians: dozens of turns with few views each, or on a circle more than two turns with less than 20 views each.
    if (span >= 150 and step >= 0.05) or (not turns and span > 4 * math.pi and step > math.pi / 10):
        raise ValueError(
            f"{name} look like degrees: they span {span:g}, in steps of {step:.3g}, which as radians would be "
            f'{span / (2 * math.pi):.0f} turns; give unit="degrees", or unit="radians" if they are'
        )
