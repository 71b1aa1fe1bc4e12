"""Maps stacked on top of each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fpdfp._array import namespace
from fpdfp._typing import Array
from fpdfp.linops.base import LinOp


class VStack(LinOp):
    """B = [B_1; B_2; …]: the results of several maps of the same argument, flattened and joined.

    Together with :class:`fpdfp.penalties.Stacked` this gives sums such as total variation plus
    non-negativity.

    >>> import numpy as np
    >>> from fpdfp.linops import Difference, Identity
    >>> VStack([Difference(3), Identity(3)]).apply(np.array([1.0, 2.0, 4.0]))
    array([1., 2., 1., 2., 4.])
    """

    def __init__(self, parts: Sequence[Any]) -> None:
        from fpdfp.linops.convert import aslinop

        if len(parts) == 0:
            raise ValueError("parts must hold at least one map, got none")
        self.parts: tuple[LinOp, ...] = tuple(aslinop(part, name=f"parts[{i}]") for i, part in enumerate(parts))
        self.in_shape = self.parts[0].in_shape
        for i, part in enumerate(self.parts):
            if part.in_shape != self.in_shape:
                raise ValueError(f"parts[{i}] acts on shape {part.in_shape} but parts[0] on shape {self.in_shape}")
        self._edges = np.cumsum([0, *(part.size_out for part in self.parts)]).tolist()
        self.out_shape = (self._edges[-1],)

    def apply(self, x: Array) -> Array:
        lead = () if self.batch_of(x, self.in_shape, "x") is None else x.shape[:1]
        results = [part.apply(x).reshape(*lead, part.size_out) for part in self.parts]
        joined: Array = namespace(x).concatenate(results, axis=-1)
        return joined

    def adjoint(self, v: Array) -> Array:
        lead = () if self.batch_of(v, self.out_shape, "v") is None else v.shape[:1]
        total: Array | None = None
        for part, start, stop in zip(self.parts, self._edges[:-1], self._edges[1:], strict=True):
            term = part.adjoint(v[..., start:stop].reshape(*lead, *part.out_shape))
            total = term if total is None else total + term
        assert total is not None
        return total

    def _squared_norm(self) -> float:
        total = sum(part.squared_norm for part in self.parts)
        if sum(not part.is_identity for part in self.parts) <= 1:
            return total  # the identity has every vector for an eigenvector: the norms add up
        # The sum of the parts' bounds always holds; a direct estimate may be tighter.
        return min(super()._squared_norm(), total)
