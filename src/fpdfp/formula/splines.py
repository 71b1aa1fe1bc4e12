"""Bases of splines whose knots are given."""

from __future__ import annotations

import numpy as np

from fpdfp._typing import Array
from fpdfp.formula.tree import Spline


def basis(spline: Spline, x: Array) -> Array:
    """Return the functions of a basis at x, without the constant; NaN outside of the bounds.

    B-splines without the first one, as in R's ``bs`` and patsy's. Natural ones are those combinations of cubic
    B-splines whose second derivative is zero at both bounds: the space of R's ``ns``.
    """
    from scipy.interpolate import BSpline

    degree = spline.degree
    knots = np.concatenate([[spline.lower] * (degree + 1), spline.knots, [spline.upper] * (degree + 1)])
    inside = (x >= spline.lower) & (x <= spline.upper)
    values = np.full((len(x), len(knots) - degree - 1), np.nan)
    if inside.any():
        values[inside] = BSpline.design_matrix(x[inside], knots, degree).toarray()
    values = values[:, 1:]
    if spline.spline == "bs":
        return values
    ends = np.array([spline.lower, spline.upper])
    unit = np.eye(len(knots) - degree - 1)
    bends = np.stack([BSpline(knots, one, degree).derivative(2)(ends) for one in unit[1:]])
    complete = np.linalg.qr(bends, mode="complete")[0]
    natural: Array = values @ complete[:, 2:]
    return natural
