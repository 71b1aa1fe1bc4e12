"""The interface of linear maps."""

from __future__ import annotations

import abc
import functools
from typing import Any

import numpy as np

from fpdfp._rounding import round_up
from fpdfp._typing import Array, Shape
from fpdfp.errors import ArgumentError


class LinOp(abc.ABC):
    """A linear map from arrays of ``in_shape`` to arrays of ``out_shape``.

    Both directions also accept arrays with a leading client axis. The result for a client then has the same bits as
    without the others.

    Attributes
    ----------
    in_shape, out_shape
        The shapes of an argument and of a result, without the client axis.
    """

    in_shape: Shape
    out_shape: Shape

    @abc.abstractmethod
    def apply(self, x: Array) -> Array:
        """Return B x."""

    @abc.abstractmethod
    def adjoint(self, v: Array) -> Array:
        """Return Bᵀ v."""

    @functools.cached_property
    def squared_norm(self) -> float:
        """An upper bound of ‖B‖², the largest eigenvalue of BBᵀ, as tight as can be computed cheaply."""
        return round_up(self._squared_norm())

    def _squared_norm(self) -> float:
        from fpdfp.linops.norm import squared_norm_bound

        return squared_norm_bound(self)

    @property
    def is_identity(self) -> bool:
        """Whether this is the identity, for which methods use a shorter formula."""
        return False

    @property
    def size_in(self) -> int:
        """The number of entries of an argument."""
        return int(np.prod(self.in_shape))

    @property
    def size_out(self) -> int:
        """The number of entries of a result."""
        return int(np.prod(self.out_shape))

    def batch_of(self, array: Array, shape: Shape, name: str) -> int | None:
        """Return the length of the client axis, None without one; raise an error for any other shape."""
        if array.shape == shape:
            return None
        if array.shape[1:] == shape:
            return int(array.shape[0])
        raise ArgumentError(name, f"must have shape {shape}, or that with a leading client axis, got {array.shape}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.in_shape} → {self.out_shape})"


def adjoint_error(linop: LinOp, rng: np.random.Generator | int = 0, dtype: Any = np.float64) -> float:
    """Return |⟨Bx, v⟩ − ⟨x, Bᵀv⟩| relative to ‖Bx‖‖v‖ + ‖x‖‖Bᵀv‖ for random x and v.

    For a correct adjoint it is about the rounding error of ``dtype``.

    >>> from fpdfp.linops import Gradient
    >>> adjoint_error(Gradient((4, 5, 6))) < 1e-14
    True
    """
    generator = np.random.default_rng(rng)
    x = generator.standard_normal(linop.in_shape).astype(dtype)
    v = generator.standard_normal(linop.out_shape).astype(dtype)
    forward = linop.apply(x)
    backward = linop.adjoint(v)
    error = abs(float(np.vdot(forward, v)) - float(np.vdot(x, backward)))
    scale = float(np.linalg.norm(forward) * np.linalg.norm(v) + np.linalg.norm(x) * np.linalg.norm(backward))
    return error / scale if scale > 0 else error
