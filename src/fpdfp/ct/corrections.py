"""Corrections of line integrals: stripes that become rings in the volume, and beam hardening."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.errors import ArgumentError


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
