"""How near an image is to the truth."""

from __future__ import annotations

import math
from typing import Any

from fpdfp import _checks
from fpdfp._array import namespace


def psnr(image: Any, truth: Any, *, peak: float | None = None) -> float:
    """Return the peak signal-to-noise ratio in dB: 10 log₁₀(peak² / mean of squared errors).

    Parameters
    ----------
    image, truth
        Arrays of the same shape, both of NumPy or both of CuPy.
    peak
        The largest value that the truth may have; by default the largest that it has.

    Examples
    --------
    >>> import numpy as np
    >>> psnr(np.array([0.9, 0.1]), np.array([1.0, 0.0]))
    20.0
    """
    if image.shape != truth.shape:
        raise ValueError(f"image must have the shape {truth.shape} of the truth, got {image.shape}")
    xp = namespace(truth)
    height = _checks.real("peak", float(truth.max()) if peak is None else peak, positive=True)
    error = float(xp.mean(xp.square(xp.asarray(image) - truth, dtype=xp.float64)))
    return math.inf if error == 0 else 10.0 * math.log10(height**2 / error)
