"""Finite differences."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._array import namespace
from fpdfp._typing import Array, Shape
from fpdfp.linops.base import LinOp
from fpdfp.linops.identity import check_shape


class Difference(LinOp):
    r"""Forward differences of a vector, the (d − 1) × d matrix of full row rank of the fused lasso.

    .. math:: (Bx)_j = x_{j+1} - x_j, \qquad j = 1, \dots, d - 1

    >>> import numpy as np
    >>> Difference(4).apply(np.array([1.0, 1.0, 3.0, 0.0]))
    array([ 0.,  2., -3.])
    """

    def __init__(self, size: int) -> None:
        length = _checks.integer("size", size, at_least=2)
        self.in_shape, self.out_shape = (length,), (length - 1,)

    def apply(self, x: Array) -> Array:
        self.batch_of(x, self.in_shape, "x")
        differences: Array = x[..., 1:] - x[..., :-1]
        return differences

    def adjoint(self, v: Array) -> Array:
        self.batch_of(v, self.out_shape, "v")
        out: Array = namespace(v).zeros((*v.shape[:-1], *self.in_shape), dtype=v.dtype)
        out[..., 1:] += v
        out[..., :-1] -= v
        return out

    def _squared_norm(self) -> float:
        return _path_laplacian_norm(self.in_shape[0])


class Gradient(LinOp):
    """The discrete gradient of a 1-, 2- or 3-dimensional image, by forward differences.

    .. math:: (Bx)_{a, j} = x_{j + e_a} - x_j

    with zero where j + e_a is outside the image (Neumann). The result has the axis of components first.

    >>> import numpy as np
    >>> Gradient((2, 2)).apply(np.array([[0.0, 1.0], [2.0, 5.0]]))
    array([[[2., 4.],
            [0., 0.]],
    <BLANKLINE>
           [[1., 0.],
            [3., 0.]]])
    """

    def __init__(self, shape: int | Shape) -> None:
        self.in_shape = check_shape(shape)
        if len(self.in_shape) > 3:
            raise ValueError(f"shape must have 1, 2 or 3 axes, got {len(self.in_shape)}")
        self.out_shape = (len(self.in_shape), *self.in_shape)

    def apply(self, x: Array) -> Array:
        batch = self.batch_of(x, self.in_shape, "x")
        if len(self.in_shape) == 3 and x.dtype in (np.float32, np.float64) and x.dtype.isnative:
            return _by_kernel("gradient", x, self.in_shape, self.out_shape)
        out_shape = self.out_shape if batch is None else (batch, *self.out_shape)
        out: Array = namespace(x).zeros(out_shape, dtype=x.dtype)
        for axis in range(len(self.in_shape)):
            component = out[_component(axis, batch)]
            component[self._but_last(axis)] = x[self._but_first(axis)] - x[self._but_last(axis)]
        return out

    def adjoint(self, v: Array) -> Array:
        batch = self.batch_of(v, self.out_shape, "v")
        if len(self.in_shape) == 3 and v.dtype in (np.float32, np.float64) and v.dtype.isnative:
            return _by_kernel("adjoint", v, self.out_shape, self.in_shape)
        out: Array = namespace(v).zeros(self.in_shape if batch is None else (batch, *self.in_shape), dtype=v.dtype)
        for axis in range(len(self.in_shape)):
            component = v[_component(axis, batch)]
            out[self._but_first(axis)] += component[self._but_last(axis)]
            out[self._but_last(axis)] -= component[self._but_last(axis)]
        return out

    def _but_first(self, axis: int) -> Any:
        return (..., slice(1, None), *[slice(None)] * (len(self.in_shape) - axis - 1))

    def _but_last(self, axis: int) -> Any:
        return (..., slice(None, -1), *[slice(None)] * (len(self.in_shape) - axis - 1))

    def _squared_norm(self) -> float:
        # BᵀB is a sum of one-dimensional Laplacians that share their eigenvectors: the largest add up.
        return sum(_path_laplacian_norm(length) for length in self.in_shape)


def _by_kernel(name: str, array: Array, shape: Shape, out_shape: Shape) -> Array:
    """Call a kernel for volumes; the shapes are those of one client's array and of its result."""
    xp = namespace(array)
    clients = array.shape[: array.ndim - len(shape)]
    out: Array = xp.empty((*clients, *out_shape), dtype=array.dtype)
    if array.size:
        rows = xp.ascontiguousarray(array).reshape(-1, *shape)
        getattr(tv_kernels(array), name)(rows, out.reshape(-1, *out_shape))
    return out


def tv_kernels(array: Array) -> Any:
    """Return the kernels of total variation for where an array is."""
    if namespace(array) is np:
        from fpdfp._kernels import tv

        return tv
    from fpdfp._cuda import tv as on_gpu

    return on_gpu


def _component(axis: int, batch: int | None) -> Any:
    return (axis,) if batch is None else (slice(None), axis)


def _path_laplacian_norm(length: int) -> float:
    """The largest eigenvalue of the Laplacian of a path, 4 sin²(π(d − 1)/2d), rounded up."""
    return 4.0 * math.sin(math.pi * (length - 1) / (2 * length)) ** 2 * (1.0 + 1e-15)
