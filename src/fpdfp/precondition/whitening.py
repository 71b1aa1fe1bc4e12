"""The inverse of a dense matrix as a preconditioner."""

from __future__ import annotations

import copy
import functools
import math
from typing import Any, Self

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, Shape
from fpdfp.compress import QSGD, Natural
from fpdfp.linops import EachRow, LinOp, Matrix
from fpdfp.precondition.base import Announced, Coded
from fpdfp.precondition.triangles import side


class Whitening(Coded):
    """P = H⁻¹ for a symmetric positive definite matrix H: with H = CCᵀ, S = C⁻ᵀ.

    C is rounded to float32, in which it is sent, or to a coarser grid (:meth:`coarse`). For x of several rows the same
    is done to each of them.

    Parameters
    ----------
    hessian
        H.
    smoothness
        An upper bound of the Lipschitz constant of ∇f in the new coordinates, if one is known: about 1 where H bounds
        the Hessian of f everywhere. By default it is found from the clients' losses.
    rows
        How many rows x has, each with the Hessian H; by default x is a vector.

    Examples
    --------
    >>> import numpy as np
    >>> whitening = Whitening(np.array([[4.0, 2.0], [2.0, 2.0]]))
    >>> S = whitening.inverse
    >>> (S.T @ np.array([[4.0, 2.0], [2.0, 2.0]]) @ S).round(6)
    array([[1., 0.],
           [0., 1.]])
    """

    def __init__(self, hessian: Any, smoothness: float | None = None, rows: int | None = None) -> None:
        matrix = _checks.float_array("hessian", hessian, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"hessian must be a square matrix, got shape {matrix.shape}")
        if not np.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-6 * float(np.abs(matrix).max())):
            raise ValueError("hessian must be symmetric")
        root = cholesky((matrix + matrix.T) / 2.0)
        self._announce((Announced.plain(root[np.tril_indices(len(root))].astype(np.float32)),), smoothness, rows)

    @classmethod
    def from_messages(cls, announced: tuple[Announced, ...], smoothness: float | None, rows: int | None) -> Self:
        """Return the one that the server announces: C, and where it has a scale the squares of that."""
        made = cls.__new__(cls)
        made._announce(announced, smoothness, rows)
        return made

    def _announce(self, announced: tuple[Announced, ...], smoothness: float | None, rows: int | None) -> None:
        """Take what is announced, if it is a triangle with a positive diagonal and perhaps a positive scale."""
        if len(announced) not in (1, 2):
            raise ValueError(f"announced must be one or two messages, got {len(announced)}")
        triangle = announced[0].array
        d = side(triangle) if triangle.ndim == 1 else 0
        if d < 1 or triangle.size != d * (d + 1) // 2 or not (triangle[np.arange(1, d + 1).cumsum() - 1] > 0).all():
            raise ValueError("announced must hold a triangle of numbers with a positive diagonal")
        for part in announced[1:]:
            if part.array.shape != (d,) or not (part.array > 0).all():
                raise ValueError(f"announced must hold a positive scale for each of {d} features")
        self.announced = announced
        self.smoothness = None if smoothness is None else _checks.real("smoothness", smoothness, positive=True)
        self.rows = None if rows is None else _checks.integer("rows", rows, at_least=1)

    @classmethod
    def coarse(cls, matrix: Array, step: float, scale: Array | None = None, rows: int | None = None) -> Self:
        """Return the whitening of a matrix whose root is rounded, at random, to multiples of at most ``step``.

        With ``scale``, powers of two, it is that of the matrix whose rows and columns are multiplied with their roots.
        The diagonal of the root stays positive where the step is below the root of the least eigenvalue.
        """
        root = cholesky(matrix)
        levels = max(1, math.ceil(float(np.abs(root).max()) * (1.0 + 1e-6) / step))
        quantizer = QSGD(min(levels, QSGD.most_levels), block=None, norm="max")
        parts = [Announced.rounded(quantizer, root[np.tril_indices(len(root))].astype(np.float32))]
        if scale is not None:
            parts.append(Announced.rounded(Natural(), scale.astype(np.float32)))
        return cls.from_messages(tuple(parts), None, rows)

    def bounded(self, smoothness: float) -> Self:
        """Return the same, with a known smoothness."""
        other = copy.copy(self)
        other.smoothness = _checks.real("smoothness", smoothness, positive=True)
        return other

    @functools.cached_property
    def _root(self) -> Array:
        triangle = self.announced[0].array.astype(np.float64)
        d = side(triangle)
        root = np.zeros((d, d))
        root[np.tril_indices(d)] = triangle
        if len(self.announced) > 1:
            root *= np.sqrt(self.announced[1].array.astype(np.float64))[:, None]
        return root

    @functools.cached_property
    def inverse(self) -> Array:
        """S as a matrix, that of one row of x."""
        from scipy.linalg import solve_triangular

        inverse: Array = solve_triangular(self._root, np.eye(len(self._root)), lower=True).T
        return np.ascontiguousarray(inverse)

    @property
    def shape(self) -> Shape:
        return self.with_rows((side(self.announced[0].array),))

    @functools.cached_property
    def factor(self) -> LinOp:  # type: ignore[override]
        return self._map(self.inverse)

    def _map(self, matrix: Array) -> LinOp:
        return Matrix(matrix) if self.rows is None else EachRow(matrix, self.rows)

    def coordinates(self, x: Array) -> Array:
        u: Array = (x @ self._root).astype(x.dtype, copy=False)
        return u

    def gradient(self, slope: Array) -> Array:
        return self._inverse_adjoint.apply(slope)

    @functools.cached_property
    def _inverse_adjoint(self) -> LinOp:
        return self._map(self._root)


def cholesky(matrix: Array) -> Array:
    """Return the lower triangular root of a positive definite matrix."""
    try:
        root: Array = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        raise ValueError("hessian must be positive definite: add a ridge to it") from None
    return root
