"""A preconditioner of low rank plus the identity: a few steep directions are made as flat as the others."""

from __future__ import annotations

import functools
from typing import Any, Self

import numpy as np

from fpdfp import _checks
from fpdfp._typing import Array, Shape
from fpdfp.compress import QSGD
from fpdfp.linops import LinOp, Matrix
from fpdfp.precondition.base import Announced, Coded

#: The levels of announced directions: their error is far below what is left of the steep ones.
LEVELS = 127


class Stretch(LinOp):
    """I + Q diag(g − 1) Qᵀ on the rows of x: directions, the orthonormal columns of Q, are multiplied with gains g."""

    def __init__(self, directions: Array, gains: Array, shape: Shape) -> None:
        self.in_shape = self.out_shape = shape
        self.directions, self.gains = Matrix(np.ascontiguousarray(directions.T)), gains

    @property
    def one(self) -> Stretch:
        """The map of one row."""
        return Stretch(self.directions.matrix.T, self.gains, self.in_shape[-1:])

    def apply(self, x: Array) -> Array:
        self.batch_of(x, self.in_shape, "x")
        flat = x.reshape(-1, self.in_shape[-1])
        parts = self.directions.apply(flat)
        moved: Array = flat + self.directions.adjoint((parts * (self.gains - 1.0)).astype(x.dtype, copy=False))
        return moved.reshape(x.shape)

    def adjoint(self, v: Array) -> Array:
        return self.apply(v)

    def _squared_norm(self) -> float:
        return max(1.0, float(self.gains.max())) ** 2 * (1.0 + 1e-9)


class LowRank(Coded):
    """P = (I + U diag(λ/ρ − 1) Uᵀ)⁻¹: directions u_k of curvatures λ_k above a level ρ get the curvature ρ.

    For x of several rows the same is done to each of them.

    Parameters
    ----------
    directions
        The u_k, the columns of a matrix. They are rounded when they are announced, and then made orthonormal.
    ratios
        λ_k/ρ, all at least 1.
    rows
        How many rows x has; by default x is a vector.

    Examples
    --------
    >>> import numpy as np
    >>> made = LowRank(np.array([[1.0], [0.0]]), [4.0])
    >>> made.factor.apply(np.ones(2)).round(6)
    array([0.5, 1. ])
    """

    def __init__(self, directions: Any, ratios: Any, rows: int | None = None) -> None:
        basis = _checks.float_array("directions", directions, dtype=np.float64)
        wanted = _checks.float_array("ratios", ratios, dtype=np.float64)
        if basis.ndim != 2 or not 0 < basis.shape[1] <= basis.shape[0] or wanted.shape != basis.shape[1:]:
            raise ValueError("directions must be columns, no more than features, and ratios one number for each")
        if not (wanted.astype(np.float32) >= 1).all():
            raise ValueError(f"ratios must be at least 1, got {wanted.min():g}")
        quantizer = QSGD(LEVELS, block=None, norm="max")
        messages = (
            Announced.rounded(quantizer, np.ascontiguousarray(basis.T).astype(np.float32)),
            Announced.plain(wanted.astype(np.float32)),
        )
        self._announce(messages, rows)

    @classmethod
    def from_messages(cls, announced: tuple[Announced, ...], rows: int | None) -> Self:
        """Return the one that the server announces: rows that span the directions, and the ratios."""
        made = cls.__new__(cls)
        made._announce(announced, rows)
        return made

    def _announce(self, announced: tuple[Announced, ...], rows: int | None) -> None:
        if len(announced) != 2:
            raise ValueError(f"announced must be two messages, got {len(announced)}")
        basis, ratios = announced[0].array, announced[1].array
        if basis.ndim != 2 or not 0 < len(basis) <= basis.shape[1] or ratios.shape != (len(basis),):
            raise ValueError("announced must hold directions, no more than features, and a ratio for each")
        if not (ratios >= 1).all():
            raise ValueError("announced must hold ratios of at least 1")
        self.announced = announced
        self.rows = None if rows is None else _checks.integer("rows", rows, at_least=1)

    @property
    def shape(self) -> Shape:
        return self.with_rows((self.announced[0].array.shape[1],))

    @functools.cached_property
    def _basis(self) -> Array:
        """The directions, orthonormal: what rounding did to their angles is undone."""
        basis, triangle = np.linalg.qr(self.announced[0].array.T.astype(np.float64))
        lengths = np.abs(np.diag(triangle))
        if not np.isfinite(basis).all() or lengths.min() <= 1e-9 * lengths.max():
            raise ValueError("directions must be independent, also when rounded to be announced")
        return basis

    def _stretch(self, power: float) -> Stretch:
        return Stretch(self._basis, self.announced[1].array.astype(np.float64) ** power, self.shape)

    @functools.cached_property
    def factor(self) -> Stretch:  # type: ignore[override]
        return self._stretch(-0.5)

    @functools.cached_property
    def _inverse(self) -> Stretch:
        return self._stretch(0.5)

    def coordinates(self, x: Array) -> Array:
        return self._inverse.apply(x)

    def gradient(self, slope: Array) -> Array:
        return self._inverse.apply(slope)
