"""The identity."""

from __future__ import annotations

from fpdfp import _checks
from fpdfp._typing import Array, Shape
from fpdfp.linops.base import LinOp


class Identity(LinOp):
    """B = I on arrays of a shape.

    >>> Identity(3).squared_norm
    1.0
    """

    def __init__(self, shape: int | Shape) -> None:
        self.in_shape = self.out_shape = check_shape(shape)

    @property
    def is_identity(self) -> bool:
        return True

    def apply(self, x: Array) -> Array:
        return x

    def adjoint(self, v: Array) -> Array:
        return v

    def _squared_norm(self) -> float:
        return 1.0


def check_shape(shape: int | Shape) -> Shape:
    """Return a shape as a tuple of positive integers."""
    lengths = shape if isinstance(shape, tuple | list) else (shape,)
    if len(lengths) == 0:
        raise ValueError("shape must have at least one axis, got ()")
    return tuple(_checks.integer("shape", length, at_least=1) for length in lengths)
