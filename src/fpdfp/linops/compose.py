"""One map after another."""

from __future__ import annotations

from typing import Any

from fpdfp._typing import Array
from fpdfp.linops.base import LinOp


class Compose(LinOp):
    """B S: first S, then B.

    >>> import numpy as np
    >>> from fpdfp.linops import Difference
    >>> Compose(Difference(3), np.diag([1.0, 2.0, 3.0])).apply(np.ones(3))
    array([1., 1.])
    """

    def __init__(self, outer: Any, inner: Any) -> None:
        from fpdfp.linops.convert import aslinop

        self.outer, self.inner = aslinop(outer, name="outer"), aslinop(inner, name="inner")
        if self.outer.in_shape != self.inner.out_shape:
            raise ValueError(
                f"inner gives arrays of shape {self.inner.out_shape}, but outer acts on shape {self.outer.in_shape}"
            )
        self.in_shape, self.out_shape = self.inner.in_shape, self.outer.out_shape

    def apply(self, x: Array) -> Array:
        return self.outer.apply(self.inner.apply(x))

    def adjoint(self, v: Array) -> Array:
        return self.inner.adjoint(self.outer.adjoint(v))

    def _squared_norm(self) -> float:
        if self.outer.is_identity:
            return self.inner.squared_norm
        # The product of the bounds always holds; a direct estimate is tighter.
        return min(super()._squared_norm(), self.outer.squared_norm * self.inner.squared_norm)
