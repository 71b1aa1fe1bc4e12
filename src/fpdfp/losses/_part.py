"""The losses of some of the clients."""

from __future__ import annotations

from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray
from fpdfp.linops.base import LinOp
from fpdfp.losses.base import Form, Losses
from fpdfp.rng import Draws


class Part(Losses):
    """Some clients of other losses, renumbered from 0."""

    def __init__(self, whole: Losses, clients: IntArray) -> None:
        self.whole, self.chosen = whole, np.asarray(clients, dtype=np.int64)
        self.shape, self.dtype, self.device = whole.shape, whole.dtype, whole.device
        self.sizes = whole.sizes[self.chosen]
        self.feature_names = whole.feature_names

    def __repr__(self) -> str:
        return f"{self.n_clients} of the clients of {self.whole!r}"

    @property
    def family(self) -> str:
        return self.whole.family

    @property
    def form(self) -> Form:
        return self.whole.form

    @property
    def nearly_convolution(self) -> bool:
        return self.whole.nearly_convolution

    @property
    def supports_batches(self) -> bool:
        return self.whole.supports_batches

    @property
    def least_convexity(self) -> float:
        return self.whole.least_convexity

    def values(self, x: Array, clients: IntArray) -> Array:
        return self.whole.values(x, self.chosen[clients])

    def gradients(
        self, x: Array, clients: IntArray, batch_size: int | None = None, draws: Draws | None = None
    ) -> Array:
        return self.whole.gradients(x, self.chosen[clients], batch_size, draws)

    def lipschitz(self) -> Array:
        return self.whole.lipschitz()[self.chosen]

    def lipschitz_in(self, factor: LinOp) -> Array:
        return self.whole.lipschitz_in(factor)[self.chosen]

    def batch_smoothness(self, batch_size: int, factor: LinOp | None = None) -> Array:
        return self.whole.batch_smoothness(batch_size, factor)[self.chosen]

    def curvatures(self, clients: IntArray) -> Array | None:
        return self.whole.curvatures(self.chosen[clients])

    def curvature_diagonals(self, clients: IntArray) -> Array | None:
        return self.whole.curvature_diagonals(self.chosen[clients])

    def curvature_products(self, clients: IntArray, vectors: Array) -> Array | None:
        return self.whole.curvature_products(self.chosen[clients], vectors)

    def hessians(self, x: Array, clients: IntArray) -> Array | None:
        return self.whole.hessians(x, self.chosen[clients])

    def constants(self) -> tuple[Any, ...]:
        return self.whole.constants()
