"""Public preconditioners: coordinates in which a problem is better conditioned.

A preconditioner is a positive definite P = S Sᵀ. With x = S u a method works on f(Su) + g(BSu) instead: clients send
Sᵀ∇f_i, whose entries are of one size, so that compression spends its bits evenly, and a step in u is a step along P∇f
in x.
"""

from __future__ import annotations

import abc
import functools
import hashlib
from typing import Any

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array
from fpdfp.linops import LinOp, Matrix
from fpdfp.linops.diagonal import Diagonal


class Preconditioner(abc.ABC):
    """A change of coordinates x = S u.

    Attributes
    ----------
    factor
        S.
    smoothness
        An upper bound of the Lipschitz constant of u ↦ Sᵀ∇f(Su), where one is known.
    """

    factor: LinOp
    smoothness: float | None = None

    @abc.abstractmethod
    def coordinates(self, x: Array) -> Array:
        """Return u with S u = x."""

    @property
    @abc.abstractmethod
    def numbers(self) -> Array:
        """What the server sends to everyone once, so that clients know S."""

    def __repr__(self) -> str:
        digest = hashlib.sha256(np.ascontiguousarray(self.numbers).tobytes()).hexdigest()[:12]
        return f"{type(self).__name__}({self.factor.in_shape[0]} coordinates, {digest})"


class Whitening(Preconditioner):
    """P = H⁻¹ for a symmetric positive definite matrix H: with H = CCᵀ, S = C⁻ᵀ.

    Where H bounds the Hessian of f, f has smoothness 1 in the new coordinates.

    Parameters
    ----------
    hessian
        H.

    Examples
    --------
    >>> import numpy as np
    >>> whitening = Whitening(np.array([[4.0, 2.0], [2.0, 2.0]]))
    >>> S = whitening.factor.matrix
    >>> (S.T @ np.array([[4.0, 2.0], [2.0, 2.0]]) @ S).round(12)
    array([[1., 0.],
           [0., 1.]])
    """

    def __init__(self, hessian: Any) -> None:
        matrix = _checks.float_array("hessian", hessian, dtype=np.float64)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"hessian must be a square matrix, got shape {matrix.shape}")
        if not np.allclose(matrix, matrix.T, rtol=1e-6, atol=1e-6 * float(np.abs(matrix).max())):
            raise ValueError("hessian must be symmetric")
        try:
            self._root = np.linalg.cholesky((matrix + matrix.T) / 2.0)
        except np.linalg.LinAlgError:
            raise ValueError("hessian must be positive definite: add a ridge to it") from None
        self.smoothness = 1.0 + 1e-3  # with room for the precision in which H was sent

    @functools.cached_property
    def factor(self) -> Matrix:  # type: ignore[override]
        from scipy.linalg import solve_triangular

        inverse = solve_triangular(self._root, np.eye(len(self._root)), lower=True)
        return Matrix(np.ascontiguousarray(inverse.T))

    def coordinates(self, x: Array) -> Array:
        u: Array = (self._root.T @ x).astype(x.dtype, copy=False)
        return u

    @property
    def numbers(self) -> Array:
        return self._root[np.tril_indices(len(self._root))]


class Scaling(Preconditioner):
    """P = diag(1/h): every coordinate has its own step.

    Parameters
    ----------
    curvature
        h, the curvature of f along each coordinate, all positive.

    Examples
    --------
    >>> import numpy as np
    >>> Scaling(np.array([4.0, 1.0])).factor.apply(np.ones(2))
    array([0.5, 1. ])
    """

    def __init__(self, curvature: Any) -> None:
        values = _checks.float_array("curvature", curvature, dtype=np.float64)
        if (values <= 0).any():
            raise ValueError("curvature must be positive in every coordinate")
        self._roots = np.sqrt(values)
        self.factor = Diagonal(1.0 / self._roots)

    def coordinates(self, x: Array) -> Array:
        u: Array = (self._roots * x).astype(x.dtype, copy=False)
        return u

    @property
    def numbers(self) -> Array:
        return self._roots
