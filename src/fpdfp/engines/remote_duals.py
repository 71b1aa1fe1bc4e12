"""Dual points of losses whose data is at sites: sums of what sites compute of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fpdfp._typing import Array, Shape
from fpdfp.losses.linear import DENSE_HESSIAN, form_rounding, sum_rounding
from fpdfp.precondition.base import full

if TYPE_CHECKING:
    from fpdfp.engines.remote_losses import RemoteLosses

#: The curvature of the loss of a row, for families in which it is the same everywhere.
CURVATURES = {"Logistic": 0.25, "LeastSquares": 1.0, "Softmax": 0.5}


class RemoteDuals:
    """The dual points near x, from sums over sites (:class:`fpdfp.losses.base.DualPoints`)."""

    def __init__(self, losses: RemoteLosses, x: Array, weights: Array) -> None:
        self._losses, self._x, self._weights = losses, x, weights
        self.ridge = np.broadcast_to(
            float(weights.sum()) * (losses.constants()[0] if losses.constants() else losses.least_convexity),
            losses.shape,
        )
        per_class = losses.shape[:-1]
        features = losses.shape[-1:]
        self._start = self._ask("start", {"gradient": losses.shape, "sizes": per_class, "columns": features})

    def _ask(
        self, part: str, shapes: Mapping[str, Shape], direction: Array | None = None, scale: float | None = None
    ) -> dict[str, Array]:
        ask = {"part": part, "direction": direction, "scale": scale}
        return self._losses.engine.duals(self._x, ask, self._weights, shapes, self._losses.features)

    def gradient(self, direction: Array | None = None) -> Array:
        """Return Aᵀcθ with s = 1."""
        if direction is None:
            return self._start["gradient"]
        return self._ask("gradient", {"gradient": self._losses.shape}, direction)["gradient"]

    def gap(self, direction: Array | None, scale: float) -> float:
        """Return Σ c_j (φ(z_j) + φ*(θ_j) − z_j θ_j)."""
        curvature = CURVATURES.get(self._losses.family)
        if curvature is None:  # sites describe what rounding adds
            return float(self._ask("gap", {"gap": ()}, direction, scale)["gap"])
        rounding = form_rounding(curvature, self._start["columns"], self._x)
        if direction is None and scale == 1.0:
            return rounding
        return float(self._ask("gap", {"gap": ()}, direction, scale)["gap"]) + rounding

    def rounding(self) -> Array:
        """Return what rounding may have done to each entry of the gradient."""
        return sum_rounding(self._start["sizes"], self._start["columns"])

    def curvature(self, direction: Array) -> Array:
        """Return the Hessian of h at x times a direction."""
        return self._ask("curvature", {"curvature": self._losses.shape}, direction)["curvature"]

    def hessian(self) -> Array | None:
        """Return the Hessian of h at x as a matrix, None where it would be too large."""
        size = self._x.size
        if size > DENSE_HESSIAN:
            return None
        return full(self._ask("hessian", {"hessian": (size * (size + 1) // 2,)})["hessian"])
