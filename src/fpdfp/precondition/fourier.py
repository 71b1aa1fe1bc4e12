"""The inverse of a convolution as a preconditioner."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._array import Constant, namespace
from fpdfp._typing import Array, Shape
from fpdfp.linops import LinOp
from fpdfp.precondition.base import Preconditioner

#: How much smaller the spread of the curvature must be for these coordinates to be of use.
HELPS = 0.5


class Filter(LinOp):
    """Multiplication of the discrete Fourier transform with real, positive gains that are even: symmetric."""

    def __init__(self, shape: Shape, gains: Array) -> None:
        if gains.shape != (*shape[:-1], shape[-1] // 2 + 1) or not (np.isfinite(gains) & (gains > 0)).all():
            raise ValueError(f"gains must be positive, one for each frequency of {shape}, got shape {gains.shape}")
        self.in_shape = self.out_shape = shape
        self.gains = gains
        self._gains = Constant(gains)

    def apply(self, x: Array) -> Array:
        import scipy.fft

        self.batch_of(x, self.in_shape, "x")
        axes = tuple(range(-len(self.in_shape), 0))
        xp = namespace(x)
        fft = scipy.fft if xp is np else xp.fft
        filtered: Array = fft.irfftn(fft.rfftn(x, axes=axes) * self._gains.like(x), s=self.in_shape, axes=axes)
        return filtered

    def adjoint(self, v: Array) -> Array:
        return self.apply(v)

    def _squared_norm(self) -> float:
        return float(self.gains.max()) ** 2 * (1.0 + 1e-6)


class Fourier(Preconditioner):
    """P = the inverse of a convolution, for images and volumes whose Hessian is nearly one (tomography, blurs).

    S multiplies the discrete Fourier transform with max(ŝ, floor · max ŝ)^{-1/2}, where ŝ is the transform of the
    Hessian's response to an impulse. Edges wrap round.

    Parameters
    ----------
    response
        The response: the Hessian of f times an array that is 1 at ``centre`` and 0 elsewhere.
    centre
        Where the impulse was; by default the middle, n // 2 on each axis.
    floor
        Frequencies with less than this share of the largest response are treated as if they had it.

    Examples
    --------
    >>> import numpy as np
    >>> blur = np.zeros((4, 4))
    >>> blur[2, 2] = 4.0
    >>> Fourier(blur).factor.apply(np.ones((4, 4)))[0]
    array([0.5, 0.5, 0.5, 0.5])
    """

    def __init__(self, response: Any, centre: tuple[int, ...] | None = None, floor: float = 0.05) -> None:
        values = _checks.float_array("response", response)
        if values.ndim == 0 or values.size == 0:
            raise ValueError(f"response must have the shape of x, got shape {values.shape}")
        middle = tuple(n // 2 for n in values.shape) if centre is None else tuple(np.atleast_1d(centre).tolist())
        if len(middle) != values.ndim or not all(0 <= at < n for at, n in zip(middle, values.shape, strict=True)):
            raise ValueError(f"centre must be a place in an array of shape {values.shape}, got {centre!r}")
        self.response, self.centre, self.floor = values.astype(np.float32), middle, _checks.share("floor", floor)

    @functools.cached_property
    def _spectrum(self) -> Array:
        import scipy.fft

        at_origin = np.roll(self.response.astype(np.float64), [-at for at in self.centre], range(self.response.ndim))
        spectrum: Array = scipy.fft.rfftn(at_origin).real
        if spectrum.max() <= 0:
            raise ValueError("response must be that of a positive semidefinite Hessian, and not zero")
        return spectrum

    @functools.cached_property
    def factor(self) -> Filter:  # type: ignore[override]
        return Filter(self.response.shape, np.maximum(self._spectrum, self.floor * self._spectrum.max()) ** -0.5)

    def helps(self, lipschitz: float, lipschitz_here: float) -> bool:
        """Whether f is better conditioned in these coordinates, by its Lipschitz constants without and with them.

        Each is compared with the mean curvature that the response tells. Where the Hessian is not nearly a convolution,
        the one with these coordinates is large.
        """
        without = float(self.response[self.centre])
        here = float(np.mean(self._spectrum * self.factor.gains**2))
        return lipschitz_here * without < HELPS * lipschitz * here

    def coordinates(self, x: Array) -> Array:
        return Filter(self.response.shape, 1.0 / self.factor.gains).apply(x)

    def gradient(self, slope: Array) -> Array:
        return self.coordinates(slope)

    @property
    def numbers(self) -> Array:
        return self.response
