"""How near an image is to the truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

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
    xp = namespace(truth) if hasattr(truth, "__cuda_array_interface__") else np
    wanted = _checks.float_array("truth", truth, xp=xp)
    found = _checks.float_array("image", image, xp=xp)
    if found.shape != wanted.shape or wanted.size == 0:
        raise ValueError(f"image must have the shape {wanted.shape} of the truth, not empty, got {found.shape}")
    height = _checks.real("peak", float(wanted.max()) if peak is None else peak, positive=True)
    error = float(xp.mean(xp.square(found - wanted, dtype=np.float64)))
    return math.inf if error == 0 else 10.0 * math.log10(height**2 / error)
