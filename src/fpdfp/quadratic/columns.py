"""Coordinate descent for a quadratic with a Hessian from sparse columns, with a weighted l1 norm.

    m(u) = ⟨s, u − c⟩ + ½ Σ_j w_j (A(u − c))_j² + ½ Σ_k R_k (u_k − c_k)² + Σ_k λ_k |u_k|

The columns are scaled with √w once. A sweep takes as long as to read them twice, so that hundreds of sweeps take less
time than to make AᵀWA where rows have few entries. After every few sweeps the last points are extrapolated (D. G.
Anderson, "Iterative procedures for nonlinear integral equations", J. ACM 12, 1965), where m is smaller there.
Coordinates that vanish are exactly 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fpdfp._typing import Array, IntArray

#: The most rounds, sweeps in each, and rounds whose points are extrapolated.
ROUNDS, SWEEPS, POINTS = 200, 5, 4
#: A ridge of the normal equations of an extrapolation, relative to their trace.
SMALL = 1e-12


class ColumnDescent:
    """Minimises m for some columns of a CSC matrix; ``weights`` belong to the norm."""

    def __init__(self, matrix: Any, columns: IntArray, ridge: Array, weights: Array) -> None:
        self.columns, self.ridge, self.weights = matrix[:, columns], ridge, weights

    def minimise(self, curvatures: Array, x: Array, slope: Array, near: Callable[[Array, Array], bool]) -> Array:
        """Return a u of about the least m, from x and the slope there: a sweep after one that is near enough."""
        from fpdfp._kernels.quadratic import descend_columns, scale_columns

        A = self.columns
        scaled, lengths, at = np.empty(A.data.shape), np.empty(len(x)), slope.copy()
        scale_columns(A.data, A.indices, A.indptr, np.sqrt(curvatures), self.ridge, scaled, lengths)
        u, image = x.copy(), np.zeros(A.shape[0])
        fixed = scaled, A.indices, A.indptr, self.ridge, self.weights, lengths, slope, x
        kept: list[tuple[Array, Array]] = []
        for _ in range(ROUNDS):
            before = u.copy()
            descend_columns(*fixed, u, image, at, SWEEPS)
            if near(before, at) or np.array_equal(u, before):
                break
            kept = [*kept[-POINTS:], (u.copy(), image.copy())]
            if len(kept) > POINTS:
                self._extrapolate(kept, x, slope, u, image)
                kept = []
        return u

    def _extrapolate(self, kept: list[tuple[Array, Array]], x: Array, slope: Array, u: Array, image: Array) -> None:
        """Move to the extrapolated point, if m is smaller there and the same coordinates are 0."""
        points, images = (np.array(part) for part in zip(*kept, strict=True))
        changes = np.diff(points, axis=0)
        system = changes @ changes.T
        system[np.diag_indices_from(system)] += SMALL * np.trace(system)
        if not system.any():
            return
        shares = np.linalg.solve(system, np.ones(len(system)))
        shares /= shares.sum()
        new, new_image = shares @ points[1:], shares @ images[1:]
        if self._value(new, new_image, x, slope) < self._value(u, image, x, slope):
            u[:], image[:] = new, new_image

    def _value(self, u: Array, image: Array, x: Array, slope: Array) -> float:
        away = u - x
        quadratic = float(image @ image) + float(self.ridge @ np.square(away))
        return float(slope @ away) + 0.5 * quadratic + float(self.weights @ np.abs(u))
