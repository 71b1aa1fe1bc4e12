"""A sum of penalties, one for each part of a stacked vector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fpdfp._array import namespace
from fpdfp._typing import Array, Shape
from fpdfp.linops.maps import check_shape
from fpdfp.penalties.base import Penalty
from fpdfp.penalties.wrapped import as_penalty


class Stacked(Penalty):
    """g([y_1; y_2; …]) = g_1(y_1) + g_2(y_2) + …, the partner of :class:`fpdfp.linops.VStack`.

    Parameters
    ----------
    parts
        The penalties, or objects that :func:`fpdfp.penalties.as_penalty` accepts.
    shapes
        The shape of each part: that of the result of the map at the same place of the stack.

    Examples
    --------
    >>> import numpy as np
    >>> from fpdfp.penalties import L1, NonNegative
    >>> g = Stacked([L1(2.0), NonNegative()], shapes=[(2,), (2,)])
    >>> g.prox(np.array([3.0, 1.0, -1.0, 1.0]), 1.0)
    array([1., 0., 0., 1.])
    """

    def __init__(self, parts: Sequence[Any], shapes: Sequence[int | Shape]) -> None:
        if len(parts) == 0 or len(parts) != len(shapes):
            raise ValueError(
                f"parts and shapes must have the same length, at least 1, got {len(parts)} and {len(shapes)}"
            )
        self.shapes = tuple(check_shape(shape) for shape in shapes)
        self.parts = tuple(
            as_penalty(part, name=f"parts[{i}]").bind(shape)
            for i, (part, shape) in enumerate(zip(parts, self.shapes, strict=True))
        )
        self.finite = all(part.finite for part in self.parts)
        self.has_conjugate = all(part.has_conjugate for part in self.parts)
        self._edges = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)]).tolist()

    def bind(self, shape: Shape) -> Stacked:
        if shape != (self._edges[-1],):
            raise ValueError(f"shapes must add up to the shape {shape} of Bx, got {self._edges[-1]} entries")
        return self

    def _split(self, y: Array) -> list[Array]:
        return [
            y[..., start:stop].reshape(*y.shape[:-1], *shape)
            for start, stop, shape in zip(self._edges[:-1], self._edges[1:], self.shapes, strict=True)
        ]

    def _join(self, y: Array, pieces: list[Array]) -> Array:
        joined: Array = namespace(y).concatenate([piece.reshape(*y.shape[:-1], -1) for piece in pieces], axis=-1)
        return joined

    def value(self, y: Array) -> float:
        return sum(part.value(piece) for part, piece in zip(self.parts, self._split(y), strict=True))

    def conjugate(self, v: Array) -> float:
        return sum(part.conjugate(piece) for part, piece in zip(self.parts, self._split(v), strict=True))

    def prox(self, y: Array, t: float) -> Array:
        return self._join(y, [part.prox(piece, t) for part, piece in zip(self.parts, self._split(y), strict=True)])

    def conjugate_prox(self, y: Array, sigma: float) -> Array:
        pieces = zip(self.parts, self._split(y), strict=True)
        return self._join(y, [part.conjugate_prox(piece, sigma) for part, piece in pieces])

    def project(self, y: Array) -> Array:
        return self._join(y, [part.project(piece) for part, piece in zip(self.parts, self._split(y), strict=True)])

    def subgradient(self, y: Array) -> Array:
        return self._join(y, [part.subgradient(piece) for part, piece in zip(self.parts, self._split(y), strict=True)])

    def conjugate_prox_derivative(self, y: Array, sigma: float) -> Callable[[Array], Array]:
        pieces = zip(self.parts, self._split(y), strict=True)
        maps = [part.conjugate_prox_derivative(piece, sigma) for part, piece in pieces]
        return lambda u: self._join(u, [each(piece) for each, piece in zip(maps, self._split(u), strict=True)])

    def _parameters(self) -> str:
        return ", ".join(map(repr, self.parts))
