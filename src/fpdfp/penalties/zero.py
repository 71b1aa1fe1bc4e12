"""No penalty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp._typing import Array
from fpdfp.penalties.base import Penalty


class Zero(Penalty):
    """g = 0; its conjugate is the indicator of {0}, so the dual variable stays zero."""

    separable = True

    def rescale(self, factors: Array) -> Zero:
        return self

    def value(self, y: Array) -> float:
        return 0.0

    def prox(self, y: Array, t: Any) -> Array:
        return y

    def conjugate(self, v: Array) -> float:
        return 0.0 if not np.any(v) else np.inf

    def conjugate_prox(self, y: Array, sigma: Any) -> Array:
        return y * 0.0

    def subgradient(self, y: Array) -> Array:
        return y * 0.0

    def conjugate_prox_derivative(self, y: Array, sigma: float) -> Callable[[Array], Array]:
        return lambda u: u * 0.0
