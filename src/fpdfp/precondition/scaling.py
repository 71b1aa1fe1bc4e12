"""A diagonal preconditioner."""

from __future__ import annotations

import functools
from typing import Any, Self

import numpy as np

from fpdfp import _checks
from fpdfp._array import Constant, namespace
from fpdfp._typing import Array, Shape
from fpdfp.compress import Natural
from fpdfp.linops import Diagonal
from fpdfp.precondition.base import Announced, Coded


class Scaling(Coded):
    """P = diag(1/h): every coordinate has its own step.

    Parameters
    ----------
    curvature
        h, the curvature of f along each coordinate, all positive.
    rows
        How many rows x has, each with the curvature h; by default x has the shape of h.

    Examples
    --------
    >>> import numpy as np
    >>> Scaling(np.array([4.0, 1.0])).factor.apply(np.ones(2))
    array([0.5, 1. ])
    """

    def __init__(self, curvature: Any, rows: int | None = None) -> None:
        values = _checks.float_array("curvature", curvature, dtype=np.float64)
        if (values <= 0).any():
            raise ValueError("curvature must be positive in every coordinate")
        self._announce((Announced.plain(np.sqrt(values).astype(np.float32)),), rows, squared=False)

    @classmethod
    def coarse(cls, curvature: Array, rows: int | None = None) -> Self:
        """Return the same for curvatures that are powers of two, which are sent as their exponents."""
        return cls.from_messages((Announced.rounded(Natural(), curvature.astype(np.float32)),), rows, squared=True)

    @classmethod
    def from_messages(cls, announced: tuple[Announced, ...], rows: int | None, squared: bool) -> Self:
        """Return the one that the server announces: with messages of the roots of h, or of h itself (``squared``)."""
        made = cls.__new__(cls)
        made._announce(announced, rows, squared=squared)
        return made

    def _announce(self, announced: tuple[Announced, ...], rows: int | None, *, squared: bool) -> None:
        """Take what is announced, if it is one array of positive numbers."""
        if len(announced) != 1:
            raise ValueError(f"announced must be one message, got {len(announced)}")
        values = announced[0].array
        if values.size == 0 or not (values > 0).all():
            raise ValueError("announced must hold positive numbers")
        self.announced, self.squared = announced, squared
        self.rows = None if rows is None else _checks.integer("rows", rows, at_least=1)

    @functools.cached_property
    def _roots(self) -> Constant:
        values = self.announced[0].array.astype(np.float64)
        return Constant(np.sqrt(values) if self.squared else values)

    @property
    def shape(self) -> Shape:
        return self.with_rows(self._roots.values.shape)

    @functools.cached_property
    def factor(self) -> Diagonal:  # type: ignore[override]
        return Diagonal(np.broadcast_to(1.0 / self._roots.values, self.shape))

    def coordinates(self, x: Array) -> Array:
        roots = self._roots.values if namespace(x) is np else self._roots.like(x)
        u: Array = (roots * x).astype(x.dtype, copy=False)
        return u

    def gradient(self, slope: Array) -> Array:
        return self.coordinates(slope)

    @property
    def metric(self) -> Any | None:
        from scipy.sparse import diags_array

        roots = self._roots.values
        return diags_array(roots**2, format="csr") if self.rows is None and roots.ndim == 1 else None
